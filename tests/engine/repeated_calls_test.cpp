// Calls that are like earlier ones, which take a shorter way, where something about them is not as before.
#include <thread>
#include <vector>

#include "tests/engine/local_ranks.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::on_ranks;

constexpr int kRanks = 3;

class RepeatedCalls : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, RepeatedCalls,
                         ::testing::ValuesIn(lockstep::testing::transports_here()));

/// All_reduces of one kind, each on other numbers.
template <typename Element>
class Sums {
 public:
  Sums(Communicator& comm, std::size_t count, DataType type) : comm_(comm), data_(count), type_(type) {}
  void run(const CallOptions& options = {}) {
    fill();
    comm_.all_reduce(data_.data(), data_.data(), data_.size(), type_, ReduceOp::sum, options);
    check();
  }
  void run_behind_another() {
    fill();
    Work work = comm_.all_reduce_async(data_.data(), data_.data(), data_.size(), type_, ReduceOp::sum);
    work.wait();
    check();
  }

 private:
  void fill() { std::fill(data_.begin(), data_.end(), static_cast<Element>(++turn_ + comm_.rank())); }
  void check() const {
    const auto sum = static_cast<Element>(turn_ * kRanks + kRanks * (kRanks - 1) / 2);
    EXPECT_EQ(data_, std::vector<Element>(data_.size(), sum)) << "turn " << turn_;
  }

  Communicator& comm_;
  std::vector<Element> data_;
  const DataType type_;
  int turn_ = 0;
};

// What is kept of one kind of call serves no other, and still serves when that kind comes back.
TEST_P(RepeatedCalls, OfTwoKindsInTurns) {
  on_ranks(kRanks, GetParam(), [](Communicator& comm) {
    Sums<float> a(comm, 1000, DataType::f32);
    Sums<double> b(comm, 3000, DataType::f64);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) a.run();
      for (int i = 0; i < 2; ++i) b.run();
      for (int i = 0; i < 2; ++i) a.run();
      a.run_behind_another();
      a.run();
      b.run_behind_another();
      b.run();
      comm.barrier();
    }
  });
}

// Of so many kinds that what is known of some makes room for others.
TEST_P(RepeatedCalls, OfManyKindsInTurns) {
  on_ranks(kRanks, GetParam(), [](Communicator& comm) {
    std::vector<Sums<float>> kinds;
    for (std::size_t kind = 0; kind < 150; ++kind) kinds.emplace_back(comm, 1 + kind * 20, DataType::f32);
    for (int round = 0; round < 3; ++round) {
      for (auto& kind : kinds) kind.run();
    }
  });
}

TEST_P(RepeatedCalls, ThatDifferOnOneRank) {
  on_ranks(kRanks, GetParam(), [](Communicator& comm) {
    Sums<float> sums(comm, 1000, DataType::f32);
    for (int i = 0; i < 3; ++i) sums.run();
    const auto [code, text] = error_of([&] {
      std::vector<float> data(1001);
      comm.all_reduce(data.data(), data.data(), comm.rank() == 1 ? 1001 : 1000, DataType::f32, ReduceOp::sum);
      comm.barrier();
    });
    EXPECT_EQ(code, ErrorCode::mismatch) << text;
    for (const char* part : {"operation #3 differs", "f32 x 1000", "f32 x 1001", "rank 1"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  });
}

TEST_P(RepeatedCalls, HaveDeadlinesOfTheirOwn) {
  on_ranks(kRanks, GetParam(), [](Communicator& comm) {
    Sums<float> sums(comm, 1000, DataType::f32);
    for (int i = 0; i < 3; ++i) sums.run();
    CallOptions options;
    options.timeout = std::chrono::milliseconds(100);
    while (comm.rank() == 1 && comm.state() == ErrorCode::ok)  // Late for ever.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto [code, text] = error_of([&] { sums.run(options); });
    EXPECT_EQ(code, ErrorCode::timeout) << text;
    EXPECT_NE(text.find("deadline of 100 ms"), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace lockstep
