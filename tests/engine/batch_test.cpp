// Operations that start together: messages, what fuses, and what is refused of them.
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/rescue.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::eventually;
using testing::on_ranks;
using testing::Rescue;

class Batches : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Batches, ::testing::ValuesIn(lockstep::testing::transports_here()));

TEST_P(Batches, BatchExchangesAndFuses) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    const int n = comm.size(), right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
    std::vector<float> out(50000, static_cast<float>(comm.rank())), in(50000);
    std::vector<float> a(10, 1.0f), b(20, 2.0f), c(5, static_cast<float>(comm.rank()));
    Batch batch = comm.batch();
    batch.recv(in.data(), in.size(), DataType::f32, left);
    batch.send(out.data(), out.size(), DataType::f32, right);
    batch.all_reduce(a.data(), a.data(), a.size(), DataType::f32, ReduceOp::sum);
    batch.all_reduce(b.data(), b.data(), b.size(), DataType::f32, ReduceOp::sum);
    batch.broadcast(c.data(), c.size(), DataType::f32, 2);
    batch.submit().wait();
    EXPECT_EQ(in[49999], static_cast<float>(left));
    EXPECT_EQ(a[9], 3.0f);
    EXPECT_EQ(b[19], 6.0f);
    EXPECT_EQ(c[4], 2.0f);
  });
}

TEST_P(Batches, ABatchForgetsAMessageThatItRefused) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const float out = static_cast<float>(comm.rank());
    float in = -1;
    Batch batch = comm.batch();
    EXPECT_EQ(error_of([&] { batch.send(&out, 1, DataType::f32, 7); }).first, ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { batch.recv(&in, 1, DataType::f32, -3); }).first, ErrorCode::invalid_argument);
    batch.send(&out, 1, DataType::f32, 1 - comm.rank());
    batch.recv(&in, 1, DataType::f32, 1 - comm.rank());
    batch.submit().wait();
    EXPECT_EQ(in, 1 - out);
  });
}

// Each by its own limit, which is here the one of its kind that is short.
TEST_P(Batches, ABatchEndsAtTheDeadlineOfAMessage) {
  for (const bool sends : {true, false}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      const Rescue rescue(comm);
      if (comm.rank() == 1)
        return static_cast<void>(eventually([&] { return comm.state() != ErrorCode::ok; }));
      std::vector<float> out(5000), in(5000);  // Too many to be buffered.
      CallOptions soon, late;
      soon.timeout = std::chrono::milliseconds(300);
      late.timeout = std::chrono::hours(1);
      Batch batch = comm.batch();
      batch.send(out.data(), out.size(), DataType::f32, 1, 3, sends ? soon : late);
      batch.recv(in.data(), in.size(), DataType::f32, 1, 4, sends ? late : soon);
      const auto [code, text] = error_of([&] { batch.submit().wait(); });
      EXPECT_EQ(code, ErrorCode::timeout) << text;
      const std::string message =
          sends ? "send(f32 x 5000) to rank 1 with tag 3" : "recv(f32 x 5000) from rank 1 with tag 4";
      EXPECT_NE(text.find("the deadline of 300 ms for " + message + " passed; it waits for rank 1"),
                std::string::npos)
          << text;
    });
  }
}

TEST_P(Batches, ABatchRefusesWhatIsWrongInFrontOfWhatFuses) {
  for (const bool null : {true, false}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      std::vector<float> data(4, 1.0f);
      const auto type = null ? DataType::f32 : static_cast<DataType>(99);
      Batch batch = comm.batch();
      batch.all_reduce(null ? nullptr : data.data(), data.data(), 4, type, ReduceOp::sum);
      batch.all_reduce(data.data(), data.data(), 4, type, ReduceOp::sum);
      const auto [code, text] = error_of([&] { batch.submit().wait(); });
      EXPECT_NE(text.find(null ? "input is null" : "no element type 99"), std::string::npos) << text;
    });
  }
}

TEST_P(Batches, ABatchFusesAlikeThoughLimitsDiffer) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    float x = 1, y = 2;
    CallOptions urgent, more_urgent;
    urgent.priority = more_urgent.priority = 1;
    if (comm.rank() == 1) {  // On the other both are alike.
      more_urgent.priority = 2;
      more_urgent.timeout = std::chrono::seconds(60);
    }
    Batch batch = comm.batch();
    batch.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, urgent);
    batch.all_reduce(&y, &y, 1, DataType::f32, ReduceOp::sum, more_urgent);
    batch.submit().wait();
    EXPECT_EQ(x + y, 6.0f);
  });
}

