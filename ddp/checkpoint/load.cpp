// load_checkpoint: first everything that can be known without reading tensors, on all ranks; then the
// tensors.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ddp/checkpoint/agreement.hpp"
#include "ddp/checkpoint/data_files.hpp"
#include "ddp/checkpoint/files.hpp"
#include "ddp/checkpoint/manifest.hpp"
#include "ddp/first_to_differ.hpp"
#include "lib/base/hash.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using internal::DataFile;
using internal::InputFile;
using internal::kUseAnother;
using internal::Manifest;
using internal::Piece;
using internal::Result;
using internal::Status;
using internal::Tensor;

Result<std::string> read_manifest_text(const fs::path& directory) {
  const fs::path path = directory / internal::kManifestName;
  if (internal::is_missing(path)) {
    return Status(ErrorCode::invalid_argument,
                  "there is no complete checkpoint: " + path.string() + " does not exist; check the path");
  }
  return internal::read_text(path, internal::kMaxManifestBytes);
}

Result<Manifest> parse(const Result<std::string>& text) {
  LOCKSTEP_RETURN_IF_ERROR(text.status());
  return internal::parse_manifest(text.value());
}

/// What to do where a tensor of the model, or of the checkpoint, has no counterpart. What is kept beside
/// parameters ("w#residual") may be a hook's, and of each of the ranks that saved.
std::string advice(const std::string& tensor, const Manifest& manifest, int ranks, const char* otherwise) {
  if (manifest.info.world_size == ranks || tensor.find('#') == std::string::npos) return otherwise;
  return std::to_string(manifest.info.world_size) + " ranks saved it and " + std::to_string(ranks) +
         " load it: for what a hook keeps, load slices(read_checkpoint_info(directory)); else " + otherwise;
}

/// Model and checkpoint have the same tensors.
Status compare(const Manifest& manifest, std::span<const TensorSlice> slices, int ranks) {
  constexpr const char* kIsOfAnother = "it is of another model or optimizer";
  std::unordered_map<std::string, const Tensor*> saved;
  for (const Tensor& tensor : manifest.tensors) saved[tensor.name] = &tensor;
  std::unordered_set<std::string> wanted;
  for (const TensorSlice& slice : slices) {
    const auto tensor = internal::tensor_of(slice);
    LOCKSTEP_RETURN_IF_ERROR(tensor.status());
    wanted.insert(slice.name);
    const auto found = saved.find(slice.name);
    if (found == saved.end()) {
      return Status(ErrorCode::mismatch, "the model has " + describe(tensor.value()) +
                                             ", which the checkpoint lacks; " +
                                             advice(slice.name, manifest, ranks, kIsOfAnother));
    }
    if (describe(*found->second) != describe(tensor.value())) {
      return Status(ErrorCode::mismatch,
                    "the checkpoint has " + describe(*found->second) + ", the model " +
                        describe(tensor.value()) + "; " +
                        advice(slice.name, manifest, ranks, "build the model that was saved"));
    }
  }
  for (const Tensor& tensor : manifest.tensors) {
    if (wanted.contains(tensor.name)) continue;
    return Status(ErrorCode::mismatch, "the checkpoint has " + describe(tensor) +
                                           ", which the model lacks; " +
                                           advice(tensor.name, manifest, ranks, kIsOfAnother));
  }
  return {};
}

