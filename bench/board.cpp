#include "bench/board.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "bench/measure.hpp"

namespace lockstep::bench {

// Then come world * kMaxIterations doubles, a row a rank.
struct alignas(64) SharedPages::Header {
  std::atomic<std::uint32_t> arrived{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};
  std::atomic<bool> failed{false};
};

namespace {

using Header = SharedPages::Header;

// About the time that a rank which runs needs to arrive; whoever waits longer than that waits for a rank that
// does not run.
constexpr int kSpins = 20'000;

class SharedBoard final : public Board {
 public:
  SharedBoard(Header* header, int rank, int world)
      : header_(header),
        values_(reinterpret_cast<double*>(header + 1)),
        rank_(static_cast<std::size_t>(rank)),
        world_(static_cast<std::size_t>(world)),
        spins_(static_cast<unsigned>(world) <= std::thread::hardware_concurrency() ? kSpins : 0) {}

  void barrier() override {
    const std::uint32_t generation = header_->generation.load(std::memory_order_acquire);
    if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == world_) {
      header_->arrived.store(0, std::memory_order_relaxed);
      header_->generation.store(generation + 1, std::memory_order_release);
      return;
    }
    for (int spin = 0; header_->generation.load(std::memory_order_acquire) == generation; ++spin) {
      if (header_->failed.load(std::memory_order_relaxed)) throw std::runtime_error("another rank failed");
      if (spin >= spins_) sched_yield();
    }
  }

  void max(std::span<double> values) override {
    std::copy(values.begin(), values.end(), row(rank_));
    barrier();
    for (std::size_t rank = 0; rank < world_; ++rank) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], row(rank)[i]);
    }
    barrier();
  }

  std::uint64_t sum(std::uint64_t value) override {
    *row(rank_) = static_cast<double>(value);
    barrier();
    double total = 0;
    for (std::size_t rank = 0; rank < world_; ++rank) total += *row(rank);
    barrier();
    return static_cast<std::uint64_t>(total);
  }

 private:
  double* row(std::size_t rank) const { return values_ + rank * kMaxIterations; }

  Header* header_;
  double* values_;
  std::size_t rank_, world_;
  int spins_;
};

class CollectiveBoard final : public Board {
 public:
  explicit CollectiveBoard(Communicator& communicator) : communicator_(communicator) {}
  void barrier() override { communicator_.barrier(); }
  void max(std::span<double> values) override {
    communicator_.all_reduce(values.data(), values.data(), values.size(), DataType::f64, ReduceOp::max);
  }
  std::uint64_t sum(std::uint64_t value) override {
    communicator_.all_reduce(&value, &value, 1, DataType::u64, ReduceOp::sum);
    return value;
  }

 private:
  Communicator& communicator_;
};

}  // namespace

SharedPages::SharedPages(int world)
    : world_(world),
      bytes_(sizeof(Header) + sizeof(double) * kMaxIterations * static_cast<std::size_t>(world)) {
  void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map shared pages");
  header_ = new (pages) Header;
}

SharedPages::~SharedPages() { munmap(header_, bytes_); }

std::unique_ptr<Board> SharedPages::board(int rank) {
  return std::make_unique<SharedBoard>(header_, rank, world_);
}

void SharedPages::fail() noexcept { header_->failed.store(true, std::memory_order_relaxed); }

std::unique_ptr<Board> make_collective_board(Communicator& communicator) {
  return std::make_unique<CollectiveBoard>(communicator);
}

}  // namespace lockstep::bench
