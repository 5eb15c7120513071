// DomainRun: the execution of one collective in shared memory.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine/buffers.hpp"
#include "collectives/engine/call_identity.hpp"
#include "collectives/engine/domain_memory.hpp"
#include "collectives/engine/prepared_program.hpp"
#include "collectives/engine/pull_trials.hpp"
#include "collectives/engine/run_progress.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {

/// Where this rank stands in the domain: equal on all ranks between two calls.
struct DomainPosition {
  std::uint64_t phase = 0;  ///< Published by the calls so far.
  std::uint64_t calls = 0;
};

/// Owner of an offered buffer that the collective does not touch on that rank: eligible, and never resolved.
inline constexpr std::uint64_t kUnusedBuffer = ~std::uint64_t{0};

/// What a domain call may run. A registered program is used when every rank's buffers are registered, which
/// the ranks find out by exchanging offers; otherwise the pulled one, where every rank can read the others'
/// private memory and would; otherwise the staged one.
struct DomainChoice {
  const Algorithm* staged = nullptr;
  const Algorithm* registered = nullptr;
  const Algorithm* pulled = nullptr;
  PullTrial* trial = nullptr;      ///< Whether this rank would; null: always. Outlives the run.
  const Shape* shape = nullptr;    ///< Outlives the run.
  bool past_caches = false;        ///< As in Reduction; staging always stays in them.
  DomainMemory* memory = nullptr;  ///< Who runs the steps; null: this thread.
};

/// Whether peers can reach it in any way: owner 0 means that they cannot.
inline bool addressable(const SegmentRef& reference) { return reference.owner != 0; }

/// This rank's buffers as peers would address them.
struct OfferedBuffers {
  SegmentRef input, output;
  std::size_t input_bytes = 0, output_bytes = 0;  ///< Of a segment that replacements may take from peers.
};

/// Where the members' memory lies in this rank's address space, by member. Keeps its capacity from call to
/// call.
struct MemberPlaces {
  std::vector<std::byte*> input, output, staging;
  std::vector<bool> elsewhere;  ///< Pulled: the input's address is one of its owner's process.
  /// How far the program of this rank goes into them, in bytes; they are looked up only where that is not 0.
  std::vector<std::size_t> input_bytes, output_bytes;
};

enum class Exposure : std::uint8_t { none, to_readers, to_writers };

class DomainRun {
 public:
  void begin(const DomainChoice& choice, const Buffers& buffers, const Combine& combine,
             const CallIdentity& identity, const OfferedBuffers& offered);
  /// Instead, after a run that is over: the same call once more, but for where its buffers are.
  void begin_again(const void* input, void* output, const CallIdentity& identity,
                   const OfferedBuffers& offered);
  /// Its turn in the domain came. Once, before the first step().
  void enter(DomainPosition position);
  bool entered() const { return entered_; }
  /// Never blocks, except for a moment when a member's newly registered segment is mapped on first use.
  Result<RunProgress> step(Domain& domain, ProgramCache& cache);
  /// After done: where the next call starts.
  DomainPosition end() const;
  /// After done: what the program takes.
  std::size_t program_bytes() const { return program_->bytes; }
  /// What members may do to this rank's buffers where they lie: from an offer with which a registered or
  /// pulled program can be chosen, until the run is over or all have agreed on another one. Not only from the
  /// agreement on: a member that has seen the last offer goes on while this rank has yet to look.
  Exposure exposure() const;
  /// Whether the last step() stopped within a long copy or reduction, only to let others have the lock.
  bool has_work() const { return elements_ > 0; }
  /// Whether whoever has published what is awaited has nothing to do until all have, and the call goes on
  /// then or ends for those who shared its work. Not where one phase is all: there a rank that has published
  /// may as well let the next one end.
  bool waits_idly() const;
  void waiting_for(Domain& domain, std::vector<int>& members) const;
  void abandon(Domain& domain);

 private:
  enum class Way : std::uint8_t { none, staged, registered, pulled };
  enum class Stale : std::uint8_t { no, revoked, taken };
  Result<RunProgress> advance(Domain& domain, ProgramCache& cache);
  Result<bool> agree(Domain& domain, ProgramCache& cache);
  bool needs_offers() const;
  bool may_be_registered() const;
  bool decide_to_pull(Domain& domain);
  void publish_offer(Domain& domain);
  Result<bool> await_offers(Domain& domain);
  Way common_way(Domain& domain) const;
  std::uint32_t slowest_told(Domain& domain) const;
  bool mapped(const SegmentRef& reference) const;
  Status adopt(Domain& domain, ProgramCache& cache, Way way);
  Status set_up(Domain& domain, ProgramCache& cache, Way way);
  bool pulls(const Step& step) const;
  void locate_staging(Domain& domain);
  Status resolve_members(Domain& domain);
  Status resolve_inputs(Domain& domain);
  Status take_up(Domain& domain);
  Status put_down(Domain& domain);
  bool end_use(Domain& domain);
  Status why_stale(const Domain& domain) const;
  bool memory_was_taken() const;
  Result<bool> run_step(Domain& domain, const Step& step);
  Status complete_enqueued();
  Result<bool> await(Domain& domain, std::uint64_t phase, int member);
  void claim_phase(Domain& domain);
  void publish(Domain& domain, std::uint64_t phase);

  DomainChoice choice_;
  Buffers buffers_;
  MemberPlaces places_;
  Combine combine_;
  CallIdentity identity_;
  OfferedBuffers mine_;
  DomainPosition position_;
  std::shared_ptr<const PreparedProgram> program_;  // Until agreed, that of the run before or null.
  Way way_ = Way::none;                             // As agreed, here or by the run that this one repeats.
  std::size_t window_bytes_ = 0, windows_ = 0;      // Of staging memory for such a call, and in each half.
  bool agreed_ = false;
  bool entered_ = false;
  bool offered_ = false;
  bool would_pull_ = false;         // As offered.
  const void* readable_ = nullptr;  // The last private input that members could read.
  std::uint64_t base_ = 0;          // Phase before the program's first.
  std::uint32_t next_ = 0;          // Step to run.
  std::uint64_t elements_ = 0;      // Done of a long copy or reduce.
  int awaited_ = 0;                 // Members seen by the current await.
  int handing_over_ = kSelf;        // The member whose memory is not here yet.
  bool enqueued_ = false;           // Steps that DomainMemory may not have run yet.
  bool in_use_ = false;             // Members' memory, as declared in MemberControl.
  Stale stale_ = Stale::no;         // What was read of it may be a later call's.
};

}  // namespace lockstep::internal
