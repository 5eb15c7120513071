// The data files that a manifest names.
#pragma once

#include <filesystem>
#include <string>

#include "ddp/checkpoint/files.hpp"
#include "ddp/checkpoint/manifest.hpp"

namespace lockstep::internal {

/// One of them, there and of the right size; otherwise the error names it, and `advice`.
Result<InputFile> open_data_file(const std::filesystem::path& directory, const DataFile& entry,
                                 const std::string& advice);

/// All of them are so. One is open at a time: there may be more than a process may open.
Status check_data_files(const std::filesystem::path& directory, const Manifest& manifest,
                        const std::string& advice);

}  // namespace lockstep::internal
