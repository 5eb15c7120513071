// Groups through the C API, between real processes: how they form, divide and end.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/c_api.hpp"
#include "lockstep/rendezvous.hpp"
#include "tests/engine/c_group.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;
using testing::CMeetingPlace;
using testing::fails;
using testing::last_error_says;
using testing::ok;

void expect_c_sum(lockstep_comm_t comm, int size) {
  int sum = lockstep_rank(comm) + 1;
  ok(lockstep_all_reduce(comm, &sum, &sum, 1, LOCKSTEP_I32, LOCKSTEP_SUM, nullptr, nullptr));
  EXPECT_EQ(lockstep_size(comm), size);
  EXPECT_EQ(sum, size * (size + 1) / 2);
}

class CApiGroups : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, CApiGroups, ::testing::ValuesIn(testing::transports_here()),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(CApiGroups, FormAsTheStructSays) {
  const CMeetingPlace place;
  run_forked(3, [&](int rank) {
    lockstep_init_t init = place.init(rank, 3);
    init.transports = GetParam();
    init.job_id = "a job";
    init.secret = "a secret";
    lockstep_comm_t comm = nullptr;
    ok(lockstep_create(&init, &comm));
    EXPECT_EQ(lockstep_rank(comm), rank);
    EXPECT_EQ(lockstep_state(comm), LOCKSTEP_OK);
    expect_c_sum(comm, 3);
    ok(lockstep_finalize(comm));
    EXPECT_NE(lockstep_barrier(comm, nullptr, nullptr), LOCKSTEP_OK);
    EXPECT_NE(lockstep_state(comm), LOCKSTEP_OK);
    lockstep_comm_free(comm);
  });
}

// What a layer above finds wrong with its call ends the peers' call with its reason.
TEST_P(CApiGroups, TellThePeersWhatALayerAboveRefuses) {
  const CMeetingPlace place;
  run_forked(2, [&](int rank) {
    lockstep_init_t init = place.init(rank, 2);
    init.transports = GetParam();
    lockstep_comm_t comm = nullptr;
    ok(lockstep_create(&init, &comm));
    expect_c_sum(comm, 2);
    if (rank == 0) {
      EXPECT_EQ(lockstep_refuse(comm, "all_reduce", "the list is no list of numbers"),
                LOCKSTEP_INVALID_ARGUMENT);
    } else {
      int x = 0;
      EXPECT_EQ(lockstep_all_reduce(comm, &x, &x, 1, LOCKSTEP_I32, LOCKSTEP_SUM, nullptr, nullptr),
                LOCKSTEP_REFUSED);
    }
    EXPECT_TRUE(last_error_says("the list is no list of numbers"));
    EXPECT_EQ(lockstep_last_culprit(), 0);
    lockstep_comm_free(comm);
  });
}

// A process that is of no group serves the place where one meets.
TEST(CApiRendezvous, IsServedByAnybody) {
  run_forked(1, [](int) {
    lockstep_rendezvous_t place = nullptr;
    EXPECT_EQ(lockstep_rendezvous_create("a job", "", &place), LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_EQ(lockstep_rendezvous_address(nullptr), nullptr);
    ok(lockstep_rendezvous_create("a job", "a secret", &place));
    const std::string address = lockstep_rendezvous_address(place);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        lockstep_init_t init = {};
        init.has_rank = 1;
        init.rank = rank;
        init.world_size = 2;
        init.rendezvous = address.c_str();
        init.job_id = "a job";
        init.secret = "a secret";
        lockstep_comm_t comm = nullptr;
        ok(lockstep_create(&init, &comm));
        const std::string description = lockstep_describe(comm);
        EXPECT_EQ(description.find("rank " + std::to_string(rank) + " of 2"), 0u) << description;
        expect_c_sum(comm, 2);
        ok(lockstep_finalize(comm));
        lockstep_comm_free(comm);
      });
    }
    for (auto& rank : ranks) rank.join();
    lockstep_rendezvous_free(place);
  });
}

