// One member's transport in a SimNetwork.
#pragma once

#include <memory>
#include <utility>

#include "transports/sim/sim_network.hpp"

namespace lockstep::internal {

class SimTransport final : public Transport {
 public:
  SimTransport(SimNetwork& network, int member, std::unique_ptr<SimDomain> domain)
      : network_(network), member_(member), domain_(std::move(domain)) {}
  ~SimTransport() override { close(); }

  std::string_view name() const override { return "sim"; }
  Result<Link*> link(int peer, Channel channel) override;
  Status service() override;
  Link* existing_link(int peer, Channel channel) override;
  void append_poll_entries(std::vector<pollfd>&) override {}
  Domain* domain() override { return domain_.get(); }
  void close() override { network_.close(member_); }

 private:
  /// This member's link of the connection, or nullptr while it is being set up.
  Link* ready_link(SimConnection& connection, int peer) const;

  SimNetwork& network_;
  int member_;
  std::unique_ptr<SimDomain> domain_;
};

}  // namespace lockstep::internal
