#include "bench/topology.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <string>
#include <vector>

#include "bench/host_topology.hpp"
#include "collectives/communicator_core.hpp"

namespace lockstep::bench {
namespace {

constexpr int kMatrixRanks = 32;  // Of larger jobs a row of links is longer than a line.

/// Every rank's text, on all ranks.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine) {
  std::uint64_t longest = mine.size();
  communicator.all_reduce(&longest, &longest, 1, DataType::u64, ReduceOp::max);
  std::string padded = mine;
  padded.resize(longest);
  std::string all(longest * static_cast<std::size_t>(communicator.size()), '\0');
  communicator.all_gather(padded.data(), all.data(), longest, DataType::u8);
  std::vector<std::string> texts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    std::string text = all.substr(static_cast<std::size_t>(rank) * longest, longest);
    text.resize(std::min(text.find('\0'), text.size()));
    texts.push_back(std::move(text));
  }
  return texts;
}

/// "0-2,5"
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

/// What carries the links of this rank, by peer.
std::string own_links(const Communicator& communicator) {
  internal::Transport* transport = communicator.core().engine().transport();
  std::string text;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const bool self = peer == communicator.rank() || transport == nullptr;
    text += (peer > 0 ? " " : "") + std::string(self ? "-" : transport->link_name(peer));
  }
  return text;
}

void print_links(const std::vector<std::string>& rows, std::ostream& out) {
  constexpr int kWidth = 6;
  out << "links, by rank\n" << std::setw(kWidth) << "";
  for (std::size_t peer = 0; peer < rows.size(); ++peer) out << std::setw(kWidth) << peer;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    out << "\n" << std::setw(kWidth) << rank;
    for (std::size_t begin = 0; begin < rows[rank].size();) {
      const std::size_t end = std::min(rows[rank].find(' ', begin), rows[rank].size());
      out << std::setw(kWidth) << rows[rank].substr(begin, end - begin);
      begin = end + 1;
    }
  }
  out << "\n";
}

}  // namespace

void print_topology(Communicator& communicator, std::ostream& out) {
  const auto& members = communicator.core().engine().group().members;
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const auto same = [&](const std::vector<int>& host) {
      return members[static_cast<std::size_t>(host.front())].host_id ==
             members[static_cast<std::size_t>(rank)].host_id;
    };
    const auto found = std::find_if(hosts.begin(), hosts.end(), same);
    found == hosts.end() ? hosts.push_back({rank}) : found->push_back(rank);
  }
  const bool speaks = std::any_of(hosts.begin(), hosts.end(), [&](const std::vector<int>& host) {
    return host.front() == communicator.rank();
  });
  const auto texts = gather_texts(communicator, speaks ? describe_host() : std::string());
  const auto links = gather_texts(communicator, own_links(communicator));
  if (communicator.rank() != 0) return;
  out << "hosts: " << hosts.size() << ", ranks: " << communicator.size() << "\n";
  for (const std::vector<int>& host : hosts) {
    out << "ranks " << list_of(host) << " on " << texts[static_cast<std::size_t>(host.front())];
  }
  if (communicator.size() > 1 && communicator.size() <= kMatrixRanks) print_links(links, out);
  if (communicator.core().engine().capabilities().domain)
    out << "all ranks share memory: collectives use it directly, links carry what is point to point\n";
}

}  // namespace lockstep::bench