// Of equal sums their counts fit one another, and their elements do not.
TEST_P(Batches, RanksThatCutWhatFusesInOtherPlacesAreFoundOut) {
  for (const std::size_t others : {3, 5}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      std::vector<float> data(5, 1.0f);
      const std::size_t first = comm.rank() == 0 ? 2 : others;
      Batch batch = comm.batch();
      batch.all_reduce(data.data(), data.data(), first, DataType::f32, ReduceOp::sum);
      if (first < 5) batch.all_reduce(&data[first], &data[first], 5 - first, DataType::f32, ReduceOp::sum);
      const auto [code, text] = error_of([&] {
        batch.submit().wait();
        for (int i = 0; i < 2; ++i) comm.barrier();  // Who could already return fails here.
      });
      EXPECT_EQ(code, ErrorCode::mismatch) << text;
      EXPECT_NE(text.find("called the same with other counts"), std::string::npos) << text;
    });
  }
}

TEST_P(Batches, ABatchKeepsEachPartsFactor) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    float x = 1, y = 1;
    CallOptions twice, thrice;
    twice.scale = 2, thrice.scale = 3;
    Batch batch = comm.batch();
    batch.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::premul_sum, twice);
    batch.all_reduce(&y, &y, 1, DataType::f32, ReduceOp::premul_sum, thrice);
    batch.submit().wait();
    EXPECT_EQ(x, 4.0f);
    EXPECT_EQ(y, 6.0f);
  });
}

// Whichever part it is, and whatever is wrong with it on one rank only: the other hears of that.
TEST_P(Batches, ABatchRefusesAWrongPartOfWhatFuses) {
  for (const int wrong : {0, 1, 2}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      std::vector<float> data(8, 1.0f);
      const auto bad = comm.rank() == 1 ? wrong : -1;
      CallOptions options;
      if (bad == 2) options.algorithm = "nonsense";
      std::byte* const misaligned = reinterpret_cast<std::byte*>(data.data()) + (bad == 0 ? 1 : 0);
      Batch batch = comm.batch();
      batch.all_reduce(misaligned, misaligned, 2, DataType::f32, ReduceOp::sum);
      batch.all_reduce(&data[2], &data[bad == 1 ? 3 : 2], 4, DataType::f32, ReduceOp::sum, options);
      const auto [code, text] = error_of([&] { batch.submit().wait(); });
      EXPECT_EQ(code, comm.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::refused) << text;
    });
  }
}

TEST_P(Batches, ABatchThatCannotBeginFails) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    float x = 1, y = 0;
    comm.abort("enough");
    Batch batch = comm.batch();
    batch.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    batch.send(&x, 1, DataType::f32, 1 - comm.rank());
    batch.recv(&y, 1, DataType::f32, 1 - comm.rank());
    const auto [code, text] = error_of([&] { batch.submit().wait(); });
    EXPECT_EQ(code, ErrorCode::aborted) << text;
  });
}

TEST_P(Batches, ABatchKeepsNoTextOfItsCaller) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    float x = 1;
    Batch batch = comm.batch();
    std::string name = "recursive_doubling";
    CallOptions named;
    named.algorithm = name;
    batch.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, named);
    name.assign(name.size(), '?');
    batch.submit().wait();
    EXPECT_EQ(x, 2.0f);
  });
}

// Whether the group is lost while it travels, or a part of it is wrong.
TEST_P(Batches, ABatchThatFailsLeavesWhatIsNotInPlaceAsItWas) {
  for (const bool refused : {true, false}) {
    on_ranks(2, GetParam(), [=](Communicator& comm) {
      const std::vector<float> in(4, 1.0f);
      std::vector<float> first(4, -1.0f), second(4, -2.0f);
      if (comm.rank() == 1 && !refused) return comm.abort("enough");
      Batch batch = comm.batch();
      batch.all_reduce(in.data(), first.data(), 4, DataType::f32, ReduceOp::sum);
      batch.all_reduce(refused && comm.rank() == 1 ? nullptr : in.data(), second.data(), 4, DataType::f32,
                       ReduceOp::sum);
      error_of([&] { batch.submit().wait(); });
      EXPECT_EQ(in, std::vector<float>(4, 1.0f));
      EXPECT_EQ(first, std::vector<float>(4, -1.0f));
      EXPECT_EQ(second, std::vector<float>(4, -2.0f));
    });
  }
}

}  // namespace
}  // namespace lockstep
