#include "bench/device/run.hpp"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/device/measure.hpp"
#include "bench/device/report.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::bench {
namespace {

/// A contender that every rank could make, or why one could not. Collective.
struct Made {
  std::unique_ptr<Contender> contender;
  std::string note;
};

template <typename Make>
Made make_on_all(Board& board, const std::string& name, Make make) {
  Made made;
  try {
    made.contender = make();
    made.note = made.contender->describe();
  } catch (const std::exception& error) {
    made.note = "unmeasured: " + name + ": " + error.what();
  }
  const bool everywhere = board.sum(made.contender == nullptr ? 1 : 0) == 0;
  if (!everywhere && made.contender != nullptr) {
    made.contender.reset();
    made.note = "unmeasured: " + name + ": another rank could not make its communicator";
  }
  return made;
}

/// Ranks of one host take its devices in turn: more ranks than devices share them.
int device_of(int rank) { return rank % device::count(); }

/// By what takes_turns() of a communicator says; there may be none, and libraries are timed too.
Clock clock_for(const Options& options, const device::Properties& facts, int ranks) {
  const bool take_turns =
      options.threads == 0 && ranks > device::count() && !facts.kernels_of_processes_overlap;
  return take_turns ? Clock::host : Clock::events;
}

}  // namespace

void choose_backend(const Options& options) { setenv("LOCKSTEP_DEVICE_BACKEND", options.device.c_str(), 1); }

std::uint64_t run_on_device(const Options& options, Communicator& communicator, Board& board) {
  const int rank = communicator.rank();
  device::select(device_of(rank));
  const device::Properties facts = device::properties(device::selected());
  const Clock clock = clock_for(options, facts, communicator.size());
  std::ostream* table = rank == 0 && options.json != "-" ? &std::cout : nullptr;
  DeviceReport report(options, communicator.size(),
                      {{"backend", facts.backend},
                       {"name", facts.name},
                       {"memory_bytes", facts.memory_bytes},
                       {"compute_capability", facts.compute_capability},
                       {"devices", device::count()},
                       {"clock", name_of(clock)}},
                      table);
  std::vector<std::unique_ptr<Contender>> contenders;
  const auto enter = [&](Made made) {
    report.note(made.note);
    if (made.contender != nullptr) contenders.push_back(std::move(made.contender));
  };
  enter(make_on_all(board, "lockstep", [&] { return make_lockstep(communicator, device::selected()); }));
  for (const std::string& path : options.libraries) {
    enter(make_on_all(board, path, [&] { return make_library(communicator, {path, options.apart}); }));
  }
  if (contenders.empty()) throw std::runtime_error("nothing could be measured, see above");
  std::uint64_t wrong = 0;
  measure_on_device(contenders, rank, communicator.size(), board, options, clock, [&](const DeviceRow& row) {
    for (const auto& timing : {row.row.out_of_place, row.row.in_place}) wrong += timing ? timing->wrong : 0;
    report.add(row);
  });
  for (const auto& contender : contenders) contender->finish();
  if (rank == 0) report.finish();
  return wrong;
}

}  // namespace lockstep::bench
