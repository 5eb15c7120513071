// Buckets that pass through a hook: one thread starts and finishes them in plan order, pipelined, so that
// encoding and decoding overlap with backward and with the wire. A hook may block in its collectives, which a
// marking thread must not.
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_carrier.hpp"
#include "ddp/bucket_gaps.hpp"
#include "lib/base/standard_floats.hpp"
#include "lib/base/threads.hpp"

namespace lockstep::internal {
namespace {

/// While more buckets are to come, the thread looks up from the wire this often.
constexpr std::chrono::microseconds kGlance{200};

class HookCarrier final : public BucketCarrier {
 public:
  using Done = std::function<void(const GradientBucket&)>;
  HookCarrier(Communicator& communicator, StepClock& clock, std::shared_ptr<CommunicationHook> hook,
              Done done)
      : communicator_(communicator),
        clock_(clock),
        hook_(std::move(hook)),
        done_(std::move(done)),
        thread_(start_thread([this] { run(); })) {}
  ~HookCarrier() override;

  void attach(const BucketPlan& plan, std::span<const Parameter> parameters) override;
  void start(const GradientBucket& bucket) noexcept override;
  std::optional<Error> finish() override;
  std::optional<Error> end_step(bool good) override;
  std::optional<WrongResult> wrong_result() const override { return wrong_result_; }

 private:
  bool has_to_do() const { return attaching_ != nullptr || started_ < queue_.size() || finished_ < started_; }
  void run();
  void attach_hook(std::unique_lock<std::mutex>& lock);
  void start_next(std::unique_lock<std::mutex>& lock);
  void finish_next(std::unique_lock<std::mutex>& lock);

  enum class Peers : std::uint8_t { know_at_once, know_later };
  /// Runs the hook's code without the lock; its error is `failure_`.
  template <typename Action>
  void attempt(std::unique_lock<std::mutex>& lock, const std::string& where, Peers peers, Action action);

  Communicator& communicator_;
  StepClock& clock_;
  const std::shared_ptr<CommunicationHook> hook_;
  const Done done_;

  std::mutex mutex_;
  std::condition_variable work_arrived_, work_done_;
  const BucketPlan* attaching_ = nullptr;  // Set while an attach is asked for.
  std::span<const Parameter> parameters_;
  std::size_t expected_ = 0;           // Buckets of a step.
  std::vector<GradientBucket> queue_;  // Of this step, in plan order.
  std::vector<Work> works_;            // Of those started; only the thread touches them.
  std::size_t started_ = 0, finished_ = 0;
  std::optional<Error> failure_;             // The first of the step; the hook is not called any more.
  std::optional<WrongResult> wrong_result_;  // The first of the step.
  bool stopping_ = false;
  std::thread thread_;  // Last: it uses the members above.
};

HookCarrier::~HookCarrier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_arrived_.notify_one();
  thread_.join();
}

void HookCarrier::attach(const BucketPlan& plan, std::span<const Parameter> parameters) {
  std::unique_lock lock(mutex_);
  attaching_ = &plan;
  parameters_ = parameters;
  expected_ = plan.buckets.size();
  queue_.reserve(expected_);
  works_.reserve(expected_);
  work_arrived_.notify_one();
  work_done_.wait(lock, [&] { return !has_to_do(); });
  if (auto failed = std::exchange(failure_, std::nullopt)) throw *failed;
}

void HookCarrier::start(const GradientBucket& bucket) noexcept {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(bucket);
  }
  work_arrived_.notify_one();
}

std::optional<Error> HookCarrier::finish() {
  std::unique_lock lock(mutex_);
  work_done_.wait(lock, [&] { return !has_to_do(); });
  queue_.clear();
  works_.clear();
  started_ = finished_ = 0;
  return std::exchange(failure_, std::nullopt);
}

/// The thread has nothing to do, and what it wrote was seen in finish(). Peers may be about to see that a
/// good step is good: whoever gets the error tells them later.
std::optional<Error> HookCarrier::end_step(bool good) {
  std::unique_lock lock(mutex_);
  wrong_result_.reset();  // It was judged. The next step may have no bucket.
  attempt(lock, "end_step", good ? Peers::know_later : Peers::know_at_once, [&] { hook_->end_step(good); });
  return std::exchange(failure_, std::nullopt);
}

