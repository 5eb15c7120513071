// Call: one collective as this rank called it. Message: one send or receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lockstep/communicator.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

struct Call {
  CallFacts facts;  ///< What all ranks must agree on.
  const void* input = nullptr;
  void* output = nullptr;
  /// Elements of `input` and `output` that this rank's part touches; 0 = the pointer is not used here.
  std::uint64_t input_elements = 0;
  std::uint64_t output_elements = 0;
  /// v-variants, as in Shape. Read only while the call starts.
  std::span<const std::size_t> counts;
  std::span<const std::size_t> recv_counts;
  Nanos timeout = 0;  ///< 0 = none.
  int priority = 0;
  double scale = 1.0;
  const void* device_scale = nullptr;  ///< Device memory: one element that takes the place of `scale`.
  UserOp user_op;
  Status refusal;  ///< Not ok: the arguments are wrong. The call takes its sequence number and is refused.
};

/// Elements that a rank's part of a call touches.
struct BufferElements {
  std::uint64_t input = 0, output = 0;
};

/// Of calls whose blocks are all of `facts.count` elements; nothing of the v-variants.
constexpr BufferElements buffer_elements(const CallFacts& facts, int rank, int world) {
  const bool at_root = rank == facts.root;
  const std::uint64_t one = facts.count, all = one * static_cast<std::uint64_t>(world);
  switch (facts.collective) {
    case Collective::all_reduce:
      return {one, one};
    case Collective::reduce:
      return {one, at_root ? one : 0};
    case Collective::broadcast:
      return {at_root ? one : 0, one};
    case Collective::scatter:
      return {at_root ? all : 0, one};
    case Collective::gather:
      return {one, at_root ? all : 0};
    case Collective::all_gather:
      return {one, all};
    case Collective::reduce_scatter:
      return {all, one};
    case Collective::all_to_all:
      return {all, all};
    default:
      return {};
  }
}

struct Message {
  bool is_send = false;
  void* buffer = nullptr;  ///< Read only for a send.
  std::uint64_t count = 0;
  DataType type = DataType::u8;
  int peer = kAnySource;
  int tag = 0;
  Nanos timeout = 0;
  bool is_inner = false;  ///< Serves an operation that its caller knows: it fails with the cause alone.
};

}  // namespace lockstep::internal
