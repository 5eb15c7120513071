// Engine: runs the operations of one communicator. It knows transports only by their contract, and time only
// through Env.
//
// Progress is made by whoever calls: a thread in wait() drives every operation; operations that nobody waits
// for are stepped by the reactor's thread; a simulator calls step(). One lock guards everything; it is never
// held while sleeping.
//   engine.cpp            starting operations: validation, order
//   engine_launch.cpp     from what was selected for a call to what runs
//   engine_attempt.cpp    the short path of blocking and small calls: attempts before anybody waits
//   engine_step.cpp       one pass over what is in flight
//   engine_wait.cpp       waiting: spin, yield, sleep; the reactor's side
//   engine_failure.cpp    revokes: loss, deadline, abort; what operations end with and survivors are told
//   engine_peers.cpp      what peers tell and are asked: revokes, probes
//   engine_last_words.cpp whose doing it is that a peer has left
// What it keeps, and what it decides by itself, is in classes of their own, beside the runs of programs: the
// members at the end name them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/comparison.hpp"
#include "collectives/engine/domain_revoke.hpp"
#include "collectives/engine/engine_group.hpp"
#include "collectives/engine/heard_reason.hpp"
#include "collectives/engine/in_flight.hpp"
#include "collectives/engine/limits.hpp"
#include "collectives/engine/matcher.hpp"
#include "collectives/engine/operation_pool.hpp"
#include "collectives/engine/outside_code.hpp"
#include "collectives/engine/peer_tables.hpp"
#include "collectives/engine/processor_watch.hpp"
#include "collectives/engine/quiescence.hpp"
#include "collectives/engine/revoke_requests.hpp"
#include "collectives/engine/selector.hpp"
#include "collectives/engine/sleeper.hpp"
#include "collectives/engine/wait_policy.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {

