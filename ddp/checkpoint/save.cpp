// save_checkpoint: every rank brings its file to the disk; then rank 0 puts the manifest in place, which is
// the moment when the new checkpoint counts and the old one does not.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "ddp/checkpoint/agreement.hpp"
#include "ddp/checkpoint/data_files.hpp"
#include "ddp/checkpoint/files.hpp"
#include "ddp/checkpoint/manifest.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using internal::AtomicFile;
using internal::DataFile;
using internal::DirectoryLock;
using internal::IfThere;
using internal::Manifest;
using internal::Result;
using internal::Status;
using internal::Tensor;

constexpr const char* kUseOneDirectory = "let all ranks save to one directory, which their hosts share";

/// Calls `action(name, generation)` for each data file in the directory, unfinished ones too.
template <typename Action>
Status for_data_files(const fs::path& directory, Action action) {
  std::error_code error;
  const fs::directory_iterator end;
  for (fs::directory_iterator entry(directory, error); !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    const std::string finished = internal::is_temporary(name) ? entry->path().stem().string() : name;
    std::uint64_t generation = 0;
    if (internal::is_data_file_name(finished, generation)) action(name, generation);
  }
  if (error) return internal::system_error("cannot list " + directory.string(), error.value());
  return {};
}

/// The directory exists, and the names of those that had to be made for it are on the disk.
Status make_directories(const fs::path& directory) {
  if (directory.empty())
    return Status(ErrorCode::invalid_argument, "the directory has no name; pass the path of one");
  std::error_code error;
  std::vector<fs::path> parents;  // Of what is made.
  for (fs::path path = fs::absolute(directory, error); !error && !fs::exists(path, error);) {
    path = path.parent_path();
    parents.push_back(path);
  }
  fs::create_directories(directory, error);
  if (error) return internal::system_error("cannot make " + directory.string(), error.value());
  for (const fs::path& parent : parents) LOCKSTEP_RETURN_IF_ERROR(internal::sync_directory(parent));
  return {};
}

/// Rank 0: the directory exists and is this job's for now, and no file in it has the generation returned.
Result<std::uint64_t> enter_directory(const fs::path& directory, std::optional<DirectoryLock>& lock) {
  LOCKSTEP_RETURN_IF_ERROR(make_directories(directory));
  auto taken = DirectoryLock::take(directory);
  LOCKSTEP_RETURN_IF_ERROR(taken.status());
  lock.emplace(std::move(*taken));
  std::uint64_t last = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      for_data_files(directory, [&](const std::string&, std::uint64_t g) { last = std::max(last, g); }));
  return last + 1;
}

/// What a job that was stopped, and the checkpoint before, have left. What cannot be removed, or not be seen,
/// does no harm.
void remove_others(const fs::path& directory, std::uint64_t generation) {
  std::vector<fs::path> others;
  static_cast<void>(for_data_files(directory, [&](const std::string& name, std::uint64_t g) {
    if (g != generation) others.push_back(directory / name);
  }));
  std::error_code ignored;
  for (const fs::path& path : others) fs::remove(path, ignored);
}

