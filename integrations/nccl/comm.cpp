#include "integrations/nccl/comm.hpp"

#include <cstdlib>
#include <map>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "integrations/nccl/fixed_text.hpp"
#include "integrations/nccl/result.hpp"
#include "integrations/nccl/unique_id.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::nccl {
namespace {

constexpr char kAborted[] = "ncclCommAbort was called";

/// In host_sync a thread of each rank makes calls to the driver while an operation is under way, and a
/// program that copies its result to pageable memory meanwhile, as PyTorch's DDP does, keeps it from them for
/// ever.
bool wants_blocking_calls(const DeviceCommunicator& ranks) {
  if (ranks.mode() != DeviceMode::host_sync) return false;
  const char* const given = std::getenv("LOCKSTEP_NCCL_BLOCKING");
  const std::string_view wanted = given != nullptr ? given : "auto";
  return wanted == "1" || (wanted != "0" && device::properties(ranks.device()).backend == "cuda");
}

// All tables are never destroyed: threads of the caller may end communicators while the process ends.

/// The ranks of one group in this process.
struct Siblings {
  int alive = 0;  ///< Have not begun their end.
  Endings endings;
};

struct Groups {
  std::mutex mutex;
  std::map<std::string, Siblings> by_name;  ///< The name of rank 0's refuge.
};
Groups& groups() {
  static auto& instance = *new Groups;
  return instance;
}

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm_t, std::shared_ptr<ncclComm>> comms;
};
Table& table() {
  static auto& instance = *new Table;
  return instance;
}

}  // namespace

std::shared_ptr<Ending> let_go(std::vector<std::shared_ptr<ncclComm>> comms) {
  return in_background([comms = std::move(comms)] {
    for (const auto& comm : comms) comm->quiesce();
  });
}

ncclComm_t Handles::add(std::shared_ptr<ncclComm> comm) {
  const std::lock_guard lock(table().mutex);
  ncclComm_t const handle = comm.get();
  table().comms.emplace(handle, std::move(comm));
  return handle;
}

std::shared_ptr<ncclComm> Handles::find(ncclComm_t handle) {
  if (handle == nullptr) throw invalid_argument("the communicator is NULL");
  const std::shared_lock lock(table().mutex);
  const auto found = table().comms.find(handle);
  if (found != table().comms.end()) return found->second;
  throw invalid_argument("the communicator is destroyed, or was not made by this library");
}

void Handles::remove(ncclComm_t handle) {
  std::shared_ptr<ncclComm> removed;  // ends outside the lock
  const std::lock_guard lock(table().mutex);
  if (auto node = table().comms.extract(handle)) removed = std::move(node.mapped());
}

}  // namespace lockstep::nccl

using lockstep::Communicator;
using lockstep::DataType;
using lockstep::DeviceCommunicator;
using lockstep::Error;
using lockstep::ErrorCode;
using lockstep::InitOptions;
using namespace lockstep::nccl;

ncclComm::~ncclComm() { leave_siblings(nullptr); }

void ncclComm::begin(Communicator ranks, Family family) {
  family_ = std::move(family);
  {
    const std::lock_guard lock(mutex_);
    ranks_.emplace(std::move(ranks));
    // Before the ranks had met. The peers hear of it, and what follows ends at once.
    if (aborted_) ranks_->abort(kAborted);
  }
  exchange_refuges();
  collectives_.emplace(*ranks_, device_);
  calls_block_ = config_.blocking && wants_blocking_calls(*collectives_);
  {
    const std::lock_guard lock(groups().mutex);
    ++groups().by_name[get(refuges_.front().job_id)].alive;
    counted_ = true;
  }
  stage_.store(Stage::usable);
  if (aborted_) abort();  // What was not there yet.
}

void ncclComm::fail(ncclResult_t why, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    text_ = text;
  }
  stage_.store(Stage::failed);
}

void ncclComm::exchange_refuges() {
  Refuge own;
  const std::string job_id = random_text(kJobBytes);
  refuge_place_ = std::make_shared<lockstep::Rendezvous>(job_id, family_.secret);
  put(own.address, refuge_place_->address());
  put(own.job_id, job_id);
  refuges_.resize(static_cast<std::size_t>(ranks_->size()));
  ranks_->all_gather(&own, refuges_.data(), sizeof own, DataType::u8);
}

void ncclComm::require(bool revoked_too) const {
  switch (stage_.load()) {
    case Stage::usable:
      return;
    case Stage::revoked:
      if (revoked_too) return;
      throw invalid_usage("the communicator is revoked: it can be split, shrunk and destroyed");
    case Stage::beginning:
      throw invalid_argument(
          "the communicator is still being made: call ncclCommGetAsyncError until it is no longer "
          "ncclInProgress");
    case Stage::ending:
    case Stage::ended:
      throw invalid_usage("the communicator is finalized");
    case Stage::failed: {
      const std::lock_guard lock(mutex_);
      throw Refusal(failure_, text_);
    }
  }
}

int ncclComm::rank() const {
  require(true);
  return ranks_->rank();
}
int ncclComm::size() const {
  require(true);
  return ranks_->size();
}
DeviceCommunicator& ncclComm::collectives() {
  require(false);
  return *collectives_;
}

/// One thread may make the calls of all ranks of this process.
void ncclComm::complete() {
  if (calls_block_ && !has_siblings()) collectives().wait();
}

bool ncclComm::has_siblings() const {
  const std::lock_guard lock(groups().mutex);
  const auto group = groups().by_name.find(get(refuges_.front().job_id));
  return group != groups().by_name.end() && group->second.alive > 1;
}