class Engine final : public Progressor,
                     public FrameHandler,
                     public Matcher::Sink,
                     public std::enable_shared_from_this<Engine> {
 public:
  /// `transport` may be null for a group of one. With `reactor`, unattended operations are stepped by its
  /// thread. With `memory`, which outlives the engine, the domain's operations are on it.
  Engine(EngineGroup group, std::unique_ptr<Transport> transport, Env& env, Reactor* reactor,
         const SharedModel& model = {}, DomainMemory* memory = nullptr);
  ~Engine() override;

  // ---- any thread ----
  /// Runs a collective to its end. On the short path: one lock, no allocation, no clock (but for copies and
  /// pulled calls that are timed, a few of 512, and for what it yields).
  Status run(const Call& call);
  /// The same; as `often` as its caller waits, `look` is called, which may revoke the communicator.
  Status run(const Call& call, Nanos often, const std::function<void(const Operation&)>& look);
  /// Sends or receives a message. It wakes the reactor's thread only for what is left to send.
  Result<RecvStatus> run(const Message& message);
  /// As run() of a call without counts that is the same as an earlier one but for its buffers, which costs
  /// the least. Nothing, and nothing has happened, where none is known, or something speaks against it.
  std::optional<Status> run_again(const CallFacts& facts, const void* input, void* output,
                                  const CallOptions& options);
  /// Starts a collective; the caller gets one reference. A call that is refused gives an operation that has
  /// ended with the error.
  Operation* start(const Call& call, std::function<void(bool)> on_complete = {});
  Operation* start(const Message& message);
  /// Starts all under one lock; the batch ends with the last of them, with the first error. Hooks as in
  /// start(), one per call; they are taken.
  Operation* start_batch(std::span<const Call> calls, std::span<std::function<void(bool)>> hooks,
                         std::span<const Message> messages);
  /// Waits until `operation` ended (true) or `limit` passed (false). Makes progress.
  bool wait(Operation& operation, Nanos limit = kForever);
  bool test(Operation& operation);
  /// The ranks that it waits for now, but for those that only wait for others: these instead. None once it
  /// has ended.
  std::vector<int> awaited_by(const Operation& operation);
  void release(Operation* operation);

  /// Revokes the communicator: every pending and later operation ends with `why`; peers are told. The first
  /// reason wins. Returns at once, also to an operator or a hook that this engine has called.
  void request_revoke(Status why);
  /// A rank (of this communicator) died or left. As request_revoke, but its own words are not awaited.
  void on_loss(int rank, const std::string& evidence);
  ErrorCode state() const { return static_cast<ErrorCode>(state_.load(std::memory_order_acquire)); }
  /// As state(), after a look at what peers have told meanwhile.
  ErrorCode poll_state();
  /// Why it is not usable any more, also where that was asked for a moment ago; ok while it is.
  Status reason();

  /// One pass without waiting. True when something moved.
  bool step();
  /// Waits until every collective under way has ended, those that nobody has a handle of too.
  void finish_calls();
  /// Tells peers that this rank leaves, and ends the engine here: later calls are errors. In good order if no
  /// collective is under way, else with a revoke. Idempotent.
  void close();
  /// After close(): whether a peer that was to be told why this communicator ended may not have been.
  bool left_untold();

  const EngineGroup& group() const { return group_; }
  Transport* transport() const { return transport_.get(); }
  const Capabilities& capabilities() const { return selector_.capabilities(); }
  ChoiceTable& choices() const { return selector_.choices(); }
  Env& env() const { return env_; }
  /// "rank 3 (host-2, pid 4711)"
  std::string who(int rank) const { return group_.who(rank); }

  // ---- Progressor, FrameHandler, Matcher::Sink ----
  Outcome progress() override;
  int arm() override;
  void disarm() override;
  Result<bool> on_frame(int peer, Channel channel, const FrameHeader& header, Link& link) override;
  Status wrong_size(int peer, const FrameHeader& header, std::uint64_t expected) override;
  void complete(Operation& operation, Status status) override;
  std::optional<Status> cause_of_loss(int peer, const Status& why) override;

 private:
  class Contender;  // Lock that asks the thread in progress to make room.
  class Waiting;

  // engine.cpp
  void keep_free(std::size_t operations);
  Operation& new_operation(Operation::Kind kind);
  Operation* hand_out(Operation& operation);
  void wait_out(Operation& operation, Contender& lock);
  void begin(Operation& operation, const Call& call);
  void begin(Operation& operation, const Message& message);
  void keep_counts(Operation& operation);
  Status admit(Operation& operation);
  Status compare_with_probes(const Operation& operation);
  void activate(Operation& operation);
  void activate_pending();

  // engine_launch.cpp
  Status launch(Operation& operation);
  Status launch_alone(Operation& operation, const Buffers& buffers, const Combine& combine);
  Status launch_links(Operation& operation, const Algorithm& algorithm, const Buffers& buffers,
                      const Combine& combine);
  void launch_domain(Operation& operation, const Selection& chosen, std::uint64_t facts_hash,
                     const Buffers& buffers, const Combine& combine);
  Buffers buffers_of(const Call& call);
  Combine combine_of(const Call& call) const;
  bool reduces_here(const Call& call) const;
  const std::byte* scaled_input(Operation& operation, double factor);

  // engine_attempt.cpp
  bool may_run_in_place(const CallFacts& facts);
  bool end_inline(const InlineCall& call, InlineRun& run);
  Operation* make_late_inline(const Call& call, const InlineRun& run);
  Operation* run_inline(const Call& call);
  Status finish(Operation* operation, Contender& lock);
  Operation* run_in_domain(const Call& call);
  Operation* run_in_domain_again(const void* input, void* output, const CallOptions& options);
  Operation* attempt_in_domain(Operation& operation);
  void keep_for_next(Operation& operation);
  Operation* run_begun(const Call& call);
  void attempt_small(Operation& operation);
  Operation* make_late(Operation& operation);
  template <class Try>
  void attempt(Try&& try_once, const DomainRun* run = nullptr);
  template <class Try>
  void attempt_recorded(std::uint64_t sequence, const CallFacts& facts, Try&& try_once,
                        const DomainRun* run = nullptr);

  // engine_step.cpp
  bool step_locked();
  bool step_messages();
  bool take_in();
  bool advance_all();
  template <class Wanted>
  bool advance_each(std::size_t& next, Wanted wanted);
  bool advance_urgent_first();
  bool advance(Operation& operation);
  Result<RunProgress> advance_run(Operation& operation);
  void retire(Operation& operation, bool good);
  void wake_for_end();
  bool keeps_deadline(Operation& operation, Nanos timeout, Nanos now, Nanos& next);
  void look_around();

  // engine_wait.cpp
  void leave_wait();
  void take_back_declaration();
  void pass_on();
  std::optional<bool> fall_asleep(bool for_poll, bool others_held);
  void sleep_locked(std::unique_lock<std::mutex>& lock, Operation& operation, Nanos limit);
  void wake_self();
  bool has_unattended() const;

  // engine_failure.cpp
  void apply_requests();
  void revoke(const Status& why);
  void revoke_without_memory();
  void begin_to_fail();
  bool fail_everything();
  void tell_peers();
  bool drain();
  void give_up_calls();
  void tell_before_leaving(Contender& lock);
  Status failure(const Operation& operation, const Status& cause) const;
  Status of_this_rank(const Status& cause) const;

  // engine_last_words.cpp
  /// What may still come of a peer that has left; the later ones count before the others.
  enum class LastWord : std::uint8_t { none, awaited, behind_data, heard };
  Status true_cause(const Status& why);
  LastWord last_word_of(int peer);
  bool awaits_word(const Status& why);
  bool may_await_cause(int peer);
  Status last_words(int peer, Channel channel, Link& link);

  // engine_peers.cpp
  bool check_domain();
  bool heed_domain();
  Status on_probe(int peer, Channel channel, const FrameHeader& header);
  void tell_wait(int peer, bool urgent);
  void tell_who_is_ahead(bool urgent);
  Result<bool> on_revoke(int peer, const FrameHeader& header, Link& link);
  Status scan_links();
  bool listen(Nanos now);
  void ask_around(Nanos now);
  void ask_for(Operation& operation, Nanos now);

  const EngineGroup group_;
  const std::unique_ptr<Transport> transport_;
  Env& env_;
  Reactor* const reactor_;
  DomainMemory* const memory_;
  Domain* const domain_;

  std::mutex mutex_;                // Guards all that follows, but for what is atomic, and requests_.
  std::atomic<int> contenders_{0};  // Threads that want the lock while another makes progress.
  std::atomic<int> waiters_{0};     // Threads that wait in a call. Written under the lock.
  std::atomic<bool> still_declared_{false};  // Asleep, by the reactor, which is awake.
  int sleepers_ = 0;                         // Waiters asleep: completions by other threads wake them.
  std::unique_ptr<Sleeper> sleeper_;
  const WaitPolicy wait_policy_;
  Yielder yielder_;
  HandOver hand_over_;
  ProcessorWatch processors_;

  OperationPool pool_;
  InFlight in_flight_;
  Selector selector_;
  ProgramCache programs_;
  PeerTables tables_;
  Matcher matcher_;
  CallHistory history_;
  Comparison comparison_;
  DomainPosition position_;
  std::uint64_t sequence_ = 0;  // Of the next collective.
  std::uint64_t inline_calls_ = 0;
  unsigned messages_begun_ = 0;         // So far.
  Nanos urgent_moved_ = -kUrgentPause;  // When an urgent call did last.
  bool others_held_ = false;            // Calls that are not urgent are, for its sake.
  Nanos listened_ = 0;                  // When listen() last did.

  std::atomic<int> state_{0};   // ErrorCode; != 0 once revoked or closed.
  Status reason_;               // Why.
  const Status out_of_memory_;  // This rank's, from when there was memory for it.
  HeardReason heard_;           // Perhaps not acted on yet.
  DomainRevoke domain_revoke_;
  std::vector<bool> lost_;
  std::vector<Nanos> links_ended_;  // When one to a peer was first found to have without a word; 0: not.
  bool failing_ = false;            // The communicator has ended, and what is under way is about to.
  Quiescence quiescence_;
  Nanos drain_until_ = 0;
  bool closed_ = false;
  RevokeRequests requests_;
  OutsideCode outside_;
};

}  // namespace lockstep::internal
