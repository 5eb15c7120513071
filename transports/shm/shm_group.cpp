#include "transports/shm/shm_group.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <utility>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/segment.hpp"
#include "transports/doorbell.hpp"
#include "transports/shm/read_process.hpp"
#include "transports/shm/shm_layout.hpp"
#include "transports/shm/shm_shared_setup.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

constexpr Nanos kNanosPerMilli = 1'000'000;

class Setup {
 public:
  Setup(const ShmGroup& group, Env& env)
      : group_(group),
        env_(env),
        size_(static_cast<int>(group.members.size())),
        layout_(size_),
        attached_(group.members.size()),
        shared_(ShmSharedSetup::of(group.id, group.members.size())) {}
  // Whoever has not fetched the segment by now comes too late: all have, or set-up failed.
  ~Setup() {
    if (offered_) withdraw_descriptors(key_of(group_.rank));
  }

  Result<std::vector<Attachment>> run() {
    if (shared_ == nullptr)
      return Status(ErrorCode::internal, "a group of another size in this process has the same id");
    LOCKSTEP_RETURN_IF_ERROR(make_own());
    // The last first: where all are threads, which start in order, the others are there when it is.
    for (int rank = size_ - 1; rank >= 0; --rank) {
      if (rank == group_.rank) continue;
      LOCKSTEP_RETURN_IF_ERROR(attach(rank));
    }
    next_check_ = env_.now() + kLivenessNanos;
    LOCKSTEP_RETURN_IF_ERROR(meet());
    return std::move(attached_);
  }

 private:
  Attachment& at(int rank) { return attached_[static_cast<std::size_t>(rank)]; }
  const Member& member(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }
  std::byte* segment(int rank) { return at(rank).segment->data(); }
  Nanos left() { return group_.deadline == kForever ? kForever : group_.deadline - env_.now(); }

  std::string key_of(int rank) const {
    char key[64];
    std::snprintf(key, sizeof key, "group/%016" PRIx64 "/%d", group_.id, rank);
    return key;
  }
  std::string describe(int rank) const { return who_is(group_.name_of(rank), member(rank)); }

  Status make_own();
  Status attach(int rank);
  Status meet();
  Status fetch(int rank);
  Status fetch_from_process(int rank, milliseconds patience);
  Status check_alive();
  bool is_here(int rank) const { return member(rank).process == process_token(); }
  bool has_attached(int rank);
  bool is_complete();
  int first_absent();

  const ShmGroup& group_;
  Env& env_;
  const int size_;
  const ShmLayout layout_;
  std::vector<Attachment> attached_;
  const std::shared_ptr<ShmSharedSetup> shared_;
  bool offered_ = false;
  int seen_attached_ = 0;  // Member 0: all before this one have attached.
  Nanos next_check_ = 0;   // When meet() looks again whether all live.
};

// A second descriptor of the same object, to be handed to peers.
Result<Fd> duplicate(const Fd& fd) {
  Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error("duplicating a descriptor", errno);
  return copy;
}

Status Setup::make_own() {
  auto memory = make_memory_fd("lockstep-group", layout_.total_bytes());
  if (!memory.ok()) return memory.status();
  auto mapping = map_shared(*memory, layout_.total_bytes(), layout_.populated_bytes());
  if (!mapping.ok()) return mapping.status();
  Attachment& own = at(group_.rank);
  own.segment = std::move(*mapping);
  own.bell = std::make_shared<const Fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*own.bell) return system_error("creating an eventfd", errno);
  shared_->enter(group_.rank, own);
  if (std::all_of(group_.members.begin(), group_.members.end(),
                  [](const Member& m) { return m.process == process_token(); })) {
    return Status();
  }
  MemberControl& control = ShmLayout::control(own.segment->data());
  control.token_address = process_token_address();
  control.lasting_thread = lasting_thread();
  auto bell = duplicate(*own.bell);
  if (!bell.ok()) return bell.status();
  std::vector<Fd> descriptors;
  descriptors.push_back(std::move(*memory));
  descriptors.push_back(std::move(*bell));
  LOCKSTEP_RETURN_IF_ERROR(offer_descriptors(key_of(group_.rank), std::move(descriptors)));
  offered_ = true;
  return Status();
}

// Waits for the member's offer. While it does not come, looks whether somebody died: that is why, then, and
// not the member that is waited for here.
Status Setup::attach(int rank) {
  Status status = fetch(rank);
  while (status.code() == ErrorCode::timeout && left() > 0) {
    LOCKSTEP_RETURN_IF_ERROR(check_alive());
    status = fetch(rank);
  }
  if (status.ok()) return status;
  return status.blamed_on(group_.name_of(rank)).with_context("attaching to the memory of " + describe(rank));
}

