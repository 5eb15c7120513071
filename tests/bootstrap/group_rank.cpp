// One rank that forms groups one after another, all at the place that its environment names. Each argument is
// a group, and how it ends: "finalize"; "abort"; "mismatch" (rank 0 counts differently). With "-" in front
// the old communicator lives on beside the next, with "?" it may fail to start, with "!" as well and has but
// a second to; with "^" it is one without the first rank of the environment's, whose numbers are each one
// less in it; "wait" is no group: it says so, and waits for a line of input. "at", and places: a group at
// each, side by side in threads.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.hpp"

using lockstep::Communicator;
using lockstep::InitOptions;

namespace {

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void sum_up(Communicator& ranks, std::size_t count) {
  std::array<int, 2> sum{ranks.rank() + 1, 0};
  ranks.all_reduce(sum.data(), sum.data(), count, lockstep::DataType::i32, lockstep::ReduceOp::sum);
  say("rank " + std::to_string(ranks.rank()) + ": " + std::to_string(sum[0]));
}

void end(Communicator& ranks, const std::string& how) {
  if (how == "finalize") ranks.finalize();
  if (how == "abort") ranks.abort();
  if (how != "mismatch") return;
  try {
    sum_up(ranks, ranks.rank() == 0 ? 2 : 1);
  } catch (const lockstep::Error&) {
    say("revoked");
  }
}

/// Counts 1, 2 ... at the first place, 10, 20 ... at the second.
int meet_at(const std::vector<std::string>& places) {
  std::vector<int> sums(places.size());
  std::vector<std::thread> threads;
  int unit = 1;
  for (std::size_t i = 0; i < places.size(); ++i, unit *= 10) {
    threads.emplace_back([&, i, unit] {
      InitOptions options;
      options.rendezvous = places[i];
      Communicator ranks = Communicator::create(options);
      sums[i] = (ranks.rank() + 1) * unit;
      ranks.all_reduce(&sums[i], &sums[i], 1, lockstep::DataType::i32, lockstep::ReduceOp::sum);
      ranks.finalize();
    });
  }
  for (auto& thread : threads) thread.join();
  std::string line;
  for (const int sum : sums) line += std::to_string(sum) + " ";
  say(line + "done");
  return 0;
}

/// Nothing when the start fails.
std::optional<Communicator> try_to_start(bool hurried) {
  InitOptions options;
  if (hurried) options.timeout = std::chrono::seconds(5);
  try {
    return Communicator::create(options);
  } catch (const lockstep::Error& error) {
    say(std::string("failed: ") + error.what());
    return std::nullopt;
  }
}

InitOptions without_the_first() {
  InitOptions options;
  options.rank = std::atoi(std::getenv("LOCKSTEP_RANK")) - 1;
  options.world_size = std::atoi(std::getenv("LOCKSTEP_WORLD_SIZE")) - 1;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string("at")) return meet_at({argv + 2, argv + argc});
  std::vector<Communicator> kept;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument == "wait") {
        say("waits");
        std::string line;
        std::getline(std::cin, line);
        continue;
      }
      const char mark = argument.front();
      const bool keeps = mark == '-', tries = mark == '?' || mark == '!';
      auto started = tries ? try_to_start(mark == '!')
                           : Communicator::create(mark == '^' ? without_the_first() : InitOptions());
      if (!started) continue;
      Communicator& ranks = *started;
      sum_up(ranks, 1);
      end(ranks, argument.substr(keeps || tries || mark == '^' ? 1 : 0));
      if (keeps) kept.push_back(std::move(ranks));
    }
  } catch (const lockstep::Error& error) {
    say(std::string("error ") + error.what());
    return 1;
  }
  say("done");
  return 0;
}
