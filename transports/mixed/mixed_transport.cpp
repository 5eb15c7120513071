#include "transports/mixed/mixed_transport.hpp"

#include <string>

namespace lockstep::internal {
namespace {

class MixedTransport final : public Transport {
 public:
  MixedTransport(std::unique_ptr<Transport> near, const std::vector<int>& near_ranks,
                 std::unique_ptr<Transport> far, int size)
      : near_(std::move(near)),
        far_(std::move(far)),
        name_(std::string(near_->name()) + "+" + std::string(far_->name())),
        numbers_(static_cast<std::size_t>(size), kFar) {
    for (std::size_t i = 0; i < near_ranks.size(); ++i) {
      numbers_[static_cast<std::size_t>(near_ranks[i])] = static_cast<int>(i);
    }
  }

  std::string_view name() const override { return name_; }
  std::string_view link_name(int peer) const override {
    return is_near(peer) ? near_->link_name(number(peer)) : far_->link_name(peer);
  }
  Result<Link*> link(int peer, Channel channel) override {
    return is_near(peer) ? near_->link(number(peer), channel) : far_->link(peer, channel);
  }
  Link* existing_link(int peer, Channel channel) override {
    return is_near(peer) ? near_->existing_link(number(peer), channel) : far_->existing_link(peer, channel);
  }
  bool link_is_under_way(int peer, Channel channel) override {
    return is_near(peer) ? near_->link_is_under_way(number(peer), channel)
                         : far_->link_is_under_way(peer, channel);
  }
  Status service() override {
    Status status = near_->service();
    Status other = far_->service();
    return status.ok() ? other : status;
  }
  void append_poll_entries(std::vector<pollfd>& entries) override {
    near_->append_poll_entries(entries);
    far_->append_poll_entries(entries);
  }
  bool streams() const override { return near_->streams() && far_->streams(); }
  Domain* domain() override { return nullptr; }
  Domain* doorbell_domain() override { return near_->doorbell_domain(); }
  void close() override {
    near_->close();
    far_->close();
  }
  bool withdraw(int peer, bool force) override {
    return is_near(peer) ? near_->withdraw(number(peer), force) : far_->withdraw(peer, force);
  }
  bool unfinished() override { return near_->unfinished() || far_->unfinished(); }

 private:
  static constexpr int kFar = -1;
  int number(int peer) const { return numbers_[static_cast<std::size_t>(peer)]; }
  bool is_near(int peer) const { return number(peer) != kFar; }

  const std::unique_ptr<Transport> near_, far_;
  const std::string name_;
  std::vector<int> numbers_;  // In `near`, by rank.
};

}  // namespace

std::unique_ptr<Transport> make_mixed_transport(std::unique_ptr<Transport> near,
                                                const std::vector<int>& near_ranks,
                                                std::unique_ptr<Transport> far, int size) {
  return std::make_unique<MixedTransport>(std::move(near), near_ranks, std::move(far), size);
}

}  // namespace lockstep::internal
