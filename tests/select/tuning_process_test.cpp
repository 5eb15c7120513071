// Ranks as processes: all take rank 0's model, whatever their own environment says; a file that rank 0 cannot
// use, and a rule with an unknown name, are errors at creation.
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/communicator_core.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {
namespace {

using internal::TemporaryDirectory;
using internal::testing::run_forked;
using internal::testing::Shared;
using Board = internal::testing::Board;
using testing::error_of;
using testing::MeetingPlace;

constexpr int kRanks = 3;

std::string text_with(const std::string& overrides) {
  return R"({"schema": "lockstep-tuning", "version": 1, "overrides": ")" + overrides + "\"}";
}

TEST(Tuning, AllRanksTakeTheModelOfRankZero) {
  const TemporaryDirectory files;
  const std::string mine = files.write("mine.json", text_with("all_reduce:*=links/ring"));
  const std::string theirs = files.write("theirs.json", text_with("all_reduce:*=links/direct"));
  for (const char* transport : {"shm", "tcp"}) {
    const MeetingPlace place;
    const Shared<Board> board;
    run_forked(kRanks, [&](int rank) {
      setenv("LOCKSTEP_TUNING", (rank == 0 ? mine : theirs).c_str(), 1);
      Communicator comm = place.join(rank, kRanks, transport);
      const internal::SharedModel& model = comm.core().world().model;
      EXPECT_EQ(model.source, mine);
      EXPECT_EQ(model.model->overrides, "all_reduce:*=links/ring");
      board->post(rank, internal::hash_text(model.hash));
      EXPECT_EQ(board->read(0), internal::hash_text(model.hash));
      // With different rules the ranks would wait for messages that nobody sends.
      std::vector<float> data(5000, 1.0f);
      comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
      EXPECT_EQ(data[4999], kRanks);
      comm.finalize();
    });
  }
}

// By a rule of the file for registered memory; the prediction goes on where it is not.
TEST(Tuning, AnOverrideThatPrivateMemoryCannotFollowEndsNoCall) {
  const TemporaryDirectory files;
  const std::string mine = files.write("mine.json", text_with("all_reduce:*=registered/fused"));
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_TUNING", mine.c_str(), 1);
    Communicator comm = place.join(rank, kRanks, "shm");
    constexpr std::size_t kCount = 100'000;
    std::vector<float> own(kCount);
    auto* const registered = static_cast<float*>(allocate(kCount * sizeof(float)));
    for (const int mapped : {0, 1, kRanks, 0}) {  // Ranks with registered memory.
      float* const data = rank < mapped ? registered : own.data();
      std::fill_n(data, kCount, 1.0f);
      comm.all_reduce(data, data, kCount, DataType::f32, ReduceOp::sum);
      EXPECT_EQ(data[kCount - 1], kRanks);
    }
    comm.finalize();
  });
}

TEST(Tuning, RulesGoByTheMeanOfCountsThatAllRanksKnow) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_ALGORITHMS", "all_gather_v:0-1k=staged/direct,1k-inf=ring", 1);
    Communicator comm = place.join(rank, kRanks, "tcp");
    const std::vector<std::size_t> counts(kRanks, 1000);
    const std::vector<float> mine(1000, static_cast<float>(rank));
    std::vector<float> all(kRanks * mine.size(), -1.0f);
    // Staging memory, the rule for small calls, is not there: taken for one, this would be refused.
    comm.all_gather_v(mine.data(), all.data(), counts, DataType::f32);
    for (std::size_t r = 0; r < kRanks; ++r) EXPECT_EQ(all[r * mine.size()], static_cast<float>(r));
    comm.finalize();
  });
}

TEST(Tuning, ARuleIsForCallsThatNameNoAlgorithm) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_ALGORITHMS", "all_reduce:*=staged/two_shot", 1);  // Not over TCP.
    Communicator comm = place.join(rank, kRanks, "tcp");
    std::vector<float> data(5000, 1.0f);
    CallOptions ring;
    ring.algorithm = "ring";
    comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum, ring);
    EXPECT_EQ(data.back(), kRanks);
    const auto [code, text] = error_of(
        [&] { comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum); });
    EXPECT_EQ(code, ErrorCode::configuration) << text;
  });
}

TEST(Tuning, AllRanksCutMessagesAsRankZeroDoes) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_SEGMENT", rank == 0 ? "4K" : "64K", 1);
    Communicator comm = place.join(rank, kRanks, "tcp");
    EXPECT_EQ(comm.core().world().model.segment_bytes, 4096u);
    std::vector<float> data(50'000, 1.0f);  // Each with its own, the ranks would count different messages.
    CallOptions ring;
    ring.algorithm = "ring";
    comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum, ring);
    EXPECT_EQ(data.back(), kRanks);
    comm.finalize();
  });
}

