// An abort ends every call of the others, with its reason: whatever they are busy with, and however their
// links end.
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/rescue.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::eventually;
using testing::kPatience;
using testing::on_ranks;
using testing::Rescue;

void expect_enough(const std::pair<ErrorCode, std::string>& error, int culprit) {
  const auto& [code, text] = error;
  EXPECT_EQ(code, ErrorCode::aborted) << text;
  EXPECT_NE(text.find("rank " + std::to_string(culprit)), std::string::npos) << text;
  EXPECT_NE(text.find("aborted: enough"), std::string::npos) << text;
}

class Aborts : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Aborts, ::testing::ValuesIn(testing::transports_here()));

// The last rank aborts when the others, each in a call of round(comm), have gone round for a while.
void abort_rounds(const char* transport, int ranks, const std::function<void(Communicator&)>& round) {
  const int culprit = ranks - 1;
  std::atomic<int> rounds{0}, heard{0};
  on_ranks(ranks, transport, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == culprit) {
      EXPECT_TRUE(eventually([&] { return rounds.load() > 100; }));
      comm.abort("enough");
      EXPECT_TRUE(eventually([&] { return heard.load() == culprit; }, 2 * kPatience));
      return;
    }
    const Rescue rescue(comm);
    expect_enough(error_of([&] {
                    for (;; rounds.fetch_add(1)) round(comm);
                  }),
                  culprit);
    heard.fetch_add(1);
  });
}

// No call of theirs needs the rank that aborts.
TEST_P(Aborts, AreHeardByRanksThatExchangeMessages) {
  abort_rounds(GetParam(), 3, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    float x = 0;
    if (comm.rank() == 0) comm.send(&x, 1, DataType::f32, other);
    comm.recv(&x, 1, DataType::f32, other);
    if (comm.rank() == 1) comm.send(&x, 1, DataType::f32, other);
  });
}

// Every send of theirs ends in the call that begins it.
TEST_P(Aborts, AreHeardByRanksThatOnlySend) {
  abort_rounds(GetParam(), 2, [](Communicator& comm) {
    float x = 0;
    comm.send(&x, 1, DataType::f32, 0);
    comm.recv(&x, 1, DataType::f32, 0);
  });
}

// There is no link but the one for messages.
TEST_P(Aborts, AreHeardByGroupsThatOnlyExchangeMessages) {
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    float x = 0;
    const int other = 1 - comm.rank();
    if (comm.rank() == 0) comm.send(&x, 1, DataType::f32, other);
    if (comm.rank() == 1) comm.recv(&x, 1, DataType::f32, other);
    if (comm.rank() == 1) {
      comm.abort("enough");
      const Communicator leaving = std::move(comm);
      return;
    }
    const Rescue rescue(comm);
    expect_enough(error_of([&] { comm.recv(&x, 1, DataType::f32, other); }), 1);
  });
}

// As above, by a receive from anybody.
TEST_P(Aborts, AreTheCauseWhereNobodyIsLeft) {
  std::atomic<bool> received{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    float x = 0;
    comm.barrier();
    if (comm.rank() == 1) comm.send(&x, 1, DataType::f32, 0);
    if (comm.rank() == 0) comm.recv(&x, 1, DataType::f32, 1);
    if (comm.rank() == 0) received.store(true);
    if (comm.rank() == 1) {
      EXPECT_TRUE(eventually([&] { return received.load(); }));
      static_cast<void>(comm.broadcast_async(&x, 1, DataType::f32, 1));
      comm.abort("enough");
      const Communicator leaving = std::move(comm);
      return;
    }
    const Rescue rescue(comm);
    expect_enough(error_of([&] { comm.recv(&x, 1, DataType::f32, kAnySource); }), 1);
  });
}

// As when it is stopped in the midst of that: nobody else may write there then.
TEST(AbortInSharedMemory, IsHeardThoughItsReasonIsNeverWritten) {
  on_ranks(2, "shm", [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      comm.core().engine().transport()->domain()->control(1).revoked.store(1);
      EXPECT_TRUE(eventually([&] { return comm.state() != ErrorCode::ok; }, 2 * kPatience));
      return;
    }
    const Rescue rescue(comm);
    const auto [code, text] = error_of([&] { comm.barrier(); });
    EXPECT_EQ(code, ErrorCode::aborted) << text;
    EXPECT_NE(text.find("stopped before it said why"), std::string::npos) << text;
  });
}

