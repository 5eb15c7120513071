// lockstep-ddp-bench as its users run it: its JSON, two hosts that leave nothing behind, its refusals. What
// it measures is not judged here, for tests must not depend on time.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/bootstrap/child_process.hpp"
#include "tests/tools/shell.hpp"

namespace {

using lockstep::testing::shell;
using Outcome = lockstep::testing::ShellOutcome;

Outcome bench(const std::string& arguments) {
  return shell(std::string(LOCKSTEP_DDP_BENCH) + " " + arguments);
}

nlohmann::json json_of(const std::string& arguments) {
  const Outcome outcome = bench(arguments + " --json -");
  EXPECT_EQ(outcome.status, 0) << arguments;
  return nlohmann::json::parse(outcome.output);
}

/// Empty where two hosts can be made; else why not.
std::string why_no_two_hosts() {
  const Outcome probe = bench("--hosts 2 -- true 2>&1");
  return probe.status == 0 ? "" : probe.output;
}

std::string interfaces() { return shell("cat /proc/net/dev | cut -d: -f1").output; }

void expect_schema(const nlohmann::json& result) {
  for (const char* key : {"ranks", "hosts", "parameters", "hook", "step_ms", "compute_ms", "exposed_ms",
                          "wire_ms", "bytes_on_wire", "link_gbits"})
    EXPECT_TRUE(result.contains(key)) << key;
  for (const char* key : {"step_ms", "compute_ms", "wire_ms", "bytes_on_wire"})
    EXPECT_GT(result[key], 0) << key;
  EXPECT_NEAR(result["exposed_ms"].get<double>(),
              result["step_ms"].get<double>() - result["compute_ms"].get<double>(), 1e-9);
}

constexpr const char* kSmall = " --parameters 30k --batch 2 --rounds 3 ";

TEST(DdpBench, MeasuresWhatTheOverlapOfTheForwardSaves) {
  const nlohmann::json result = json_of("--overlap-forward" + std::string(kSmall));
  for (const char* key : {"step_ms", "overlapped_step_ms", "compute_ms", "forward_ms"})
    EXPECT_GT(result[key], 0) << key;
  EXPECT_TRUE(result.contains("saved_ms"));
  EXPECT_NE(bench("--overlap-forward --zero 1 2>&1").status, 0);
}

TEST(DdpBench, OneHost) {
  for (const int ranks : {1, 2, 4}) {
    const nlohmann::json result = json_of(kSmall + ("--ranks " + std::to_string(ranks)));
    expect_schema(result);
    EXPECT_EQ(result["ranks"], ranks);
    EXPECT_EQ(result["hosts"], 1);
    EXPECT_EQ(result["hook"], "none");
    EXPECT_EQ(result["parameters"], 24 * 32 * 32);
    EXPECT_EQ(result["bytes_on_wire"], 4 * 24 * 32 * 32);
    EXPECT_TRUE(result["link_gbits"].is_null());
  }
}

TEST(DdpBench, ShardingSaysWhatARankKeeps) {
  const double values = 4.0 * 24 * 32 * 32;
  for (const int stage : {0, 1, 2}) {
    const nlohmann::json result =
        json_of(kSmall + ("--ranks 2 --check-first no --zero " + std::to_string(stage)));
    EXPECT_EQ(result["zero"], stage);
    for (const char* key : {"step_ms", "compute_ms", "gathered_at_once_ms"}) EXPECT_GT(result[key], 0) << key;
    EXPECT_EQ(result["memory"]["values"], values);
    EXPECT_EQ(result["memory"]["optimizer"], stage == 0 ? 2 * values : values);
    EXPECT_EQ(result["memory"]["gradients"], stage == 2 ? values / 2 : values);
    EXPECT_EQ(result["memory"]["undo"], stage == 0 ? values : stage == 1 ? values / 2 : 0);
    EXPECT_EQ(result["memory"]["in_flight"] > 0, stage == 2);
  }
}

TEST(DdpBench, WithoutUndoARankKeepsLess) {
  for (const int stage : {0, 1}) {
    const nlohmann::json result = json_of(kSmall + ("--no-undo --zero " + std::to_string(stage)));
    EXPECT_EQ(result["memory"]["undo"], 0) << "stage " << stage;
  }
}

TEST(DdpBench, AHookSaysWhatItSent) {
  const double gradients = 4.0 * 24 * 32 * 32;
  for (const auto& [hook, share] : {std::pair("bf16", 0.5), std::pair("i8", 0.25)}) {
    const nlohmann::json result = json_of(kSmall + std::string("--hook ") + hook);
    EXPECT_EQ(result["hook"], hook);
    EXPECT_GE(result["bytes_on_wire"], share * gradients) << hook;
    EXPECT_LE(result["bytes_on_wire"], 1.1 * share * gradients) << hook;
  }
}

TEST(DdpBench, TwoHostsAreMeasuredAndGoneAfterwards) {
  if (const std::string why = why_no_two_hosts(); !why.empty()) GTEST_SKIP() << why;
  const std::string before = interfaces();
  const nlohmann::json result = json_of(kSmall + std::string("--hosts 2 --ranks 4 --link 1gbit"));
  expect_schema(result);
  EXPECT_EQ(result["hosts"], 2);
  // Of the gradients each host sends half twice at least; headers and acknowledgements come on top, and small
  // gradients may travel in ways that save rounds and not bytes.
  const double gradients = 4.0 * 24 * 32 * 32;
  EXPECT_GT(result["bytes_on_wire"], gradients);
  EXPECT_LT(result["bytes_on_wire"], 4 * gradients);
  EXPECT_GT(result["link_gbits"], 0.0);
  EXPECT_LT(result["link_gbits"], 1.05);  // TBF lets no more through, but for its bucket.
  EXPECT_GT(result["exposed_limit_ms"], 0.0);
  EXPECT_EQ(interfaces(), before);
}

TEST(DdpBench, TheHostsOfAKilledBenchmarkEndWithIt) {
  if (const std::string why = why_no_two_hosts(); !why.empty()) GTEST_SKIP() << why;
  lockstep::internal::ChildProcess process(
      {LOCKSTEP_DDP_BENCH, "--hosts", "2", "--", "sh", "-c", "echo here; exec sleep 1000"},
      {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(process.read_line(), "here");
  process.kill(SIGKILL);
  // Nameless namespaces live as long as a process is in them. Each rank holds the pipe: its end says that all
  // are gone.
  EXPECT_EQ(process.read_output(), "");
}

TEST(DdpBench, ACommandRunsOnEveryRank) {
  const Outcome here =
      bench("--ranks 3 -- sh -c 'echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$MASTER_ADDR.$GLOO_SOCKET_IFNAME'");
  EXPECT_EQ(here.status, 0);
  for (const char* line : {"0.0.3.127.0.0.1.lo\n", "1.1.3.127.0.0.1.lo\n", "2.2.3.127.0.0.1.lo\n"})
    EXPECT_NE(here.output.find(line), std::string::npos) << here.output;
  EXPECT_EQ(bench("--ranks 2 -- sh -c 'exit $((RANK * 7))'").status, 7);
  const Outcome absent = bench("--ranks 1 -- /no/such/program 2>&1");
  EXPECT_EQ(absent.status, 127);
  EXPECT_NE(absent.output.find("cannot run /no/such/program"), std::string::npos) << absent.output;
}

TEST(DdpBench, ACommandRunsOnBothHosts) {
  if (const std::string why = why_no_two_hosts(); !why.empty()) GTEST_SKIP() << why;
  const Outcome outcome =
      bench("--ranks 2 --hosts 2 -- sh -c 'echo $RANK.$MASTER_ADDR; cat /proc/net/dev' 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"0.10.177.0.1", "1.10.177.0.1", "lockstep0", "lockstep1"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << outcome.output;
}

TEST(DdpBench, RefusesWithTheNextStep) {
  const auto refusal = [](const std::string& arguments) {
    const Outcome outcome = bench(arguments + " 2>&1");
    EXPECT_NE(outcome.status, 0) << arguments;
    return outcome.output;
  };
  EXPECT_NE(refusal("--ranks 3 --hosts 2").find("--ranks 3 cannot be dealt evenly to 2 hosts"),
            std::string::npos);
  EXPECT_NE(refusal("--hosts 2 --link fast").find("write 100mbit, 1gbit or 2.5gbit"), std::string::npos);
  EXPECT_NE(refusal("--link 1gbit").find("add --hosts 2"), std::string::npos);
  EXPECT_NE(refusal("--hook bf61").find("no hook is called \"bf61\"; choose none, bf16"), std::string::npos);
  EXPECT_NE(refusal("--transport tpc").find("write one of auto|shm|tcp"), std::string::npos);
  EXPECT_NE(refusal("--parameters many").find("parameters"), std::string::npos);
  EXPECT_NE(refusal("--hosts 3").find("hosts"), std::string::npos);
  EXPECT_NE(refusal("--nothing").find("--nothing"), std::string::npos);
  EXPECT_NE(refusal(kSmall + std::string("--json /no/such/folder/x.json")).find("cannot write"),
            std::string::npos);
}

TEST(DdpBench, TwoHostsWithoutPermissionNameTheRemedy) {
  // As a user who may create no namespaces: a limit of zero says so whatever this machine allows.
  const Outcome outcome = shell("unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_net_namespaces && exec " +
                                std::string(LOCKSTEP_DDP_BENCH) + " --hosts 2 -- true' 2>&1");
  if (outcome.output.find("unshare") == 0 || outcome.output.find("sh:") == 0) GTEST_SKIP() << outcome.output;
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("needs root or unprivileged user namespaces"), std::string::npos)
      << outcome.output;
}

}  // namespace
