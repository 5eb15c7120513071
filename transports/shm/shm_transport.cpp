#include "transports/shm/shm_transport.hpp"

#include <array>
#include <utility>

#include "transports/shm/shm_domain.hpp"
#include "transports/shm/shm_link.hpp"

namespace lockstep::internal {
namespace {

class ShmTransport final : public Transport {
 public:
  ShmTransport(const ShmGroup& group, std::vector<int> ranks, std::vector<Attachment> attachments, Env& env)
      : ranks_(std::move(ranks)), env_(env), domain_(group.rank, group.members, std::move(attachments)) {
    for (Links& links : links_) links.resize(group.members.size());
  }

  std::string_view name() const override { return "shm"; }
  Result<Link*> link(int peer, Channel channel) override;
  Status service() override;
  Link* existing_link(int peer, Channel channel) override { return slot(peer, channel).get(); }
  void append_poll_entries(std::vector<pollfd>& entries) override { domain_.append_poll_entries(entries); }
  Domain* domain() override { return &domain_; }
  void close() override;

 private:
  using Links = std::vector<std::unique_ptr<ShmLink>>;

  std::unique_ptr<ShmLink>& slot(int peer, Channel channel) {
    return links_[static_cast<std::size_t>(channel)][static_cast<std::size_t>(peer)];
  }

  int rank_of(int member) const { return ranks_.empty() ? member : ranks_[static_cast<std::size_t>(member)]; }

  const std::vector<int> ranks_;
  Env& env_;
  ShmDomain domain_;
  std::array<Links, kChannels> links_;
};

Result<Link*> ShmTransport::link(int peer, Channel channel) {
  std::unique_ptr<ShmLink>& link = slot(peer, channel);
  if (link == nullptr) link = std::make_unique<ShmLink>(domain_, peer, rank_of(peer), channel, env_);
  return link.get();
}

// A peer that wrote first has a link from now on.
Status ShmTransport::service() {
  for (int peer = 0; peer < domain_.size(); ++peer) {
    for (const Channel channel : kEachChannel) {
      if (slot(peer, channel) != nullptr) continue;
      if (domain_.ring_from(peer, channel).control->written.load(std::memory_order_relaxed) == 0) continue;
      slot(peer, channel) = std::make_unique<ShmLink>(domain_, peer, rank_of(peer), channel, env_);
    }
  }
  return Status();
}

void ShmTransport::close() {
  for (int peer = 0; peer < domain_.size(); ++peer) {
    for (const Channel channel : kEachChannel) {
      domain_.ring_to(peer, channel).control->writer_closed.store(1, std::memory_order_release);
      domain_.ring_from(peer, channel).control->reader_closed.store(1, std::memory_order_release);
    }
    domain_.ring(peer);
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(std::uint64_t id, int rank,
                                                      const std::vector<Member>& members,
                                                      std::chrono::milliseconds timeout, Env& env,
                                                      std::vector<int> ranks, StillWanted still_wanted,
                                                      std::vector<int> called) {
  const Nanos deadline = timeout.count() == 0 ? kForever : env.now() + to_nanos(timeout);
  if (called.empty()) called = ranks;
  const ShmGroup group{id, rank, members, deadline, std::move(called), std::move(still_wanted)};
  auto attachments = attach_group(group, env);
  if (!attachments.ok()) return attachments.status().with_context("setting up shared memory");
  return std::unique_ptr<Transport>(
      std::make_unique<ShmTransport>(group, std::move(ranks), std::move(*attachments), env));
}

}  // namespace lockstep::internal
