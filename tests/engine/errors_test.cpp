// Exactly one rank deviates: every rank gets one clear error that names both sides, and nobody hangs.
#include <algorithm>
#include <atomic>

#include "collectives/engine/limits.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/slow_operator.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::eventually;
using testing::kPatience;
using testing::on_ranks;
using testing::thrown_by;

class Deviation : public ::testing::TestWithParam<const char*> {
 protected:
  using Texts = std::vector<std::pair<ErrorCode, std::string>>;

  /// Rank 2 of four calls `wrong`, the others `right`; returns what each rank's first failing call says, at
  /// most two calls later.
  Texts run(const std::function<void(Communicator&)>& right,
            const std::function<void(Communicator&)>& wrong) {
    Texts texts(4);
    on_ranks(4, GetParam(), [&](Communicator& comm) {
      texts[static_cast<std::size_t>(comm.rank())] = error_of([&] {
        comm.barrier();  // Rank 2 may be through with it, and wrong, before the others are.
        (comm.rank() == 2 ? wrong : right)(comm);
        for (int i = 0; i < 2; ++i)
          comm.barrier();  // A rank that could already return fails at its next call.
      });
    });
    return texts;
  }

  static void expect_all(const Texts& texts, const std::vector<ErrorCode>& codes,
                         const std::vector<std::string>& words) {
    for (const auto& [code, text] : texts) {
      EXPECT_NE(std::find(codes.begin(), codes.end(), code), codes.end()) << text;
      for (const std::string& word : words)
        EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
    }
  }

  static void sum(Communicator& comm, std::size_t count, DataType type, ReduceOp op = ReduceOp::sum) {
    std::vector<double> data(count + 1);
    comm.all_reduce(data.data(), data.data(), count, type, op);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, Deviation, ::testing::ValuesIn(lockstep::testing::transports_here()));

TEST_P(Deviation, Count) {
  for (const std::size_t count : {2, 100, 5000, 100000}) {
    const auto texts = run([=](Communicator& c) { sum(c, count, DataType::f32); },
                           [=](Communicator& c) { sum(c, count + 1, DataType::f32); });
    expect_all(texts, {ErrorCode::mismatch},
               {"operation #1 differs", "f32 x " + std::to_string(count),
                "f32 x " + std::to_string(count + 1), "rank 2"});
  }
}

// Two of three agree, but no rank sees more than its own call and another's.
TEST_P(Deviation, NoSingleRankIsBlamedForADifference) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    const Error error = thrown_by([&] {
      sum(comm, comm.rank() == 1 ? 101 : 100, DataType::f32);
      comm.barrier();
      comm.barrier();
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_EQ(error.culprit(), -1) << error.what();
  });
}

TEST_P(Deviation, Type) {
  expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                 [](Communicator& c) { sum(c, 100, DataType::i32); }),
             {ErrorCode::mismatch}, {"f32", "i32", "rank 2"});
}

TEST_P(Deviation, Operator) {
  expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                 [](Communicator& c) { sum(c, 100, DataType::f32, ReduceOp::max); }),
             {ErrorCode::mismatch}, {"sum", "max", "rank 2"});
}

TEST_P(Deviation, Collective) {
  expect_all(run([](Communicator& c) { sum(c, 1000, DataType::f32); }, [](Communicator& c) { c.barrier(); }),
             {ErrorCode::mismatch}, {"all_reduce", "barrier", "rank 2"});
}

TEST_P(Deviation, Root) {
  const auto broadcast = [](Communicator& c, int root) {
    std::vector<float> data(1000);
    c.broadcast(data.data(), data.size(), DataType::f32, root);
  };
  expect_all(run([=](Communicator& c) { broadcast(c, 0); }, [=](Communicator& c) { broadcast(c, 1); }),
             {ErrorCode::mismatch}, {"root 0", "root 1", "rank 2"});
}

TEST_P(Deviation, GatherAgainstBroadcastWhereNeitherSends) {
  const auto gather = [](Communicator& c) {
    std::vector<float> own(1000), all(4000);
    c.gather(own.data(), all.data(), own.size(), DataType::f32, 0);
  };
  const auto broadcast = [](Communicator& c) {
    std::vector<float> data(1000);
    c.broadcast(data.data(), data.size(), DataType::f32, 0);
  };
  expect_all(run(gather, broadcast), {ErrorCode::mismatch}, {"gather", "broadcast", "rank 2"});
}

TEST_P(Deviation, NullBuffer) {
  expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                 [](Communicator& c) { c.all_reduce(nullptr, nullptr, 100, DataType::f32, ReduceOp::sum); }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"input is null", "100 elements"});
}

TEST_P(Deviation, MisalignedBuffer) {
  expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                 [](Communicator& c) {
                   std::vector<char> bytes(500);
                   c.all_reduce(bytes.data() + 1, bytes.data() + 1, 100, DataType::f32, ReduceOp::sum);
                 }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"not aligned to 4 bytes"});
}