// rank and world_size count only beside has_rank.
TEST(CApiEnvironment, IsWhatAZeroedStructTakes) {
  const CMeetingPlace place;
  run_forked(2, [&](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCKSTEP_RENDEZVOUS", place.rendezvous().c_str(), 1);
    lockstep_init_t init{};
    for (const lockstep_init_t* how : {&init, static_cast<lockstep_init_t*>(nullptr)}) {
      lockstep_comm_t comm = nullptr;
      ok(lockstep_create(how, &comm));
      EXPECT_EQ(lockstep_rank(comm), rank);
      expect_c_sum(comm, 2);
      ok(lockstep_finalize(comm));
      lockstep_comm_free(comm);
      init.rank = 77, init.world_size = -5;
    }
  });
}

TEST(CApiEnvironment, IsOneRankWhereItSaysNothing) {
  run_forked(1, [&](int) {
    const lockstep_init_t init{};
    lockstep_comm_t comm = nullptr;
    ok(lockstep_create(&init, &comm));
    EXPECT_EQ(lockstep_rank(comm), 0);
    expect_c_sum(comm, 1);
    lockstep_comm_free(comm);
  });
}

TEST(CApiEnvironment, NamesTheTransportsOfALocalGroupWhereTheCallDoesNot) {
  run_forked(1, [&](int) {
    for (const char* named : {"tcp", "shm"}) {
      setenv("LOCKSTEP_TRANSPORTS", named, 1);
      lockstep_comm_t comms[2] = {};
      ok(lockstep_local_group(2, nullptr, comms));
      const std::string text = comms[0]->communicator.describe();
      EXPECT_NE(text.find(std::string("transport ") + named), std::string::npos) << text;
      for (const lockstep_comm_t comm : comms) lockstep_comm_free(comm);
    }
  });
}

TEST(CApiCreate, RefusesWhatCannotBe) {
  const CMeetingPlace place;
  run_forked(1, [&](int) {
    lockstep_comm_t comm = nullptr;
    const auto refused = [&](const lockstep_init_t& init, const char* word) {
      EXPECT_TRUE(fails(lockstep_create(&init, &comm), LOCKSTEP_CONFIGURATION, word)) << word;
    };
    refused(place.init(2, 2), "rank 2");
    refused(place.init(-1, 2), "rank -1");
    refused(place.init(0, 0), "world size 0");
    lockstep_init_t init = place.init(0, 2);
    init.rendezvous = "pigeon://post";
    refused(init, "pigeon://post");
    EXPECT_TRUE(
        fails(lockstep_local_group(0, nullptr, &comm), LOCKSTEP_INVALID_ARGUMENT, "at least one rank"));
    EXPECT_TRUE(fails(lockstep_local_group(-1, nullptr, &comm), LOCKSTEP_INVALID_ARGUMENT, "not -1"));
    EXPECT_TRUE(fails(lockstep_local_group(16385, nullptr, &comm), LOCKSTEP_INVALID_ARGUMENT, "not 16385"));
    EXPECT_TRUE(fails(lockstep_local_group(2, "pigeon", &comm), LOCKSTEP_CONFIGURATION, "pigeon"));
    EXPECT_EQ(comm, nullptr);
  });
}

