// Reachability: which hosts of a job reach which others, by which address, and why not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/member.hpp"

namespace lockstep::internal {

/// What a host found out about another one.
struct HostReach {
  int host = 0;
  std::string address;               ///< The one that answered first, without its port; empty: none did.
  std::string why;                   ///< What happened instead, a line for each address.
  std::vector<std::string> rails{};  ///< All that answered, where a link is to have several ways.
};

/// All that one host found out; travels through the store as text. Error `unauthorized`: that is no row of a
/// job on so many hosts.
using ReachRow = std::vector<HostReach>;
std::string encode(const ReachRow& row);
Result<ReachRow> decode_reach_row(std::string_view text, int hosts);

/// The hosts of a job in the order in which its ranks meet them. The first rank of each speaks for it.
class JobHosts {
 public:
  explicit JobHosts(const std::vector<Member>& members);
  int size() const { return static_cast<int>(speakers_.size()); }
  int of_rank(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& speakers() const { return speakers_; }
  int speaker(int host) const { return speakers_[static_cast<std::size_t>(host)]; }
  /// Lower ranks connect to higher ones: whether links are made in this direction.
  bool connects(int from, int to) const { return speaker(from) < last_[static_cast<std::size_t>(to)]; }
  /// "node-1 (rank 0)".
  std::string name(int host) const { return names_[static_cast<std::size_t>(host)]; }

 private:
  std::vector<int> of_rank_, speakers_, last_;
  std::vector<std::string> names_;
};

/// Ok when every host reaches those that it connects to. Else who reached whom, by which address, and why
/// not, with the next step. `rows`: by host; one that tried nothing of another says nothing of it.
Status judge_reachability(const JobHosts& hosts, const std::vector<ReachRow>& rows);

}  // namespace lockstep::internal
