// What a benchmark leaves: JSON in a file, or on standard output ("-").
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::bench {

/// Throws std::runtime_error when nothing could be written to `path`; before a long measurement, not after
/// it. Leaves what is there. An empty path is no file.
void check_json(const std::string& path);

/// For what other processes may read meanwhile: they see the old content or the new, never half of it. A
/// device or a pipe is written to as it is. Both throw std::runtime_error; check_replace() as check_json().
void replace_file(const std::string& path, const std::string& text);
void check_replace(const std::string& path);

/// Throws std::runtime_error when something that was printed on standard output is lost: its disk is full.
void check_printed();

/// `indent` as of json::dump. Throws std::runtime_error. An empty path is no file.
void write_json(const std::string& path, const nlohmann::ordered_json& document, int indent = 1);

}  // namespace lockstep::bench
