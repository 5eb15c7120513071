// TCP transports of real processes: all pairs exchange, then one dies while its forked child lives on.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/bootstrap/child_process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

class TcpProcesses : public testing::TestWithParam<int> {};  // LOCKSTEP_TCP_SOCKETS
INSTANTIATE_TEST_SUITE_P(Sockets, TcpProcesses, testing::Values(1, 2));

TEST_P(TcpProcesses, ExchangeAndNameTheOneThatWasKilled) {
  const TemporaryDirectory directory;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back(std::vector<std::string>{LOCKSTEP_TCP_RANK},
                       Environment{{"RANK", std::to_string(rank)},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCKSTEP_RENDEZVOUS", "file://" + directory.path() + "/store"},
                                   {"LOCKSTEP_SECRET", "s3cret"},
                                   {"LOCKSTEP_TCP_SOCKETS", std::to_string(GetParam())}});
  }
  for (auto& rank : ranks) ASSERT_EQ(rank.read_line(), "exchanged");
  ranks[2].kill(SIGKILL);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    const std::string line = ranks[rank].read_line();
    EXPECT_EQ(line.rfind("lost 2: rank 2 at 127.0.0.1:", 0), 0u) << line;
    EXPECT_NE(line.find(" is gone: "), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace lockstep::internal
