#include "transports/tcp/reachability.hpp"

#include <algorithm>

#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/wire.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

const HostReach* find(const ReachRow& row, int host) {
  const auto found = std::find_if(row.begin(), row.end(), [&](const HostReach& r) { return r.host == host; });
  return found == row.end() ? nullptr : &*found;
}

struct Gap {
  int from, to;
  const std::string* why;
};

std::vector<Gap> gaps_of(const JobHosts& hosts, const std::vector<ReachRow>& rows) {
  std::vector<Gap> gaps;
  for (int from = 0; from < hosts.size(); ++from) {
    for (const HostReach& reach : rows[static_cast<std::size_t>(from)]) {
      if (reach.address.empty() && hosts.connects(from, reach.host))
        gaps.push_back({from, reach.host, &reach.why});
    }
  }
  return gaps;
}

/// A line for each host: the addresses by which it reached the others.
std::string matrix(const JobHosts& hosts, const std::vector<ReachRow>& rows) {
  std::vector<std::vector<std::string>> cells{{"from \\ to"}};
  for (int host = 0; host < hosts.size(); ++host) cells.front().push_back(hosts.name(host));
  for (int from = 0; from < hosts.size(); ++from) {
    auto& line = cells.emplace_back(1, hosts.name(from));
    for (int to = 0; to < hosts.size(); ++to) {
      const HostReach* reach = find(rows[static_cast<std::size_t>(from)], to);
      line.push_back(from == to               ? "-"
                     : reach == nullptr       ? "?"
                     : reach->address.empty() ? "NO"
                                              : reach->address);
    }
  }
  std::string text;
  for (const auto& line : cells) {
    text += "\n ";
    for (std::size_t column = 0; column < line.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : cells) width = std::max(width, other[column].size());
      text += " " + line[column] + std::string(width - line[column].size() + 1, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text;
}

}  // namespace

std::string encode(const ReachRow& row) {
  std::string text;
  WireWriter writer(text);
  writer.integer(static_cast<std::uint32_t>(row.size()));
  for (const HostReach& reach : row) {
    writer.integer(static_cast<std::int32_t>(reach.host));
    writer.text(reach.address);
    writer.text(reach.why);
    writer.integer(static_cast<std::uint32_t>(reach.rails.size()));
    for (const std::string& rail : reach.rails) writer.text(rail);
  }
  return text;
}

Result<ReachRow> decode_reach_row(std::string_view text, int hosts) {
  const Status damaged(ErrorCode::unauthorized, "what a host tells of the others in the store is damaged");
  WireReader reader(as_bytes(text));
  std::uint32_t count = 0;
  if (!reader.integer(count) || count > static_cast<std::uint32_t>(kProbedHosts)) return damaged;
  ReachRow row;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::int32_t host = 0;
    std::string_view address, why;
    if (!reader.integer(host) || !reader.text(kMaxKeyBytes, address) || !reader.text(kMaxValueBytes, why))
      return damaged;
    if (host < 0 || host >= hosts) return damaged;
    HostReach reach{host, std::string(address), std::string(why), {}};
    std::uint32_t rails = 0;
    if (!reader.integer(rails) || rails > kMaxAddresses) return damaged;
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
      if (!reader.text(kMaxKeyBytes, address)) return damaged;
      reach.rails.emplace_back(address);
    }
    row.push_back(std::move(reach));
  }
  return row;
}

JobHosts::JobHosts(const std::vector<Member>& members) {
  for (const Member& member : members) {
    const auto same = std::find_if(speakers_.begin(), speakers_.end(), [&](int speaker) {
      return members[static_cast<std::size_t>(speaker)].host_id == member.host_id;
    });
    const auto host = static_cast<std::size_t>(same - speakers_.begin());
    if (same == speakers_.end()) {
      speakers_.push_back(member.rank);
      last_.push_back(member.rank);
      names_.push_back(member.host_name + " (rank " + std::to_string(member.rank) + ")");
    }
    last_[host] = member.rank;
    of_rank_.push_back(static_cast<int>(host));
  }
}

Status judge_reachability(const JobHosts& hosts, const std::vector<ReachRow>& rows) {
  const std::vector<Gap> gaps = gaps_of(hosts, rows);
  if (gaps.empty()) return {};
  std::string text = "hosts of this job cannot reach each other; who reached whom, and by which address:";
  if (static_cast<std::size_t>(hosts.size()) <= kMatrixHosts) text += matrix(hosts, rows);
  for (std::size_t i = 0; i < std::min(gaps.size(), kExplainedGaps); ++i) {
    text += "\n  " + hosts.name(gaps[i].from) + " to " + hosts.name(gaps[i].to) + ":" + *gaps[i].why;
  }
  if (gaps.size() > kExplainedGaps)
    text += "\n  and " + std::to_string(gaps.size() - kExplainedGaps) + " more ways that are closed";
  text +=
      "\n  next: open the way for TCP between those addresses (firewall, routes), or name the network that "
      "all "
      "hosts share in LOCKSTEP_IFNAME";
  return Status(ErrorCode::configuration, std::move(text), hosts.speaker(gaps.front().to));
}

}  // namespace lockstep::internal
