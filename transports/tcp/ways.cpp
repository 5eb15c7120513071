#include "transports/tcp/ways.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "transports/tcp/host_probe.hpp"
#include "transports/tcp/limits.hpp"
#include "transports/tcp/reachability.hpp"

namespace lockstep::internal {
namespace {

std::vector<int> all_ranks(const Session& session) {
  std::vector<int> ranks(static_cast<std::size_t>(session.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// What everybody published, checked.
Result<Ways> learn(const Session& session, const PublishedAddress& mine,
                   const std::vector<std::string>& published) {
  Ways ways;
  for (int rank = 0; rank < session.size(); ++rank) {
    auto theirs = PublishedAddress::parse(published[static_cast<std::size_t>(rank)]);
    if (!theirs.ok()) return theirs.status().with_context("address of " + who_is(session, rank));
    if (theirs->sockets != mine.sockets) {
      return Status(ErrorCode::configuration,
                    "LOCKSTEP_TCP_SOCKETS is " + std::to_string(mine.sockets) + " on rank " +
                        std::to_string(session.rank()) + " and " + std::to_string(theirs->sockets) +
                        " on rank " + std::to_string(rank) + ": set it equally on all ranks",
                    rank);
    }
    ways.addresses.push_back(std::move(theirs->where));
    ways.rails.push_back(theirs->rails);
  }
  return ways;
}

/// The ranks of a host share its networks: what answered its speaker is tried first for all of them. Rails
/// are those of the peer's that answered.
void prefer_reached(Ways& ways, const JobHosts& hosts, const ReachRow& reached) {
  for (const HostReach& reach : reached) {
    const auto answered = [&](const HostPort& address) {
      return address.host == reach.address ||
             std::find(reach.rails.begin(), reach.rails.end(), address.host) != reach.rails.end();
    };
    for (std::size_t rank = 0; rank < ways.addresses.size(); ++rank) {
      if (hosts.of_rank(static_cast<int>(rank)) != reach.host) continue;
      auto& addresses = ways.addresses[rank];
      int& rails = ways.rails[rank];
      rails = static_cast<int>(std::count_if(addresses.begin(), addresses.begin() + rails, answered));
      std::stable_partition(addresses.begin(), addresses.end(), answered);
    }
  }
}

/// What a start has at hand.
struct Search {
  Session& session;
  Env& env;
  Reactor& reactor;
  const HandshakeKey& key;
  const PublishedAddress& mine;
  const Deadline& deadline;  ///< Of all exchanges together.

  std::string probe(const JobHosts& hosts, const Ways& ways) const;
  Result<ReachRow> reached(const JobHosts& hosts, const Ways& ways) const;
};

/// Tries the hosts that this rank tries for its own.
std::string Search::probe(const JobHosts& hosts, const Ways& ways) const {
  const int own = hosts.of_rank(session.rank());
  std::vector<ProbeTarget> targets;
  for (int step = 1; step < std::min(hosts.size(), kProbedHosts + 1); ++step) {
    const int host = (own + step) % hosts.size(), peer = hosts.speaker(host);
    targets.push_back({host, peer, who_is(session, peer), ways.addresses[static_cast<std::size_t>(peer)]});
  }
  HandshakeHello hello;
  hello.service = HandshakeService::probe;
  hello.rank = session.rank();
  hello.world = session.size();
  // The others wait for what is found, so half of the time must be left.
  const auto most = std::min<std::chrono::milliseconds>(kProbeDeadline, deadline.left() / 2);
  return encode(HostProbe(reactor, key, hello, mine.sockets > 1).run(targets, most));
}

/// What this host reached, once all know that no way is closed. Hosts that cannot reach each other are an
/// error at once, and on all ranks, not in the first collective that needs the way.
Result<ReachRow> Search::reached(const JobHosts& hosts, const Ways& ways) const {
  const int own = hosts.of_rank(session.rank());
  const bool speaks = hosts.speaker(own) == session.rank();
  auto published = exchange(session, env, "tcp-reach", speaks ? probe(hosts, ways) : std::string(),
                            hosts.speakers(), "the ways between hosts", deadline.left());
  if (!published.ok()) return published.status();
  std::vector<ReachRow> rows;
  for (const std::string& text : *published) {
    auto row = decode_reach_row(text, hosts.size());
    if (!row.ok()) return row.status();
    rows.push_back(std::move(*row));
  }
  if (Status closed = judge_reachability(hosts, rows); !closed.ok()) {
    // A rank that ended now would take the store with it, or be what the others are told of, before all have
    // read of the closed ways.
    static_cast<void>(exchange(session, env, "tcp-reach-read", {}, all_ranks(session),
                               "the ranks to read of closed ways", std::min(deadline.left(), kReadDeadline)));
    return closed;
  }
  return std::move(rows[static_cast<std::size_t>(own)]);
}

}  // namespace

Result<Ways> find_ways(Session& session, Env& env, Reactor& reactor, const HandshakeKey& key,
                       const PublishedAddress& mine, std::chrono::milliseconds timeout) {
  const Deadline deadline(env, timeout);
  auto published =
      exchange(session, env, kPublishedName, mine.text(), all_ranks(session), "the TCP addresses", timeout);
  if (!published.ok()) return published.status();
  auto ways = learn(session, mine, *published);
  const JobHosts hosts(session.members());
  if (!ways.ok() || hosts.size() == 1) return ways;
  auto reached = Search{session, env, reactor, key, mine, deadline}.reached(hosts, *ways);
  if (!reached.ok()) return reached.status();
  prefer_reached(*ways, hosts, *reached);
  return ways;
}

}  // namespace lockstep::internal
