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

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) refuse(path);
}

/// Whether nothing is lost when another file takes its place.
bool is_replaceable(const std::string& path) {
  const std::filesystem::file_status there = std::filesystem::status(path);
  return !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);
}

std::string fresh_name(const std::string& path) { return path + ".new"; }

}  // namespace

void check_json(const std::string& path) {
  if (path.empty() || path == "-") return;
  const bool was_there = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) refuse(path);
  if (!was_there) std::filesystem::remove(path);
}

void check_replace(const std::string& path) {
  check_json(path);
  if (is_replaceable(path)) check_json(fresh_name(path));
}

void replace_file(const std::string& path, const std::string& text) {
  if (!is_replaceable(path)) return write_file(path, text);
  write_file(fresh_name(path), text);
  std::filesystem::rename(fresh_name(path), path);
}

void check_printed() {
  if (!std::cout.flush()) throw std::runtime_error("standard output cannot be written, results are lost");
}

void write_json(const std::string& path, const nlohmann::ordered_json& document, int indent) {
  if (path.empty()) return;
  if (path == "-") {
    std::cout << document.dump(indent) << std::endl;
    return check_printed();
  }
  write_file(path, document.dump(indent) + "\n");
}

}  // namespace lockstep::bench