TEST_P(Deviation, UnknownAlgorithm) {
  expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                 [](Communicator& c) {
                   CallOptions options;
                   options.algorithm = "rong";
                   float x = 0;
                   c.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, options);
                 }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"rong", "ring"});
}

TEST_P(Deviation, RootOutOfRange) {
  const auto broadcast = [](Communicator& c, int root) {
    float x = 0;
    c.broadcast(&x, 1, DataType::f32, root);
  };
  expect_all(run([=](Communicator& c) { broadcast(c, 0); }, [=](Communicator& c) { broadcast(c, 4); }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"root 4 is out of range"});
}

TEST_P(Deviation, Abort) {
  const auto texts = run([](Communicator& c) { c.barrier(); },
                         [](Communicator& c) {
                           c.abort("enough");
                           c.barrier();
                         });
  expect_all(texts, {ErrorCode::aborted}, {"rank 2", "enough"});
}

TEST_P(Deviation, Deadline) {
  const auto texts = run(
      [](Communicator& c) {
        CallOptions options;
        options.timeout = std::chrono::milliseconds(100);
        c.barrier(options);
      },
      [](Communicator& c) {
        while (c.state() == ErrorCode::ok) {  // Late for ever, until the others give up.
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        c.barrier();
      });
  // Over links that is before the neighbour that it waits for has said that it waits for the late one itself.
  expect_all(texts, {ErrorCode::timeout}, {"deadline of 100 ms", "waits for rank"});
}

TEST_P(Deviation, CountOfNoMemory) {
  // The last by itself would fit, but not once for each rank.
  for (const std::size_t count : {static_cast<std::size_t>(-1), std::size_t{1} << 61, std::size_t{1} << 60}) {
    expect_all(run([](Communicator& c) { sum(c, 100, DataType::f32); },
                   [=](Communicator& c) {
                     float x = 0;
                     c.all_reduce(&x, &x, count, DataType::f32, ReduceOp::sum);
                   }),
               {ErrorCode::invalid_argument, ErrorCode::refused}, {"more than memory holds"});
  }
}

TEST_P(Deviation, CountsOfNoMemory) {
  const auto gather = [](Communicator& c, std::size_t last) {
    float one = 0, all[8] = {};
    const std::size_t counts[] = {1, 1, 1, last};
    c.all_gather_v(&one, all, counts, DataType::f32);
  };
  expect_all(run([=](Communicator& c) { gather(c, 1); },
                 [=](Communicator& c) { gather(c, static_cast<std::size_t>(-1)); }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"more than memory holds"});
}

// Of which every rank knows all, though it uses some for places alone.
TEST_P(Deviation, CountsOfOthers) {
  const auto gather = [](Communicator& c, std::size_t first) {
    float one = 1, all[8] = {};
    const std::size_t counts[] = {first, 1, 1, 1};
    c.all_gather_v(&one, all, counts, DataType::f32);
  };
  const auto scatter = [](Communicator& c, std::size_t first) {
    float all[8] = {}, one[2];
    const std::size_t counts[] = {first, 1, 1, 1};
    c.reduce_scatter_v(all, one, counts, DataType::f32, ReduceOp::sum);
  };
  for (const auto call : {+gather, +scatter}) {
    expect_all(run([&](Communicator& c) { call(c, 1); }, [&](Communicator& c) { call(c, 2); }),
               {ErrorCode::mismatch},
               {"operation #1 differs", "rank 2", "called the same with other counts"});
  }
}

TEST_P(Deviation, NullForAllOfItsBuffers) {
  const auto scatter = [](Communicator& c, bool null) {
    float values[4] = {};
    c.scatter(null ? nullptr : values, null ? nullptr : values, 1, DataType::f32, 0);
  };
  expect_all(run([=](Communicator& c) { scatter(c, false); }, [=](Communicator& c) { scatter(c, true); }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"output is null"});
}

TEST_P(Deviation, CountsOfWhatARankSendsToItself) {
  const auto exchange = [](Communicator& c, std::size_t received) {
    const float in[4] = {};
    float out[5] = {};
    const std::size_t send[] = {1, 1, 1, 1};
    std::size_t recv[] = {1, 1, 1, 1};
    recv[c.rank()] = received;
    c.all_to_all_v(in, send, out, recv, DataType::f32);
  };
  expect_all(run([=](Communicator& c) { exchange(c, 1); }, [=](Communicator& c) { exchange(c, 2); }),
             {ErrorCode::invalid_argument, ErrorCode::refused}, {"what this rank sends to itself differs"});
}

TEST_P(Deviation, DeadlineThatHasPassed) {
  CallOptions late;
  late.timeout = std::chrono::milliseconds(-1);
  const auto texts = run([&](Communicator& c) { c.barrier(late); },
                         [](Communicator& c) {
                           while (c.state() == ErrorCode::ok) std::this_thread::yield();
                           c.barrier();
                         });
  expect_all(texts, {ErrorCode::timeout}, {"waits for rank"});
}

// Of all_reduces that travel as one the shortest deadline counts.
TEST_P(Deviation, DeadlineOfAPartOfABatch) {
  for (const bool last : {false, true}) {
    CallOptions late, patient;
    late.timeout = std::chrono::milliseconds(-1);
    patient.timeout = std::chrono::hours(1);
    const auto texts = run(
        [&](Communicator& c) {
          float x = 1, y = 1;
          Batch batch = c.batch();
          batch.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, last ? patient : late);
          batch.all_reduce(&y, &y, 1, DataType::f32, ReduceOp::sum, last ? late : patient);
          batch.submit().wait();
        },
        [](Communicator& c) {
          while (c.state() == ErrorCode::ok) std::this_thread::yield();
          c.barrier();
        });
    expect_all(texts, {ErrorCode::timeout}, {"waits for rank"});
  }
}

