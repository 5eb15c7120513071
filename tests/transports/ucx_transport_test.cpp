// Links over UCX workers of two ranks in one process: what the wire protocol of transports/fabric promises.
#include "transports/ucx/ucx_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "lib/base/config.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "lib/bootstrap/local_session.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/eventually.hpp"
#include "tests/transports/link_traffic.hpp"
#include "transports/fabric/limits.hpp"

namespace lockstep::internal {
namespace {

using testing::Incoming;
using testing::message;
using testing::Outgoing;
using testing::pull;
using testing::push;
using testing::Traffic;

/// Memory that a worker maps, so that payloads may be put there.
class Mapped {
 public:
  explicit Mapped(std::size_t bytes) : memory_(static_cast<std::byte*>(lockstep::allocate(bytes)), bytes) {
    std::fill(memory_.begin(), memory_.end(), kUntouched);
  }
  ~Mapped() { lockstep::free(memory_.data()); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  std::span<std::byte> all() const { return memory_; }
  bool untouched() const {
    return std::all_of(memory_.begin(), memory_.end(), [](std::byte byte) { return byte == kUntouched; });
  }

 private:
  static constexpr std::byte kUntouched{0x5a};
  const std::span<std::byte> memory_;
};

/// Whose seconds are minutes: a machine may be slow, and a rank that leaves waits one second for what it
/// sent.
class PatientEnv final : public Env {
 public:
  Nanos now() noexcept override { return real_env().now() / 60; }
  std::uint64_t random() noexcept override { return real_env().random(); }
  void wake_at(Nanos) noexcept override {}
};

struct Pair {
  std::vector<std::unique_ptr<Session>> sessions = make_local_sessions(2);
  std::unique_ptr<Transport> transports[2];