Result<std::vector<Tensor>> tensors_of(std::span<const TensorSlice> slices) {
  std::vector<Tensor> tensors;
  for (const TensorSlice& slice : slices) {
    auto tensor = internal::tensor_of(slice);
    LOCKSTEP_RETURN_IF_ERROR(tensor.status());
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

/// One slice, in pieces that a reader can check one by one.
Status write_slice(const TensorSlice& slice, AtomicFile& out, DataFile& file) {
  const std::size_t size = size_of(slice.type);
  const std::size_t most = internal::kMaxPieceBytes / size;
  const auto* data = static_cast<const std::byte*>(slice.data);
  for (std::size_t done = 0; done < slice.count;) {
    const std::size_t count = std::min(most, slice.count - done);
    const std::span<const std::byte> bytes(data + done * size, count * size);
    file.pieces.push_back({slice.name, slice.first + done, count, out.bytes(), internal::checksum(bytes)});
    LOCKSTEP_RETURN_IF_ERROR(out.write(bytes));
    done += count;
  }
  return {};
}

/// This rank's file; none when it has no elements. `unnamed` is its path once it may be there.
Status write_data(const fs::path& directory, std::span<const TensorSlice> slices, DataFile& file,
                  fs::path& unnamed) {
  const bool empty = std::all_of(slices.begin(), slices.end(), [](const auto& s) { return s.count == 0; });
  if (empty) return {};
  const fs::path path = directory / file.name;
  std::error_code ignored;
  if (internal::is_missing(directory)) {
    return Status(ErrorCode::invalid_argument,
                  directory.string() + " does not exist, and rank 0 has it; " + kUseOneDirectory);
  }
  if (fs::exists(path, ignored)) {
    return Status(ErrorCode::invalid_argument,
                  file.name + " is there already, and rank 0 does not see it; " + kUseOneDirectory);
  }
  auto out = AtomicFile::create(path, IfThere::refuse);
  LOCKSTEP_RETURN_IF_ERROR(out.status());
  for (const TensorSlice& slice : slices) LOCKSTEP_RETURN_IF_ERROR(write_slice(slice, *out, file));
  file.bytes = out->bytes();
  unnamed = path;
  LOCKSTEP_RETURN_IF_ERROR(out->commit());
  return internal::sync_directory(directory);
}

/// This rank's file, and what rank 0 has to know of it.
Status write_contribution(const Communicator& communicator, const fs::path& directory,
                          std::span<const TensorSlice> slices, std::span<const Tensor> tensors,
                          std::uint64_t generation, std::string& contribution, fs::path& unnamed) {
  DataFile file;
  file.name = internal::data_file_name(generation, communicator.rank(), communicator.size());
  LOCKSTEP_RETURN_IF_ERROR(write_data(directory, slices, file, unnamed));
  auto text = internal::contribution_to_json(file, tensors);
  LOCKSTEP_RETURN_IF_ERROR(text.status());
  contribution = std::move(*text);
  return {};
}

/// Rank 0, when every rank's file is on the disk: the manifest in place, or an error and the one before.
Status write_manifest(const fs::path& directory, Manifest& manifest,
                      const std::vector<std::string>& contributions) {
  for (const std::string& text : contributions) LOCKSTEP_RETURN_IF_ERROR(add_contribution(text, manifest));
  if (const Status cover = check_cover(manifest); !cover.ok()) {
    return Status(cover.code(), "the slices of all ranks together are no whole tensors: " + cover.message());
  }
  LOCKSTEP_RETURN_IF_ERROR(check_data_files(directory, manifest, kUseOneDirectory));
  const auto text = to_json(manifest);
  LOCKSTEP_RETURN_IF_ERROR(text.status());
  if (text.value().size() > internal::kMaxManifestBytes) {
    return Status(ErrorCode::not_supported,
                  "the manifest would have " + std::to_string(text.value().size()) +
                      " bytes, more than a reader takes; save fewer or larger tensors");
  }
  auto out = AtomicFile::create(directory / internal::kManifestName, IfThere::replace);
  LOCKSTEP_RETURN_IF_ERROR(out.status());
  LOCKSTEP_RETURN_IF_ERROR(out->write(std::as_bytes(std::span(text.value()))));
  return out->commit();
}

/// The whole of it. Every rank goes through the same collectives, and leaves with the same status. `unnamed`:
/// this rank's file while no manifest names it.
Status save(Communicator& communicator, const fs::path& directory, std::span<const TensorSlice> slices,
            const CheckpointInfo& info, fs::path& unnamed) {
  const bool root = communicator.rank() == 0;
  std::vector<Tensor> tensors;
  std::uint64_t generation = 0;
  std::optional<DirectoryLock> lock;
  Status mine = internal::attempt([&]() -> Status {
    auto own = tensors_of(slices);
    LOCKSTEP_RETURN_IF_ERROR(own.status());
    tensors = std::move(*own);
    if (info.note.size() > internal::kMaxNoteBytes)
      return Status(ErrorCode::invalid_argument, "the note has more than 1 MiB");
    if (!root) return {};
    const auto free = enter_directory(directory, lock);
    if (free.ok()) generation = free.value();
    return free.status();
  });
  LOCKSTEP_RETURN_IF_ERROR(internal::agree(communicator, mine));
  communicator.broadcast(&generation, 1, DataType::u64, 0);

  std::string contribution;
  mine = internal::attempt([&] {
    return write_contribution(communicator, directory, slices, tensors, generation, contribution, unnamed);
  });
  LOCKSTEP_RETURN_IF_ERROR(internal::agree(communicator, mine));
  const auto contributions = internal::gather_texts(communicator, contribution);

  if (root) {
    mine = internal::attempt([&] {
      Manifest manifest;
      manifest.generation = generation;
      manifest.info = info;
      manifest.info.world_size = communicator.size();
      return write_manifest(directory, manifest, contributions);
    });
  }
  LOCKSTEP_RETURN_IF_ERROR(internal::agree(communicator, mine));
  unnamed.clear();
  if (root) {
    mine = internal::sync_directory(directory);
    if (mine.ok()) remove_others(directory, generation);
    lock.reset();  // Before any rank returns, and perhaps saves with others.
  }
  return internal::agree(communicator, mine)
      .with_context("the new checkpoint is in place, but perhaps not on the disk");
}

}  // namespace

void save_checkpoint(Communicator& communicator, const std::string& directory,
                     std::span<const TensorSlice> slices, const CheckpointInfo& info) {
  fs::path unnamed;
  const Status status = save(communicator, directory, slices, info, unnamed);
  if (status.ok()) return;
  std::error_code ignored;
  if (!unnamed.empty()) fs::remove(unnamed, ignored);
  status.with_context("save_checkpoint to " + directory).throw_if_error();
}

}  // namespace lockstep
