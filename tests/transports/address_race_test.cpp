// Which of a rank's addresses wins, and what is said when none does.
#include "transports/tcp/address_race.hpp"

#include <poll.h>

#include <thread>

#include "lib/net/stream_io.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/transports/switchboard_fixtures.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

using testing::AdvancedEnv;
using testing::hello_of;
using testing::meet;
using testing::race_for;
using testing::RaceResult;

TEST(AddressRace, OneGoodAddressIsEnough) {
  auto ranks = meet({"s", "s"});
  auto silent = tcp_listen({"127.0.0.1", 0});  // Accepts in the kernel, and never says a word.
  ASSERT_TRUE(silent.ok());
  const HostPort nobody = local_address(tcp_listen({"127.0.0.1", 0}).value());  // Closed again.
  const HostPort wrong_rank = ranks[0].board->addresses().front();
  const HostPort good = ranks[1].board->addresses().front();
  for (const auto& first : {nobody, local_address(*silent), wrong_rank}) {
    const RaceResult result = race_for({first, good}, "s");
    EXPECT_EQ(result.outcome, AddressRace::Outcome::connected) << result.why.message();
    EXPECT_EQ(result.address, good.text());
  }
}

TEST(AddressRace, SaysWhatHappenedAtEveryAddress) {
  auto ranks = meet({"s", "s"});
  const HostPort nobody = local_address(tcp_listen({"127.0.0.1", 0}).value());
  const RaceResult lost = race_for({nobody, nobody}, "s");
  EXPECT_EQ(lost.outcome, AddressRace::Outcome::refused);
  EXPECT_EQ(lost.why.code(), ErrorCode::peer_lost);
  EXPECT_EQ(lost.why.culprit(), 1);
  const std::string line = "\n  cannot connect to " + nobody.text() + ": nobody listens there any more";
  EXPECT_EQ(lost.why.message(), "none of its addresses answers:" + line + line);
  const RaceResult refused = race_for({nobody, ranks[1].board->addresses().front()}, "wrong");
  EXPECT_EQ(refused.why.code(), ErrorCode::unauthorized) << refused.why.message();
}

// Behind a silent address may be somebody else, and the peer gone.
TEST(AddressRace, IsSilentWhereNoAddressRefused) {
  auto silent = tcp_listen({"127.0.0.1", 0}), too = tcp_listen({"127.0.0.1", 0});
  const HostPort nobody = local_address(tcp_listen({"127.0.0.1", 0}).value());
  AdvancedEnv env;
  env.advance(std::chrono::milliseconds(500) - kConnectDeadline);  // That is over so soon.
  const auto outcome = [&](const HostPort& other) {
    return race_for({local_address(*silent), other}, "s", hello_of(0, 1), env).outcome;
  };
  EXPECT_EQ(outcome(local_address(*too)), AddressRace::Outcome::silent);
  EXPECT_EQ(outcome(nobody), AddressRace::Outcome::broken);
}

// Somebody may be there, and too busy: it is called again.
TEST(AddressRace, IsBrokenWhereOneCallWas) {
  auto hangs_up = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(hangs_up.ok());
  const HostPort nobody = local_address(tcp_listen({"127.0.0.1", 0}).value());
  std::thread busy([&] {
    pollfd entry{hangs_up->get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
    EXPECT_TRUE(accept_connection(*hangs_up).ok());
  });
  const RaceResult lost = race_for({local_address(*hangs_up), nobody}, "s");
  busy.join();
  EXPECT_EQ(lost.outcome, AddressRace::Outcome::broken) << lost.why.message();
}

TEST(AddressRace, BlamesNobodyForWhatThisSideLacks) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  const HostPort nobody = local_address(tcp_listen({"127.0.0.1", 0}).value());
  static_cast<void>(race_for({nobody}, "s"));  // What is opened once is open.
  const lockstep::testing::NoDescriptorsLeft none;
  const RaceResult lost = race_for({nobody, nobody}, "s");
  EXPECT_EQ(lost.why.code(), ErrorCode::system) << lost.why.message();
  EXPECT_EQ(lost.why.culprit(), -1);
}

TEST(AddressRace, EndsAtAPortThatIsNotForIt) {
  auto ranks = meet({"s", "s"});
  const auto refusal = [&](int of, int rank, HandshakeService service) {
    HandshakeHello hello = hello_of(rank, of);
    hello.service = service;
    const auto& board = *ranks[static_cast<std::size_t>(of)].board;
    return race_for(board.addresses(), "s", hello).why.message();
  };
  const auto says = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal(1, 0, HandshakeService::knock), "does not offer to be connected to"));
  EXPECT_TRUE(says(refusal(0, 1, HandshakeService::link), "does not offer a data connection"));
  EXPECT_TRUE(says(refusal(1, 0, HandshakeService::store), "does not offer the job's store"));
  EXPECT_TRUE(says(refusal(1, 1, HandshakeService::link), "rank 1 is already taken by another process"));
  EXPECT_EQ(refusal(1, 0, HandshakeService::probe), "");
}

}  // namespace
}  // namespace lockstep::internal