TEST(Tuning, ASplitGroupKeepsTheModel) {
  const TemporaryDirectory files;
  const std::string mine = files.write("mine.json", text_with("broadcast:*=links/direct"));
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    if (rank == 0) setenv("LOCKSTEP_TUNING", mine.c_str(), 1);
    Communicator comm = place.join(rank, kRanks, "shm");
    Communicator part = *comm.split(rank == 0 ? 0 : 1, rank);
    EXPECT_EQ(part.core().world().model.source, mine);
    int value = rank;
    part.broadcast(&value, 1, DataType::i32, 0);
    EXPECT_EQ(value, rank == 0 ? 0 : 1);
    comm.finalize();
  });
}

TEST(Tuning, ANetworkThatTheFileKnowsIsNotMeasured) {
  const TemporaryDirectory files;
  const std::string file =
      files.write("network.json", R"({"schema": "lockstep-tuning", "version": 1, "network":
      {"latency": 12345, "byte": 1.5, "busy_latency": 0, "busy_byte": 0.25}})");
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    if (rank == 0) setenv("LOCKSTEP_TUNING", file.c_str(), 1);
    testing::live_on_host(rank);
    Communicator comm = place.join(rank, kRanks, "auto");
    const internal::Network network = comm.core().engine().choices().ground().network;
    EXPECT_EQ(network, (internal::Network{internal::exact_cost(12345e-9), internal::exact_cost(1.5e-9), 0,
                                          internal::exact_cost(0.25e-9)}));
    comm.finalize();
  });
}

TEST(Tuning, ABrokenFileOfRankZeroIsOneErrorOnAllRanks) {
  const TemporaryDirectory files;
  const std::string broken = files.write("broken.json", R"({"schema": "lockstep-tuning", "version": 1,)");
  const MeetingPlace place;
  const Shared<Board> board;
  run_forked(kRanks, [&](int rank) {
    if (rank == 0) setenv("LOCKSTEP_TUNING", broken.c_str(), 1);
    const auto [code, text] = error_of([&] { place.join(rank, kRanks, "shm"); });
    EXPECT_EQ(code, ErrorCode::configuration);
    EXPECT_NE(text.find(broken), std::string::npos) << text;
    board->post(rank, text.substr(0, 255));
    EXPECT_EQ(board->read(0), text.substr(0, 255));
  });
}

// Into which nobody writes: to open it would last for ever.
TEST(Tuning, APipeIsNoTuningFile) {
  const TemporaryDirectory files;
  const std::string pipe = files.path() + "/tuning.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    alarm(60);
    if (rank == 0) setenv("LOCKSTEP_TUNING", pipe.c_str(), 1);
    const auto [code, text] = error_of([&] { place.join(rank, kRanks, "shm"); });
    EXPECT_EQ(code, ErrorCode::configuration);
    EXPECT_NE(text.find(pipe + ": it is no ordinary file"), std::string::npos) << text;
  });
}

TEST(Tuning, ABrokenFileOfAnotherRankIsNotRead) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    if (rank == 1) setenv("LOCKSTEP_TUNING", "/nowhere/tuning.json", 1);
    Communicator comm = place.join(rank, kRanks, "shm");
    EXPECT_EQ(comm.core().world().model.source, "built-in");
    comm.finalize();
  });
}

// The name exists, so it is found only by a call that it is for.
TEST(Tuning, ARuleOfTheEnvironmentThatCannotRunHereIsNamed) {
  for (const std::string name : {"one_shot", "staged/one_shot", "hierarchical"}) {
    const MeetingPlace place;
    run_forked(kRanks, [&](int rank) {
      setenv("LOCKSTEP_ALGORITHMS", ("all_reduce:0-16k=" + name + ",16k-inf=ring").c_str(), 1);
      Communicator comm = place.join(rank, kRanks, "tcp");
      std::vector<float> data(16 << 10, 1.0f);
      comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
      EXPECT_EQ(data.back(), kRanks);
      const auto [code, text] =
          error_of([&] { comm.all_reduce(data.data(), data.data(), 100, DataType::f32, ReduceOp::sum); });
      EXPECT_EQ(code, ErrorCode::configuration) << text;
      EXPECT_NE(text.find("LOCKSTEP_ALGORITHMS names what cannot run"), std::string::npos) << text;
      EXPECT_NE(text.find(name.substr(name.find('/') + 1)), std::string::npos) << text;
      EXPECT_EQ(text.find("arguments of that call"), std::string::npos) << text;
    });
  }
}

TEST(Tuning, AnUnknownAlgorithmInTheEnvironmentIsAnError) {
  run_forked(1, [](int) {
    setenv("LOCKSTEP_ALGORITHMS", "all_reduce:0-16k=one_shot,16k-inf=rnig", 1);
    for (const auto& [code, text] :
         {error_of([] { Communicator::create({}); }), error_of([] { Communicator::local_group(1); })}) {
      EXPECT_EQ(code, ErrorCode::configuration);
      EXPECT_NE(text.find("LOCKSTEP_ALGORITHMS: "), std::string::npos) << text;
      EXPECT_NE(text.find("\"rnig\" is unknown"), std::string::npos) << text;
    }
  });
}

}  // namespace
}  // namespace lockstep
