#include "ddp/checkpoint/data_files.hpp"

#include <utility>

namespace lockstep::internal {

Result<std::vector<InputFile>> open_data_files(const std::filesystem::path& directory,
                                               const Manifest& manifest, const std::string& advice) {
  std::vector<InputFile> files;
  for (const DataFile& entry : manifest.files) {
    std::error_code error;
    if (!std::filesystem::exists(directory / entry.name, error))
      return Status(ErrorCode::invalid_argument, entry.name + " is missing; " + advice);
    auto file = InputFile::open(directory / entry.name);
    LOCKSTEP_RETURN_IF_ERROR(file.status());
    const auto size = file->size();
    LOCKSTEP_RETURN_IF_ERROR(size.status());
    if (size.value() != entry.bytes) {
      return Status(ErrorCode::invalid_argument, entry.name + " has " + std::to_string(size.value()) +
                                                     " bytes instead of " + std::to_string(entry.bytes) +
                                                     "; " + advice);
    }
    files.push_back(std::move(*file));
  }
  return files;
}

}  // namespace lockstep::internal
