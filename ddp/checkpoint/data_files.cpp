#include "ddp/checkpoint/data_files.hpp"

namespace lockstep::internal {

Result<InputFile> open_data_file(const std::filesystem::path& directory, const DataFile& entry,
                                 const std::string& advice) {
  if (is_missing(directory / entry.name))
    return Status(ErrorCode::invalid_argument, entry.name + " is missing; " + advice);
  auto file = InputFile::open(directory / entry.name);
  LOCKSTEP_RETURN_IF_ERROR(file.status());
  const auto size = file->size();
  LOCKSTEP_RETURN_IF_ERROR(size.status());
  if (size.value() != entry.bytes) {
    return Status(ErrorCode::invalid_argument, entry.name + " has " + std::to_string(size.value()) +
                                                   " bytes instead of " + std::to_string(entry.bytes) + "; " +
                                                   advice);
  }
  return file;
}

Status check_data_files(const std::filesystem::path& directory, const Manifest& manifest,
                        const std::string& advice) {
  for (const DataFile& entry : manifest.files) {
    LOCKSTEP_RETURN_IF_ERROR(open_data_file(directory, entry, advice).status());
  }
  return {};
}

}  // namespace lockstep::internal