/// Copies what slices want from pieces that were checked.
class Reader {
 public:
  Reader(const fs::path& directory, const Manifest& manifest)
      : directory_(directory), entries_(manifest.files) {
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
      for (const Piece& piece : manifest.files[f].pieces) pieces_[piece.tensor].push_back({f, &piece});
    }
  }

  Status fill(std::span<const TensorSlice> slices) {
    for (const TensorSlice& slice : slices) LOCKSTEP_RETURN_IF_ERROR(fill(slice));
    return {};
  }

 private:
  struct Place {
    std::size_t file;
    const Piece* piece;
  };

  Status fill(const TensorSlice& slice) {
    if (slice.count == 0) return {};
    for (const Place& place : pieces_[slice.name]) {
      const std::uint64_t first = std::max<std::uint64_t>(place.piece->first, slice.first);
      const std::uint64_t end =
          std::min<std::uint64_t>(place.piece->first + place.piece->count, slice.first + slice.count);
      if (first < end) LOCKSTEP_RETURN_IF_ERROR(copy(place, first, end, slice));
    }
    return {};
  }

  /// Slices that follow one another mostly want one file.
  Status open(std::size_t file) {
    if (file_ && opened_ == file) return {};
    file_.reset();
    auto next = open_data_file(directory_, entries_[file], kUseAnother);
    LOCKSTEP_RETURN_IF_ERROR(next.status());
    file_.emplace(std::move(*next));
    opened_ = file;
    return {};
  }

  Status copy(const Place& place, std::uint64_t first, std::uint64_t end, const TensorSlice& slice) {
    const std::size_t size = size_of(slice.type);
    const Piece& piece = *place.piece;
    if (read_ != place.piece) {  // Slices that follow one another often want parts of one piece.
      read_ = nullptr;
      bytes_.resize(piece.count * size);
      LOCKSTEP_RETURN_IF_ERROR(open(place.file));
      LOCKSTEP_RETURN_IF_ERROR(file_->read(piece.offset, bytes_));
      if (internal::checksum(bytes_) != piece.sha256) {
        return Status(ErrorCode::invalid_argument, "elements " + std::to_string(piece.first) + " to " +
                                                       std::to_string(piece.first + piece.count) + " of \"" +
                                                       piece.tensor + "\" do not have their checksum; " +
                                                       kUseAnother);
      }
      read_ = place.piece;
    }
    std::memcpy(static_cast<std::byte*>(slice.data) + (first - slice.first) * size,
                bytes_.data() + (first - piece.first) * size, (end - first) * size);
    return {};
  }

  const fs::path& directory_;
  const std::vector<DataFile>& entries_;
  std::optional<InputFile> file_;
  std::size_t opened_ = 0;  // The number of that file.
  std::unordered_map<std::string, std::vector<Place>> pieces_;
  const Piece* read_ = nullptr;  // What bytes_ holds.
  std::vector<std::byte> bytes_;
};

/// Ranks may have directories of one name that are not one.
Status require_one_manifest(Communicator& communicator, std::uint64_t hash) {
  const int odd = internal::first_to_differ(communicator, hash);
  if (odd < 0) return {};
  return Status(
      ErrorCode::mismatch,
      "rank " + std::to_string(odd) +
          " reads another checkpoint than rank 0; let all ranks load from one directory, which their "
          "hosts share, while nobody saves to it",
      odd);
}

Result<CheckpointInfo> load(Communicator& communicator, const fs::path& directory,
                            std::span<const TensorSlice> slices) {
  Manifest manifest;
  std::uint64_t hash = 0;
  Status mine = internal::attempt([&]() -> Status {
    const auto text = read_manifest_text(directory);
    auto parsed = parse(text);
    LOCKSTEP_RETURN_IF_ERROR(parsed.status());
    hash = internal::fnv1a(text.value());
    manifest = std::move(*parsed);
    LOCKSTEP_RETURN_IF_ERROR(compare(manifest, slices, communicator.size()));
    return check_data_files(directory, manifest, kUseAnother);
  });
  LOCKSTEP_RETURN_IF_ERROR(internal::agree(communicator, mine));
  LOCKSTEP_RETURN_IF_ERROR(require_one_manifest(communicator, hash));
  mine = internal::attempt([&] { return Reader(directory, manifest).fill(slices); });
  LOCKSTEP_RETURN_IF_ERROR(internal::agree(communicator, mine));
  return manifest.info;
}

}  // namespace

CheckpointInfo load_checkpoint(Communicator& communicator, const std::string& directory,
                               std::span<const TensorSlice> slices) {
  auto info = load(communicator, directory, slices);
  info.status().with_context("load_checkpoint from " + directory).throw_if_error();
  return info.value();
}

CheckpointInfo read_checkpoint_info(const std::string& directory) {
  const auto manifest = parse(read_manifest_text(directory));
  manifest.status().with_context("read_checkpoint_info of " + directory).throw_if_error();
  return manifest.value().info;
}

}  // namespace lockstep
