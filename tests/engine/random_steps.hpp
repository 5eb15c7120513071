// Steps of a group of ranks, drawn alike by all: collectives of all kinds one by one and side by side, plans,
// batches and messages round the ranks, blocking and not, on private and registered memory, urgent or not.
// What ends well is compared with the reference, and what fails must have left alone what is not its output.
#pragma once

#include <random>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "tests/engine/call_buffers.hpp"

namespace lockstep::internal {

class RandomSteps {
 public:
  /// `seed` is equal on all ranks; what is a rank's own affair comes from `own`.
  RandomSteps(std::uint64_t seed, std::uint64_t own);
  ~RandomSteps();
  RandomSteps(const RandomSteps&) = delete;
  RandomSteps& operator=(const RandomSteps&) = delete;

  /// From now on receives name their source.
  void name_sources() { from_anybody_ = false; }

  /// The next step. Throws the first Error when all of its calls have ended, and std::runtime_error when what
  /// came of one is wrong.
  void run(Communicator& group, CallOptions options);
  /// The next step as a single collective, which this rank calls in another way.
  enum class Twist { none, differs, refused };
  void run_collective(Communicator& group, const CallOptions& options, Twist twist);
  /// Starts a collective as run_collective() does, and leaves with it under way.
  void leave_with_collective(Communicator group, const CallOptions& options);

  /// Marks all memory of its calls, and tells later whether anybody has written there since.
  void mark_memory();
  bool memory_is_as_marked() const;

 private:
  struct InFlight {
    CollectiveCase what;
    CallBuffers buffers;
    Work work;
    bool started = false;
  };
  CollectiveCase draw(int world);
  /// One in which two calls that differ must meet: with nothing to move there need be no message.
  CollectiveCase draw_with_data(int world);
  CallBuffers buffers_for(const CollectiveCase& what, int rank, std::size_t place);
  void start(Communicator& group, InFlight& call, const CallOptions& options);
  void run_one(Communicator& group, const CollectiveCase& what, const CallOptions& options);
  void run_side_by_side(Communicator& group, const CallOptions& options);
  void run_messages(Communicator& group, const CallOptions& options);
  void run_batch(Communicator& group, const CallOptions& options);
  void run_plan(Communicator& group, const CallOptions& options);
  void wait(Work& work);

  std::mt19937_64 shared_, own_;
  int messages_ = 0;
  bool from_anybody_ = true;
  std::vector<std::byte> heap_;
  std::byte* registered_;
};

}  // namespace lockstep::internal
