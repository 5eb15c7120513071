// The floor on buffers that all ranks map.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/floors/floor.hpp"

namespace floors {
namespace {

constexpr std::size_t kFlags = 64;  // of each kind, more than there are ranks

void add(const std::vector<float*>& data, std::size_t from, std::size_t to) {
  if (data.size() == 2) {
    float* __restrict a = data[0], * __restrict b = data[1];
    for (std::size_t i = from; i < to; ++i) a[i] = b[i] = a[i] + b[i];
  } else {
    float* __restrict a = data[0], * __restrict b = data[1], * __restrict c = data[2], * __restrict d = data[3];
    for (std::size_t i = from; i < to; ++i) a[i] = b[i] = c[i] = d[i] = a[i] + b[i] + c[i] + d[i];
  }
}

}  // namespace

Registered::Registered(const peers::Place& place, peers::Board& board)
    : place_(place),
      board_(board),
      flags_(place.folder + "/registered-flags", 4 * kFlags * sizeof(Flag)),
      ready_(flags_.as<Flag>()),
      done_(ready_ + kFlags),
      lines_(done_ + kFlags) {}

float* Registered::allocate(std::size_t bytes) {
  const std::string name = place_.folder + "/block-" + std::to_string(next_block_++) + "-";
  Block block;
  block.path = name + std::to_string(place_.rank);
  for (int rank = 0; rank < place_.world; ++rank) {
    block.parts.emplace_back(name + std::to_string(rank), bytes);
    block.data.push_back(block.parts.back().as<float>());
  }
  float* mine = block.data[static_cast<std::size_t>(place_.rank)];
  board_.barrier();
  unlink(block.path.c_str());
  blocks_.emplace(mine, std::move(block));
  return mine;
}

void Registered::release(float* memory) { blocks_.erase(memory); }

Run Registered::bind(std::size_t bytes, float* memory) {
  if (bytes <= kPayload) return [this, bytes, memory] { in_line(bytes, memory); };
  return [this, bytes, &data = blocks_.at(memory).data] { fused(bytes, data); };
}

void Registered::exchange(Flag* flags, std::uint64_t step) {
  flags[place_.rank].value.store(step, std::memory_order_release);
  for (int rank = 0; rank < place_.world; ++rank) wait_for(flags[rank], step, board_.spins());
}

// Two alternating lines a rank: whoever writes one again has seen that all have read it.
void Registered::in_line(std::size_t bytes, float* memory) {
  Flag* lines = lines_ + kFlags * (++line_step_ & 1);
  std::memcpy(lines[place_.rank].payload, memory, bytes);
  lines[place_.rank].value.store(line_step_, std::memory_order_release);
  float sum[kPayload / sizeof(float)] = {};
  for (int rank = 0; rank < place_.world; ++rank) {
    wait_for(lines[rank], line_step_, board_.spins());
    float theirs[kPayload / sizeof(float)];
    std::memcpy(theirs, lines[rank].payload, bytes);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) sum[i] += theirs[i];
  }
  std::memcpy(memory, sum, bytes);
}

void Registered::fused(std::size_t bytes, const std::vector<float*>& data) {
  const std::size_t count = bytes / sizeof(float);
  const std::size_t share = (count / data.size() + 15) & ~std::size_t{15};
  const std::size_t from = std::min(count, share * static_cast<std::size_t>(place_.rank));
  const bool last = place_.rank + 1 == place_.world;
  exchange(ready_, ++step_);
  add(data, from, last ? count : std::min(count, from + share));
  exchange(done_, step_);
}

}  // namespace floors
