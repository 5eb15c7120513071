// The shared-memory transport among threads of one process.
#include "transports/shm/shm_transport.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "lockstep/memory.hpp"
#include "tests/transports/link_traffic.hpp"
#include "tests/transports/shm_support.hpp"
#include "transports/shm/limits.hpp"
#include "transports/shm/shm_layout.hpp"
#include "transports/shm/shm_shared_setup.hpp"

namespace lockstep::internal {
namespace {

using testing::link_of;
using testing::run_threads;
using testing::Traffic;

const std::vector<std::size_t> kSizes{
    0, 1, 8, 63, 64, 65, 4096, 12'345, kRingBytes - 64, kRingBytes, kRingBytes + 1, 200'003, 0, 7};

TEST(ShmTransport, MessagesOfAllSizesInBothDirections) {
  run_threads(2, [](int rank, Transport& transport) {
    for (const Channel channel : kEachChannel) {
      Traffic traffic(link_of(transport, 1 - rank, channel), kSizes, kSizes);
      traffic.run();
    }
  });
}

TEST(ShmTransport, EveryPairOfFourAtOnce) {
  run_threads(4, [](int rank, Transport& transport) {
    std::vector<Traffic> traffic;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer != rank) traffic.emplace_back(link_of(transport, peer), kSizes, kSizes);
    }
    testing::run_all(traffic);
  });
}

TEST(ShmTransport, ASendWaitsForRoomAndContinuesWhereItStopped) {
  run_threads(1, [](int, Transport& transport) {
    Link& self = link_of(transport, 0);
    Traffic sender(self, {3 * kRingBytes, 5}, {});
    sender.step();
    EXPECT_FALSE(sender.sent());
    EXPECT_EQ(self.bytes_sent(), kRingBytes);
    EXPECT_FALSE(sender.step());
    Traffic receiver(self, {}, {3 * kRingBytes, 5});
    while (!receiver.done() && receiver.status().ok()) {
      receiver.step();
      sender.step();
    }
    EXPECT_TRUE(sender.done());
  });
}

TEST(ShmTransport, ASleeperIsWokenByEveryMessageAndEveryFreedByte) {
  run_threads(2, [](int rank, Transport& transport) {
    Domain& domain = *transport.domain();
    Doorbell& bell = domain.control(rank).doorbell;
    const std::vector<std::size_t> sizes(20, 5 * kRingBytes);
    Traffic traffic(link_of(transport, 1 - rank), rank == 0 ? sizes : std::vector<std::size_t>{},
                    rank == 0 ? std::vector<std::size_t>{} : sizes);
    while (!traffic.done()) {
      if (traffic.step()) continue;
      declare_asleep(bell, false);
      if (!traffic.step()) sleep_on(bell, kForever);
      declare_awake(bell);
    }
    EXPECT_TRUE(traffic.status().ok());
  });
}

TEST(ShmTransport, APeerThatWroteFirstIsNoticed) {
  run_threads(2, [](int rank, Transport& transport) {
    if (rank == 0) {
      Traffic(link_of(transport, 1, Channel::point_to_point), {100}, {}).run();
      Traffic(link_of(transport, 1), {}, {0}).run();
      return;
    }
    EXPECT_EQ(transport.existing_link(0, Channel::collective), nullptr);
    while (transport.existing_link(0, Channel::point_to_point) == nullptr) {
      ASSERT_TRUE(transport.service().ok());
      std::this_thread::yield();
    }
    Traffic(*transport.existing_link(0, Channel::point_to_point), {}, {100}).run();
    Traffic(link_of(transport, 0), {0}, {}).run();
  });
}

TEST(ShmTransport, WhatWasSentBeforeACloseStillArrives) {
  run_threads(2, [](int rank, Transport& transport) {
    Link& link = link_of(transport, 1 - rank);
    if (rank == 0) {
      Traffic(link, {1000}, {}).run();
      transport.close();
      return;
    }
    Traffic(link, {}, {1000}).run();
    Result<const FrameHeader*> end = nullptr;
    while (end.ok()) end = link.peek();
    EXPECT_EQ(end.status().code(), ErrorCode::peer_lost);
    EXPECT_EQ(end.status().culprit(), 0);
    EXPECT_FALSE(link.peek().ok());  // Final.
    Traffic into_the_void(link, std::vector<std::size_t>(3, kRingBytes), {});
    into_the_void.step();
    EXPECT_EQ(into_the_void.status().code(), ErrorCode::peer_lost);
  });
}

TEST(ShmTransport, ACloseWithinAMessageEndsIt) {
  for (const std::size_t borrow_unit : {0, 16}) {
    run_threads(1, [&](int, Transport& transport) {
      Link& self = link_of(transport, 0);
      testing::Outgoing out = testing::message(3 * kRingBytes, 1);
      ASSERT_FALSE(*testing::push(self, out));
      transport.close();
      testing::Incoming in(borrow_unit);
      Result<bool> got = false;
      for (int step = 0; step < 100 && got.ok(); ++step) got = testing::pull(self, in);
      EXPECT_EQ(got.status().code(), ErrorCode::peer_lost);
      EXPECT_EQ(in.received, kRingBytes - sizeof(FrameHeader)) << "what came before";
    });
  }
}

