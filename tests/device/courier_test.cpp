// The kernel that copies for a thread: any places and sizes, more errands than its ring holds, call after
// call, and the ends of waits.
#include "collectives/device/courier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

class CourierTest : public ::testing::Test {
 protected:
  ~CourierTest() override {
    courier_.reset();
    static_cast<void>(backend_.destroy_stream(stream_));
  }

  HostBackend backend_;
  const DeviceStream stream_ = must(backend_.create_stream(Backend::Priority::normal));
  std::unique_ptr<Courier> courier_ = must(Courier::make(backend_, 0, stream_, [] { return false; }));
};

TEST_F(CourierTest, RunsAnyErrandsCallAfterCall) {
  std::mt19937 random(1);
  std::vector<std::byte> from(64 << 10), to(from.size()), expected;
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  for (int call = 0; call < 20; ++call) {
    std::fill(to.begin(), to.end(), std::byte{0});
    expected = to;
    must(courier_->enqueue(stream_));
    // Each into a place of its own: errands have no order among themselves.
    const std::size_t errands = random() % (3 * sync::kErrands), room = to.size() / (errands + 1);
    for (std::size_t errand = 0; errand < errands; ++errand) {
      const std::size_t bytes = random() % room, source = random() % (from.size() - bytes);
      const std::size_t target = errand * room + random() % (room - bytes);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(target));
      must(courier_->copy(to.data() + target, from.data() + source, bytes));
      if (random() % 8 == 0) must(courier_->await());
    }
    must(courier_->await());
    EXPECT_TRUE(to == expected) << "call " << call;
    courier_->send_home();
    must(backend_.synchronize(stream_));
  }
}

/// What the stream is given behind it waits until it goes home.
TEST_F(CourierTest, KeepsItsStreamUntilItIsSentHome) {
  auto* const word = static_cast<std::uint32_t*>(must(backend_.allocate_pinned(4)));
  must(courier_->enqueue(stream_));
  must(backend_.write_value(word, 1, stream_));
  std::byte one{1}, other{0};
  must(courier_->copy(&other, &one, 1));
  must(courier_->await());
  EXPECT_EQ(other, one);
  EXPECT_EQ(std::atomic_ref(*word).load(), 0u);
  courier_->send_home();
  must(backend_.synchronize(stream_));
  EXPECT_EQ(std::atomic_ref(*word).load(), 1u);
  must(backend_.free_pinned(word));
}

/// Memory that a stream has passed is its owner's again.
TEST_F(CourierTest, RunsNoErrandTwiceAfterItGaveUp) {
  std::byte one{1}, other{};
  must(courier_->enqueue(stream_));
  must(courier_->copy(&other, &one, 1));
  must(courier_->await());
  courier_->let_pass();
  must(backend_.synchronize(stream_));
  other = std::byte{7};
  must(courier_->enqueue(stream_));
  must(backend_.synchronize(stream_));
  EXPECT_EQ(other, std::byte{7});
}

TEST_F(CourierTest, AnErrandThatNobodyRunsIsADeadline) {
  std::byte one{}, other{};
  courier_->begin(end_after(1));
  must(courier_->copy(&other, &one, 1));
  EXPECT_EQ(courier_->await().code(), ErrorCode::timeout);
  ErrorCode ended = ErrorCode::ok;
  for (std::uint32_t errand = 1; errand <= sync::kErrands; ++errand)
    ended = courier_->copy(&other, &one, 1).code();
  EXPECT_EQ(ended, ErrorCode::timeout) << "the ring is full";
}

TEST_F(CourierTest, GivesUpNowAndLater) {
  must(courier_->enqueue(stream_));
  courier_->let_pass();
  must(backend_.synchronize(stream_));
  std::byte one{1}, other{};
  ErrorCode ended = ErrorCode::ok;
  for (std::uint32_t errand = 0; errand <= sync::kErrands; ++errand)
    ended = courier_->copy(&other, &one, 1).code();
  EXPECT_EQ(ended, ErrorCode::aborted) << "the ring is full";
  EXPECT_EQ(courier_->await().code(), ErrorCode::aborted);
  courier_->send_home();
  must(courier_->enqueue(stream_));
  must(backend_.synchronize(stream_));
  EXPECT_EQ(other, std::byte{}) << "nothing was copied";
}

}  // namespace
}  // namespace lockstep::internal
