// Every row of the algorithm table, run by real engines on simulated networks that split, merge, delay and
// hold back bytes.
#include <gtest/gtest.h>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/sim_world.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

constexpr int kLinkWorlds[] = {2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33, 64};
constexpr int kLargestDomain = 16;

SimNetworkOptions network(SimDelivery delivery, std::size_t in_flight, bool domain = false) {
  SimNetworkOptions options;
  options.links.delivery = delivery;
  options.links.in_flight = in_flight;
  options.domain = domain;
  return options;
}

std::string run(const SimWorldOptions& options, const std::vector<SimCall>& calls) {
  SimWorld world(options);
  for (const SimCall& call : calls) world.add(call);
  return world.run_and_check();
}

/// The calls that a row is tried with at one world size: types, odd counts, roots, in place and not. Only
/// those that it supports.
std::vector<SimCall> calls_for(std::size_t row, int world, std::uint64_t seed) {
  const Algorithm& algorithm = algorithms()[row];
  constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::i64};
  constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max};
  const auto n = static_cast<std::size_t>(world);
  const std::size_t counts[] = {0, 1, n - 1, n + 1, 1001};
  std::vector<SimCall> calls;
  for (const std::size_t count : counts) {
    SimCall call;
    const std::size_t turn = seed + calls.size();
    call.what.collective = algorithm.collective;
    call.what.type = kTypes[turn % 3];
    call.what.op = kOps[turn / 2 % 3];
    call.what.world = world;
    call.what.root = static_cast<int>(turn * 7 % n);
    call.what.count = world > 16 && count > 1000 ? 101 : count;
    call.what.seed = turn;
    call.algorithm = number_of(algorithm);
    call.in_place = turn % 2 == 0;
    call.registered = algorithm.medium == Medium::domain_registered;
    if (algorithm.supports(shape_of(call.what, 0))) calls.push_back(call);
    if (algorithm.collective == Collective::barrier) break;
  }
  return calls;
}

std::string name_of_row(const ::testing::TestParamInfo<std::size_t>& tested) {
  return text_of(algorithms()[tested.param]);
}

class EveryAlgorithm : public ::testing::TestWithParam<std::size_t> {
 protected:
  bool over_links() const { return algorithms()[GetParam()].medium == Medium::links; }
};

TEST_P(EveryAlgorithm, IsRightAtEveryWorldSize) {
  for (const int world : kLinkWorlds) {
    if (!over_links() && world > kLargestDomain) break;
    SimWorldOptions options;
    options.world = world;
    options.seed = GetParam() * 1000 + static_cast<std::uint64_t>(world);
    options.network = network(SimDelivery::split, world > 16 ? 64 * 1024 : 600, !over_links());
    options.concurrency = 1 + world % 3;
    EXPECT_EQ(run(options, calls_for(GetParam(), world, options.seed)), "") << "world " << world;
  }
}

TEST_P(EveryAlgorithm, IsRightForManySeeds) {
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(10); ++seed) {
    SimWorldOptions options;
    options.world = 2 + static_cast<int>(seed % 4);
    options.seed = seed;
    options.network = network(SimDelivery::split, 1 + seed * seed * 3, !over_links());
    options.concurrency = 3;
    EXPECT_EQ(run(options, calls_for(GetParam(), options.world, seed)), "") << "seed " << seed;
  }
}

class EveryLinkAlgorithm : public EveryAlgorithm {};

TEST_P(EveryLinkAlgorithm, IsRightByteByByteWithHardlyAnyBuffer) {
  for (const int world : {3, 4}) {
    SimWorldOptions options;
    options.world = world;
    options.network = network(SimDelivery::bytewise, 1);
    auto calls = calls_for(GetParam(), world, 1);
    for (SimCall& call : calls) call.what.count = std::min<std::size_t>(call.what.count, 33);
    EXPECT_EQ(run(options, calls), "") << "world " << world;
  }
}

std::vector<std::size_t> link_rows() {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < algorithms().size(); ++row) {
    if (algorithms()[row].medium == Medium::links) rows.push_back(row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryAlgorithm, ::testing::Range<std::size_t>(0, algorithms().size()),
                         name_of_row);
INSTANTIATE_TEST_SUITE_P(Sim, EveryLinkAlgorithm, ::testing::ValuesIn(link_rows()), name_of_row);

}  // namespace
}  // namespace lockstep::internal
