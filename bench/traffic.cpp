#include "bench/traffic.hpp"

#include <algorithm>
#include <cstdio>

#include "collectives/communicator_core.hpp"

namespace lockstep::bench {
namespace {

std::string short_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"", "K", "M", "G"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.1f%s", value, kUnits[unit]);
  return text;
}

}  // namespace

Traffic sent_so_far(const Communicator& communicator) {
  Traffic sent{};
  internal::Transport* transport = communicator.core().engine().transport();
  if (transport == nullptr) return sent;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const auto medium = std::find(kMedia.begin(), kMedia.end(), transport->link_name(peer));
    if (peer == communicator.rank() || medium == kMedia.end()) continue;
    for (const auto channel : internal::kEachChannel) {
      const internal::Link* link = transport->existing_link(peer, channel);
      if (link != nullptr) sent[static_cast<std::size_t>(medium - kMedia.begin())] += link->bytes_sent();
    }
  }
  return sent;
}

Traffic sent_by_all(Board& board, const Traffic& before, const Traffic& after) {
  Traffic total{};
  for (std::size_t medium = 0; medium < total.size(); ++medium)
    total[medium] = board.sum(after[medium] - before[medium]);
  return total;
}

std::string text_of(const Traffic& traffic) {
  std::string text;
  for (std::size_t medium = 0; medium < traffic.size(); ++medium) {
    if (traffic[medium] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(kMedia[medium]) + " " + short_text(traffic[medium]);
  }
  return text;
}

}  // namespace lockstep::bench