// The struct's count, not the environment's.
TEST(CApiCreate, NamesTransportsThatDiffer) {
  const CMeetingPlace place;
  run_forked(2, [&](int rank) {
    setenv("LOCKSTEP_TRANSPORTS", "shm", 1);
    lockstep_init_t init = place.init(rank, 2);
    init.transports = rank == 0 ? "shm" : "tcp";
    lockstep_comm_t comm = nullptr;
    EXPECT_TRUE(fails(lockstep_create(&init, &comm), LOCKSTEP_CONFIGURATION, "transports differ"));
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(CApiCreate, GivesUpOnARankThatDoesNotCome) {
  const CMeetingPlace place;
  run_forked(1, [&](int) {
    lockstep_init_t init = place.init(0, 2);
    init.timeout_ms = 50;
    lockstep_comm_t comm = nullptr;
    EXPECT_EQ(lockstep_create(&init, &comm), LOCKSTEP_TIMEOUT);
    EXPECT_TRUE(last_error_says("rank 1")) << lockstep_last_error();
    EXPECT_EQ(comm, nullptr);
  });
}

// What 0 is in C++ is -1 here, where a zeroed struct asks for the default.
TEST(CApiCreate, WaitsHoweverLongItTakes) {
  const CMeetingPlace place;
  run_forked(2, [&](int rank) {
    setenv("LOCKSTEP_START_TIMEOUT", "1ms", 1);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lockstep_init_t init = place.init(rank, 2);
    init.timeout_ms = -1;
    lockstep_comm_t comm = nullptr;
    ok(lockstep_create(&init, &comm));
    lockstep_comm_free(comm);
  });
}

TEST(CApiCreate, HasNoTimeLeftForADeadlineThatHasPassed) {
  const CMeetingPlace place;
  run_forked(1, [&](int) {
    lockstep_init_t init = place.init(0, 2);
    init.timeout_ms = -2;
    lockstep_comm_t comm = nullptr;
    EXPECT_EQ(lockstep_create(&init, &comm), LOCKSTEP_TIMEOUT) << lockstep_last_error();
  });
}

TEST(CApiCreate, KeepsStrangersOut) {
  Shared<Board> board;
  run_forked(2, [&](int process) {
    if (process == 0) {
      Rendezvous place("job", "secret");
      board->post(0, place.address());
      return board->meet(2);
    }
    const std::string address = board->read(0);
    lockstep_comm_t comm = nullptr;
    for (const auto& [job, secret] : {std::pair{"job", "guessed"}, {"another", "secret"}}) {
      lockstep_init_t init{};
      init.has_rank = 1;
      init.world_size = 2;
      init.rendezvous = address.c_str();
      init.job_id = job;
      init.secret = secret;
      init.timeout_ms = 60'000;
      EXPECT_EQ(lockstep_create(&init, &comm), LOCKSTEP_UNAUTHORIZED) << lockstep_last_error();
    }
    EXPECT_EQ(comm, nullptr);
    board->meet(2);
  });
}

TEST_P(CApiGroups, SplitByColorAndKey) {
  const CMeetingPlace place;
  run_forked(4, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 4, GetParam()), part = comm;
    ok(lockstep_split(comm, rank == 3 ? -7 : rank % 2, -rank, &part));
    if (rank == 3) {
      EXPECT_EQ(part, nullptr);
    } else {
      EXPECT_EQ(lockstep_rank(part),
                rank == 0 ? 1 : 0);  // Of ranks 0 and 2 the one with the lower key first.
      expect_c_sum(part, rank == 1 ? 1 : 2);
    }
    ok(lockstep_barrier(comm, nullptr, nullptr));
    lockstep_comm_free(part);
    ok(lockstep_finalize(comm));
    lockstep_comm_free(comm);
  });
}

/// No rank's finalize returns before all have called it, and before calls that nobody has a handle of ended.
TEST_P(CApiGroups, EndTogether) {
  const CMeetingPlace place;
  Shared<std::atomic<bool>> called;
  run_forked(2, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    constexpr std::size_t kCount = 1 << 20;
    std::vector<float> data(kCount, 1);
    lockstep_work_t work = nullptr;
    ok(lockstep_all_reduce(comm, data.data(), data.data(), kCount, LOCKSTEP_F32, LOCKSTEP_SUM, nullptr,
                           &work));
    lockstep_work_free(work);
    if (rank == 1) {
      internal::sleep_for(std::chrono::milliseconds(20));  // Time for rank 0 to return too early.
      *called = true;
    }
    ok(lockstep_finalize(comm));
    EXPECT_TRUE(called->load());
    EXPECT_EQ(std::count(data.begin(), data.end(), 2.0f), static_cast<std::ptrdiff_t>(kCount));
    lockstep_comm_free(comm);
  });
}

}  // namespace
}  // namespace lockstep
