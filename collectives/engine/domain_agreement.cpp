// How the ranks of a call agree on its way, staged, pulled or registered, and find each other's memory.

#include <algorithm>
#include <string>

#include "collectives/engine/domain_run.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

bool starts_with_all_ready(const Program& program) {
  const auto& steps = program.lanes.front().steps;
  return steps.size() >= 2 && steps[0].kind == StepKind::publish && steps[1].kind == StepKind::await &&
         steps[1].peer == kSelf && steps[0].phase == 1 && steps[1].phase == 1;
}

/// Whose input and output the program touches, and how much of them. Nobody else has to wait for this rank:
/// what they offered may be gone before it looks.
void note_uses(const Program& program, std::size_t element, MemberPlaces& places) {
  const auto note = [&](const Slice& slice) {
    if (slice.member == kSelf || slice.count == 0) return;
    if (slice.space != Space::input && slice.space != Space::output) return;
    std::size_t& bytes =
        (slice.space == Space::input ? places.input_bytes
                                     : places.output_bytes)[static_cast<std::size_t>(slice.member)];
    bytes = std::max(bytes, (slice.offset + slice.count) * element);
  };
  for (const Slice& slice : program.slices) note(slice);
  for (const Step& step : program.lanes.front().steps) {
    if (step.kind != StepKind::copy) continue;
    note(step.src);
    note(step.dst);
  }
}

/// Nothing of it can be right.
Status offers_nothing(int member) {
  return Status(ErrorCode::internal,
                "rank " + std::to_string(member) +
                    " offers no memory where this call has to use some: check that all ranks run one version",
                member);
}

/// Memory of another process that only the kernel can read.
bool is_plain_elsewhere(const SegmentRef& reference) {
  return reference.segment == 0 && reference.owner != process_token();
}

}  // namespace

/// A rank whose buffers are not registered, and that would not pull, knows the outcome, and goes on at once
/// unless it is told something.
bool DomainRun::needs_offers() const {
  return choice_.staged == nullptr || may_be_registered() || would_pull_ ||
         (choice_.trial != nullptr && choice_.trial->is_told());
}

/// Chooses the program. When several kinds are possible the ranks exchange offers first, which says as much
/// as a registered program's own first phase (everybody is ready).
Result<bool> DomainRun::agree(Domain& domain, ProgramCache& cache) {
  Way way = Way::staged;
  if (choice_.registered != nullptr || choice_.pulled != nullptr) {
    if (!offered_) publish_offer(domain);
    if (needs_offers()) {
      auto all = await_offers(domain);
      if (!all.ok()) return all.status();
      if (!*all) return false;
      if (choice_.trial != nullptr) choice_.trial->hear(slowest_told(domain));
      way = common_way(domain);
      awaited_ = 0;
    }
  }
  const Status status = adopt(domain, cache, way);
  const bool late = status.code() == ErrorCode::timeout;  // The call's own deadline decides.
  handing_over_ = late ? status.culprit() : kSelf;
  if (!status.ok() && !late) return status;
  return !late;
}

bool DomainRun::may_be_registered() const {
  return choice_.registered != nullptr && mapped(mine_.input) && mapped(mine_.output);
}

/// And has the trial note its vote.
bool DomainRun::decide_to_pull(Domain& domain) {
  if (choice_.pulled == nullptr || (choice_.trial != nullptr && !choice_.trial->vote())) return false;
  if (!domain.can_pull()) return false;
  const bool is_private = mine_.input.segment == 0 && mine_.input.owner != kUnusedBuffer;
  if (!is_private || buffers_.input == readable_) return true;
  if (!domain.is_readable(buffers_.input)) return false;
  readable_ = buffers_.input;
  return true;
}

/// Whether peers can map it. Where pulling is possible, plain memory is offered too.
bool DomainRun::mapped(const SegmentRef& reference) const {
  return addressable(reference) &&
         !(choice_.pulled != nullptr && reference.segment == 0 && reference.owner != kUnusedBuffer);
}

/// By all offers, so that every rank comes to the same.
DomainRun::Way DomainRun::common_way(Domain& domain) const {
  bool registered = choice_.registered != nullptr, pulled = choice_.pulled != nullptr;
  for (int member = 0; member < domain.size(); ++member) {
    const Offer& offer = domain.control(member).offer[position_.calls & 1];
    registered &= mapped(offer.input) && (offer.in_place != 0 || mapped(offer.output));
    pulled &= offer.pulls != 0 && addressable(offer.input);
  }
  return registered ? Way::registered : pulled ? Way::pulled : Way::staged;
}

std::uint32_t DomainRun::slowest_told(Domain& domain) const {
  std::uint32_t slowest = 0;
  for (int member = 0; member < domain.size(); ++member)
    slowest = std::max(slowest, domain.control(member).offer[position_.calls & 1].took);
  return slowest;
}

void DomainRun::publish_offer(Domain& domain) {
  would_pull_ = decide_to_pull(domain);
  Offer& offer = domain.control(domain.rank()).offer[position_.calls & 1];
  offer.fingerprint = identity_.fingerprint;
  offer.input = mine_.input;
  offer.in_place = mine_.output == mine_.input ? 1 : 0;
  offer.pulls = would_pull_ ? 1 : 0;
  offer.took = choice_.trial != nullptr ? choice_.trial->took() : 0;
  if (offer.in_place == 0) offer.output = mine_.output;
  offer.call.store(position_.calls + 1, std::memory_order_seq_cst);  // As in publish().
  claim_phase(domain);
  domain.ring_sleepers();
  offered_ = true;
}