TEST_P(Deviation, UserOperatorThrows) {
  const auto with = [](bool throws) {
    return [throws](Communicator& c) {
      CallOptions options;
      options.user_op.combine =
          throws ? [](const void*, void*, std::size_t, void*) { throw std::runtime_error("no sum today"); }
                 : +[](const void*, void*, std::size_t, void*) {};
      std::vector<float> data(100000);
      c.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::user, options);
    };
  };
  expect_all(run(with(false), with(true)), {ErrorCode::aborted}, {"rank 2 (", "no sum today"});
}

// Over links, where a chain leaves the last rank waiting for one that is late itself.
TEST(ARevoke, IsHeardBehindARankThatHasLeft) {
  std::atomic<bool> gone{false}, heard{false};
  on_ranks(4, "tcp", [&](Communicator& comm) {
    std::vector<float> all(4), own(4);
    comm.all_to_all(own.data(), all.data(), 1, DataType::f32);  // All are linked.
    CallOptions options;
    options.algorithm = "chain";
    options.timeout = std::chrono::milliseconds(kPatience);
    float x = 1;
    const auto broadcast = [&] { comm.broadcast(&x, 1, DataType::f32, 0, options); };
    if (comm.rank() == 0) {
      broadcast();  // Its part is to hand on.
      { const Communicator leaving = std::move(comm); }
      gone.store(true);
    } else if (comm.rank() == 3) {
      EXPECT_EQ(error_of(broadcast).first, ErrorCode::aborted);
      heard.store(true);
    } else {
      EXPECT_TRUE(eventually([&] { return gone.load(); }));
      if (comm.rank() == 1) comm.abort("enough");  // And lives on.
      EXPECT_TRUE(eventually([&] { return heard.load(); }, 2 * kPatience));
    }
  });
}

// The first look at the clock starts the deadline, a later one finds it passed.
TEST(Deadline, PassesWhileDataMove) {
  on_ranks(2, "shm", [](Communicator& comm) {
    testing::SlowBuffer buffer(internal::kBlocksInPlace + 3 * internal::kMovesPerLook);
    CallOptions options = testing::with_slow_operator();
    options.timeout = std::chrono::milliseconds(5);
    const auto [code, text] = error_of([&] {
      comm.all_reduce(buffer.data(), buffer.data(), buffer.bytes(), DataType::u8, ReduceOp::user, options);
    });
    EXPECT_EQ(code, ErrorCode::timeout) << text;
  });
}

/// Of rank 2, and in a call that its library may run on a thread of its own.
TEST_P(Deviation, UserOperatorThrowsNoException) {
  const auto with = [](bool throws, bool waits) {
    return [throws, waits](Communicator& c) {
      CallOptions options;
      options.user_op.combine = throws ? [](const void*, void*, std::size_t, void*) { throw 42; }
                                       : +[](const void*, void*, std::size_t, void*) {};
      std::vector<float> data(100000);
      if (waits) {
        c.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::user, options);
      } else {
        c.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::user, options)
            .wait();
      }
    };
  };
  for (const bool waits : {true, false})
    expect_all(run(with(false, waits), with(true, waits)), {ErrorCode::aborted},
               {"rank 2 (", "no std::exception"});
}

TEST(Refusal, BitwiseOnFloatsNamesTheType) {
  auto group = Communicator::local_group(1);
  float x = 1;
  const auto [code, text] = error_of([&] { group[0].all_reduce(&x, &x, 1, DataType::f32, ReduceOp::band); });
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_NE(text.find("f32"), std::string::npos) << text;
}

TEST(Refusal, MessagesThatNoMemoryHolds) {
  auto group = Communicator::local_group(1);
  float x = 1;
  const auto send = [&](std::size_t count, DataType type) {
    return error_of([&] { group[0].send(&x, count, type, 0); }).second;
  };
  EXPECT_NE(send(static_cast<std::size_t>(-1), DataType::f32).find("more than memory"), std::string::npos);
  EXPECT_NE(send(1, static_cast<DataType>(99)).find("no element type 99"), std::string::npos);
}

TEST(Refusal, OverlapThatIsNotInPlace) {
  auto group = Communicator::local_group(1);
  std::vector<float> data(10);
  const auto [code, text] =
      error_of([&] { group[0].all_reduce(data.data(), data.data() + 1, 5, DataType::f32, ReduceOp::sum); });
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_NE(text.find("overlap"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
