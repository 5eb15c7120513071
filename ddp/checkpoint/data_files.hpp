// The data files that a manifest names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddp/checkpoint/files.hpp"
#include "ddp/checkpoint/manifest.hpp"

namespace lockstep::internal {

/// All of them, there and of the right size; otherwise the error names the first that is not, and `advice`.
Result<std::vector<InputFile>> open_data_files(const std::filesystem::path& directory,
                                               const Manifest& manifest, const std::string& advice);

}  // namespace lockstep::internal