Result<bool> DomainRun::await_offers(Domain& domain) {
  for (; awaited_ < domain.size(); ++awaited_) {
    const Offer& offer = domain.control(awaited_).offer[position_.calls & 1];
    if (offer.call.load(std::memory_order_acquire) < position_.calls + 1) return false;
    if (offer.fingerprint != identity_.fingerprint) return fingerprint_mismatch(awaited_);
  }
  return true;
}

Status DomainRun::adopt(Domain& domain, ProgramCache& cache, Way way) {
  if (way != way_) LOCKSTEP_RETURN_IF_ERROR(set_up(domain, cache, way));
  if (way == Way::staged) {
    locate_staging(domain);
  } else {
    if (starts_with_all_ready(program_->program)) next_ = 2;
    domain.begin_resolving();
    LOCKSTEP_RETURN_IF_ERROR(way == Way::pulled ? resolve_inputs(domain) : resolve_members(domain));
  }
  if (choice_.trial != nullptr && way != Way::registered) choice_.trial->begin(way == Way::pulled);
  agreed_ = true;  // Not before the members' memory is found: a run that failed may be stepped once more.
  return {};
}

/// What a repeated call has already.
Status DomainRun::set_up(Domain& domain, ProgramCache& cache, Way way) {
  const Algorithm* algorithm = way == Way::staged   ? choice_.staged
                               : way == Way::pulled ? choice_.pulled
                                                    : choice_.registered;
  if (algorithm == nullptr) {
    const std::string buffers = "buffers from lockstep::allocate() or register_buffer() on every rank";
    if (choice_.pulled == nullptr) return refuse_buffers(*choice_.registered, combine_.op, buffers);
    return refuse_buffers(*choice_.pulled, combine_.op,
                          buffers + ", or ranks that may read each other's memory");
  }
  if (const auto& program = cache.get(*algorithm, *choice_.shape); program_ != program) program_ = program;
  const auto members = static_cast<std::size_t>(domain.size());
  places_.input.assign(members, nullptr);
  places_.output.assign(members, nullptr);
  places_.staging.resize(members);
  places_.elsewhere.assign(members, false);
  places_.input_bytes.assign(members, 0);
  places_.output_bytes.assign(members, 0);
  note_uses(program_->program, buffers_.element, places_);
  window_bytes_ = choice_.shape->staging * buffers_.element;
  windows_ = domain.staging_bytes() / 2 / window_bytes_;
  buffers_.member_input = places_.input.data();
  buffers_.member_output = places_.output.data();
  buffers_.member_staging = places_.staging.data();
  way_ = way;  // Last: memory may have run out before.
  return {};
}

void DomainRun::locate_staging(Domain& domain) {
  const std::size_t half = domain.staging_bytes() / 2;
  const std::size_t place = (position_.calls & 1) * half + (position_.calls >> 1) % windows_ * window_bytes_;
  for (int member = 0; member < domain.size(); ++member) {
    places_.staging[static_cast<std::size_t>(member)] = domain.staging(member) + place;
  }
}

Status DomainRun::resolve_members(Domain& domain) {
  const auto address = [&](int member, const SegmentRef& reference, std::size_t bytes) {
    if (reference.owner == kUnusedBuffer) return Result<std::byte*>(offers_nothing(member));
    return domain.resolve(member, reference, bytes);
  };
  for (int member = 0; member < domain.size(); ++member) {
    if (member == domain.rank()) continue;  // Programs name this rank's own memory as kSelf.
    const auto m = static_cast<std::size_t>(member);
    const Offer& offer = domain.control(member).offer[position_.calls & 1];
    if (places_.input_bytes[m] > 0) {
      auto input = address(member, offer.input, places_.input_bytes[m]);
      if (!input.ok()) return input.status();
      places_.input[m] = *input;
    }
    if (const std::size_t bytes = places_.output_bytes[m]; bytes > 0) {
      const bool known = offer.in_place != 0 && bytes <= places_.input_bytes[m];
      auto output =
          known ? places_.input[m] : address(member, offer.in_place != 0 ? offer.input : offer.output, bytes);
      if (!output.ok()) return output.status();
      places_.output[m] = *output;
    }
  }
  return {};
}

/// Pulled programs touch nothing of the members but their inputs.
Status DomainRun::resolve_inputs(Domain& domain) {
  for (int member = 0; member < domain.size(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const SegmentRef& input = domain.control(member).offer[position_.calls & 1].input;
    if (places_.input_bytes[m] == 0) continue;
    if (input.owner == kUnusedBuffer) return offers_nothing(member);
    places_.elsewhere[m] = is_plain_elsewhere(input);
    if (places_.elsewhere[m]) {
      places_.input[m] = reinterpret_cast<std::byte*>(input.offset);
      continue;
    }
    auto place = domain.resolve(member, input, places_.input_bytes[m]);
    if (!place.ok()) return place.status();
    places_.input[m] = *place;
  }
  return {};
}

}  // namespace lockstep::internal
