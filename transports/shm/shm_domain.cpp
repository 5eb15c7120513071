#include "transports/shm/shm_domain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/memory/descriptor_service.hpp"
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
        {std::move(members[i]), std::move(attachments[i].segment), std::move(attachments[i].bell), {}});
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
  if (!mapping.ok()) return Status(mapping.status().code(), mapping.status().message(), member);
  const std::size_t size = (*mapping)->size();
  if (ref.offset > size || bytes > size - ref.offset) return fault("beyond the end of its segment");
  return (*mapping)->data() + ref.offset;
}

// The segment's mapping; an older generation is dropped.
Result<const Mapping*> ShmDomain::mapped(Peer& owner, const SegmentRef& ref) {
  ++clock_;
  const auto known = owner.mapped.find(ref.segment);
  if (known != owner.mapped.end() && known->second.generation == ref.generation) {
    known->second.used = clock_;
    return known->second.mapping.get();
  }
  auto fetched = fetch(owner, ref);
  if (!fetched.ok()) return fetched.status();
  if (known == owner.mapped.end() && owner.mapped.size() >= kMaxMappedSegments) drop_least_recent(owner);
  Mapped& fresh = owner.mapped[ref.segment] = {ref.generation, clock_, std::move(*fetched)};
  return fresh.mapping.get();
}

bool ShmDomain::can_pull() {
  if (!can_pull_) {
    can_pull_ = true;
    for (int member = 0; member < size(); ++member) {
      const MemberControl& theirs = control(member);
      std::uint64_t process = 0;
      const std::uint64_t place = theirs.home + offsetof(MemberControl, process);
      if (!pull(member, place, &process, sizeof process).ok() || process != peer(member).member.process)
        can_pull_ = false;
    }
  }
  return *can_pull_;
}

Status ShmDomain::pull(int member, std::uint64_t address, void* to, std::size_t bytes) {
  return read_process(peer(member).member.pid, address, to, bytes, member);
}

Result<SharedMapping> ShmDomain::fetch(const Peer& owner, const SegmentRef& ref) {
  const std::string& service = owner.member.descriptor_service;
  auto descriptors =
      fetch_descriptors(service, segment_key(ref.segment, ref.generation), IfAbsent::fail, kSegmentTimeoutMs);
  if (!descriptors.ok()) return descriptors.status();
  return map_shared(descriptors->front());
}

void ShmDomain::drop_least_recent(Peer& owner) {
  owner.mapped.erase(
      std::min_element(owner.mapped.begin(), owner.mapped.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

}  // namespace lockstep::internal
