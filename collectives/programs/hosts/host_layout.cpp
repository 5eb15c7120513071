#include "collectives/programs/hosts/host_layout.hpp"

#include <algorithm>

namespace lockstep::internal {

HostLayout::HostLayout(const Shape& shape) : of_rank_(shape.hosts) {
  hosts_.resize(static_cast<std::size_t>(*std::max_element(of_rank_.begin(), of_rank_.end()) + 1));
  for (int rank = 0; rank < shape.world; ++rank) {
    auto& host = hosts_[static_cast<std::size_t>(host_of(rank))];
    if (rank == shape.rank) local_ = static_cast<int>(host.size());
    host.push_back(rank);
  }
  own_ = host_of(shape.rank);
}

bool HostLayout::even() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [&](const auto& host) { return host.size() == hosts_.front().size(); });
}

bool HostLayout::adjacent() const { return std::is_sorted(of_rank_.begin(), of_rank_.end()); }

std::vector<int> HostLayout::across(int local) const {
  std::vector<int> result;
  for (const auto& host : hosts_) result.push_back(host[static_cast<std::size_t>(local)]);
  return result;
}

std::vector<int> HostLayout::representatives(int root) const {
  std::vector<int> result = leaders();
  result[static_cast<std::size_t>(host_of(root))] = root;
  return result;
}

bool has_shared_hosts(const Shape& shape) {
  if (shape.hosts.empty()) return false;
  const int hosts = *std::max_element(shape.hosts.begin(), shape.hosts.end()) + 1;
  return hosts > 1 && hosts < shape.world;
}

bool has_adjacent_hosts(const Shape& shape) {
  return has_shared_hosts(shape) && HostLayout(shape).adjacent();
}

}  // namespace lockstep::internal
