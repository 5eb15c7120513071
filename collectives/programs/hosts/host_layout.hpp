// HostLayout: which ranks share a host, as seen by one rank of a shape that says so.
#pragma once

#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// Ranks of a host are numbered by their order in the group; the first is its leader.
class HostLayout {
 public:
  /// `shape.hosts` has an entry for every rank.
  explicit HostLayout(const Shape& shape);

  int size() const { return static_cast<int>(hosts_.size()); }
  int own() const { return own_; }
  const std::vector<int>& ranks(int host) const { return hosts_[static_cast<std::size_t>(host)]; }
  /// The ranks of this rank's host, and this rank's number among them.
  const std::vector<int>& mine() const { return ranks(own_); }
  int local() const { return local_; }
  int host_of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }

  /// Whether every host has as many ranks.
  bool even() const;
  /// Whether the ranks of every host follow one another.
  bool adjacent() const;
  /// Of each host the rank with this number.
  std::vector<int> across(int local) const;
  std::vector<int> leaders() const { return across(0); }
  /// Of its host `root`, of every other the leader.
  std::vector<int> representatives(int root) const;

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<int> of_rank_;
  int own_ = 0, local_ = 0;
};

/// Whether the shape has several hosts, and several ranks on one of them.
bool has_shared_hosts(const Shape& shape);
/// And the ranks of every host follow one another.
bool has_adjacent_hosts(const Shape& shape);

}  // namespace lockstep::internal
