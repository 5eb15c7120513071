// Ranks of one process with a fabric of queue pairs each, which have met nobody yet.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "lib/bootstrap/local_session.hpp"
#include "transports/tcp/switchboard.hpp"
#include "transports/verbs/verbs_fabric.hpp"

namespace lockstep::internal::testing {

struct VerbsRanks {
  VerbsRanks(const std::shared_ptr<VerbsDevice>& device, int count)
      : sessions(make_local_sessions(count)), boards(sessions.size()), fabrics(sessions.size()) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < fabrics.size(); ++rank)
      threads.emplace_back([&, rank] { make(device, rank); });
    for (auto& thread : threads) thread.join();
  }

  /// From `rank` to `peer`, which only makes progress.
  std::unique_ptr<Wire> wire(std::size_t rank, int peer) {
    for (;;) {
      auto made = fabrics[rank]->wire(peer, Channel::collective);
      EXPECT_TRUE(made.ok()) << made.status().message();
      if (!made.ok() || *made != nullptr) return made.ok() ? std::move(*made) : nullptr;
      fabrics[static_cast<std::size_t>(peer)]->progress();
    }
  }

  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::unique_ptr<Switchboard>> boards;
  std::vector<std::unique_ptr<VerbsFabric>> fabrics;

 private:
  void make(const std::shared_ptr<VerbsDevice>& device, std::size_t rank) {
    auto board = Switchboard::make(*sessions[rank], real_env(), std::chrono::seconds(60));
    ASSERT_TRUE(board.ok()) << board.status().message();
    boards[rank] = std::move(*board);
    std::vector<int> all(sessions.size());
    std::iota(all.begin(), all.end(), 0);
    auto meeting = VerbsMeeting::make(7, static_cast<int>(rank), all, *boards[rank]);
    ASSERT_TRUE(meeting.ok()) << meeting.status().message();
    auto fabric = VerbsFabric::make(device, std::move(*meeting), static_cast<int>(all.size()), real_env());
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    fabrics[rank] = std::move(*fabric);
  }
};

}  // namespace lockstep::internal::testing
