// The manifest of a checkpoint: which tensors there are, and in which files their elements lie. Whoever reads
// one trusts nothing in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/ddp/checkpoint.hpp"

namespace lockstep::internal {

/// A run of elements of one tensor in a data file.
struct Piece {
  std::string tensor;
  std::uint64_t first = 0, count = 0;  ///< Elements.
  std::uint64_t offset = 0;            ///< In the file, in bytes.
  std::string sha256;                  ///< Of its bytes, in hexadecimal.
};

struct DataFile {
  std::string name;  ///< In the checkpoint's directory.
  std::uint64_t bytes = 0;
  std::vector<Piece> pieces;
};

struct Tensor {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::size_t> shape;
  std::uint64_t count = 0;  ///< Elements: the product of the shape.
};

struct Manifest {
  std::uint64_t generation = 0;  ///< Counts the checkpoints in this directory; part of the files' names.
  CheckpointInfo info;
  std::vector<Tensor> tensors;
  std::vector<DataFile> files;
};

inline constexpr const char* kUseAnother = "the checkpoint is damaged, use another one";
inline constexpr std::string_view kManifestName = "manifest.json";
/// A piece is read and checked as a whole, so that it bounds what a reader holds in memory.
inline constexpr std::uint64_t kMaxPieceBytes = 4u << 20;
/// A reader holds no more than this of what claims to be a manifest.
inline constexpr std::uint64_t kMaxManifestBytes = 1u << 30;
inline constexpr std::size_t kMaxNoteBytes = 1u << 20;

/// "g7-rank2of4.bin".
std::string data_file_name(std::uint64_t generation, int rank, int ranks);
/// Whether a name is one that data_file_name gives; then its generation.
bool is_data_file_name(std::string_view name, std::uint64_t& generation);

/// invalid_argument when a name or the note is not UTF-8.
Result<std::string> to_json(const Manifest& manifest);
/// invalid_argument that says what is wrong. Afterwards: names of files are plain, sizes do not overflow,
/// pieces lie in their files and tensors, and hold every element of every tensor exactly once.
Result<Manifest> parse_manifest(std::string_view text);

/// What one rank tells rank 0 of the file that it wrote, and of its tensors; and back.
Result<std::string> contribution_to_json(const DataFile& file, std::span<const Tensor> tensors);
Status add_contribution(std::string_view text, Manifest& manifest);
/// The last check of parse_manifest, for a manifest put together from contributions.
Status check_cover(const Manifest& manifest);

/// The tensor that a slice is of. invalid_argument on an impossible shape, or a slice that leaves it.
Result<Tensor> tensor_of(const TensorSlice& slice);

/// `"fc1.weight" f32 [64, 256]`.
std::string describe(const Tensor& tensor);

}  // namespace lockstep::internal
