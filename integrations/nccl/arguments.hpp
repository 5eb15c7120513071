// What one rank can see by itself of a call that is wrong: it is refused before anything is started, and
// before a group has it. The peers do not hear of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "integrations/nccl/comm.hpp"

namespace lockstep::nccl {

/// Which buffer no rank but the root uses. It is not looked at elsewhere.
enum class OnlyRoot : std::uint8_t { neither, sends, receives };

/// Of a collective.
struct Arguments {
  const void* send = nullptr;
  const void* receive = nullptr;
  std::size_t count = 0;  ///< Of elements: the whole buffer's, or a rank's block.
  int root = 0;
  OnlyRoot only_root = OnlyRoot::neither;
};

/// Both throw Refusal.
void check_collective(const ncclComm& comm, DataType type, const Arguments& arguments);
void check_message(const ncclComm& comm, DataType type, const void* buffer, std::size_t count, int peer);

}  // namespace lockstep::nccl
