// CommunicatorCore: what a Communicator handle points to: its engine, and the world that it came from.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/bootstrap/still_wanted.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

class Switchboard;
class UcxContext;
class VerbsDevice;

/// How this rank's part in its job ends, as its communicators tell: in good order, or so that somebody may
/// wait for it who has heard of no failure.
class WorldEnd {
 public:
  /// A communicator ended for this reason, which not all ranks may have heard.
  void ended(const Status& why);
  /// All ranks of the job have come to the end of a communicator: whatever failed before, nobody waits.
  void came_together();
  /// ok: in good order.
  Status failure();

 private:
  std::mutex mutex_;
  Status failure_;
  bool together_ = false;
};

/// One rank's membership in its job, shared by all communicators split from it.
struct World {
  std::unique_ptr<Session> session;
  std::unique_ptr<Switchboard> switchboard;  ///< Null until TCP is used.
  std::shared_ptr<UcxContext> ucx;           ///< Null until UCX is used.
  std::shared_ptr<VerbsDevice> verbs;        ///< Null until verbs are used.
  std::optional<bool> rdma;                  ///< Whether `auto` leaves hosts by verbs, once all have agreed.
  std::mutex mutex;                          ///< Guards the creation of these.
  std::string transports = "auto";
  SharedModel model;
  WorldEnd end;
  ~World();
};

class CommunicatorCore : public std::enable_shared_from_this<CommunicatorCore> {
 public:
  /// By which errors of a part call its ranks.
  enum class Numbers : bool { own, of_whole };

  /// The communicator of `world_ranks` (ranks of the session, in order of the new ranks). Blocks until all
  /// members' transports are set up. `called` as in make_transport(); `numbers` of_whole: by errors as well.
  static Result<std::shared_ptr<CommunicatorCore>> make(std::shared_ptr<World> world, std::uint64_t id,
                                                        std::string name, const std::vector<int>& world_ranks,
                                                        std::chrono::milliseconds timeout,
                                                        const StillWanted& still_wanted = {},
                                                        const std::vector<int>& called = {},
                                                        Numbers numbers = Numbers::own);
  ~CommunicatorCore();

  Engine& engine() { return *engine_; }
  World& world() { return *world_; }
  int rank() const { return engine_->group().rank; }
  int size() const { return engine_->group().size(); }
  /// By rank of this communicator, as the session numbers them.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  std::string describe() const;
  /// What `other` calls this `rank`; -1 where it is not in that.
  int number_in(const CommunicatorCore& other, int rank) const;

  Result<std::shared_ptr<CommunicatorCore>> split(int color, int key, Numbers numbers = Numbers::own);
  /// The same ranks once more, with an order of calls of its own on the domain of `transport` (null for a
  /// group of one), which is of `memory`. Local; `memory` outlives it.
  std::shared_ptr<CommunicatorCore> on_memory(std::string name, std::unique_ptr<Transport> transport,
                                              DomainMemory& memory);
  /// For what is set up on it: not any more when it has ended.
  StillWanted still_wanted() const;
  /// Numbers what is built on it; alike on ranks that build in the same order. One thread at a time.
  std::uint64_t number_user() { return users_++; }
  /// Waits for the calls under way and, by a barrier, for all ranks, then leaves.
  Status finalize();
  /// Ends it on all ranks, and what is being set up on it.
  void abort(std::string_view reason);
  /// As abort(), by a rank that cannot `act` as all of them do, because of `why`: the others may wait for it.
  void end_as_unable(const char* act, const Status& why);

  /// While it lives, an abort of `whole` ends `part` too, which nobody else can name yet.
  class SetUp {
   public:
    SetUp(CommunicatorCore& whole, CommunicatorCore& part);
    ~SetUp();
    SetUp(const SetUp&) = delete;
    SetUp& operator=(const SetUp&) = delete;

   private:
    CommunicatorCore& whole_;
    CommunicatorCore& part_;
  };

 private:
  CommunicatorCore(std::shared_ptr<World> world, std::shared_ptr<Engine> engine,
                   std::vector<int> world_ranks);
  void watch_losses();
  Result<std::shared_ptr<CommunicatorCore>> make_part(int color, const std::vector<int>& ranks,
                                                      Numbers numbers);
  void give_up(CommunicatorCore& part);
  std::string words_of_end();

  std::shared_ptr<World> world_;
  std::shared_ptr<Engine> engine_;
  std::vector<int> world_ranks_;
  std::uint64_t loss_callback_ = 0;
  std::mutex parts_mutex_;
  std::vector<CommunicatorCore*> parts_;  ///< That are being set up.
  std::mutex split_mutex_;
  std::uint64_t splits_ = 0;
  std::uint64_t users_ = 0;
};

}  // namespace lockstep::internal
