#include "transports/shm/shm_domain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "transports/doorbell.hpp"
#include "transports/shm/read_process.hpp"

namespace lockstep::internal {

namespace {

std::vector<MemberControl*> controls_in(const std::vector<Attachment>& attachments) {
  std::vector<MemberControl*> controls;
  for (const Attachment& attachment : attachments)
    controls.push_back(&ShmLayout::control(attachment.segment->data()));
  return controls;
}

}  // namespace

ShmDomain::ShmDomain(int rank, std::vector<Member> members, std::vector<Attachment> attachments)
    : Domain(rank, controls_in(attachments)), layout_(static_cast<int>(members.size())) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    peers_.push_back(
        {std::move(members[i]), std::move(attachments[i].segment), std::move(attachments[i].bell), {}, {}});
  }
}

void ShmDomain::ring(int member) { internal::ring(control(member).doorbell, peer(member).bell->get()); }

Result<std::byte*> ShmDomain::resolve(int member, const SegmentRef& ref, std::size_t bytes) {
  Peer& owner = peer(member);
  const auto fault = [&](const std::string& what) {
    return Status(ErrorCode::internal, "rank " + std::to_string(member) + " names memory " + what, member);
  };
  if (ref.owner != owner.member.process) return fault("of another process");
  if (ref.owner == process_token()) {
    std::byte* address = own_address(ref, bytes);
    return address != nullptr ? Result<std::byte*>(address) : fault("that it has freed or replaced");
  }
  if (ref.segment == 0) return fault("of its own that only its threads can address");
  auto mapping = mapped(owner, ref);
  if (!mapping.ok()) {
    const Status why = mapping.status().blamed_on(member);
    if (why.code() == ErrorCode::timeout) return why;  // Which is no error yet, and comes often.
    return why.with_context("mapping memory of " + who_is(member, owner.member));
  }
  const std::size_t size = (*mapping)->size();
  if (ref.offset > size || bytes > size - ref.offset) return fault("beyond the end of its segment");
  return (*mapping)->data() + ref.offset;
}

Result<const Mapping*> ShmDomain::mapped(Peer& owner, const SegmentRef& ref) {
  ++clock_;
  const auto known = owner.mapped.find(ref.segment);
  if (known != owner.mapped.end()) {
    known->second.used = clock_;
    return known->second.mapping.get();
  }
  auto fetched = fetch(owner, ref);
  if (!fetched.ok()) return fetched.status();
  if (owner.mapped.size() >= kMaxMappedSegments) drop_least_recent(owner);
  Mapped& fresh = owner.mapped[ref.segment] = {clock_, std::move(*fetched)};
  return fresh.mapping.get();
}

bool ShmDomain::can_pull() {
  if (!can_pull_) {
    bool reads_all = true;
    for (int member = 0; member < size(); ++member) reads_all &= read(member, 0, nullptr, 0).ok();
    can_pull_ = reads_all;
  }
  return *can_pull_;
}

bool ShmDomain::is_readable(const void* address) {
  std::byte first;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  return read_process(own_identity(), place, &first, 1, rank()).ok();
}

Status ShmDomain::pull(int member, std::uint64_t address, void* to, std::size_t bytes) {
  Status status = read(member, address, to, bytes);
  if (status.code() != ErrorCode::system || !is_gone(member)) return status;
  const std::string process = "process " + std::to_string(peer(member).member.pid);
  return Status(ErrorCode::peer_lost, process + " is gone: one that may not be read has its number", member);
}

/// A process that is gone refuses connections; whatever else comes of asking is a sign of life.
bool ShmDomain::is_gone(int member) {
  const auto answer = fetch_descriptors(peer(member).member.descriptor_service, segment_key(0),
                                        IfAbsent::fail, kSegmentPatienceMs);
  return !answer.ok() && answer.status().code() == ErrorCode::peer_lost;
}

Status ShmDomain::read(int member, std::uint64_t address, void* to, std::size_t bytes) {
  const Member& of = peer(member).member;
  const MemberControl& its = control(member);
  return read_process({of.pid, its.lasting_thread, of.process, its.token_address}, address, to, bytes,
                      member);
}

// After a revoke nobody asks again, and what has come would keep waking.
void ShmDomain::append_poll_entries(std::vector<pollfd>& entries) {
  if (control(rank()).revoked.load(std::memory_order_relaxed) != 0) return;
  for (const Peer& owner : peers_) {
    if (owner.fetch) entries.push_back({owner.fetch->poll_fd(), POLLIN, 0});
  }
}

Result<SharedMapping> ShmDomain::fetch(Peer& owner, const SegmentRef& ref) {
  const std::string key = segment_key(ref.segment);
  const bool again = owner.fetch && owner.fetch->key() == key;
  if (!again) owner.fetch.emplace(owner.member.descriptor_service, key, IfAbsent::fail);
  const int watched = owner.fetch->poll_fd();
  auto descriptors = owner.fetch->wait(again ? 0 : kSegmentPatienceMs);
  if (!descriptors.ok() && descriptors.status().code() == ErrorCode::timeout) {
    // Who is about to sleep, or sleeps, does not watch for this answer yet.
    if (owner.fetch->poll_fd() != watched) ring(rank());
    return descriptors.status();
  }
  owner.fetch.reset();
  if (!descriptors.ok()) return descriptors.status();
  for (;;) {
    auto mapping = map_shared(descriptors->front());
    const bool no_room = !mapping.ok() && mapping.status().code() == ErrorCode::out_of_memory;
    if (!no_room || !drop_what_is_idle()) return mapping;
  }
}

/// Unmaps the segment that was not used for longest, of whichever member; false when the operation under way
/// uses all.
bool ShmDomain::drop_what_is_idle() {
  Peer* idle = nullptr;
  std::uint64_t oldest = begun_ + 1;
  for (Peer& owner : peers_) {
    for (const auto& [segment, known] : owner.mapped) {
      if (known.used >= oldest) continue;
      oldest = known.used;
      idle = &owner;
    }
  }
  if (idle != nullptr) drop_least_recent(*idle);
  return idle != nullptr;
}

void ShmDomain::drop_least_recent(Peer& owner) {
  owner.mapped.erase(
      std::min_element(owner.mapped.begin(), owner.mapped.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

}  // namespace lockstep::internal
