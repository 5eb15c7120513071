// Ranks that meet where a process serves them: one of them that is not rank 0, or one that is no rank.
#include <gtest/gtest.h>

#include <optional>

#include "lockstep/lockstep.hpp"
#include "lockstep/rendezvous.hpp"
#include "tests/support/forked.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;

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

TEST(ServedRendezvous, AStrangerIsRefused) {
  Shared<Board> board;
  run_forked(2, [&](int process) {
    if (process == 0) {
      Rendezvous place("served", "secret");
      board->post(0, place.address());
      board->meet(2);
      return;
    }
    try {
      join(board->read(0), 0, 2, "guessed");
      ADD_FAILURE() << "a wrong secret was let in";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unauthorized) << error.what();
    }
    board->meet(2);
  });
}

TEST(ServedRendezvous, NeedsASecret) {
  run_forked(1, [](int) { EXPECT_THROW(Rendezvous("served", ""), Error); });
}

}  // namespace
}  // namespace lockstep
