// ncclComm: what a communicator handle of this library points to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "integrations/nccl/abi.hpp"
#include "integrations/nccl/background.hpp"
#include "integrations/nccl/config.hpp"
#include "integrations/nccl/in_place.hpp"
#include "integrations/nccl/operators.hpp"
#include "integrations/nccl/registrations.hpp"
#include "lockstep/communicator.hpp"
#include "lockstep/device.hpp"
#include "lockstep/rendezvous.hpp"

namespace lockstep::nccl {

/// What all communicators that descend from one unique id share.
struct Family {
  std::string secret;
  std::shared_ptr<Rendezvous> rendezvous;  ///< Where they met, if this process serves it.
};

/// Where the survivors of a communicator can meet again when it is of no use any more: each rank serves a
/// place of its own from the start. Travels between ranks.
struct Refuge {
  std::array<char, 64> address{};
  std::array<char, 24> job_id{};
};

}  // namespace lockstep::nccl

struct ncclComm : std::enable_shared_from_this<ncclComm> {
 public:
  ncclComm(int device, lockstep::nccl::Config config) : device_(device), config_(std::move(config)) {}
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  // ---- its beginning, which begin() or fail() ends

  /// Collective over `ranks`: exchanges the refuges and sets the device up.
  void begin(lockstep::Communicator ranks, lockstep::nccl::Family family);
  void fail(ncclResult_t why, const std::string& text);

  // ---- while it lives: all of these throw Refusal while it begins, after a failure, and after its end

  int rank() const;
  int size() const;
  int device() const noexcept { return device_; }
  const lockstep::nccl::Config& config() const noexcept { return config_; }
  const lockstep::nccl::Family& family() const noexcept { return family_; }
  lockstep::DeviceCommunicator& collectives();
  /// Where calls return when they are complete (LOCKSTEP_NCCL_BLOCKING): waits for all that were made. Throws
  /// what they failed with.
  void complete();
  bool is_usable() const noexcept { return stage_.load() == Stage::usable; }
  /// Also after a failure or revoke.
  void deregister(void* handle);
  lockstep::nccl::OperatorTable& operators() noexcept { return operators_; }
  lockstep::nccl::InPlace& in_place() noexcept { return in_place_; }
  void* register_buffer(void* buffer, std::size_t bytes);
  /// Collective and blocking.
  ncclWindow_t register_window(void* buffer, std::size_t bytes, bool symmetric);

  /// ncclSuccess while usable or revoked, ncclInProgress while it begins or ends or has not settled, else
  /// what happened.
  ncclResult_t state();
  std::string text();

  // ---- communicators that come out of it

  /// Collective over all ranks, also when revoked. Nothing for a negative color.
  std::optional<lockstep::Communicator> split(int color, int key);
  /// Collective over `survivors`, also when others are dead. Once: all later calls are refused.
  lockstep::Communicator meet_again(const std::vector<int>& survivors, lockstep::nccl::Family& family);

  // ---- jobs: what blocks for other ranks (group.hpp)

  /// Puts one into the row of those on these ranks, which run in the order of their calls. It ends with
  /// `own`, and begins after what is returned; null: at once.
  std::shared_ptr<lockstep::nccl::Ending> queue(std::shared_ptr<lockstep::nccl::Ending> own);
  /// While `child` comes out of this one, until child_began(child), it is aborted with it.
  void child_begins(const std::shared_ptr<ncclComm>& child);
  void child_began(const std::shared_ptr<ncclComm>& child);
  /// Throws Refusal after abort().
  void refuse_if_aborted() const;
  /// Something runs for which no caller waits: state() is ncclInProgress until as many have settled.
  void unsettle() noexcept { ++unsettled_; }
  void settle() noexcept { --unsettled_; }
  /// It failed. state() tells of the first; the communicator can be used all the same.
  void note_failure(ncclResult_t why, const std::string& text);

  // ---- its end

  /// Returns at once; state() is ncclInProgress until what was under way has ended, as the ending tells. Null
  /// when it was revoked before.
  std::shared_ptr<lockstep::nccl::Ending> revoke();
  /// Begins the orderly end. It runs in the background, because it needs all ranks, and several of them may
  /// be the calling thread's to end: the last of this process is given the endings of all to wait for.
  lockstep::nccl::Endings begin_end();
  /// Null before begin_end().
  std::shared_ptr<lockstep::nccl::Ending> ending() const;
  /// Waits until the operations that were started have ended, well or not.
  void quiesce() noexcept;
  /// Ends everything under way, its beginning and that of its children among it, and returns at once. The
  /// last reference goes in the background (let_go): streams of this communicator may wait for another one
  /// that is aborted next.
  void abort();

 private:
  enum class Stage : std::uint8_t { beginning, usable, revoked, ending, ended, failed };
  void exchange_refuges();
  void require(bool revoked_too) const;
  void end() noexcept;
  bool uses_ranks() const;
  /// Other ranks of its group in this process.
  bool has_siblings() const;
  /// Counted out of its process's ranks of this group. The last gets the endings of all.
  lockstep::nccl::Endings leave_siblings(std::shared_ptr<lockstep::nccl::Ending> ending) noexcept;

  const int device_;
  const lockstep::nccl::Config config_;
  bool calls_block_ = false;
  lockstep::nccl::Family family_;
  std::optional<lockstep::Communicator> ranks_;  ///< Set under the lock, for abort().
  lockstep::nccl::InPlace in_place_;
  std::optional<lockstep::DeviceCommunicator> collectives_;
  std::vector<lockstep::nccl::Refuge> refuges_;         ///< By rank.
  std::shared_ptr<lockstep::Rendezvous> refuge_place_;  ///< This rank's.
  std::atomic<bool> met_again_{false};
  lockstep::nccl::OperatorTable operators_;
  lockstep::nccl::Registrations registrations_;
  std::atomic<Stage> stage_{Stage::beginning};
  std::atomic<bool> counted_{false};  ///< Among its siblings.
  std::atomic<int> unsettled_{0};     ///< Work that runs while no caller waits for it.
  std::atomic<bool> aborted_{false};  ///< Set under the lock.

  mutable std::mutex mutex_;  ///< Guards what follows.
  ncclResult_t failure_ = ncclSuccess;
  std::string text_;
  std::shared_ptr<lockstep::nccl::Ending> ending_;
  std::shared_ptr<lockstep::nccl::Ending> last_job_;
  std::vector<std::shared_ptr<ncclComm>> children_;  ///< While they begin.
};

namespace lockstep::nccl {

/// Drops references that may be the last ones, in the background: the end of a communicator waits for the
/// streams that it was used on. First the operations of all of them end: memory that one gives back may keep
/// the driver from the calls by which another one lets its streams pass.
std::shared_ptr<Ending> let_go(std::vector<std::shared_ptr<ncclComm>> comms);

/// The communicators of this process by handle: a handle that is not (or no longer) one is refused, and a
/// communicator that is destroyed while another thread uses it lives until that call has returned.
class Handles {
 public:
  static ncclComm_t add(std::shared_ptr<ncclComm> comm);
  static std::shared_ptr<ncclComm> find(ncclComm_t handle);
  static void remove(ncclComm_t handle);
};

}  // namespace lockstep::nccl