/// Ranks encode and decode alike whatever the mode of the thread that made this one, which it inherits.
void HookCarrier::run() {
  const StandardFloats floats;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_arrived_.wait(lock, [&] { return stopping_ || has_to_do(); });
    if (!has_to_do()) return;
    if (attaching_ != nullptr) {
      attach_hook(lock);
    } else if (started_ < queue_.size()) {
      start_next(lock);
    } else {
      finish_next(lock);
    }
    if (!has_to_do()) work_done_.notify_all();
  }
}

/// Whether a hook's error is that of a group which was lost, by no doing of the hook.
bool is_of_lost_group(const Communicator& communicator, ErrorCode code) {
  return code != ErrorCode::invalid_argument && code != ErrorCode::mismatch &&
         communicator.state() != ErrorCode::ok;
}

template <typename Action>
void HookCarrier::attempt(std::unique_lock<std::mutex>& lock, const std::string& where, Peers peers,
                          Action action) {
  if (failure_) return;
  lock.unlock();
  std::optional<Error> failed;
  bool by_hook = true;
  std::optional<WrongResult> wrong;
  try {
    action();
  } catch (const WrongResult& result) {
    wrong = result;
  } catch (const Error& error) {
    failed = error;
    by_hook = !is_of_lost_group(communicator_, error.code());
  } catch (const std::bad_alloc&) {
    failed.emplace(ErrorCode::out_of_memory, "no memory", communicator_.rank());
  } catch (const std::exception& error) {
    failed.emplace(ErrorCode::aborted, error.what(), communicator_.rank());
  } catch (...) {
    failed.emplace(ErrorCode::aborted, "it threw something that is no std::exception", communicator_.rank());
  }
  if (failed && by_hook) {
    const int culprit = failed->culprit() >= 0 ? failed->culprit() : communicator_.rank();
    const std::string text = "hook \"" + hook_->name() + "\" failed on rank " +
                             std::to_string(communicator_.rank()) + " in " + where + ": " + failed->what();
    failed.emplace(failed->code(), text, culprit);
    // Peers may be inside a collective that this rank will never call.
    if (peers == Peers::know_at_once)
      communicator_.core().engine().request_revoke(Status(failed->code(), text, culprit));
  }
  lock.lock();
  if (failed) failure_ = failed;
  if (wrong && !wrong_result_) wrong_result_ = wrong;
}

void HookCarrier::attach_hook(std::unique_lock<std::mutex>& lock) {
  attempt(lock, "attach", Peers::know_at_once,
          [&] { hook_->attach(communicator_, *attaching_, parameters_); });
  attaching_ = nullptr;
}

void HookCarrier::start_next(std::unique_lock<std::mutex>& lock) {
  const GradientBucket bucket = queue_[started_];
  Work work;
  attempt(lock, "start of bucket " + std::to_string(bucket.index), Peers::know_at_once,
          [&] { work = hook_->start(communicator_, bucket); });
  works_.push_back(std::move(work));
  ++started_;
}

/// What a hook leaves in gaps between gradients is no part of a norm, nor of what an optimizer steps.
void HookCarrier::finish_next(std::unique_lock<std::mutex>& lock) {
  const GradientBucket bucket = queue_[finished_];
  Work& work = works_[finished_];
  const bool last_started = started_ == expected_;
  bool done = true;
  attempt(lock, "finish of bucket " + std::to_string(bucket.index), Peers::know_at_once, [&] {
    if (last_started) {
      work.wait();
    } else {
      done = work.wait_for(kGlance);
    }
    if (!done) return;
    hook_->finish(bucket);
    clear_gaps(bucket.parts, static_cast<std::byte*>(bucket.data), bucket.count, size_of(bucket.type));
  });
  if (failure_) {  // The buckets are not free before their operations have ended, well or not.
    lock.unlock();
    try {
      work.wait();
    } catch (const Error&) {  // The first error of the step is kept.
    }
    lock.lock();
  }
  if (!done) return;
  clock_.bucket_done(bucket.index);
  if (done_) {
    lock.unlock();
    done_(bucket);
    lock.lock();
  }
  ++finished_;
}

}  // namespace

std::unique_ptr<BucketCarrier> make_hook_carrier(Communicator& communicator, StepClock& clock,
                                                 std::shared_ptr<CommunicationHook> hook,
                                                 std::function<void(const GradientBucket&)> done) {
  return std::make_unique<HookCarrier>(communicator, clock, std::move(hook), std::move(done));
}

}  // namespace lockstep::internal