  explicit Pair(PayloadMemory payloads = PayloadMemory::host, Env& env = real_env()) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank, payloads, &env] {
        auto context = open_ucx(2);
        ASSERT_TRUE(context.ok()) << context.status().message();
        const int ranks[] = {0, 1};
        auto made = make_ucx_transport(7, rank, ranks, *sessions[static_cast<std::size_t>(rank)], *context,
                                       std::chrono::seconds(30), env, payloads);
        ASSERT_TRUE(made.ok()) << made.status().message();
        transports[rank] = std::move(*made);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  Link& link(int rank, Channel channel = Channel::collective) {
    auto link = transports[rank]->link(1 - rank, channel);
    EXPECT_TRUE(link.ok()) << link.status().message();
    return **link;
  }
};

TEST(UcxTransport, CarriesEverySizeBothWaysOnEveryChannel) {
  Pair pair;
  const std::vector<std::size_t> sizes{0,       1,        7855,     7856,      7857, kPiecewiseBytes,
                                       300'003, 1u << 20, 5u << 20, 40u << 20, 17,   kPiecewiseBytes + 1};
  std::vector<Traffic> traffic;
  for (const Channel channel : kEachChannel) {
    for (const int rank : {0, 1}) traffic.emplace_back(pair.link(rank, channel), sizes, sizes);
  }
  run_all(traffic);
}

TEST(UcxTransport, NoAddressIsAnErrorThatNamesItsRank) {
  const auto sessions = make_local_sessions(2);
  auto context = open_ucx(2);
  ASSERT_TRUE(context.ok()) << context.status().message();
  ASSERT_TRUE(sessions[1]->store().set_one(exchange_key("ucx/7", 1), "").ok());
  const int ranks[] = {0, 1};
  const auto made = make_ucx_transport(7, 0, ranks, *sessions[0], *context, std::chrono::seconds(30),
                                       real_env(), PayloadMemory::host);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), ErrorCode::internal);
  EXPECT_EQ(made.status().culprit(), 1);
  EXPECT_NE(made.status().message().find("no UCX address"), std::string::npos) << made.status().message();
}

TEST(UcxTransport, PayloadsOnADeviceAreNotCopiedToSlots) {
  const auto context = open_ucx(2);
  ASSERT_TRUE(context.ok());
  EXPECT_TRUE(ucx_moves(*context.value(), PayloadMemory::host_device));
  Pair pair(PayloadMemory::host_device);
  Outgoing out = message(1, 7);
  for (int tries = 0; tries < 1000; ++tries) {
    ASSERT_TRUE(push(pair.link(0), out).ok());
    pair.link(1);
    ASSERT_TRUE(pair.transports[1]->service().ok());
  }
  EXPECT_FALSE(out.done);  // It waits for its place.
  Incoming in;
  while (!in.done || !out.done) {
    ASSERT_TRUE(in.done || pull(pair.link(1), in).ok());
    ASSERT_TRUE(out.done || push(pair.link(0), out).ok());
  }
  const std::vector<std::size_t> sizes{0, 1, 7855, 7857, kPiecewiseBytes, 300'003, 17, 5u << 20};
  std::vector<Traffic> traffic;
  for (const int rank : {0, 1}) traffic.emplace_back(pair.link(rank, Channel::point_to_point), sizes, sizes);
  run_all(traffic);
}

TEST(UcxTransport, AReceiverThatDoesNotReadHoldsTheSenderBack) {
  Pair pair;
  std::size_t accepted = 0;
  for (int tries = 0; tries < 1000; ++tries) {
    Outgoing out = message(4000, accepted);
    const auto sent = push(pair.link(0), out);
    ASSERT_TRUE(sent.ok());
    accepted += out.done;
    pair.link(1);
    ASSERT_TRUE(pair.transports[1]->service().ok());
  }
  EXPECT_EQ(accepted, kPieceCredits);
  for (std::size_t i = 0; i < accepted; ++i) {
    Incoming in;
    while (!in.done) ASSERT_TRUE(pull(pair.link(1), in).ok());
    EXPECT_EQ(in.header.sequence, i);
  }
  Outgoing out = message(4000, 99);
  while (!out.done) ASSERT_TRUE(push(pair.link(0), out).ok());
}

TEST(UcxTransport, AServiceFindsALinkThatThePeerMade) {
  Pair pair;
  Outgoing out = message(10, 1);
  while (!out.done) ASSERT_TRUE(push(pair.link(0, Channel::point_to_point), out).ok());
  while (pair.transports[1]->existing_link(0, Channel::point_to_point) == nullptr) {
    ASSERT_TRUE(pair.transports[0]->service().ok());
    ASSERT_TRUE(pair.transports[1]->service().ok());
  }
  EXPECT_EQ(pair.transports[1]->existing_link(0, Channel::collective), nullptr);
}

TEST(UcxTransport, MemoryThatWasWithdrawnIsNotTouchedByALateSender) {
  Pair pair;
  Outgoing out = message(1 << 20, 5);
  ASSERT_TRUE(push(pair.link(0), out).ok());
  Link& receiver = pair.link(1);
  while (receiver.peek().value() == nullptr) ASSERT_TRUE(push(pair.link(0), out).ok());
  const Mapped memory(1 << 20);
  EXPECT_EQ(receiver.read(memory.all()).value(), 0u);
  pair.link(1, Channel::urgent);  // Which has nothing to let go of.
  const std::string wanted = config_text("LOCKSTEP_UCX_PUTS");
  const bool withdrawn = pair.transports[1]->withdraw(0, false);
  const bool puts = wanted == "auto" ? !withdrawn : wanted == "on";  // The device decides.
  EXPECT_EQ(withdrawn, !puts) << "who puts may write at any time";
  EXPECT_TRUE(pair.transports[1]->withdraw(0, true));
  for (int tries = 0; tries < 1000 && push(pair.link(0), out).ok(); ++tries) {
    static_cast<void>(pair.transports[1]->service());
  }
  EXPECT_TRUE(memory.untouched());
  EXPECT_EQ(receiver.read(memory.all()).status().code(), puts ? ErrorCode::peer_lost : ErrorCode::aborted);
}

/// Both sides step; the sender goes on with `out` until it is sent or its link fails.
Result<bool> steps(Pair& pair, Outgoing& out, int most) {
  Result<bool> sent = false;
  for (int i = 0; i < most && sent.ok() && !out.done; ++i) {
    sent = push(pair.link(0), out);
    static_cast<void>(pair.transports[1]->service());
  }
  return sent;
}

TEST(UcxTransport, ExpectedPayloadsComeBeforeAnybodyReads) {
  Pair pair;
  constexpr std::size_t kMany = 40, kBytes = 200'000;  // More than can be open at once, and one in two parts.
  std::vector<Outgoing> out;
  std::vector<std::vector<std::byte>> places;
  for (std::size_t i = 0; i < kMany; ++i) {
    out.push_back(message(i == 2 ? kDirectLandingBytes + kBytes : i % 5 == 4 ? 100 : kBytes, i));
    places.emplace_back(out[i].payload.size());
  }
  Link& receiver = pair.link(1);
  for (auto& place : places) receiver.expect(place);
  ASSERT_TRUE(*steps(pair, out[0], 1'000'000)) << "the receiver did not read, and need not";
  EXPECT_TRUE(places[0] == out[0].payload);
  for (std::size_t i = 0, sent = 1; i < kMany;) {
    if (sent < kMany) sent += *steps(pair, out[sent], 1) ? 1 : 0;
    if (receiver.peek().value() == nullptr) continue;
    std::size_t got = 0;
    while (got < places[i].size()) {
      got += receiver.read(std::span(places[i]).subspan(got)).value();
      if (sent < kMany) sent += *steps(pair, out[sent], 1) ? 1 : 0;
    }
    receiver.pop();
    EXPECT_TRUE(places[i] == out[i].payload) << "message " << i;
    ++i;
  }
}

TEST(UcxTransport, ExpectedMemoryIsGivenUpAtOnceAndItsSenderGetsRidOfTheMessage) {
  Pair pair;
  Link& receiver = pair.link(1);
  const Mapped memory(1 << 20);
  receiver.expect(memory.all());
  pair.link(0);
  EXPECT_TRUE(pair.transports[1]->withdraw(0, false));
  Outgoing out = message(memory.all().size(), 5);
  ASSERT_TRUE(*steps(pair, out, 1'000'000));
  EXPECT_TRUE(memory.untouched());
  EXPECT_EQ(receiver.read(memory.all()).status().code(), ErrorCode::aborted);
}

TEST(UcxTransport, APayloadOfAnotherSizeThanExpectedIsAnError) {
  Pair pair;
  Link& receiver = pair.link(1);
  std::vector<std::byte> memory(1 << 20);
  receiver.expect(memory);
  Outgoing out = message(memory.size() + 1, 5);
  Result<const FrameHeader*> head = nullptr;
  while (head.ok() && *head == nullptr) {
    static_cast<void>(push(pair.link(0), out));
    head = receiver.peek();
  }
  EXPECT_EQ(head.status().code(), ErrorCode::internal);
  EXPECT_NE(head.status().message().find("were expected"), std::string::npos) << head.status().message();
}

TEST(UcxTransport, CloseStillDeliversWhatWasSent) {
  Pair pair;
  Link& to = pair.link(1);
  Outgoing out = message(50'000, 3);
  while (!out.done) ASSERT_TRUE(push(pair.link(0), out).ok());
  std::thread closing([&] { pair.transports[0]->close(); });  // Over TCP both have to step for it.
  Incoming in;
  while (!in.done && pull(to, in).ok()) {
  }
  closing.join();
  EXPECT_TRUE(in.payload == out.payload);
  Result<const FrameHeader*> head = nullptr;
  while (head.ok()) head = to.peek();
  EXPECT_EQ(head.status().code(), ErrorCode::peer_lost);
  EXPECT_NE(head.status().message().find("rank 0 closed the communicator"), std::string::npos);
}

/// It closes without knowing of the link, and lives on: nothing on the link itself tells of it.
TEST(UcxTransport, APeerThatClosedBeforeItHeardOfALinkIsFoundToHaveLeft) {
  Pair pair;
  pair.transports[0]->close();
  Link& to = pair.link(1, Channel::point_to_point);
  EXPECT_TRUE(lockstep::testing::eventually([&] {
    EXPECT_TRUE(pair.transports[1]->service().ok());
    return !to.peek().ok();
  }));
  EXPECT_EQ(to.peek().status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(to.peek().status().culprit(), 0);
  EXPECT_NE(to.peek().status().message().find("rank 0 closed the communicator"), std::string::npos);
}

TEST(UcxTransport, APeerThatOnlySendsNothingHasNotLeft) {
  Pair pair;
  Link& to = pair.link(1);
  for (int look = 0; look < 1000; ++look) ASSERT_TRUE(pair.transports[1]->service().ok());
  EXPECT_TRUE(to.peek().ok());
  Outgoing out = message(100, 1);
  while (!out.done) ASSERT_TRUE(push(pair.link(0), out).ok());
  Incoming in;
  while (!in.done) {  // Over TCP both have to step for it.
    ASSERT_TRUE(pair.transports[0]->service().ok());
    ASSERT_TRUE(pull(to, in).ok());
  }
  EXPECT_TRUE(in.payload == out.payload);
}

/// UCX looks for the first arrivals in a thread of its own, which is at times quick enough; hence the many.
TEST(UcxTransport, WhatAPeerSentBeforeItLeftIsFoundWhereNobodyHadLooked) {
  const char* const ways = std::getenv("UCX_TLS");
  if (ways != nullptr && std::string_view(ways).find("tcp") != std::string_view::npos)
    GTEST_SKIP() << "over TCP both have to step before anything is sent";
  PatientEnv env;
  for (std::uint64_t i = 0; i < 20; ++i) {
    Pair pair(PayloadMemory::host, env);
    Outgoing out = message(10'000, i);
    while (!out.done) ASSERT_TRUE(push(pair.link(0), out).ok());
    pair.transports[0]->close();
    pair.transports[0].reset();
    Incoming in;
    while (!in.done) {
      const auto moved = pull(pair.link(1), in);
      ASSERT_TRUE(moved.ok()) << "pair " << i << ": " << moved.status().message();
    }
    EXPECT_TRUE(in.payload == out.payload);
  }
}

}  // namespace
}  // namespace lockstep::internal
