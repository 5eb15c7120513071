#include "transports/sim/sim_network.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "transports/sim/sim_transport.hpp"

namespace lockstep::internal {

namespace {

std::vector<int> all_ranks(const SimSchedule& schedule) {
  std::vector<int> ranks(static_cast<std::size_t>(schedule.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

SimConnection::SimConnection(SimSchedule& schedule, const SimLinkOptions& options, std::pair<int, int> both,
                             std::pair<int, int> ranks)
    : pipes{{schedule, options, ranks.first, ranks.second}, {schedule, options, ranks.second, ranks.first}},
      links{{pipes[0], pipes[1], both.second}, {pipes[1], pipes[0], both.first}},
      members(both) {}

SimNetwork::SimNetwork(SimSchedule& schedule, std::vector<int> members, const SimNetworkOptions& options)
    : schedule_(schedule),
      members_(std::move(members)),
      options_(options),
      incoming_(members_.size()),
      closed_(members_.size()) {
  if (options_.domain) memory_.emplace(size());
  schedule_.on_crash([this](int rank) { on_crash(rank); });
}

SimNetwork::SimNetwork(SimSchedule& schedule, const SimNetworkOptions& options)
    : SimNetwork(schedule, all_ranks(schedule), options) {}

std::unique_ptr<Transport> SimNetwork::attach(int member) {
  std::unique_ptr<SimDomain> domain;
  if (memory_) {
    domain = std::make_unique<SimDomain>(schedule_, *memory_, members_, options_.links.delay, member);
  }
  return std::make_unique<SimTransport>(*this, member, std::move(domain));
}

SimConnection* SimNetwork::find(int member, int peer, Channel channel) {
  const auto found = connections_.find(key(member, peer, channel));
  return found == connections_.end() ? nullptr : found->second.get();
}

SimConnection& SimNetwork::connect(int member, int peer, Channel channel) {
  const auto [low, high] = std::minmax(member, peer);
  const auto rank = [this](int m) { return members_[static_cast<std::size_t>(m)]; };
  auto& connection = connections_[key(member, peer, channel)];
  connection = std::make_unique<SimConnection>(schedule_, options_.links, std::pair(low, high),
                                               std::pair(rank(low), rank(high)));
  const int side = member < peer ? 0 : 1;
  const Nanos there = schedule_.now() + options_.links.delay.draw(schedule_.random());
  const Nanos back = there + options_.links.delay.draw(schedule_.random());
  connection->ready_at[side] = back;
  connection->ready_at[1 - side] = there;
  connection->accepted[side] = true;
  incoming_[static_cast<std::size_t>(peer)].push_back({connection.get(), 1 - side});
  schedule_.wake(rank(peer), there);
  schedule_.wake(rank(member), back);
  if (member_crashed(peer) || closed_[static_cast<std::size_t>(peer)]) {
    connection->pipes[1 - side].end();
    connection->pipes[side].break_off();
  }
  return *connection;
}

void SimNetwork::accept_all(int member) {
  std::erase_if(incoming_[static_cast<std::size_t>(member)], [this](const Incoming& incoming) {
    const bool arrived = schedule_.now() >= incoming.connection->ready_at[incoming.side];
    if (arrived) incoming.connection->accepted[incoming.side] = true;
    return arrived;
  });
}

void SimNetwork::close(int member) {
  closed_[static_cast<std::size_t>(member)] = true;
  if (member_crashed(member)) return;
  for (auto& [key, connection] : connections_) {
    const auto [low, high] = connection->members;
    if (low != member && high != member) continue;
    const int side = member == low ? 0 : 1;
    connection->pipes[side].end();
    connection->pipes[1 - side].break_off();
  }
}

void SimNetwork::on_crash(int rank) {
  for (auto& [key, connection] : connections_) {
    const auto [low, high] = connection->members;
    for (const int side : {0, 1}) {
      const int member = side == 0 ? low : high;
      if (members_[static_cast<std::size_t>(member)] != rank) continue;
      connection->pipes[side].cut();
      connection->pipes[1 - side].break_off();
    }
  }
}

}  // namespace lockstep::internal
