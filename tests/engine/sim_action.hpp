// What a simulated rank does: collectives and messages with memory and checks of their own.
#pragma once

#include <memory>
#include <string>

#include "collectives/engine/engine.hpp"
#include "tests/engine/call_buffers.hpp"

namespace lockstep::internal {

/// One operation of one rank, from its start to the check of its result. Owns the memory that the operation
/// uses.
class SimAction {
 public:
  virtual ~SimAction() = default;
  /// Starts it, once; the caller gets the reference.
  virtual Operation* start(Engine& engine) = 0;
  /// Of the ended operation: empty, or what is wrong with the memory.
  virtual std::string check(const Operation& operation) const = 0;
};

/// One collective of a script.
struct SimCall {
  CollectiveCase what;
  int algorithm = 0;  ///< CallFacts::algorithm: row of the table + 1, or 0 for the library's choice.
  bool in_place = false;
  bool registered = false;
  Nanos timeout = 0;  ///< 0 = none.
  int priority = 0;

  std::unique_ptr<SimAction> make(int rank) const;
};

/// One message of a script. The bytes follow from source, tag and length, so that a receive from anybody can
/// be checked too.
struct SimMessage {
  bool is_send = false;
  int peer = kAnySource;
  int tag = 0;
  std::size_t bytes = 0;  ///< To send, or room to receive.
  Nanos timeout = 0;      ///< 0 = none.

  std::unique_ptr<SimAction> make(int rank) const;
};

}  // namespace lockstep::internal
