// The floor on private buffers.
#include <algorithm>
#include <cstring>

#include "bench/floors/floor.hpp"

namespace floors {
namespace {

// What was best of 64 KiB to 512 KiB, by ranks.
std::size_t slot_bytes(int world) { return world == 2 ? 128u << 10 : 256u << 10; }

}  // namespace

Staged::Staged(const peers::Place& place, peers::Board& board)
    : rank_(place.rank),
      world_(place.world),
      spins_(board.spins()),
      slot_(slot_bytes(place.world) / sizeof(float)),
      flags_(place.folder + "/staged-flags", 2 * static_cast<std::size_t>(place.world) * sizeof(Flag)),
      slots_(place.folder + "/staged-slots",
             4 * static_cast<std::size_t>(place.world) * slot_bytes(place.world)),
      copied_(flags_.as<Flag>()),
      reduced_(copied_ + place.world) {
  for (int rank = 0; rank < world_; ++rank) {
    in_.push_back(slots_.as<float>() + static_cast<std::size_t>(4 * rank) * slot_);
    result_.push_back(in_.back() + 2 * slot_);
  }
}

Run Staged::bind(std::size_t bytes, float* memory) {
  return [this, memory, count = bytes / sizeof(float)] { all_reduce(memory, count); };
}

Staged::Part Staged::part(std::size_t length, int rank) const {
  const std::size_t share = (length / static_cast<std::size_t>(world_) + 15) & ~std::size_t{15};
  const std::size_t from = std::min(length, share * static_cast<std::size_t>(rank));
  return {from, rank + 1 == world_ ? length : std::min(length, from + share)};
}

void Staged::copy_in(const float* chunk, std::size_t length, std::uint64_t step) {
  float* slot = in_[static_cast<std::size_t>(rank_)] + (step & 1) * slot_;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    const Part p = part(length, rank);
    std::memcpy(slot + p.from, chunk + p.from, (p.to - p.from) * sizeof(float));
  }
  copied_[rank_].value.store(step, std::memory_order_release);
}

void Staged::reduce(float* chunk, std::size_t length, std::uint64_t step) {
  const float* others[3];
  int n = 0;
  for (int rank = 0; rank < world_; ++rank) {
    wait_for(copied_[rank], step, spins_);
    if (rank != rank_) others[n++] = in_[static_cast<std::size_t>(rank)] + (step & 1) * slot_;
  }
  const Part p = part(length, rank_);
  float* __restrict mine = chunk;
  float* __restrict result = result_[static_cast<std::size_t>(rank_)] + (step & 1) * slot_;
  const float* __restrict a = others[0];
  if (n == 1) {
    for (std::size_t i = p.from; i < p.to; ++i) result[i] = mine[i] = mine[i] + a[i];
  } else {
    const float* __restrict b = others[1], * __restrict c = others[2];
    for (std::size_t i = p.from; i < p.to; ++i) result[i] = mine[i] = mine[i] + a[i] + b[i] + c[i];
  }
  reduced_[rank_].value.store(step, std::memory_order_release);
}

void Staged::copy_out(float* chunk, std::size_t length, std::uint64_t step) {
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    wait_for(reduced_[rank], step, spins_);
    const Part p = part(length, rank);
    const float* slot = result_[static_cast<std::size_t>(rank)] + (step & 1) * slot_;
    std::memcpy(chunk + p.from, slot + p.from, (p.to - p.from) * sizeof(float));
  }
}

// The next chunk is copied in before this one is reduced. An input slot is free again when all have reduced
// the chunk before; a result slot when all have copied in the chunk after, which the next reduce waits for.
void Staged::all_reduce(float* memory, std::size_t count) {
  const auto length = [&](std::size_t at) { return std::min(slot_, count - at); };
  copy_in(memory, length(0), step_ + 1);
  for (std::size_t at = 0; at < count; at += slot_) {
    const std::uint64_t step = ++step_;
    const std::size_t next = at + slot_;
    if (next < count) {
      for (int rank = 0; at > 0 && rank < world_; ++rank) wait_for(reduced_[rank], step - 1, spins_);
      copy_in(memory + next, length(next), step + 1);
    }
    reduce(memory + at, length(at), step);
    copy_out(memory + at, length(at), step);
  }
}

}  // namespace floors
