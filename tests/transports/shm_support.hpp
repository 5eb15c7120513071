// Groups in shared memory for tests: ranks as threads, or as forked processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "tests/support/forked.hpp"
#include "transports/shm/shm_transport.hpp"

namespace lockstep::internal::testing {

inline constexpr std::chrono::milliseconds kPatience{30'000};

inline Member this_member(int rank) {
  Member member;
  member.rank = rank;
  member.host_id = "here";
  member.pid = ::getpid();
  member.process = process_token();
  auto service = descriptor_service_name();
  EXPECT_TRUE(service.ok()) << service.status().message();
  member.descriptor_service = *service;
  return member;
}

inline std::unique_ptr<Transport> join(std::uint64_t id, int rank, const std::vector<Member>& members) {
  auto transport = make_shm_transport(id, rank, members, kPatience, real_env());
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  return transport.ok() ? std::move(*transport) : nullptr;
}

inline Link& link_of(Transport& transport, int peer, Channel channel = Channel::collective) {
  return **transport.link(peer, channel);
}

/// Domain::resolve for an operation of its own, asked again as the engine does while the member's process has
/// not handed the segment over.
inline Result<std::byte*> resolve(Domain& domain, int member, const SegmentRef& ref, std::size_t bytes) {
  domain.begin_resolving();
  const Nanos end = real_env().now() + std::chrono::nanoseconds(kPatience).count();
  for (;;) {
    auto place = domain.resolve(member, ref, bytes);
    if (place.ok() || place.status().code() != ErrorCode::timeout || real_env().now() > end) return place;
  }
}

/// Runs body(rank, transport) on `count` threads of this process that form a group.
inline void run_threads(int count, const std::function<void(int rank, Transport&)>& body) {
  static std::atomic<std::uint64_t> last_id{1000};
  const std::uint64_t id = ++last_id;
  std::vector<Member> members;
  for (int rank = 0; rank < count; ++rank) members.push_back(this_member(rank));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      if (const auto transport = join(id, rank, members)) body(rank, *transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Tells the others who this rank is and learns who they are, over a board shared by forked ranks.
inline std::vector<Member> exchange_members(Board& board, int rank, int count) {
  const Member mine = this_member(rank);
  std::ostringstream text;
  text << mine.pid << ' ' << mine.process << ' ' << mine.descriptor_service;
  board.post(rank, text.str());
  std::vector<Member> members;
  for (int other = 0; other < count; ++other) {
    Member member;
    member.rank = other;
    member.host_id = "here";
    std::istringstream(board.read(other)) >> member.pid >> member.process >> member.descriptor_service;
    members.push_back(member);
  }
  return members;
}

}  // namespace lockstep::internal::testing
