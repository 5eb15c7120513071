// Programs ready to run, kept for the next call of the same shape.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// What the engine needs to know of a step beyond the program.
struct StepNote {
  /// send, recv: how many messages went before it between this pair in this program.
  std::uint32_t message_index = 0;
  bool last_send = false;  ///< send: no later send to this peer.
};

struct PreparedProgram {
  Program program;
  std::vector<std::vector<StepNote>> notes;  ///< By lane and step.
  std::vector<int> send_peers;               ///< Peers with at least one send.
  std::size_t bytes = 0;                     ///< That all of it takes.
};

/// Builds `algorithm` for `shape` and notes what the engine needs.
std::shared_ptr<const PreparedProgram> prepare(const Algorithm& algorithm, const Shape& shape);

/// Least-recently-used cache of prepared programs. Not thread-safe (the engine's lock guards it). A repeated
/// lookup allocates nothing.
class ProgramCache {
 public:
  /// v-shapes (with counts) are built afresh: their key would be as long as the program. The reference is
  /// good until the next call.
  const std::shared_ptr<const PreparedProgram>& get(const Algorithm& algorithm, const Shape& shape);

 private:
  struct Key {
    const Algorithm* algorithm;
    std::uint64_t count, segment, staging;
    int root;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const PreparedProgram> program;
  };
  void evict();

  std::list<Entry> entries_;  // Most recently used first.
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
  std::size_t bytes_ = 0;
  std::shared_ptr<const PreparedProgram> unkept_;
};

}  // namespace lockstep::internal
