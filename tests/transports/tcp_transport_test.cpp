// TCP transports of ranks in one process: links by (peer, channel), inbound ones too, apart by group.
#include "transports/tcp/tcp_transport.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "lib/bootstrap/local_session.hpp"
#include "tests/support/eventually.hpp"
#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

using testing::Incoming;
using testing::message;
using testing::Outgoing;
using testing::pull;
using testing::push;

// Ranks of one job, each with a switchboard.
struct Job {
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::unique_ptr<Switchboard>> boards;

  explicit Job(int n) : sessions(make_local_sessions(n)), boards(static_cast<std::size_t>(n)) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < boards.size(); ++r) {
      threads.emplace_back([this, r] {
        auto board = Switchboard::make(*sessions[r], real_env(), std::chrono::seconds(60));
        ASSERT_TRUE(board.ok()) << board.status().message();
        boards[r] = std::move(*board);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::unique_ptr<Transport> transport(std::uint64_t group, int rank, const std::vector<int>& world_ranks) {
    auto made =
        make_tcp_transport(group, rank, world_ranks,
                           *boards[static_cast<std::size_t>(world_ranks[static_cast<std::size_t>(rank)])]);
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }
};

// Sleeps as the engine would until something may have changed.
void sleep_on(Transport& transport) {
  std::vector<pollfd> entries;
  transport.append_poll_entries(entries);
  poll(entries.data(), entries.size(), 20'000);
  EXPECT_TRUE(transport.service().ok());
}

Link& await_link(Transport& transport, int peer, Channel channel) {
  for (;;) {
    auto link = transport.link(peer, channel);
    EXPECT_TRUE(link.ok()) << link.status().message();
    if (*link != nullptr) return **link;
    sleep_on(transport);
  }
}

// Sends `bytes` from one end and takes them at the other, on one thread each.
void expect_delivery(Link& from, Link& to, std::size_t bytes, std::uint64_t seed) {
  Outgoing out = message(bytes, seed);
  Incoming in;
  while (!in.done) {
    ASSERT_TRUE(push(from, out).ok());
    ASSERT_TRUE(pull(to, in).ok());
  }
  EXPECT_EQ(in.header.sequence, seed);
  EXPECT_TRUE(in.payload == out.payload);
}

void exchange_among_all(Job& job, std::uint64_t group, const std::vector<int>& members) {
  const int n = static_cast<int>(members.size());
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < n; ++r) transports.push_back(job.transport(group, r, members));
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) {
      for (const Channel channel : kEachChannel) {
        auto& low = *transports[static_cast<std::size_t>(a)];
        auto& high = *transports[static_cast<std::size_t>(b)];
        EXPECT_EQ(high.existing_link(a, channel), nullptr);
        Link& from = await_link(low, b, channel);
        while (high.existing_link(a, channel) == nullptr) sleep_on(high);  // It came without being asked for.
        Link& to = *high.existing_link(a, channel);
        expect_delivery(from, to, 300'000, group);
        expect_delivery(to, from, 10, group + 1);
      }
    }
  }
}

TEST(TcpTransport, LinksAllPairsOnEveryChannel) {
  Job job(3);
  exchange_among_all(job, 1, {0, 1, 2});
}

TEST(TcpTransport, KeepsGroupsApart) {
  Job job(3);
  auto first = job.transport(1, 0, {0, 2});
  auto other = job.transport(2, 0, {0, 2});
  auto first_peer = job.transport(1, 1, {0, 2});
  auto other_peer = job.transport(2, 1, {0, 2});
  Link& a = await_link(*first, 1, Channel::collective);
  Link& b = await_link(*other, 1, Channel::collective);
  expect_delivery(a, await_link(*first_peer, 0, Channel::collective), 100, 11);
  expect_delivery(b, await_link(*other_peer, 0, Channel::collective), 100, 22);
}

TEST(TcpTransport, WakesNobodyOnceItsLinksAreThere) {
  Job job(2);
  std::unique_ptr<Transport> ends[]{job.transport(1, 0, {0, 1}), job.transport(1, 1, {0, 1})};
  for (const int rank : {0, 1}) {
    await_link(*ends[rank], 1 - rank, Channel::collective);
    EXPECT_TRUE(ends[rank]->service().ok());
    std::vector<pollfd> entries;
    ends[rank]->append_poll_entries(entries);
    EXPECT_EQ(poll(entries.data(), entries.size(), 0), 0);
  }
}

TEST(TcpTransport, NumbersPeersAsTheGroupDoes) {
  Job job(3);
  exchange_among_all(job, 5, {2, 0, 1});
}

TEST(TcpTransport, StripesOverSeveralSockets) {
  setenv("LOCKSTEP_TCP_SOCKETS", "3", 1);
  Job job(2);
  exchange_among_all(job, 1, {0, 1});
  unsetenv("LOCKSTEP_TCP_SOCKETS");
}

TEST(TcpTransport, NamesALostPeerByItsNumberInTheGroup) {
  Job job(3);
  // This process is the job's rank 0, its peer the job's rank 2.
  auto transport = job.transport(1, 1, {2, 0});
  job.boards[2].reset();
  Result<Link*> link = nullptr;
  while (link.ok()) {
    link = transport->link(0, Channel::collective);
    if (link.ok()) static_cast<void>(poll(nullptr, 0, 1));
  }
  EXPECT_EQ(link.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(link.status().culprit(), 0);
  EXPECT_NE(link.status().message().find("rank 0 ("), std::string::npos) << link.status().message();
  EXPECT_FALSE(transport->service().ok() && transport->link(0, Channel::collective).ok())
      << "an error is final";
}

// Messages numbered from 0 until nothing more is accepted. How many were, whole.
int push_all_that_fits(Link& link) {
  for (int number = 0;; ++number) {
    Outgoing out = message(100'000, static_cast<std::uint64_t>(number));
    std::size_t before = SIZE_MAX;
    while (!out.done && out.cursor.payload_bytes != before) {
      before = out.cursor.payload_bytes;
      EXPECT_TRUE(push(link, out).ok());
    }
    if (!out.done) return number;
  }
}

TEST(TcpTransport, CloseStillDeliversWhatWasSent) {
  Job job(2);
  auto a = job.transport(1, 0, {0, 1});
  auto b = job.transport(1, 1, {0, 1});
  Link& from = await_link(*a, 1, Channel::collective);
  Link& to = await_link(*b, 0, Channel::collective);
  Outgoing unread = message(10, 1);
  while (!unread.done) ASSERT_TRUE(push(to, unread).ok());
  const int whole = push_all_that_fits(from);
  a->close();
  a.reset();
  for (int number = 0; number < whole; ++number) {
    Incoming in;
    while (!in.done) {
      const auto got = pull(to, in);
      ASSERT_TRUE(got.ok()) << "message " << number << " of " << whole << ": " << got.status().message();
    }
    EXPECT_EQ(in.header.sequence, static_cast<std::uint64_t>(number));
  }
  Incoming cut_off;
  auto end = pull(to, cut_off);
  while (end.ok()) end = pull(to, cut_off);
  EXPECT_EQ(end.status().code(), ErrorCode::peer_lost);
}

/// What a peer says on a link of its own may come after the end of another.
TEST(TcpTransport, WhoDidNotAskForALinkKnowsThatItIsUnderWay) {
  for (const int asked : {0, 1}) {  // The one that calls, and the one that is asked to.
    Job job(2);
    const auto who = job.transport(1, 1 - asked, {0, 1});
    const auto other = job.transport(1, asked, {0, 1});
    EXPECT_FALSE(other->link_is_under_way(1 - asked, Channel::collective));
    await_link(*who, asked, Channel::collective);
    EXPECT_FALSE(who->link_is_under_way(asked, Channel::collective));
    EXPECT_TRUE(lockstep::testing::eventually(
        [&] { return other->link_is_under_way(1 - asked, Channel::collective); }));
    EXPECT_FALSE(other->link_is_under_way(1 - asked, Channel::urgent));
    while (other->existing_link(1 - asked, Channel::collective) == nullptr) sleep_on(*other);
    EXPECT_FALSE(other->link_is_under_way(1 - asked, Channel::collective));
  }
}

TEST(TcpTransport, ALinkThatCannotBeIsNotUnderWay) {
  Job job(2);
  const auto transport = job.transport(1, 0, {0, 1});
  job.boards[1].reset();
  EXPECT_TRUE(lockstep::testing::eventually([&] { return !transport->link(1, Channel::collective).ok(); }));
  EXPECT_FALSE(transport->link_is_under_way(1, Channel::collective));
}

TEST(TcpTransport, NeedsNoSwitchboardOnceItIsClosed) {
  Job job(2);
  auto a = job.transport(1, 0, {0, 1});
  auto b = job.transport(1, 1, {0, 1});
  await_link(*a, 1, Channel::collective);
  a->close();
  job.boards[0].reset();
  EXPECT_EQ(a->existing_link(1, Channel::collective), nullptr);
  EXPECT_EQ(a->link(1, Channel::collective).status().code(), ErrorCode::aborted);
  EXPECT_TRUE(a->service().ok());
  a->close();
}

TEST(TcpTransport, WhoComesAfterTheCloseSeesItsLinkEnd) {
  for (const int closed : {0, 1}) {  // The one that is called, and the one that calls when it is asked to.
    Job job(2);
    job.transport(1, closed, {0, 1})->close();
    auto late = job.transport(1, 1 - closed, {0, 1});
    Link& link = await_link(*late, closed, Channel::collective);
    pollfd entry = link.poll_entry();
    ASSERT_EQ(poll(&entry, 1, 20'000), 1);
    EXPECT_EQ(link.peek().status().code(), ErrorCode::peer_lost);
  }
}

}  // namespace
}  // namespace lockstep::internal
