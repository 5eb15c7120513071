// Ranks that meet where a process serves them: one of them that is not rank 0, or one that is no rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "lockstep/lockstep.hpp"
#include "lockstep/rendezvous.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using testing::thrown_by;

Communicator join(const std::string& address, int rank, int size, const std::string& secret = "secret") {
  InitOptions options;
  options.rank = rank;
  options.world_size = size;
  options.rendezvous = address;
  options.job_id = "served";
  options.secret = secret;
  options.timeout = std::chrono::seconds(30);
  return Communicator::create(options);
}

void expect_sum(Communicator& ranks) {
  int sum = ranks.rank() + 1;
  ranks.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
  EXPECT_EQ(sum, ranks.size() * (ranks.size() + 1) / 2);
  ranks.finalize();
}

TEST(ServedRendezvous, ByARankThatIsNotTheFirst) {
  Shared<Board> board;
  run_forked(3, [&](int rank) {
    std::optional<Rendezvous> place;
    if (rank == 2) board->post(2, place.emplace("served", "secret").address());
    Communicator ranks = join(board->read(2), rank, 3);
    expect_sum(ranks);
    board->meet(3);
  });
}

TEST(ServedRendezvous, ByAProcessThatIsNoRank) {
  Shared<Board> board;
  run_forked(3, [&](int process) {
    if (process == 0) {
      Rendezvous place("served", "secret");
      Rendezvous moved = std::move(place);
      board->post(0, moved.address());
      board->meet(3);
      return;
    }
    Communicator ranks = join(board->read(0), process - 1, 2);
    expect_sum(ranks);
    board->meet(3);
  });
}

/// Where ranks share memory nothing but the store tells of deaths.
TEST(ServedRendezvous, ByARankThatIsKilled) {
  Shared<Board> board;
  const auto children = start_forked(3, [&](int rank) {
    std::optional<Rendezvous> place;
    if (rank == 2) board->post(2, place.emplace("served", "secret").address());
    Communicator ranks = join(board->read(2), rank, 3);
    ranks.barrier();
    if (rank == 2) raise(SIGKILL);
    CallOptions options;
    options.timeout = std::chrono::seconds(60);  // Not half an hour, where nobody notices.
    const Error error = thrown_by([&] { ranks.barrier(options); });
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.culprit(), 2) << error.what();
  });
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), child == children[2] ? SIGKILL : 0);
}

/// And ends before the others, which have no call with it any more.
TEST(ServedRendezvous, ByARankThatHasLeft) {
  Shared<Board> board;
  const auto children = start_forked(3, [&](int rank) {
    if (rank == 2) {
      auto* place = new Rendezvous("served", "secret");  // Ends with the process.
      board->post(2, place->address());
      join(board->read(2), rank, 3).barrier();
      return;
    }
    Communicator ranks = join(board->read(2), rank, 3);
    ranks.barrier();
    board->read(3);
    for (int i = 0; i < 1000; ++i) {
      if (rank == 0) ranks.send(&i, 1, DataType::i32, 1);
      int heard = i;
      if (rank == 1) ranks.recv(&heard, 1, DataType::i32, 0);
      EXPECT_EQ(heard, i);
    }
    EXPECT_EQ(ranks.state(), ErrorCode{});
  });
  EXPECT_EQ(wait_for(children[2]), 0);
  board->post(3, "is gone");
  EXPECT_EQ(wait_for(children[0]), 0);
  EXPECT_EQ(wait_for(children[1]), 0);
}

TEST(ServedRendezvous, AStrangerIsRefused) {
  Shared<Board> board;
  run_forked(2, [&](int process) {
    if (process == 0) {
      Rendezvous place("served", "secret");
      board->post(0, place.address());
      board->meet(2);
      return;
    }
    const Error error = thrown_by([&] { join(board->read(0), 0, 2, "guessed"); });
    EXPECT_EQ(error.code(), ErrorCode::unauthorized) << error.what();
    board->meet(2);
  });
}

// As a rank whose host has no way to the address that is best on the other's.
TEST(ServedRendezvous, IsFoundAtAnyOfItsAddresses) {
  Shared<Board> board;
  run_forked(3, [&](int process) {
    if (process == 0) {
      setenv("LOCKSTEP_IFNAME", "=lo", 1);
      Rendezvous place("served", "secret");
      EXPECT_LE(place.address().size(), 63u);
      board->post(0, place.address());
      board->meet(3);
      return;
    }
    std::string address = board->read(0);
    const std::string first = "127.0.0.1,";
    if (const auto at = address.find(first); at != std::string::npos) {  // Not where there is no ::1.
      address.replace(at, first.size(), "127.9.9.9,");                   // Nobody listens there.
      Communicator ranks = join(address, process - 1, 2);
      expect_sum(ranks);
    }
    board->meet(3);
  });
}

TEST(ServedRendezvous, NeedsASecret) {
  run_forked(1, [](int) { EXPECT_THROW(Rendezvous("served", ""), Error); });
}

}  // namespace
}  // namespace lockstep
