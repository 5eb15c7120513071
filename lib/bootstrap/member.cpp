#include "lib/bootstrap/member.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>

#include "lib/base/config.hpp"
#include "lib/base/env.hpp"
#include "lib/base/hexadecimal.hpp"
#include "lib/bootstrap/digest.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/segment.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {
namespace {

std::string this_host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size()) == 0 ? name.data() : "unknown host";
}

std::string link_target(const char* path) {
  std::array<char, 128> target{};
  return readlink(path, target.data(), target.size() - 1) > 0 ? target.data() : "none";
}

constexpr std::size_t kWordBits = 64;
constexpr std::size_t kCoreWords = kMaxCores / kWordBits;

void write_cores(WireWriter& writer, const CoreSet& cores) {
  for (std::size_t word = 0; word < kCoreWords; ++word) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kWordBits; ++i) bits |= std::uint64_t{cores[word * kWordBits + i]} << i;
    writer.integer(bits);
  }
}

bool read_cores(WireReader& reader, CoreSet& cores) {
  for (std::size_t word = 0; word < kCoreWords; ++word) {
    std::uint64_t bits = 0;
    if (!reader.integer(bits)) return false;
    for (std::size_t i = 0; i < kWordBits; ++i) cores[word * kWordBits + i] = (bits >> i & 1) != 0;
  }
  return true;
}

}  // namespace

std::string who_is(int rank, const Member& member) {
  return "rank " + std::to_string(rank) + " (" + member.host_name + ", pid " + std::to_string(member.pid) +
         ")";
}

std::string life_sign_of(const Member& member) {
  return "lockstep-" + hexadecimal(std::as_bytes(std::span(&member.draw, 1)));
}

std::string encode(const Member& member) {
  std::string text;
  WireWriter writer(text);
  writer.integer(static_cast<std::int32_t>(member.rank));
  writer.text(member.host_id);
  writer.text(member.host_name);
  writer.integer(member.pid);
  writer.integer(member.process);
  write_cores(writer, member.cores);
  writer.text(member.descriptor_service);
  writer.text(member.transports);
  writer.integer(member.draw);
  writer.text(member.notice);
  return text;
}

std::optional<Member> decode_member(std::string_view text) {
  Member member;
  std::int32_t rank = -1;
  std::string_view host_id, host_name, service, transports, notice;
  WireReader reader(as_bytes(text));
  if (!reader.integer(rank) || !reader.text(kMaxKeyBytes, host_id) || !reader.text(kMaxKeyBytes, host_name) ||
      !reader.integer(member.pid) || !reader.integer(member.process) || !read_cores(reader, member.cores) ||
      !reader.text(kMaxKeyBytes, service) || !reader.text(kMaxKeyBytes, transports) ||
      !reader.integer(member.draw) || !reader.text(kMaxNoticeBytes, notice)) {
    return std::nullopt;
  }
  member.rank = rank;
  member.host_id = host_id;
  member.host_name = host_name;
  member.descriptor_service = service;
  member.transports = transports;
  member.notice = notice;
  return member;
}

Status check_transports(std::span<const Member> members) {
  const Member& first = members.front();
  for (const Member& member : members) {
    if (member.transports == first.transports) continue;
    return Status(ErrorCode::configuration, "transports differ: " + who_is(first.rank, first) +
                                                " was told to use " + first.transports + ", " +
                                                who_is(member.rank, member) + " " + member.transports +
                                                "; give all ranks the same LOCKSTEP_TRANSPORTS");
  }
  return Status();
}

bool on_one_host(std::span<const Member> members) {
  return std::all_of(members.begin(), members.end(),
                     [&](const Member& member) { return member.host_id == members.front().host_id; });
}

Member this_member(int rank) {
  Member member;
  member.rank = rank;
  member.host_id = this_host_id();
  member.host_name = this_host_name();
  member.pid = getpid();
  member.process = process_token();
  member.cores = allowed_cores();
  member.draw = real_env().random();
  // Without it this rank is reached by TCP alone; peers that need its memory say what it lacks.
  member.descriptor_service = descriptor_service_or_why();
  return member;
}

bool has_ended(const Member& member) {
  const auto pid = static_cast<pid_t>(member.pid);
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return kill(pid, 0) != 0 && errno == ESRCH;  // Too old a kernel, or no descriptor left.
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

std::string this_container() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  // Where there is no boot id to tell machines apart, their names have to.
  if (boot.empty()) boot = this_host_name();
  return boot + " " + link_target("/proc/self/ns/net") + " " + link_target("/proc/self/ns/pid");
}

// LOCKSTEP_HOST_ID can make two hosts of one, never one of two.
std::string this_host_id() {
  const std::string facts =
      this_container() + " " + std::to_string(geteuid()) + " " + config_text("LOCKSTEP_HOST_ID");
  constexpr std::size_t kEnoughBytes = 16;
  const Digest digest = sha256(as_bytes(facts));
  return hexadecimal(std::span(digest).first(kEnoughBytes));
}

}  // namespace lockstep::internal
