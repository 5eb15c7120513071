// What every link promises, over whatever it goes: messages of any size arrive whole and in order, errors are
// final for their direction, and what the peer said before it left can still be read. A new transport's links
// get a row below.
#include <poll.h>

#include <functional>
#include <thread>

#include "tests/transports/link_fixtures.hpp"
#include "tests/transports/link_traffic.hpp"
#include "tests/transports/shm_support.hpp"
#include "transports/sim/sim_network.hpp"

namespace lockstep::internal {
namespace {

using testing::Incoming;
using testing::message;
using testing::Outgoing;
using testing::pull;
using testing::push;
using testing::Traffic;

constexpr int kMostSteps = 20'000;

/// Two linked ranks, of which rank 1 will leave.
class Ends {
 public:
  virtual ~Ends() = default;
  virtual Link& stays() = 0;
  virtual Link& leaves() = 0;
  virtual void leave() = 0;
  /// Lets time pass, or what takes its place.
  virtual void pass() { static_cast<void>(poll(nullptr, 0, 1)); }
};

class TcpEnds final : public Ends {
 public:
  explicit TcpEnds(int sockets) : pair_(testing::connected_links(sockets)) {}
  Link& stays() override { return *pair_.a; }
  Link& leaves() override { return *pair_.b; }
  void leave() override { pair_.b.reset(); }

 private:
  testing::LinkPair pair_;
};

class ShmEnds final : public Ends {
 public:
  ShmEnds() {
    const std::vector<Member> members{testing::this_member(0), testing::this_member(1)};
    std::thread other([&] { transports_[1] = testing::join(1, 1, members); });
    transports_[0] = testing::join(1, 0, members);
    other.join();
  }
  Link& stays() override { return testing::link_of(*transports_[0], 1); }
  Link& leaves() override { return testing::link_of(*transports_[1], 0); }
  void leave() override { transports_[1]->close(); }

 private:
  std::unique_ptr<Transport> transports_[2];
};

class SimEnds final : public Ends {
 public:
  SimEnds() : network_(schedule_, SimNetworkOptions{}) {
    for (const int rank : {0, 1}) transports_[rank] = network_.attach(rank);
    while (transports_[0]->link(1, Channel::collective).value() == nullptr ||
           transports_[1]->link(0, Channel::collective).value() == nullptr) {
      pass();
    }
  }
  Link& stays() override { return *transports_[0]->existing_link(1, Channel::collective); }
  Link& leaves() override { return *transports_[1]->existing_link(0, Channel::collective); }
  void leave() override { transports_[1]->close(); }
  void pass() override {
    schedule_.wake(0, schedule_.now() + 1'000);
    schedule_.advance([this](int rank) { static_cast<void>(transports_[rank]->service()); });
  }

 private:
  SimSchedule schedule_{2, 1};
  SimNetwork network_;
  std::unique_ptr<Transport> transports_[2];
};

struct Medium {
  const char* name;
  std::function<std::unique_ptr<Ends>()> make;
};

class EveryLink : public ::testing::TestWithParam<Medium> {};
INSTANTIATE_TEST_SUITE_P(Media, EveryLink,
                         ::testing::Values(Medium{"tcp", [] { return std::make_unique<TcpEnds>(1); }},
                                           Medium{"striped", [] { return std::make_unique<TcpEnds>(3); }},
                                           Medium{"shm", [] { return std::make_unique<ShmEnds>(); }},
                                           Medium{"sim", [] { return std::make_unique<SimEnds>(); }}),
                         [](const auto& medium) { return std::string(medium.param.name); });

void expect_lost(const Result<bool>& result) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(result.status().culprit(), 1);
}

TEST_P(EveryLink, CarriesMessagesOfEverySizeBothWays) {
  const auto ends = GetParam().make();
  const std::vector<std::size_t> small = {0, 1, 7, 64, 1'000, 0, 4'097}, large = {300'001, 0, 100'000, 3};
  Traffic stays(ends->stays(), small, large), leaves(ends->leaves(), large, small);
  for (int step = 0; (stays.going() || leaves.going()) && step < kMostSteps; ++step) {
    const bool moved = stays.step();
    if (!leaves.step() && !moved) ends->pass();
  }
  EXPECT_TRUE(stays.done()) << stays.status().message();
  EXPECT_TRUE(leaves.done()) << leaves.status().message();
}

TEST_P(EveryLink, EndsEachDirectionByItself) {
  const auto ends = GetParam().make();
  Outgoing reason = message(10'000, 1);
  for (int step = 0; !reason.done && step < kMostSteps; ++step) {
    ASSERT_TRUE(push(ends->leaves(), reason).ok());
    ends->pass();
  }
  ASSERT_TRUE(reason.done);
  ends->leave();

  Result<bool> sent = true;
  for (int step = 0; sent.ok() && step < kMostSteps; ++step) {
    Outgoing out = message(1'000, 2);
    sent = push(ends->stays(), out);
    ends->pass();
  }
  expect_lost(sent);
  Outgoing again = message(1'000, 2);
  expect_lost(push(ends->stays(), again));

  Incoming in;
  Result<bool> got = false;
  for (int step = 0; !in.done && got.ok() && step < kMostSteps; ++step) {
    got = pull(ends->stays(), in);
    ends->pass();
  }
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_TRUE(in.payload == reason.payload);

  Incoming nothing;
  got = false;
  for (int step = 0; got.ok() && step < kMostSteps; ++step) {
    got = pull(ends->stays(), nothing);
    ends->pass();
  }
  expect_lost(got);
  expect_lost(pull(ends->stays(), nothing));
}

}  // namespace
}  // namespace lockstep::internal