TEST(ShmTransport, BytesThatAreNoFrameAreAnError) {
  FrameHeader no_frame, of_another_version;
  no_frame.magic = 0;
  of_another_version.version = kFrameVersion + 1;
  for (const FrameHeader& header : {no_frame, of_another_version}) {
    run_threads(1, [&](int, Transport& transport) {
      Link& self = link_of(transport, 0);
      SendCursor cursor;
      ASSERT_TRUE(self.send(header, {}, cursor).ok());
      for (int look = 0; look < 2; ++look) EXPECT_EQ(self.peek().status().code(), ErrorCode::internal);
    });
  }
}

TEST(ShmDomain, ThreadsMeetAtOneAddress) {
  std::atomic<std::byte*> staging[2][2]{};
  std::atomic<int> arrived{0};
  run_threads(2, [&](int rank, Transport& transport) {
    Domain& domain = *transport.domain();
    for (int member = 0; member < 2; ++member) staging[rank][member].store(domain.staging(member));
    std::memset(domain.staging(rank), rank + 1, kStagingBytes);
    domain.control(rank).phase.store(1, std::memory_order_release);
    while (domain.control(1 - rank).phase.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    EXPECT_EQ(domain.staging(1 - rank)[kStagingBytes - 1], static_cast<std::byte>(2 - rank));
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(staging[0][0].load(), staging[1][0].load());
  EXPECT_EQ(staging[0][1].load(), staging[1][1].load());
}

TEST(ShmDomain, ThreadsAddressEachOthersMemoryDirectly) {
  int plain[2] = {0, 0};
  auto* registered = static_cast<std::byte*>(lockstep::allocate(100));
  run_threads(2, [&](int rank, Transport& transport) {
    Domain& domain = *transport.domain();
    const auto direct = domain.resolve(1 - rank, direct_ref(&plain[1 - rank]), sizeof(int));
    ASSERT_TRUE(direct.ok()) << direct.status().message();
    EXPECT_EQ(direct.value(), reinterpret_cast<std::byte*>(&plain[1 - rank]));
    const auto segment = domain.resolve(1 - rank, *find_segment(registered + 8, 8), 8);
    ASSERT_TRUE(segment.ok()) << segment.status().message();
    EXPECT_EQ(segment.value(), registered + 8);
    EXPECT_FALSE(domain.resolve(1 - rank, {process_token() ^ 2, 1, 0, 0}, 8).ok());
    EXPECT_FALSE(domain.resolve(1 - rank, {process_token(), 1u << 30, 0, 0}, 8).ok());
  });
  lockstep::free(registered);
}

TEST(ShmDomain, AGroupOfAnotherSizeWithTheSameNumberIsAnotherOne) {
  const auto pair = ShmSharedSetup::of(77, 2);
  EXPECT_EQ(ShmSharedSetup::of(77, 2), pair);
  EXPECT_EQ(ShmSharedSetup::of(77, 3), nullptr);
}

TEST(ShmDomain, AMemberThatOffersSomethingElseIsNamed) {
  std::vector<Member> members{testing::this_member(0), testing::this_member(1)};
  members[1].process ^= 2;  // Its memory is asked for.
  const std::string key = "group/00000000000000aa/1";
  std::vector<Fd> memory_alone;
  memory_alone.push_back(std::move(*make_memory_fd("test", ShmLayout(2).total_bytes())));
  ASSERT_TRUE(offer_descriptors(key, std::move(memory_alone)).ok());
  const auto made = make_shm_transport(0xaa, 0, members, std::chrono::milliseconds(1000), real_env());
  EXPECT_EQ(made.status().code(), ErrorCode::internal) << made.status().message();
  EXPECT_EQ(made.status().culprit(), 1);
  withdraw_descriptors(key);
}

TEST(ShmDomain, AMemberThatNeverComesIsNamed) {
  const std::vector<Member> members{testing::this_member(0), testing::this_member(1)};
  const auto alone = make_shm_transport(1, 0, members, std::chrono::milliseconds(100), real_env());
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.status().code(), ErrorCode::timeout);
  EXPECT_EQ(alone.status().culprit(), 1);
  EXPECT_NE(alone.status().message().find(who_is(1, members[1])), std::string::npos)
      << alone.status().message();
  // Nothing of the attempt is left in the way of the next.
  std::thread late([&] { EXPECT_NE(testing::join(1, 1, members), nullptr); });
  EXPECT_NE(testing::join(1, 0, members), nullptr);
  late.join();
}

}  // namespace
}  // namespace lockstep::internal