void* ncclComm::register_buffer(void* buffer, std::size_t bytes) {
  return registrations_.add(collectives(), buffer, bytes);
}
ncclWindow_t ncclComm::register_window(void* buffer, std::size_t bytes, bool symmetric) {
  return registrations_.add_window(collectives(), buffer, bytes, symmetric);
}
void ncclComm::deregister(void* handle) {
  if (stage_.load() == Stage::beginning || !collectives_) require(true);
  registrations_.remove(*collectives_, handle);
}

ncclResult_t ncclComm::state() {
  switch (stage_.load()) {
    case Stage::beginning:
    case Stage::ending:
      return ncclInProgress;
    case Stage::usable:
      break;
    case Stage::revoked:
      return unsettled_ > 0 ? ncclInProgress : ncclSuccess;
    case Stage::ended:
    case Stage::failed: {
      const std::lock_guard lock(mutex_);
      return failure_;
    }
  }
  const ErrorCode code = collectives_->state();
  const std::string why = code == ErrorCode::ok ? "" : collectives_->error_text();
  const std::lock_guard lock(mutex_);
  if (code == ErrorCode::ok) return unsettled_ > 0 ? ncclInProgress : failure_;
  text_ = why;
  return remember(to_result(code), "an operation that was enqueued before", why.c_str());
}

std::string ncclComm::text() {
  state();
  const std::lock_guard lock(mutex_);
  return text_;
}

// ---- communicators that come out of it

std::optional<Communicator> ncclComm::split(int color, int key) {
  require(true);
  return ranks_->split(color, key);
}

Communicator ncclComm::meet_again(const std::vector<int>& survivors, Family& family) {
  if (met_again_.exchange(true)) {
    throw invalid_usage("this communicator was shrunk before: shrink the one that came out of it");
  }
  const Refuge& refuge = refuges_[static_cast<std::size_t>(survivors.front())];
  InitOptions options;
  options.world_size = static_cast<int>(survivors.size());
  for (int place = 0; place < *options.world_size; ++place) {
    if (survivors[static_cast<std::size_t>(place)] == ranks_->rank()) options.rank = place;
  }
  options.rendezvous = get(refuge.address);
  options.job_id = get(refuge.job_id);
  options.secret = family_.secret;
  family = {family_.secret, survivors.front() == ranks_->rank() ? refuge_place_ : nullptr};
  return Communicator::create(options);
}

// ---- jobs

std::shared_ptr<Ending> ncclComm::queue(std::shared_ptr<Ending> own) {
  const std::lock_guard lock(mutex_);
  return std::exchange(last_job_, std::move(own));
}

void ncclComm::child_begins(const std::shared_ptr<ncclComm>& child) {
  const std::lock_guard lock(mutex_);
  children_.push_back(child);
}

void ncclComm::child_began(const std::shared_ptr<ncclComm>& child) {
  const std::lock_guard lock(mutex_);
  std::erase(children_, child);
}

void ncclComm::refuse_if_aborted() const {
  if (aborted_) throw Refusal(ncclRemoteError, kAborted);
}

void ncclComm::note_failure(ncclResult_t why, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failure_ != ncclSuccess) return;
  failure_ = why;
  text_ = text;
}

// ---- its end

std::shared_ptr<Ending> ncclComm::revoke() {
  Stage usable = Stage::usable;
  if (!stage_.compare_exchange_strong(usable, Stage::revoked)) {
    require(true);
    return nullptr;
  }
  collectives_->abort("ncclCommRevoke was called");
  unsettle();
  return in_background([self = shared_from_this()] {
    self->quiesce();
    self->settle();
  });
}

void ncclComm::quiesce() noexcept {
  if (stage_.load() == Stage::beginning || !collectives_) return;
  try {
    collectives_->wait();
  } catch (const Error&) {
    // However they ended.
  }
}

Endings ncclComm::leave_siblings(std::shared_ptr<Ending> ending) noexcept {
  if (!counted_.exchange(false)) return {};
  const std::lock_guard lock(groups().mutex);
  const auto group = groups().by_name.find(get(refuges_.front().job_id));
  Siblings& siblings = group->second;
  if (ending != nullptr) siblings.endings.push_back(std::move(ending));
  if (--siblings.alive > 0) return {};
  return std::move(groups().by_name.extract(group).mapped().endings);
}

std::shared_ptr<Ending> ncclComm::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

Endings ncclComm::begin_end() {
  Stage usable = Stage::usable;
  if (!stage_.compare_exchange_strong(usable, Stage::ending)) {
    require(true);
    throw invalid_usage("the communicator is revoked: it can only be destroyed");
  }
  const auto ending = in_background([self = shared_from_this()] { self->end(); });
  {
    const std::lock_guard lock(mutex_);
    ending_ = ending;
  }
  return leave_siblings(ending);
}

void ncclComm::end() noexcept {
  const ncclResult_t result = guarded("ncclCommFinalize", [this] {
    collectives_->finalize();
    ranks_->finalize();
  });
  if (result != ncclSuccess) fail(result, last_text());
  stage_.store(Stage::ended);
}

/// Under the lock: whether something may wait for the other ranks on `ranks_`.
bool ncclComm::uses_ranks() const {
  const Stage stage = stage_.load();
  if (stage == Stage::beginning || stage == Stage::ending) return true;
  return last_job_ != nullptr && !last_job_->is_reached();
}

void ncclComm::abort() {
  leave_siblings(nullptr);
  std::vector<std::shared_ptr<ncclComm>> children;
  Communicator* used = nullptr;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    children = children_;
    // Only then: peers that have this rank's part of a split are to end theirs well.
    if (ranks_ && uses_ranks()) used = &*ranks_;
  }
  if (used != nullptr) used->abort(kAborted);
  if (stage_.load() != Stage::beginning && collectives_) collectives_->abort(kAborted);
  for (const auto& child : children) child->abort();
}
