// Operation: the state of one collective, message or batch from its start to its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/call.hpp"
#include "collectives/engine/call_history.hpp"
#include "collectives/engine/domain_run.hpp"
#include "collectives/engine/inline_run.hpp"
#include "collectives/engine/input_scaling.hpp"
#include "collectives/engine/link_run.hpp"
#include "collectives/engine/scratch_pool.hpp"

namespace lockstep::internal {

class Engine;

/// Owned by its engine's pool; all fields but `done` are guarded by the engine's lock. References: one of the
/// engine while it runs, one of each handle. It returns to the pool with the last. One that ended in place
/// has no handle and is kept for the next call (KnownCall).
class Operation {
 public:
  enum class Kind : std::uint8_t { collective, message, batch };
  enum class Path : std::uint8_t { none, local, links, domain, inline_line };

  Kind kind = Kind::collective;
  Path path = Path::none;
  Engine* engine = nullptr;
  std::shared_ptr<Engine> keep;  ///< Set while a handle of the caller exists: the engine outlives it.
  int references = 0;

  Call call;
  std::vector<std::size_t> counts, recv_counts;  ///< Of v-variants: what the call's spans refer to.
  Shape shape;                                   ///< What the programs are built for.
  std::optional<CallFacts> shape_facts;          ///< Of the call whose shape that is, if it had no counts.
  std::uint64_t sequence = 0;
  bool urgent = false;  ///< Travels on the links for urgent calls, in their order.
  Nanos started = 0;    ///< 0 until the slow path first looked at the clock.
  Nanos deadline = 0;   ///< 0 = none.
  Nanos probed = 0;
  Nanos last_moved = 0;   ///< As the slow path saw it; 0: it has not looked yet.
  bool moved = false;     ///< Since that look.
  bool attended = false;  ///< A thread waits for it; otherwise the reactor steps it.

  Status status;
  std::atomic<bool> done{false};

  LinkRun link_run;
  DomainRun domain_run;
  InlineRun inline_run;
  Scratch scratch;  ///< Room for a frame's header, then what the program needs.
  Scratch scaled;   ///< This rank's input times a factor, where its output has no room for it.
  InputScaling scaling;

  Message message;
  RecvStatus received;
  std::uint64_t message_id = 0;  ///< Of a rendezvous on its link.

  Operation* parent = nullptr;  ///< The batch that it belongs to.
  std::size_t children = 0;     ///< Batch: those not ended.
  std::function<void(bool succeeded)>
      on_complete;  ///< Called once under the engine's lock. May be empty; must not throw.

  CallNote note() const { return {sequence + 1, call.facts, urgent}; }
  /// Of its largest buffer here.
  std::uint64_t bytes() const {
    return std::max(call.input_elements, call.output_elements) * size_of(call.facts.type);
  }
  /// "all_reduce #12 (f32 x 1000, sum)" or "recv (f32 x 10) from rank 3 with tag 7".
  std::string describe() const;
};

std::string describe(const CallFacts& facts);
std::string describe(const Message& message);

}  // namespace lockstep::internal
