#include "bench/device/floors/rates.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench/device/floors/ring.hpp"
#include "bench/device/stopwatch.hpp"

namespace lockstep::bench {
namespace {

using internal::Backend;
using internal::Status;

constexpr int kRepeats = 20;
constexpr std::size_t kRowBytes = 128 << 20;  // Copied or reduced one behind the other.

/// Memory as the backend gives it.
class Block {
 public:
  Block(Backend& backend, std::size_t bytes) : backend_(backend) {
    auto allocated = backend.allocate(device::selected(), bytes);
    allocated.status().throw_if_error();
    data_ = *allocated;
  }
  ~Block() { static_cast<void>(backend_.free(data_)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  Backend& backend_;
  void* data_ = nullptr;
};

/// Of one in a row of `each`: what starts behind another costs no time of its own.
double median_us(const Stopwatch& watch, std::size_t each, const std::function<Status()>& enqueue) {
  std::vector<double> times(kRepeats);
  enqueue().throw_if_error();
  const auto row = [&] {
    for (std::size_t i = 0; i < each; ++i) enqueue().throw_if_error();
  };
  for (double& time : times) time = watch.time(row) / static_cast<double>(each);
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

double gbs(std::size_t bytes, double us) { return static_cast<double>(bytes) / us / 1e3; }

/// A kernel that does nothing but look at a flag, which is there already, and set it.
double flag_kernel_us(Backend& backend, const Stopwatch& watch) {
  const Block block(backend, sizeof(std::uint32_t));
  auto* const word = static_cast<std::uint32_t*>(block.data());
  backend.fill(word, 0, sizeof *word, watch.stream()).throw_if_error();
  std::uint32_t wanted = 0;
  return median_us(watch, 1, [&] {
    return pass_on({backend, watch.stream()}, Waiting::kernel, word, wanted++);
  });
}

}  // namespace

nlohmann::ordered_json measure_rates(Backend& backend, std::size_t most_bytes) {
  constexpr std::size_t kSources = 4;
  const Stopwatch watch;
  std::vector<std::unique_ptr<Block>> buffers;
  for (std::size_t i = 0; i <= kSources; ++i) buffers.push_back(std::make_unique<Block>(backend, most_bytes));
  nlohmann::ordered_json copies = nlohmann::ordered_json::array(), reductions = copies;
  for (std::size_t bytes = kLeastBytes; bytes <= most_bytes; bytes *= 4) {
    const std::size_t each = std::max<std::size_t>(kRowBytes / bytes, 1);
    void* const output = buffers[kSources]->data();
    const double copy_us = median_us(
        watch, each, [&] { return backend.copy(output, buffers[0]->data(), bytes, watch.stream()); });
    const double copy_gbs = gbs(2 * bytes, copy_us);
    copies.push_back({{"bytes", bytes}, {"gbs", copy_gbs}});
    for (std::size_t sources = 2; sources <= kSources; sources *= 2) {
      std::vector<const void*> from;
      for (std::size_t i = 0; i < sources; ++i) from.push_back(buffers[i]->data());
      internal::ReduceJob job;
      job.count = bytes / sizeof(float);
      job.sources = from;
      job.destinations = {&output, 1};
      const double us = median_us(watch, each, [&] { return backend.reduce(job, watch.stream()); });
      const double rate = gbs((sources + 1) * bytes, us);
      reductions.push_back(
          {{"bytes", bytes}, {"sources", sources}, {"gbs", rate}, {"of_copy", rate / copy_gbs}});
    }
  }
  return {
      {"copy", copies}, {"reduce_f32_sum", reductions}, {"flag_kernel_us", flag_kernel_us(backend, watch)}};
}

}  // namespace lockstep::bench