// From another rank of this process that has it, or gets it; else from the member's own process.
Status Setup::fetch(int rank) {
  const milliseconds patience(std::clamp<Nanos>(left(), 0, kLivenessNanos) / kNanosPerMilli);
  if (!is_here(rank) && shared_->claim(rank)) {
    Status status = fetch_from_process(rank, patience);
    if (status.ok()) {
      shared_->enter(rank, at(rank));
    } else {
      shared_->give_up(rank);
    }
    return status;
  }
  auto known = shared_->await(rank, patience);
  if (!known) return Status(ErrorCode::timeout, "it did not offer its memory in time");
  at(rank) = std::move(*known);
  return Status();
}

Status Setup::fetch_from_process(int rank, milliseconds patience) {
  auto descriptors = fetch_descriptors(member(rank).descriptor_service, key_of(rank), IfAbsent::wait,
                                       static_cast<int>(patience.count()));
  if (!descriptors.ok()) return descriptors.status();
  if (descriptors->size() != 2)
    return Status(ErrorCode::internal, "it offers something else than a segment and a bell");
  auto mapping = map_shared(descriptors->front(), layout_.total_bytes(), layout_.populated_bytes());
  if (!mapping.ok()) return mapping.status();
  at(rank).segment = std::move(*mapping);
  at(rank).bell = std::make_shared<const Fd>(std::move(descriptors->back()));
  return Status();
}

// Each tells member 0 that it has mapped everything, and member 0 tells all when all have: every member but
// that one is woken once. Sleeps on the own doorbell meanwhile.
Status Setup::meet() {
  const auto ring_member = [this](int rank) {
    ring(ShmLayout::control(segment(rank)).doorbell, at(rank).bell->get());
  };
  ShmLayout::head(segment(group_.rank)).attached.store(1, std::memory_order_release);
  ring_member(0);
  Doorbell& bell = ShmLayout::control(segment(group_.rank)).doorbell;
  while (!is_complete()) {
    if (left() <= 0) {
      const int absent = first_absent();
      return Status(ErrorCode::timeout,
                    describe(absent) + " did not map the group's memory in time: see what keeps it",
                    group_.name_of(absent));
    }
    declare_asleep(bell, false);
    if (!is_complete()) sleep_on(bell, std::min(left(), kLivenessNanos));
    declare_awake(bell);
    if (env_.now() >= next_check_) LOCKSTEP_RETURN_IF_ERROR(check_alive());
  }
  if (group_.rank != 0) return Status();
  ShmLayout::head(segment(0)).complete.store(1, std::memory_order_release);
  for (int rank = 1; rank < size_; ++rank) ring_member(rank);
  return Status();
}

bool Setup::is_complete() {
  if (group_.rank != 0) {
    return at(0).segment != nullptr &&
           ShmLayout::head(segment(0)).complete.load(std::memory_order_acquire) != 0;
  }
  while (seen_attached_ < size_ && has_attached(seen_attached_)) ++seen_attached_;
  return seen_attached_ == size_;
}

bool Setup::has_attached(int rank) {
  return at(rank).segment != nullptr &&
         ShmLayout::head(segment(rank)).attached.load(std::memory_order_acquire) != 0;
}

int Setup::first_absent() {
  for (int rank = 0; rank < size_; ++rank) {
    if (!has_attached(rank)) return rank;
  }
  return 0;  // It has not told that all have.
}

// A process that died refuses connections; whatever else comes of asking is a sign of life. Who has attached
// may be gone, except for member 0 before it told that all have.
Status Setup::check_alive() {
  if (group_.still_wanted) LOCKSTEP_RETURN_IF_ERROR(group_.still_wanted());
  constexpr int kPatienceMs = static_cast<int>(kLivenessNanos / kNanosPerMilli);
  for (int rank = 0; rank < size_; ++rank) {
    if (is_here(rank) || (rank != 0 && has_attached(rank))) continue;
    const auto answer =
        fetch_descriptors(member(rank).descriptor_service, key_of(rank), IfAbsent::fail, kPatienceMs);
    if (answer.ok() || answer.status().code() != ErrorCode::peer_lost) continue;
    if (rank == 0 ? is_complete() : has_attached(rank)) continue;
    return Status(ErrorCode::peer_lost, describe(rank) + " ended while the group's memory was set up",
                  group_.name_of(rank));
  }
  next_check_ = env_.now() + kLivenessNanos;
  return Status();
}

}  // namespace

Result<std::vector<Attachment>> attach_group(const ShmGroup& group, Env& env) {
  return Setup(group, env).run();
}

}  // namespace lockstep::internal
