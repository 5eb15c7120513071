// ReducerOptions: what a Reducer may be asked to do differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace lockstep {

class CommunicationHook;

/// What Reducer::begin_step does when some ranks have run out of data.
enum class UnevenInputs : std::uint8_t {
  shadow,  ///< They go on with gradients of zero until the last rank is done.
  stop,    ///< All ranks stop together.
};

/// Equal on all ranks, but for those that say otherwise: the constructor compares.
struct ReducerOptions {
  // ---- buckets
  /// Cap of a bucket. What is left when backward ends is about this much, and a slow link sends it alone; on
  /// one host buckets of this size cost no more than larger ones.
  std::size_t bucket_bytes = 4u << 20;
  /// Cap of the first: communication starts early. A larger gradient that comes first has bucket_bytes.
  std::size_t first_bucket_bytes = 1u << 20;
  /// Gradients live in the buckets: no copy, and Parameter::gradient is null. false: they live there. May
  /// differ between ranks.
  bool gradients_as_views = true;
  /// Divide by the world size; false sums.
  bool average = true;
  /// Average over samples instead of over ranks: each rank's gradient counts as often as begin_step() says.
  /// Not with a hook that leaves gradients local (LocalSgd); other hooks get weighted gradients to sum.
  bool weighted = false;
  /// A gradient larger than a bucket travels in several of equal size; false: alone in one of its own.
  bool split_large = true;
  /// After the first step, order the buckets as rank 0's gradients became ready. Moves gradients, so it is
  /// done only when every rank keeps its gradients itself (no views) or has set `gradients_moved`.
  bool rebuild = true;
  /// With views: called once, inside the wait() that rebuilt the buckets, when gradient(i) has changed for
  /// every i. Only whether any rank lacks it is compared.
  std::function<void()> gradients_moved = nullptr;
  /// wait() returns when all ranks know that the step is good and the gradients that the next forward needs
  /// first have come; Reducer::wait_gradients() waits for the others, layer by layer, while the forward runs.
  /// What is needed first goes first: all buckets but the first quarter of the bytes are urgent
  /// (CallOptions::priority), which tells where hosts are joined by links. Not together with `hook` and
  /// `half_in_f32`. A wait() that rebuilds the buckets waits for all.
  bool overlap_forward = false;

  // ---- which gradients take part
  /// A gradient that was not marked when wait() is called counts as zero on this rank; Reducer::used tells
  /// whether any rank had one. Costs one all_reduce of a bit per parameter; buckets with such a gradient
  /// start in wait(), unless mark_unused() named it before.
  bool find_unused = false;
  /// Every step marks the same gradients equally often. The first step counts (and starts its buckets in
  /// wait()); in later ones a gradient is complete at its last mark, and those that the first step did not
  /// mark are zero from the start. A step that marks others is an error.
  bool static_graph = false;
  UnevenInputs uneven = UnevenInputs::shadow;

  // ---- types
  /// f16 and bf16 gradients are weighted and added up in f32 on the whole way, rounded once. Without it the
  /// sums of some ranks, over links, are rounded as well, and without `average` those of f16 above 65504 are
  /// infinite. Not together with `hook`.
  bool half_in_f32 = false;

  // ---- checks
  /// Views: keep a copy of what a step changes, so that a wait() that throws leaves every gradient as it was.
  /// As much memory again as the gradients; on one host some 2 % of a step; nothing of both with
  /// `check_first`. May differ between ranks. Without views it cannot be turned off. With `overlap_forward`
  /// it ends with wait(): what fails in wait_gradients() leaves gradients undefined.
  bool undo = true;
  /// wait() starts the buckets only after all ranks agreed that every gradient is there (and finite, if that
  /// is checked): an error of use, or a peer lost during backward, then leaves all gradients as they were
  /// without `undo`'s copies, which are needed with a hook only. Costs the overlap with backward. Views are
  /// undefined after a collective that failed once the buckets had started.
  /// Not said: yes where there is nobody to overlap with: all ranks are on one host that has no core beyond
  /// one for each, so that every cycle of a reduction is taken from somebody's backward. Then no with `hook`
  /// and with `overlap_forward`.
  std::optional<bool> check_first = std::nullopt;
  /// A gradient with an infinity or a NaN is taken for zero, and wait() throws NonFiniteGradient on every
  /// rank. Costs one read of each gradient where it is marked. Not looked at is what becomes of them: where
  /// sums may overflow (f16 without `average` and `half_in_f32`) the norm that clip_gradients() returns
  /// tells.
  bool check_finite = false;
  /// Every so many steps wait() compares the parameters of all ranks; 0 = never. Costs one read of all.
  std::uint64_t check_replicas_every = 0;

  /// How buckets travel; null: as they are, by all_reduce. Of the same kind on all ranks, and of one reducer.
  std::shared_ptr<CommunicationHook> hook = nullptr;
};

}  // namespace lockstep
