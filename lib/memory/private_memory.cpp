#include "lib/memory/private_memory.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

namespace lockstep::internal {
namespace {

// One line of /proc/self/maps (proc(5)).
struct MapLine {
  std::uintptr_t begin = 0, end = 0;
  std::string permissions, name;
  std::uint64_t inode = 0;

  // The kernel names anonymous memory "", "[heap]" or "[anon:...]".
  bool private_anonymous() const {
    const bool anonymous = name.empty() || name == "[heap]" || name.rfind("[anon:", 0) == 0;
    return permissions == "rw-p" && inode == 0 && anonymous;
  }
};

std::optional<MapLine> parse_map_line(const std::string& text) {
  MapLine line;
  char permissions[5] = "";
  int name_at = 0;
  const int fields = std::sscanf(text.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64 " %n",
                                 &line.begin, &line.end, permissions, &line.inode, &name_at);
  if (fields != 4) return std::nullopt;
  line.permissions = permissions;
  line.name = text.substr(static_cast<std::size_t>(name_at));
  return line;
}

std::string hex(std::uintptr_t address) {
  char text[2 + 2 * sizeof address + 1];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, address);
  return text;
}

}  // namespace

Status check_private_anonymous(std::uintptr_t begin, std::size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return system_error("reading /proc/self/maps", errno);
  const std::uintptr_t end = begin + bytes;
  std::uintptr_t covered = begin;
  for (std::string text; covered < end && std::getline(maps, text);) {
    const auto line = parse_map_line(text);
    if (!line || line->end <= covered) continue;
    if (line->begin > covered) break;
    if (!line->private_anonymous()) {
      return Status(ErrorCode::invalid_argument, "the memory at " + hex(covered) +
                                                     " is not private anonymous memory (" +
                                                     line->permissions + " " + line->name +
                                                     "): register heap memory, or use lockstep::allocate");
    }
    covered = line->end;
  }
  if (covered >= end) return Status();
  return Status(ErrorCode::invalid_argument,
                "nothing is mapped at " + hex(covered) + ": check the buffer's size");
}

}  // namespace lockstep::internal
