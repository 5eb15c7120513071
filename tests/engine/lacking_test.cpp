// A rank lacks what it needs to reach a peer's memory: it is named on every rank, and not the peer.
#include <atomic>
#include <functional>

#include "tests/engine/local_ranks.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/little_room.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::error_of;
using testing::kDescriptorsCanRunOut;
using testing::kRoomCanRunOut;
using testing::leave_room_for;
using testing::MeetingPlace;
using testing::NoDescriptorsLeft;
using testing::thrown_by;
using testing::transports_here;

constexpr std::size_t kBytes = 32 << 20;

/// Two ranks whose buffers no peer has mapped yet; rank 1 makes the call within `scarcity`.
void expect_rank_1_named(ErrorCode expected,
                         const std::function<void(const std::function<void()>& call)>& scarcity) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    void* const data = allocate(kBytes);
    CallOptions options;
    options.algorithm = "registered/fused";
    comm.barrier();
    const std::function<void()> call = [&] {
      const Error error =
          thrown_by([&] { comm.all_reduce(data, data, kBytes, DataType::u8, ReduceOp::sum, options); });
      EXPECT_EQ(error.code(), expected) << error.what();
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank 1 ("), std::string::npos) << error.what();
    };
    rank == 1 ? scarcity(call) : call();
  });
}

TEST(Lacking, DescriptorsForAPeersMemory) {
  if (!kDescriptorsCanRunOut) GTEST_SKIP();
  expect_rank_1_named(ErrorCode::system, [](const std::function<void()>& call) {
    const NoDescriptorsLeft none;
    call();
  });
}

TEST(Lacking, DescriptorsForAPartOfTheGroup) {
  if (!kDescriptorsCanRunOut) GTEST_SKIP();
  for (const char* const transport : {"shm", "tcp"}) {
    MeetingPlace place;
    Shared<std::atomic<bool>> heard;
    run_forked(2, [&](int rank) {
      Communicator comm = place.join(rank, 2, transport);
      comm.barrier();
      const auto split = [&] { static_cast<void>(comm.split(0, rank)); };
      if (rank == 1) {
        const NoDescriptorsLeft none;
        EXPECT_EQ(error_of(split).first, ErrorCode::system);
        wait_until([&] { return heard->load(); });
        return;
      }
      const auto [code, text] = error_of(split);  // Not when its own patience is at an end.
      heard->store(true);
      EXPECT_EQ(code, ErrorCode::system) << text;
      EXPECT_NE(text.find("rank 1 ("), std::string::npos) << text;
      EXPECT_NE(text.find("cannot split"), std::string::npos) << text;
    });
  }
}

TEST(Lacking, DescriptorsForALink) {
  if (!kDescriptorsCanRunOut) GTEST_SKIP();
  for (const std::string transport : transports_here()) {
    if (transport != "tcp" && transport != "ucx") continue;  // These connect at the first message.
    MeetingPlace place;
    Shared<std::atomic<bool>> none_left;
    run_forked(2, [&](int rank) {
      Communicator comm = place.join(rank, 2, transport);
      const auto call = [&] { comm.barrier(); };
      if (rank == 0) {
        wait_until([&] { return none_left->load(); });
        const Error error = thrown_by(call);
        EXPECT_EQ(error.culprit(), 1) << error.what();
        return;
      }
      const NoDescriptorsLeft none;
      none_left->store(true);
      const Error error = thrown_by(call);
      EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
    });
  }
}

TEST(Lacking, RoomForAPeersMemory) {
  if (!kRoomCanRunOut) GTEST_SKIP();
  expect_rank_1_named(ErrorCode::out_of_memory, [](const std::function<void()>& call) {
    leave_room_for(kBytes / 2);
    call();
  });
}

}  // namespace
}  // namespace lockstep
