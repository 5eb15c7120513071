// From the arguments of the public functions to a Call: sizes, the facts that all ranks must share, and every
// check that needs no peer.
#pragma once

#include <span>
#include <vector>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// A Call and the counts that its spans refer to. Wrong arguments are noted in Call::refusal: the call still
/// takes its place in the order, so that the peers can be told.
class CallBuilder {
 public:
  /// For a call on the communicator of `engine`. `options` give algorithm, timeout, priority, scale and user
  /// operator.
  CallBuilder(Collective collective, const Engine& engine, const CallOptions& options);
  /// As the above with elements(), reduction() and root().
  CallBuilder(const CallFacts& facts, const Engine& engine, const CallOptions& options);

  CallBuilder& buffers(const void* input, void* output);
  CallBuilder& elements(DataType type, std::uint64_t count);
  CallBuilder& reduction(ReduceOp op);
  CallBuilder& root(int root);
  /// all_gather_v, reduce_scatter_v: on all ranks. scatter_v, gather_v: `counts` at root, `own` everywhere.
  CallBuilder& counts(std::span<const std::size_t> counts);
  CallBuilder& root_counts(std::span<const std::size_t> counts, std::size_t own);
  CallBuilder& pair_counts(std::span<const std::size_t> send, std::span<const std::size_t> recv);
  /// Of several calls that travel as this one, or of a v-variant: a rank that has other ones is found out.
  CallBuilder& agree_on(std::span<const std::size_t> counts);

  /// Of a call on device memory: `scale` as Call::device_scale. Refuses what only a processor can run.
  CallBuilder& on_device(const void* scale);
  /// With the earlier of both deadlines and the higher of both priorities.
  CallBuilder& tighten(const Call& other);
  /// The call is wrong for a reason that the caller found; the first one counts.
  void refuse(ErrorCode code, std::string message);

  /// Derives sizes and checks. The Call refers to this builder, wherever it is moved to.
  const Call& build();
  /// What build() gave.
  const Call& call() const { return call_; }

 private:
  void size_buffers();
  void force_algorithm(std::string_view name);
  void follow_environment();
  void take_counts(std::span<const std::size_t> counts);
  void check_counts();
  void check_pointer(const char* which, const void* pointer, std::uint64_t elements);
  void check_overlap();
  std::uint64_t in_place_offset_elements(bool& input_inside_output) const;

  int rank_, world_;
  bool domain_;
  Call call_;
  std::vector<std::size_t> counts_, recv_counts_;
};

/// Facts of a call without counts.
constexpr CallFacts reduction(Collective collective, std::size_t count, DataType type, ReduceOp op,
                              int root = 0) {
  return {.collective = collective, .type = type, .op = op, .root = root, .count = count};
}
constexpr CallFacts movement(Collective collective, std::size_t count, DataType type, int root = 0) {
  return {.collective = collective, .type = type, .root = root, .count = count};
}

/// The checks of a send or receive.
Status check_message(const Message& message, int world);

}  // namespace lockstep::internal
