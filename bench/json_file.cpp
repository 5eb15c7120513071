#include "bench/json_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace lockstep::bench {
namespace {

[[noreturn]] void refuse(const std::string& path) {
  throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace

void check_json(const std::string& path) {
  if (path.empty() || path == "-") return;
  const bool was_there = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) refuse(path);
  if (!was_there) std::filesystem::remove(path);
}

void write_json(const std::string& path, const nlohmann::ordered_json& document, int indent) {
  if (path.empty()) return;
  if (path == "-") {
    std::cout << document.dump(indent) << std::endl;
    return;
  }
  std::ofstream file(path);
  file << document.dump(indent) << "\n";
  if (!file.flush()) refuse(path);
}

}  // namespace lockstep::bench
