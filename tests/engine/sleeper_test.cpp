// Who sleeps is woken by what is new, and by nothing else.
#include "collectives/engine/sleeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/no_descriptors_left.hpp"
#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

using testing::connected_links;
using testing::Incoming;
using testing::LinkPair;
using testing::message;
using testing::OneLink;
using testing::Outgoing;
using testing::pull;
using testing::push;

constexpr Nanos kShort = 30'000'000, kForAll = 60'000'000'000;

class Asleep : public ::testing::TestWithParam<int> {
 protected:
  LinkPair pair_ = connected_links(GetParam());
  OneLink transport_{*pair_.a};
  Sleeper sleeper_{&transport_, 2, 0};

  void arrive(std::size_t bytes) {
    Outgoing early = message(bytes, 1);
    while (!early.done) ASSERT_TRUE(push(*pair_.b, early).ok());
    for (pollfd entry = pair_.a->poll_entry(); poll(&entry, 1, -1) != 1;) {
    }
  }
  Nanos slept(Nanos limit) {
    const auto before = std::chrono::steady_clock::now();
    sleeper_.sleep(true, limit);
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - before).count();
  }
};
INSTANTIATE_TEST_SUITE_P(Sockets, Asleep, ::testing::Values(1, 3));

TEST_P(Asleep, AnUnreadMessageWakesNobody) {
  arrive(100);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(sleeper_.declare(false, false));
    EXPECT_GE(slept(kShort), kShort) << i;
    sleeper_.undeclare();
  }
}

TEST_P(Asleep, AMessageAfterTheDeclarationWakes) {
  for (int i = 0; i < 3; ++i) {  // The later ones beside those that nobody has read.
    ASSERT_TRUE(sleeper_.declare(false, false));
    arrive(100);
    EXPECT_LT(slept(kForAll), kForAll);
    sleeper_.undeclare();
  }
}

TEST_P(Asleep, TheDescriptorTellsTheSame) {
  pollfd entry{sleeper_.descriptor(), POLLIN, 0};
  arrive(100);
  sleeper_.declare(true, false);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  arrive(100);
  EXPECT_EQ(poll(&entry, 1, -1), 1);
  sleeper_.undeclare();
  sleeper_.declare(true, false);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
}

TEST_P(Asleep, WhoWaitsForRoomIsWoken) {
  Outgoing large = message(64 << 20, 1);
  sleeper_.declare(false, false);  // Watched already for what comes.
  for (std::size_t before = 1; before != large.cursor.payload_bytes;) {
    before = large.cursor.payload_bytes;
    ASSERT_TRUE(push(*pair_.a, large).ok());
  }
  ASSERT_FALSE(large.done);
  sleeper_.declare(false, false);
  Incoming in;
  while (in.received < large.cursor.payload_bytes / 2) ASSERT_TRUE(pull(*pair_.b, in).ok());
  EXPECT_LT(slept(kForAll), kForAll);
}

TEST_P(Asleep, AWakerWakesWhateverLiesUnread) {
  arrive(100);
  sleeper_.declare(false, false);
  sleeper_.wake();
  EXPECT_LT(slept(kForAll), kForAll);
  sleeper_.undeclare();
  sleeper_.declare(true, false);
  pollfd entry{sleeper_.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0) << "woken again by what woke before";
}

/// No links, but descriptors that come and go.
class Answers final : public Transport {
 public:
  std::vector<Fd> awaited;
  std::string_view name() const override { return "answers"; }
  Result<Link*> link(int, Channel) override { return Status(ErrorCode::internal, "there is none"); }
  Status service() override { return {}; }
  Link* existing_link(int, Channel) override { return nullptr; }
  void append_poll_entries(std::vector<pollfd>& entries) override {
    for (const Fd& each : awaited) entries.push_back({each.get(), POLLIN, 0});
  }
  Domain* domain() override { return nullptr; }
  void close() override {}
};

TEST(Sleeper, ADescriptorWithTheNumberOfOneThatIsGoneWakes) {
  Answers transport;
  for (int i = 0; i < 20; ++i) transport.awaited.emplace_back(eventfd(0, EFD_CLOEXEC));
  Sleeper sleeper(&transport, 2, 0);
  ASSERT_TRUE(sleeper.declare(false, false));
  sleeper.undeclare();
  const int number = transport.awaited.back().get();
  transport.awaited.pop_back();
  transport.awaited.emplace_back(eventfd(0, EFD_CLOEXEC));
  ASSERT_EQ(transport.awaited.back().get(), number);
  ASSERT_TRUE(sleeper.declare(false, false));
  eventfd_write(number, 1);
  pollfd entry{sleeper.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1);
  sleeper.undeclare();
}

TEST(Sleeper, WithoutDescriptorsSaysSoOnce) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  ::testing::internal::CaptureStderr();
  {
    const lockstep::testing::NoDescriptorsLeft none;
    for (int i = 0; i < 2; ++i) EXPECT_LT(Sleeper(nullptr, 1, 0).descriptor(), 0);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  const std::size_t told = text.find("no file descriptor to sleep on (Too many open files)");
  EXPECT_NE(told, std::string::npos) << text;
  EXPECT_EQ(text.find("no file descriptor", told + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::internal
