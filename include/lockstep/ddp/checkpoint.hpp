// Checkpoints: tensors on disk, written by all ranks and read back by any number of them.
//
// A checkpoint is a directory: one data file for each rank that had elements to write, and manifest.json,
// which names them. The manifest is written last and replaced in one step, so the directory holds the last
// complete checkpoint at every moment, whatever stops the job. docs/sharding-and-checkpoints.md describes the
// format.
//
// Thread safety: saving and loading are collectives of `communicator`, in the order of its others; nothing
// else may touch the tensors until they return. The rest may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// What a checkpoint says beside its tensors.
struct CheckpointInfo {
  std::uint64_t step = 0;
  std::string note = {};    ///< The caller's own: a schedule, a seed, JSON. UTF-8, at most 1 MiB.
  int world_size = 0;       ///< Of the ranks that wrote it; ignored by save.
  std::uint64_t bytes = 0;  ///< Of all tensors; ignored by save.
};

/// Collective. Writes the slices of all ranks, which together must hold each element of each tensor once, to
/// `directory` (made when missing, and shared by all ranks' hosts: otherwise Error(invalid_argument)). `info`
/// is written as rank 0 gives it.
/// One job at a time saves to a directory: another one meanwhile is Error(invalid_argument), where the file
/// system has locks. Returns when everything is on the disk. On an error, the same on all ranks with the
/// culprit named, the checkpoint that was there before still is; but for one that says that the new one is in
/// place.
LOCKSTEP_API void save_checkpoint(Communicator& communicator, const std::string& directory,
                                  std::span<const TensorSlice> slices, const CheckpointInfo& info);

/// Collective. Fills the slices, which may cut the tensors as they like and leave elements out, but which
/// name, on every rank, every tensor of the checkpoint (with no elements where a rank needs none) and no
/// other. On an error, the same on all ranks: names, types, shapes, missing or short files and ranks that
/// look at different directories are found before any slice is written to; after damage that only a checksum
/// shows, or an error of reading, the slices are undefined.
LOCKSTEP_API CheckpointInfo load_checkpoint(Communicator& communicator, const std::string& directory,
                                            std::span<const TensorSlice> slices);

/// The manifest alone, local: what is there, without reading tensors. Throws as load_checkpoint.
LOCKSTEP_API CheckpointInfo read_checkpoint_info(const std::string& directory);

/// Replicated tensors as slices to save: all of them by rank 0 (`shared` false), or each rank its part of
/// each.
LOCKSTEP_API std::vector<TensorSlice> slices_to_save(std::span<const Parameter> tensors,
                                                     const Communicator& communicator, bool shared = true);
/// Replicated tensors as slices to load: every rank all of them.
LOCKSTEP_API std::vector<TensorSlice> slices_to_load(std::span<const Parameter> tensors);

}  // namespace lockstep
