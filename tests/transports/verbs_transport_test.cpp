// Queue pairs of ranks in one process, over a real RDMA device; tools/test --rdma brings one.
#include "transports/verbs/verbs_transport.hpp"

#include <gtest/gtest.h>

#include "lockstep/communicator.hpp"
#include "tests/transports/link_traffic.hpp"
#include "tests/transports/verbs_ranks.hpp"
#include "transports/fabric/fabric_transport.hpp"

namespace lockstep::internal {
namespace {

constexpr int kRanks = 4;

#define START(ranks)                                  \
  const auto device = open_verbs(0);                  \
  if (!device.ok()) GTEST_SKIP() << "no RDMA device"; \
  testing::VerbsRanks ranks(device.value(), kRanks)

TEST(VerbsFabric, ConnectsOnlyToThosePeersThatAreWanted) {
  START(ranks);
  for (const auto& fabric : ranks.fabrics) EXPECT_EQ(fabric->connected(), 0u);
  const auto low_to_high = ranks.wire(0, 1);
  EXPECT_EQ(ranks.fabrics[0]->connected(), 1u);
  EXPECT_EQ(ranks.fabrics[1]->connected(), 1u);
  const auto high_to_low = ranks.wire(3, 1);  // The higher of a pair has to ask for the connection.
  EXPECT_EQ(ranks.fabrics[1]->connected(), 2u);
  EXPECT_EQ(ranks.fabrics[0]->connected(), 1u);
  EXPECT_EQ(ranks.fabrics[2]->connected(), 0u);
}

TEST(VerbsFabric, APeerThatWantedNobodyFindsItsCaller) {
  START(ranks);
  const auto out = ranks.wire(0, 1);
  const std::byte text[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(out->send(text, {}).value());
  std::optional<std::pair<int, Channel>> caller;
  while (!(caller = ranks.fabrics[1]->caller())) ranks.fabrics[1]->progress();
  EXPECT_EQ(caller->first, 0);
  const auto in = ranks.wire(1, 0);
  const auto arrival = in->next();
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->bytes.size(), 3u);
  EXPECT_EQ(arrival->bytes[2], std::byte{3});
}

TEST(VerbsFabric, APeerThatIsGoneBeforeTheyMetIsAnError) {
  START(ranks);
  ranks.fabrics[1].reset();
  ranks.boards[1].reset();
  Result<std::unique_ptr<Wire>> made = std::unique_ptr<Wire>();
  while (made.ok() && *made == nullptr) made = ranks.fabrics[0]->wire(1, Channel::collective);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().culprit(), 1);
}

TEST(VerbsTransport, CarriesEverySizeBothWaysOnEveryChannel) {
  START(ranks);
  std::unique_ptr<Transport> transports[2];
  for (int rank = 0; rank < 2; ++rank) {
    auto made =
        make_fabric_transport(std::move(ranks.fabrics[static_cast<std::size_t>(rank)]), kRanks, real_env());
    ASSERT_TRUE(made.ok());
    transports[rank] = std::move(*made);
  }
  const std::vector<std::size_t> sizes{0, 1, 7856, 7857, 64 << 10, (64 << 10) + 1, 300'003, 1u << 20, 17};
  std::vector<testing::Traffic> traffic;
  for (const Channel channel : kEachChannel) {
    Link* links[2] = {nullptr, nullptr};
    while (links[0] == nullptr || links[1] == nullptr) {
      for (int rank = 0; rank < 2; ++rank) links[rank] = transports[rank]->link(1 - rank, channel).value();
    }
    for (Link* link : links) traffic.emplace_back(*link, sizes, sizes);
  }
  run_all(traffic);
}

TEST(VerbsTransport, ARankThatIsInNoCallIsConnectedToAllTheSame) {
  if (!open_verbs(0).ok()) GTEST_SKIP() << "no RDMA device";
  std::vector<Communicator> group = Communicator::local_group(2, "verbs");
  CallOptions options;
  options.timeout = std::chrono::seconds(60);
  const int sent = 4711;
  int received = 0;
  group[0].send(&sent, 1, DataType::i32, 1, 0, options);  // Rank 1 has called nothing yet.
  group[1].recv(&received, 1, DataType::i32, 0, 0, options);
  EXPECT_EQ(received, sent);
  const int back = 4712;
  group[1].send(&back, 1, DataType::i32, 0, 0, options);
  group[0].recv(&received, 1, DataType::i32, 1, 0, options);
  EXPECT_EQ(received, back);
}

}  // namespace
}  // namespace lockstep::internal
