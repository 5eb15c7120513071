// lockstep-device-floors MOST_BYTES RANKS...: what a device gives at best, and what processes that share one
// cost each other; JSON on standard output. The bounds beside which collectives are reported.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <new>

#include "bench/board.hpp"
#include "bench/device/floors/options.hpp"
#include "bench/device/floors/rates.hpp"
#include "bench/device/floors/ring.hpp"
#include "bench/launch.hpp"
#include "lockstep/device_runtime.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;
// A hop by time slices may cost 2 ms: eight ranks' rounds must end in seconds.
constexpr int kRounds = 40;
constexpr Waiting kWays[] = {Waiting::host,
                             Waiting::stream,
                             Waiting::kernel_behind_host,
                             Waiting::kernel_behind_stream,
                             Waiting::copy_behind_stream,
                             Waiting::event_behind_stream,
                             Waiting::kernel};

struct Results {
  std::uint32_t word;  ///< On a page of its own.
  std::byte rest[kPage - sizeof(std::uint32_t)];
  std::atomic<std::int64_t> start_us;  ///< Until the last of the processes had the device.
  double hop_us[std::size(kWays)];     ///< By way; negative: unmeasured.
  char why[std::size(kWays)][256];
};

internal::Backend& backend() { return internal::device_backend_or_throw(); }

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

int ring_rank(Results& results, Board& board, int rank, int ranks, Clock::time_point began) {
  auto registered = backend().register_host(&results, kPage);
  registered.status().throw_if_error();
  auto* const word = static_cast<std::uint32_t*>(*registered);
  auto own = backend().allocate(device::selected(), 2 * sizeof(std::uint32_t));
  own.status().throw_if_error();
  const Seat seat{backend(), device::create_stream(), device::create_timed_event(),
                  static_cast<std::uint32_t*>(*own)};
  const auto start_us = static_cast<std::int64_t>(us_since(began));
  for (std::int64_t last = results.start_us; last < start_us;)
    results.start_us.compare_exchange_weak(last, start_us);
  std::uint32_t first = 0;
  for (std::size_t way = 0; way < std::size(kWays); ++way) {
    board.barrier();
    const auto start = Clock::now();
    internal::Status status = run_ring(seat, kWays[way], word, rank, ranks, first, kRounds);
    board.barrier();
    const double us = us_since(start);
    first += static_cast<std::uint32_t>(kRounds * ranks);
    if (rank != 0) continue;
    if (status.ok() && std::atomic_ref(results.word).load() != first)
      status = internal::Status(ErrorCode::timeout, "a wait was given up, so it was not measured");
    results.hop_us[way] = status.ok() ? us / (kRounds * ranks) : -1;
    status.message().copy(results.why[way], sizeof results.why[way] - 1);
  }
  device::destroy_event(seat.event);
  device::destroy_stream(seat.stream);
  backend().free(seat.own).throw_if_error();
  backend().unregister_host(&results).throw_if_error();
  return 0;
}

nlohmann::ordered_json measure_ring(int ranks) {
  void* const pages =
      mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  auto& results = *new (pages) Results{};
  SharedPages shared(ranks);
  const auto began = Clock::now();
  const int failed = run_in_processes(
      ranks,
      [&](int rank) {
        try {
          return ring_rank(results, *shared.board(rank), rank, ranks, began);
        } catch (const std::exception& error) {
          std::cerr << "lockstep-device-floors: rank " << rank << ": " << error.what() << "\n";
          shared.fail();
          return 1;
        }
      },
      [&] { shared.fail(); });
  nlohmann::ordered_json row{{"ranks", ranks}, {"start_ms", static_cast<double>(results.start_us) / 1e3}};
  for (std::size_t way = 0; way < std::size(kWays); ++way) {
    const bool measured = failed == 0 && results.hop_us[way] > 0;
    if (failed == 0 && !measured) {
      std::cerr << "lockstep-device-floors: " << ranks << " ranks, " << name_of(kWays[way])
                << ": unmeasured: " << results.why[way] << "\n";
    }
    row[name_of(kWays[way])] =
        measured ? nlohmann::ordered_json(results.hop_us[way]) : nlohmann::ordered_json("unmeasured");
  }
  munmap(pages, sizeof(Results));
  return row;
}

/// In a process of its own: whoever has used a device cannot fork ranks that use it.
int measure_alone(std::size_t most_bytes) {
  return run_in_processes(
      1,
      [&](int) {
        const device::Properties facts = device::properties(0);
        std::cout << nlohmann::ordered_json{{"backend", facts.backend},
                                            {"name", facts.name},
                                            {"devices", device::count()},
                                            {"memory_bytes", facts.memory_bytes},
                                            {"compute_capability", facts.compute_capability},
                                            {"processes_overlap", facts.kernels_of_processes_overlap},
                                            {"rates", measure_rates(backend(), most_bytes)}}
                         .dump();
        return 0;
      },
      [] {});
}

}  // namespace

int main(int argc, char** argv) {
  FloorsOptions options;
  if (const auto status = parse_options(argc, argv, options)) return *status;
  try {
    nlohmann::ordered_json rings = nlohmann::ordered_json::array();
    for (const int ranks : options.ranks) rings.push_back(measure_ring(ranks));
    std::cout << "{\"hop_us\": " << rings.dump() << ", \"device\": " << std::flush;
    const int failed = measure_alone(options.most_bytes);
    std::cout << (failed != 0 ? "null}" : "}") << "\n";
    return failed;
  } catch (const std::exception& error) {
    std::cerr << "lockstep-device-floors: " << error.what() << "\n";
    return 1;
  }
}
