// Point-to-point messages of the public face: peers that have left, the limit of what lies unreceived, and
// what their errors say.
#include <atomic>

#include "collectives/engine/limits.hpp"
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

class Messages : public ::testing::TestWithParam<const char*> {
 protected:
  static CallOptions within(std::chrono::milliseconds limit) {
    CallOptions options;
    options.timeout = limit;
    return options;
  }
  static void leave(Communicator& comm) { const Communicator gone = std::move(comm); }
};
INSTANTIATE_TEST_SUITE_P(Transports, Messages, ::testing::ValuesIn(testing::transports_here()));

TEST_P(Messages, FromAnySourceKeepTheirDeadlineWhenARankHasLeft) {
  std::atomic<bool> over{false};
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) return leave(comm);
    if (comm.rank() == 2) {
      EXPECT_TRUE(eventually([&] { return over.load(); }, 2 * kPatience));
      return;
    }
    const Rescue rescue(comm);
    float x = 0;
    const auto [code, text] = error_of(
        [&] { comm.recv(&x, 1, DataType::f32, kAnySource, 0, within(std::chrono::milliseconds(300))); });
    over.store(true);
    EXPECT_EQ(code, ErrorCode::timeout) << text;
    EXPECT_NE(text.find("it waits for a message of any rank"), std::string::npos) << text;
  });
}

TEST_P(Messages, FromAnySourceComeAfterARankHasLeft) {
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    const float sent = static_cast<float>(comm.rank());
    if (comm.rank() > 0) comm.send(&sent, 1, DataType::f32, 0);
    if (comm.rank() == 1) return leave(comm);
    if (comm.rank() == 0) {
      const Rescue rescue(comm);
      float sum = 0;
      for (int i = 0; i < 2; ++i) {
        float one = 0;
        comm.recv(&one, 1, DataType::f32, kAnySource);
        sum += one;
      }
      EXPECT_EQ(sum, 3.0f);
      comm.send(&sum, 1, DataType::f32, 2);
    } else {
      const Rescue rescue(comm);
      float sum = 0;
      comm.recv(&sum, 1, DataType::f32, kAnySource);
      EXPECT_EQ(sum, 3.0f);
    }
  });
}

TEST_P(Messages, FromAnySourceEndWhenAllOthersHaveLeft) {
  const std::string transport = GetParam();
  if (transport != "shm" && transport != "tcp")
    GTEST_SKIP() << "links are made by the first message: nobody misses a rank that sent none";
  std::atomic<bool> posted{false};
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() != 0) {
      EXPECT_TRUE(eventually([&] { return posted.load(); }));
      return leave(comm);
    }
    const Rescue rescue(comm);
    float x = 0;
    Work early = comm.recv_async(&x, 1, DataType::f32, kAnySource);
    posted.store(true);
    const auto first = error_of([&] { early.wait(); });
    const auto later = error_of([&] { comm.recv(&x, 1, DataType::f32, kAnySource); });
    for (const auto& [code, text] : {first, later}) {
      EXPECT_EQ(code, ErrorCode::peer_lost) << text;
      EXPECT_NE(text.find("no other rank is left"), std::string::npos) << text;
      EXPECT_NE(text.find("the buffers are unchanged"), std::string::npos) << text;
    }
  });
}

TEST_P(Messages, WrongCallsLeaveTheRightOnesToCome) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const Rescue rescue(comm);
    float x = static_cast<float>(comm.rank());
    const auto refused = [](const auto& call) {
      EXPECT_EQ(error_of(call).first, ErrorCode::invalid_argument);
    };
    if (comm.rank() == 0) {
      refused([&] { comm.send(nullptr, 1, DataType::f32, 1); });
      refused([&] { comm.send(&x, 1, static_cast<DataType>(99), 1); });
      refused([&] { comm.send(&x, 1, DataType::f32, 1, -1); });
      x = 7;
      comm.send(&x, 1, DataType::f32, 1);
    } else {
      refused([&] { comm.recv(nullptr, 1, DataType::f32, 0); });
      comm.recv(&x, 1, DataType::f32, 0);
      EXPECT_EQ(x, 7.0f);
    }
    comm.barrier();
  });
}

TEST_P(Messages, ALongOneIsMatchedThoughManyLieUnreceived) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const Rescue rescue(comm);
    std::vector<float> data(10'000, static_cast<float>(comm.rank()));
    if (comm.rank() == 1) {
      for (std::size_t i = 0; i < internal::kMaxUnexpected; ++i)
        comm.send(data.data(), 1, DataType::f32, 0, 1);
      comm.send(data.data(), data.size(), DataType::f32, 0, 2);
    } else {
      comm.recv(data.data(), data.size(), DataType::f32, 1, 2);
      EXPECT_EQ(data.back(), 1.0f);
      for (std::size_t i = 0; i < internal::kMaxUnexpected; ++i)
        comm.recv(data.data(), 1, DataType::f32, 1, 1);
    }
    comm.barrier();
  });
}