// Of a rank that has told the others its color, and comes no further.
TEST_P(Aborts, EndASplitThatWaitsForTheOthers) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    if (comm.rank() == 1) {
      const std::int64_t own[] = {0, 1};
      std::int64_t all[4];
      comm.all_gather(own, all, 2, DataType::i64);
      return comm.abort("enough");
    }
    expect_enough(error_of([&] { static_cast<void>(comm.split(0, 0)); }), 1);
  });
}

// Who is in it is named by the number that it has there; of others there are words alone.
TEST_P(Aborts, EndAPartThatIsBeingSetUpInItsOwnNumbers) {
  for (const int culprit : {0, 2}) {
    on_ranks(3, GetParam(), [&](Communicator& comm) {
      std::optional<Communicator> part = comm.split(comm.rank() == 0 ? 1 : 0, 0);
      if (comm.rank() == culprit) comm.abort("enough");
      EXPECT_TRUE(eventually([&] { return comm.state() != ErrorCode::ok; }));
      if (comm.rank() == 0) return;
      const internal::CommunicatorCore::SetUp under_way(comm.core(), part->core());
      const internal::Status why = part->core().engine().reason();
      EXPECT_EQ(why.culprit(), culprit == 2 ? 1 : -1) << why.message();
      expect_enough({why.code(), why.message()}, culprit);
    });
  }
}

// What the rank that aborts had done its part of before, on memory or link by link, ends well.
TEST_P(Aborts, SpareTheCallsBefore) {
  for (int round = 0; round < 30; ++round) {
    on_ranks(2, GetParam(), [&](Communicator& comm) {
      float x = 0;
      comm.barrier();
      comm.broadcast(&x, 1, DataType::f32, 1);
      if (comm.rank() == 1) comm.abort("enough");
    });
  }
}

// The link for messages ends, and with it a message; the word lies on the one for collectives.
TEST_P(Aborts, AreNoLossForTheCallsBehindAMessage) {
  std::atomic<bool> gone{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    float x = 0;
    const int other = 1 - comm.rank();
    comm.barrier();
    if (comm.rank() == 0) comm.send(&x, 1, DataType::f32, other);
    if (comm.rank() == 1) comm.recv(&x, 1, DataType::f32, other);
    if (comm.rank() == 1) {
      comm.abort("enough");
      { const Communicator leaving = std::move(comm); }
      gone.store(true);
      return;
    }
    EXPECT_TRUE(eventually([&] { return gone.load(); }));
    const Rescue rescue(comm);
    expect_enough(error_of([&] { comm.recv(&x, 1, DataType::f32, other); }), 1);
    expect_enough(error_of([&] { comm.barrier(); }), 1);
  });
}

// Which the engine waits for meanwhile.
TEST_P(Aborts, MayComeFromAnOperator) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const Rescue rescue(comm);
    CallOptions options;
    options.user_op.context = &comm;
    options.user_op.combine = [](const void*, void*, std::size_t, void* context) {
      static_cast<Communicator*>(context)->abort("enough");
    };
    std::vector<float> values(5000);
    const auto [code, text] = error_of([&] {
      for (;;)
        comm.all_reduce(values.data(), values.data(), values.size(), DataType::f32, ReduceOp::user, options);
    });
    EXPECT_EQ(code, ErrorCode::aborted) << text;
    EXPECT_NE(text.find("aborted: enough"), std::string::npos) << text;
  });
}

// A ring that one rank holds up: data lie ready for places that nobody fills any more.
TEST_P(Aborts, EndACallThatIsUnderWay) {
  constexpr std::size_t kCount = 1 << 20;
  std::atomic<int> heard{0};
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    std::vector<float> in(kCount), out(kCount);
    CallOptions options;
    if (comm.describe().find("transport shm") == std::string::npos) options.algorithm = "ring";
    options.timeout = std::chrono::milliseconds(kPatience);
    const auto sum = [&] {
      return comm.all_reduce_async(in.data(), out.data(), kCount, DataType::f32, ReduceOp::sum, options);
    };
    sum().wait();
    if (comm.rank() == 1) {  // Late for ever.
      EXPECT_TRUE(eventually([&] { return comm.state() != ErrorCode::ok; }, 2 * kPatience));
    } else {
      Work work = sum();
      if (comm.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Until it can go no further.
        comm.abort("enough");
      }
      expect_enough(error_of([&] { work.wait(); }), 2);
    }
    heard.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return heard.load() == 3; }, 2 * kPatience));
  });
}

}  // namespace
}  // namespace lockstep
