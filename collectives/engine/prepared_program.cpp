#include "collectives/engine/prepared_program.hpp"

#include <map>

#include "collectives/engine/limits.hpp"

namespace lockstep::internal {
namespace {

void number_messages(PreparedProgram& prepared) {
  std::map<int, std::uint32_t> sends, receives;
  std::map<int, StepNote*> last;
  prepared.notes.resize(prepared.program.lanes.size());
  for (std::size_t lane = 0; lane < prepared.program.lanes.size(); ++lane) {
    const auto& steps = prepared.program.lanes[lane].steps;
    auto& notes = prepared.notes[lane];
    notes.resize(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == StepKind::send) {
        notes[i].message_index = sends[steps[i].peer]++;
        // One lane holds all sends to a peer, so program order is message order.
        last[steps[i].peer] = &notes[i];
      } else if (steps[i].kind == StepKind::recv || steps[i].kind == StepKind::recv_reduce) {
        notes[i].message_index = receives[steps[i].peer]++;
      }
    }
  }
  for (auto& [peer, note] : last) {
    note->last_send = true;
    prepared.send_peers.push_back(peer);
  }
}

std::size_t size_of(const PreparedProgram& prepared) {
  std::size_t bytes = sizeof prepared + prepared.program.slices.capacity() * sizeof(Slice) +
                      prepared.send_peers.capacity() * sizeof(int);
  for (const Lane& lane : prepared.program.lanes) bytes += sizeof lane + lane.steps.capacity() * sizeof(Step);
  for (const auto& notes : prepared.notes) bytes += sizeof notes + notes.capacity() * sizeof(StepNote);
  return bytes;
}

}  // namespace

std::shared_ptr<const PreparedProgram> prepare(const Algorithm& algorithm, const Shape& shape) {
  auto prepared = std::make_shared<PreparedProgram>();
  prepared->program = algorithm.build(shape);
  number_messages(*prepared);
  prepared->bytes = size_of(*prepared);
  return prepared;
}

std::size_t ProgramCache::KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(key.algorithm);
  for (const std::uint64_t part :
       {key.count, key.segment, key.staging, static_cast<std::uint64_t>(key.root)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

const std::shared_ptr<const PreparedProgram>& ProgramCache::get(const Algorithm& algorithm,
                                                                const Shape& shape) {
  if (!shape.counts.empty() || !shape.recv_counts.empty()) return unkept_ = prepare(algorithm, shape);
  const Key key{&algorithm, shape.count, shape.segment, shape.staging, shape.root};
  if (!entries_.empty() && entries_.front().key == key) return entries_.front().program;
  if (auto found = index_.find(key); found != index_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().program;
  }
  entries_.push_front({key, prepare(algorithm, shape)});
  bytes_ += entries_.front().program->bytes;  // Of every entry, should the index find no memory.
  index_.emplace(key, entries_.begin());
  evict();
  return entries_.front().program;
}

void ProgramCache::evict() {
  while (entries_.size() > 1 && (entries_.size() > kMaxCachedPrograms || bytes_ > kMaxCachedProgramBytes)) {
    bytes_ -= entries_.back().program->bytes;
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace lockstep::internal