TEST_P(Messages, SmallOnesDoNotWaitForARankThatWaitsForTheirSender) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const Rescue rescue(comm);
    std::vector<std::byte> block(internal::kEagerBytes);
    const auto for_all = [&](auto&& one) {
      for (std::size_t i = 0; i < internal::kMaxUnexpected; ++i) one();
    };
    if (comm.rank() == 0) for_all([&] { comm.send(block.data(), block.size(), DataType::u8, 1); });
    comm.barrier();
    if (comm.rank() == 1) for_all([&] { comm.recv(block.data(), block.size(), DataType::u8, 0); });
  });
}

TEST_P(Messages, HaveNoStatusWhileTheyAreOnTheirWay) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::byte> block(64 << 20);
    if (comm.rank() == 0) return comm.send(block.data(), block.size(), DataType::u8, 1);
    Work work = comm.recv_async(block.data(), block.size(), DataType::u8, kAnySource);
    RecvStatus before;
    do {
      EXPECT_EQ(before.source, -1);
      before = work.status();
    } while (!work.test());
    EXPECT_EQ(work.status().source, 0);
  });
}

TEST_P(Messages, MoreThanMayLieUnreceivedAreRefused) {
  std::atomic<bool> over{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    const Rescue rescue(comm);
    float x = 1;
    if (comm.rank() == 1) {
      std::vector<Work> sends;
      for (std::size_t i = 0; i <= internal::kMaxUnexpected; ++i)
        sends.push_back(comm.send_async(&x, 1, DataType::f32, 0, 1));
      EXPECT_TRUE(eventually([&] { return over.load(); }));
    } else {
      const auto [code, text] = error_of([&] { comm.recv(&x, 1, DataType::f32, 1, 2); });
      EXPECT_EQ(code, ErrorCode::refused) << text;
      EXPECT_NE(text.find("1024 messages lie unreceived"), std::string::npos) << text;
      over.store(true);
    }
  });
}

TEST_P(Messages, LongerThanTheBufferLeaveItUnchanged) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{10'000}}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      const Rescue rescue(comm);
      std::vector<float> data(count, static_cast<float>(comm.rank()));
      if (comm.rank() == 1) {
        const Work sent = comm.send_async(data.data(), count, DataType::f32, 0);
        comm.barrier();
      } else {
        const auto text = error_of([&] { comm.recv(data.data(), 1, DataType::f32, 1); }).second;
        EXPECT_NE(text.find("receive with a larger count"), std::string::npos) << text;
        EXPECT_NE(text.find("the buffers are unchanged"), std::string::npos) << text;
        EXPECT_EQ(text.find("undefined"), std::string::npos) << text;
        EXPECT_EQ(data.front(), 0.0f);
        comm.barrier();
      }
    });
  }
}

// The receive ends at once, with the refusal yet to leave, and its rank calls nothing more.
TEST_P(Messages, AreRefusedThoughTheReceiverTurnsAway) {
  std::atomic<bool> offered{false}, over{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(10'000);
    comm.barrier();
    if (comm.rank() == 0) {  // Who connects at once.
      const Rescue rescue(comm);
      Work sent = comm.send_async(data.data(), data.size(), DataType::f32, 1);
      static_cast<void>(sent.wait_for(std::chrono::milliseconds(20)));
      offered.store(true);
      EXPECT_EQ(error_of([&] { sent.wait(); }).first, ErrorCode::refused);
      over.store(true);
    } else {
      EXPECT_TRUE(eventually([&] { return offered.load(); }));
      EXPECT_EQ(error_of([&] { comm.recv(data.data(), 1, DataType::f32, 0); }).first,
                ErrorCode::invalid_argument);
      EXPECT_TRUE(eventually([&] { return over.load(); }, 2 * kPatience));
    }
  });
}

TEST(MessagesToOneself, HaveTheSameLimit) {
  auto group = Communicator::local_group(1);
  Communicator& comm = group.front();
  const Rescue rescue(comm);
  float x = 1, y = 0;
  for (std::size_t i = 0; i < internal::kMaxUnexpected; ++i) comm.send(&x, 1, DataType::f32, 0, 1);
  const auto [code, text] = error_of([&] { comm.send(&x, 1, DataType::f32, 0, 1); });
  EXPECT_EQ(code, ErrorCode::refused);
  EXPECT_NE(text.find("1024 messages lie unreceived"), std::string::npos) << text;
  Work expected = comm.recv_async(&y, 1, DataType::f32, 0, 2);
  comm.send(&x, 1, DataType::f32, 0, 2);
  expected.wait();
  EXPECT_EQ(y, 1.0f);
}

}  // namespace
}  // namespace lockstep
