// How the thread that carries columns gives up: its caller says so, or the deadline passes while the stream
// or the network is waited for. Rank 0 of two, whose peer makes no call.
#include "collectives/device/hosts/column_relay.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "lib/device/host/host_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep::internal {
namespace {

using testing::Enqueued;
using testing::must;
using testing::RecordingBackend;
using Ranks = std::vector<int>;

class ColumnRelayTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 10;

  ColumnRelayTest() {
    call_.input = call_.output = DeviceBlocks::even(numbers_, kCount, kCount);
    call_.longest = kCount;
    passage_ = must(relay_->book(call_));
    watch_.look = [](const Ranks&) { return Status(); };
    watch_.late = [](const Ranks& awaited) {
      return Status(ErrorCode::timeout, "late", awaited.empty() ? -1 : awaited.front());
    };
    watch_.in_all = [](Status status) { return status; };
    watch_.in_group = [](const Status& why) {
      return Status(why.code(), "the group is told", why.culprit());
    };
  }
  ~ColumnRelayTest() override {
    relay_->let_pass();
    must(backend_.synchronize(stream_));
    must(backend_.destroy_stream(stream_));
    must(real_.free_pinned(numbers_));
  }

  Engine& engine() { return group_[0].core().engine(); }
  /// And the stream has filled the column.
  void enqueue() {
    backend_.before = [this](const Enqueued& next) {
      return next.what == "wait" ? real_.synchronize(stream_) : Status();
    };
    must(relay_->enqueue(call_, passage_, stream_));
  }
  Status carry() { return relay_->carry(engine(), call_, passage_, watch_); }
  void expect_told(ErrorCode code, int culprit) {
    EXPECT_EQ(engine().state(), code);
    EXPECT_EQ(engine().reason().message(), "the group is told");
    EXPECT_EQ(engine().reason().culprit(), culprit);
  }
  /// The stream waits on until it is let pass, and then for nothing more.
  void expect_stream_passes() {
    EXPECT_FALSE(must(backend_.idle(stream_)));
    relay_->let_pass();
    must(backend_.synchronize(stream_));
    enqueue();
    must(backend_.synchronize(stream_));
  }

  HostBackend real_;
  RecordingBackend backend_{real_};
  std::vector<Communicator> group_ = Communicator::local_group(2, "shm");
  const DeviceStream stream_ = must(backend_.create_stream(Backend::Priority::normal));
  std::unique_ptr<ColumnRelay> relay_ = must(ColumnRelay::make(backend_, 1 << 16));
  void* const numbers_ = must(real_.allocate_pinned(kCount * sizeof(float)));
  StagedCall call_;
  ColumnRelay::Passage passage_;
  RelayWatch watch_;
};

TEST_F(ColumnRelayTest, GivesUpBeforeAColumnIsSent) {
  watch_.look = [](const Ranks&) { return Status(ErrorCode::mismatch, "differs", 1); };
  enqueue();
  const Status status = carry();
  EXPECT_EQ(status.message(), "differs");
  EXPECT_EQ(status.culprit(), 1);
  expect_told(ErrorCode::mismatch, 1);
  expect_stream_passes();
}

TEST_F(ColumnRelayTest, GivesUpWhatIsOnTheNetwork) {
  Ranks on_the_network;
  watch_.look = [&](const Ranks& awaited) {
    on_the_network = awaited;
    return awaited.empty() ? Status() : Status(ErrorCode::aborted, "enough", 0);
  };
  enqueue();
  EXPECT_EQ(carry().message(), "enough");
  EXPECT_EQ(on_the_network, Ranks{1});
  expect_told(ErrorCode::aborted, 0);
  expect_stream_passes();
}

TEST_F(ColumnRelayTest, ADeadlineKnowsThatTheStreamHasNotCome) {
  watch_.end = 1;
  const Status status = carry();
  EXPECT_EQ(status.message(), "late");
  EXPECT_EQ(status.culprit(), -1);
  expect_told(ErrorCode::timeout, -1);
}

TEST_F(ColumnRelayTest, ADeadlineKnowsWhomTheNetworkWaitsFor) {
  watch_.end = 1;
  enqueue();
  const Status status = carry();
  EXPECT_EQ(status.message(), "late");
  EXPECT_EQ(status.culprit(), 1);
  expect_told(ErrorCode::timeout, 1);
  expect_stream_passes();
}

}  // namespace
}  // namespace lockstep::internal
