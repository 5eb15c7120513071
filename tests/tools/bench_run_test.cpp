// lockstep-bench as its users run it: every operation checked on forked ranks and on threads, its JSON, its
// refusals.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/bounds.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/scoped_variable.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/shell.hpp"

namespace {

using Outcome = lockstep::testing::ShellOutcome;

Outcome bench(const std::string& arguments, const std::string& variables = "") {
  return lockstep::testing::shell(variables + " " + LOCKSTEP_BENCH + " " + arguments);
}

nlohmann::json json_of(const std::string& arguments) {
  const Outcome outcome = bench(arguments + " --json -");
  EXPECT_EQ(outcome.status, 0) << arguments;
  return nlohmann::json::parse(outcome.output);
}

constexpr const char* kSmallSweep = " -b 4 -e 40000 -f 100 -n 3 -w 1 ";

void expect_all_operations_right(const std::string& ranks, std::size_t world) {
  const nlohmann::json document = json_of("all " + ranks + kSmallSweep);
  std::set<std::string> operations;
  for (const nlohmann::json& row : document["rows"]) {
    operations.insert(row["op"]);
    EXPECT_EQ(row["ranks"], world);
    EXPECT_TRUE(row["wrong"].is_null() || row["wrong"] == 0) << row;
    EXPECT_GT(row["time_us"], 0) << row;
    EXPECT_GE(row["p99_us"], row["time_us"]) << row;
  }
  EXPECT_EQ(operations.size(), 10u);
}

/// One of 64 KiB, as a shell may set it; the sanitizers need more.
TEST(LockstepBench, RanksNeedNoLargeStack) {
  if (lockstep::testing::kSanitized) GTEST_SKIP() << "under a sanitizer";
  for (const std::string transport : {"shm", "tcp"}) {
    const Outcome outcome =
        bench("all --ranks 2 --transport " + transport + kSmallSweep + "2>&1", "ulimit -s 64;");
    EXPECT_EQ(outcome.status, 0) << transport << ": " << outcome.output;
  }
}

TEST(LockstepBench, EveryOperationOnForkedRanks) { expect_all_operations_right("--ranks 3", 3); }
TEST(LockstepBench, EveryOperationOverTcp) { expect_all_operations_right("--ranks 2 --transport tcp", 2); }
TEST(LockstepBench, EveryOperationOnThreads) { expect_all_operations_right("--threads 2", 2); }
TEST(LockstepBench, EveryOperationAlone) { expect_all_operations_right("--ranks 1", 1); }

TEST(LockstepBench, TheVariableSaysTheTransportWhereTheOptionDoesNot) {
  const lockstep::internal::testing::ScopedVariable tcp("LOCKSTEP_TRANSPORTS", "tcp");
  const auto transport = [](const std::string& option) {
    return json_of("all_reduce --ranks 2 -b 8 -e 8 -n 3" + option)["rows"][0]["transport"];
  };
  EXPECT_EQ(transport(""), "tcp");
  EXPECT_EQ(transport(" --transport shm"), "shm");
}

TEST(LockstepBench, RowsAsPromised) {
  const nlohmann::json document =
      json_of("all_reduce --ranks 4 -b 8 -e 512 -f 8 -n 3 --registered -d bf16 -o max");
  EXPECT_TRUE(document["machine"].is_object());
  ASSERT_EQ(document["rows"].size(), 6u);
  const nlohmann::json& row = document["rows"][1];
  for (const char* key : {"algorithm", "transport", "busbw_gbs", "algbw_gbs"})
    EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(row["op"], "all_reduce");
  EXPECT_EQ(row["buffers"], "registered");
  EXPECT_EQ(row["dtype"], "bf16");
  EXPECT_EQ(row["redop"], "max");
  EXPECT_EQ(row["bytes"], 8);
  EXPECT_EQ(row["in_place"], true);
  EXPECT_NEAR(row["busbw_gbs"].get<double>(), row["algbw_gbs"].get<double>() * 1.5, 1e-9);
}

// It scales its input into private memory, wherever that came from.
TEST(LockstepBench, APremultipliedSumIsNotSaidToRunOnRegisteredMemory) {
  const auto algorithm_of = [](const std::string& arguments) {
    return json_of("all_reduce --ranks 2 -b 1M -e 1M -n 1 -w 1 " + arguments)["rows"][0]["algorithm"];
  };
  const nlohmann::json staged = algorithm_of("-o premul_sum");
  EXPECT_NE(algorithm_of("-o sum --registered"), staged);
  EXPECT_EQ(algorithm_of("-o premul_sum --registered"), staged);
}

TEST(LockstepBench, AllTypesAndOperatorsThatAreDefined) {
  const nlohmann::json document = json_of("all_reduce --ranks 2 -b 64 -e 64 -n 2 -w 1 -d all -o all");
  std::set<std::string> types;
  for (const nlohmann::json& row : document["rows"]) {
    types.insert(row["dtype"]);
    EXPECT_EQ(row["wrong"], 0) << row;
  }
  EXPECT_EQ(types.size(), 15u);
}

TEST(LockstepBench, RefusesWithTheNextStep) {
  EXPECT_NE(bench("all_recude --ranks 2 2>&1").output.find("known: all, all_reduce"), std::string::npos);
  EXPECT_NE(bench("all_reduce --ranks 2 -d f33 2>&1").output.find("known: all, f16"), std::string::npos);
  EXPECT_NE(bench("all_reduce --ranks 2 -r 2 2>&1").output.find("root 2 is not one of 2 ranks"),
            std::string::npos);
  EXPECT_NE(bench("all_reduce --ranks 2 -r -1 2>&1").output.find("Value -1 not in range 0 to 16383\n"),
            std::string::npos);
  EXPECT_NE(bench("all_reduce --ranks 2 --transport tpc 2>&1").output.find("write one of auto|shm|tcp"),
            std::string::npos);
  EXPECT_NE(bench("2>&1").status, 0);
  const Outcome unknown = bench("all_reduce --ranks 2 -b 8 -e 8 --algorithm rnig 2>&1");
  EXPECT_NE(unknown.status, 0);
  EXPECT_NE(unknown.output.find("ring"), std::string::npos) << unknown.output;
}

TEST(LockstepBench, RefusesWhatWouldHaveNoEffect) {
  for (const char* arguments :
       {"all_reduce --ranks 2 --explain --json x.json", "--list --json -", "--topology --json x.json",
        "all_reduce --programs --json x.json", "all_reduce --ranks 2 --device host --algorithm ring",
        "--startup --ranks 2 --device host", "all_reduce --ranks 2 --device host --explain",
        "--calibrate --ranks 8 --json x.json", "all_reduce --calibrate --json x.json",
        "--calibrate --transport tcp --json x.json", "--calibrate --registered --json x.json",
        "--calibrate -b 8 --json x.json", "all_reduce --ranks 2 -b 8 -e 8 --lib-apart",
        "all_reduce --ranks 2 -b 8 -e 8 --device host --lib-apart", "all_reduce --programs --explain",
        "--list --startup", "sendrecv barrier --ranks 2 --explain"}) {
    const Outcome outcome = bench(std::string(arguments) + " 2>&1");
    EXPECT_NE(outcome.status, 0) << arguments;
    EXPECT_NE(outcome.output.find("leave "), std::string::npos) << arguments << "\n" << outcome.output;
  }
}

TEST(LockstepBench, RefusesSizesThatAreNone) {
  EXPECT_NE(bench("all_reduce --ranks 2 -b -8 2>&1").output.find("\"-8\" is no size"), std::string::npos);
}

// A measurement takes long: before it, not after it.
TEST(LockstepBench, RefusesAFileThatCannotBeWrittenBeforeItMeasures) {
  for (const char* what : {"all_reduce --ranks 2 -b 8 -e 8", "--startup --ranks 2", "--calibrate"}) {
    const Outcome outcome = bench(std::string(what) + " --json /proc/none/x.json 2>&1");
    EXPECT_EQ(outcome.status, 1) << what;
    EXPECT_EQ(outcome.output, "lockstep-bench: cannot write /proc/none/x.json: No such file or directory\n");
  }
}

// As where the disk is full to which it is redirected.
TEST(LockstepBench, FailsWhereWhatItPrintsIsLost) {
  for (const char* arguments :
       {"all_reduce --ranks 2 -b 8 -e 8 -n 1", "all_reduce --threads 2 -b 8 -e 8 -n 1",
        "all_reduce --ranks 2 -b 8 -e 8 -n 1 --json -", "--startup --ranks 2", "--list",
        "all_reduce --ranks 2 -b 8 -e 8 --explain"}) {
    const Outcome outcome = bench(std::string(arguments) + " 2>&1 >/dev/full");
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_NE(outcome.output.find("standard output cannot be written"), std::string::npos) << outcome.output;
  }
}

// Where the ranks meet must be one place whatever the variable says.
TEST(LockstepBench, RunsWhereTheDirectoryOfTemporaryFilesIsRelative) {
  const Outcome outcome = bench("all_reduce --ranks 2 -b 8 -e 8 -n 1 2>&1", "TMPDIR=.");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(LockstepBench, ListsAndPrintsPrograms) {
  const Outcome list = bench("--list");
  for (const char* word : {"all_reduce", "recursive_doubling", "all_to_all", "barrier"}) {
    EXPECT_NE(list.output.find(word), std::string::npos) << word;
  }
  const Outcome printed = bench("all_reduce --ranks 3 -b 12 -e 12 --algorithm ring --programs");
  EXPECT_EQ(printed.status, 0);
  EXPECT_NE(printed.output.find("send"), std::string::npos) << printed.output;
}

TEST(LockstepBench, ExplainsByPredictionAndMeasurement) {
  const Outcome links = bench("all_reduce --ranks 3 --transport tcp -b 64 -e 65536 -f 1024 --explain");
  EXPECT_EQ(links.status, 0) << links.output;
  for (const char* word : {"predicted", "measured", "model built-in (", "links/ring",
                           "links/recursive_doubling", "<- chosen", "# the choice "})
    EXPECT_NE(links.output.find(word), std::string::npos) << word << "\n" << links.output;
  const Outcome shared = bench("all_reduce broadcast --ranks 2 -b 8 -e 65536 -f 8192 --registered --explain");
  EXPECT_EQ(shared.status, 0) << shared.output;
  for (const char* word : {"inline", "staged/one_shot", "registered/fused", "registered/direct"})
    EXPECT_NE(shared.output.find(word), std::string::npos) << word << "\n" << shared.output;
}

// As the rows of a measurement: no size that was not measured.
TEST(LockstepBench, ExplainsTheSizesThatItMeasures) {
  const Outcome outcome = bench("all_gather --ranks 3 -b 13 -e 13 --explain");
  EXPECT_EQ(outcome.output.find("\n        13 "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("\n        12 "), std::string::npos) << outcome.output;
  const Outcome none = bench("all_reduce --ranks 1 -b 3 -e 3 --explain");
  EXPECT_NE(none.output.find("# the choice is none of these (at 0 bytes)"), std::string::npos) << none.output;
}

// Of threads any memory is addressable.
TEST(LockstepBench, WhatIsChosenIsAmongWhatIsExplained) {
  const Outcome threads = bench("all_reduce --threads 2 -b 2M -e 2M --explain");
  EXPECT_NE(threads.output.find("<- chosen"), std::string::npos) << threads.output;
  const Outcome alone = bench("all_reduce --ranks 1 -b 64 -e 64 --explain");
  EXPECT_NE(alone.output.find("# the choice is none of these"), std::string::npos) << alone.output;
}

TEST(LockstepBench, WhatMayBePulledIsExplained) {
  if (bench("broadcast --ranks 2 -b 1M -e 1M -n 1 --algorithm pulled/direct 2>&1").status != 0)
    GTEST_SKIP() << "processes may not read each other's memory here";
  const std::string table = bench("broadcast --ranks 2 -b 1M -e 1M --explain 2>&1").output;
  EXPECT_NE(table.find("pulled/direct"), std::string::npos) << table;
  EXPECT_NE(table.find("<- chosen"), std::string::npos) << table;
  const std::string short_calls = bench("broadcast --ranks 2 -b 1K -e 1K --explain 2>&1").output;
  EXPECT_EQ(short_calls.find("  <- chosen"), short_calls.rfind("  <- chosen")) << short_calls;
}

TEST(LockstepBench, WhatOnlyHostMemoryDoesIsRefusedOnDevices) {
  setenv("LOCKSTEP_ALGORITHMS", "broadcast:*=pulled/direct", 1);
  const Outcome outcome = bench("broadcast --device host --ranks 2 -b 64K -e 64K -n 1 2>&1");
  unsetenv("LOCKSTEP_ALGORITHMS");
  EXPECT_NE(outcome.output.find("needs buffers"), std::string::npos) << outcome.output;
}

TEST(LockstepBench, ExplainsTypesAndOperatorsThatItIsAskedFor) {
  const Outcome kinds = bench(
      "all_reduce all_gather --ranks 2 -b 64 -e 64 -d bf16,i64,bool -o max,premul_sum --registered "
      "--explain");
  EXPECT_EQ(kinds.status, 0) << kinds.output;
  for (const char* heading :
       {"# all_reduce, bf16 max: 2 ranks", "# all_reduce, bf16 premul_sum: 2 ranks, transport shm, private",
        "# all_reduce, i64 max: 2 ranks, transport shm, registered",
        "# all_reduce, i64 premul_sum: 2 ranks, transport shm, private", "# all_gather, bf16: 2 ranks",
        "# all_gather, i64: 2 ranks"})
    EXPECT_NE(kinds.output.find(heading), std::string::npos) << heading << "\n" << kinds.output;
  for (const char* absent : {"f32", "bool premul_sum"})
    EXPECT_EQ(kinds.output.find(absent), std::string::npos) << absent << "\n" << kinds.output;
}

#if defined(LOCKSTEP_NCCL)
/// Rank 0 alone asks for it.
TEST(LockstepBench, ALibraryThatGivesNoIdIsUnmeasuredOnAllRanks) {
  setenv("NCCL_COMM_ID", "127.0.0.1:1", 1);  // Of which liblockstep_nccl.so gives none.
  const nlohmann::json document =
      json_of("all_reduce --device host --ranks 2 -b 8 -e 8 -n 1 -w 0 --lib " LOCKSTEP_NCCL);
  unsetenv("NCCL_COMM_ID");
  EXPECT_NE(document["notes"].dump().find("ncclGetUniqueId on rank 0"), std::string::npos)
      << document["notes"];
  EXPECT_EQ(document["rows"].size(), 2u);  // Of lockstep: out of place and in place.
}
#endif

TEST(LockstepBench, CalibratesToAFileThatJobsUse) {
  const lockstep::internal::TemporaryDirectory directory;
  const std::string path = directory.path() + "/tuning.json";
  const auto start = std::chrono::steady_clock::now();
  const Outcome calibrated = bench("--calibrate --json " + path + " 2>&1");
  EXPECT_EQ(calibrated.status, 0) << calibrated.output;
  EXPECT_LT(std::chrono::steady_clock::now() - start, lockstep::testing::allowed(std::chrono::seconds(20)));
  std::ifstream file(path);
  const nlohmann::json model = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(model.is_object());
  EXPECT_EQ(model["schema"], "lockstep-tuning");
  EXPECT_GE(model["fingerprint"]["cores"], 1);
  EXPECT_EQ(model["links"].size(), 8u);
  EXPECT_GT(model["corrections"].size(), 20u);
  setenv("LOCKSTEP_TUNING", path.c_str(), 1);
  const Outcome explained = bench("all_reduce --ranks 2 -b 64 -e 64 --explain 2>&1");
  unsetenv("LOCKSTEP_TUNING");
  EXPECT_NE(explained.output.find("model " + path), std::string::npos) << explained.output;
}

}  // namespace
