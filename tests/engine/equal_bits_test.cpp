// A sum has the same bits on all ranks, in another group like the first, and whatever the call's memory,
// place, alignment, priority and form: of numbers whose sum depends on the order in which they are added.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "lockstep/lockstep.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

constexpr int kRanksThatRound = 4;
constexpr std::size_t kMostNumbers = 100'000, kSpare = 8;

/// What one rank calls with: `form` says how.
struct RoundingCall {
  Communicator& communicator;
  std::size_t count;
  float* heap;
  float* registered;

  float* input(bool in_registered, std::size_t skipped) const {
    float* to = (in_registered ? registered : heap) + skipped;
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    std::uniform_real_distribution<float> number(-1, 1);
    for (std::size_t i = 0; i < count; ++i) to[i] = number(random);
    return to;
  }
  float* other_half(bool in_registered, std::size_t skipped) const {
    return (in_registered ? registered : heap) + kMostNumbers + kSpare + skipped;
  }
};
using Form = std::function<const float*(const RoundingCall&)>;

Form plain(bool in_registered, bool in_place, int priority = 0) {
  return [=](const RoundingCall& call) {
    CallOptions options;
    options.priority = priority;
    const float* input = call.input(in_registered, 0);
    float* output = in_place ? const_cast<float*>(input) : call.other_half(in_registered, 0);
    call.communicator.all_reduce(input, output, call.count, DataType::f32, ReduceOp::avg, options);
    return output;
  };
}

/// Registered at every other rank, and nowhere aligned as elsewhere.
const float* mixed(const RoundingCall& call) {
  const auto rank = static_cast<std::size_t>(call.communicator.rank());
  const float* input = call.input(rank % 2 == 0, rank + 1);
  float* output = call.other_half(rank % 2 == 0, kSpare - 1 - rank);
  call.communicator.all_reduce(input, output, call.count, DataType::f32, ReduceOp::avg);
  return output;
}

const float* batched(const RoundingCall& call) {
  float little[2] = {1, 2};
  float* data = call.input(false, 0);
  Batch batch = call.communicator.batch();
  batch.all_reduce(little, little, 2, DataType::f32, ReduceOp::sum);
  batch.all_reduce(data, data, call.count, DataType::f32, ReduceOp::avg);
  batch.submit().wait();
  return data;
}

const float* planned(const RoundingCall& call) {
  float* data = call.input(true, 0);
  Plan plan = call.communicator.plan_all_reduce(data, data, call.count, DataType::f32, ReduceOp::avg);
  plan.start().wait();
  return data;
}

std::map<std::string, Form> forms() {
  return {{"plain", plain(false, false)},
          {"in place", plain(false, true)},
          {"registered", plain(true, false)},
          {"registered, in place", plain(true, true)},
          {"urgent", plain(false, false, 1)},
          {"mixed", mixed},
          {"in a batch", batched},
          {"planned", planned}};
}

TEST(EqualBits, OnAllRanksHoweverTheCallIsMade) {
  for (const std::string_view transport : {"shm", "tcp"}) {
    for (const std::size_t count : {1u, 20u, 1'500u, 20'011u, 100'000u}) {
      std::vector<std::map<std::string, std::vector<float>>> results(2 * kRanksThatRound);
      for (const std::size_t group : {0u, 1u}) {
        testing::on_ranks(kRanksThatRound, transport, [&](Communicator& communicator) {
          std::vector<float> heap(2 * (kMostNumbers + kSpare));
          auto* registered = static_cast<float*>(allocate(heap.size() * sizeof(float)));
          const auto rank = static_cast<std::size_t>(communicator.rank());
          for (const auto& [name, form] : forms()) {
            const float* output = form({communicator, count, heap.data(), registered});
            results[group * kRanksThatRound + rank][name].assign(output, output + count);
          }
          lockstep::free(registered);
        });
      }
      const std::vector<float>& first = results[0]["plain"];
      for (const auto& of_rank : results) {
        for (const auto& [name, result] : of_rank) {
          ASSERT_EQ(std::memcmp(result.data(), first.data(), count * sizeof(float)), 0)
              << transport << ", " << count << " " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
