#include "bench/peers/board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace peers {
namespace {

constexpr int kMaxWorld = 64;
constexpr std::size_t kMaxLine = 512;
// About as long as a rank that runs needs to arrive.
constexpr int kSpins = 20'000;

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

void futex_wait(Word& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
}
void futex_wake(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace

// Zeroed pages are its first state. Then come world * kMaxIterations doubles, a row a rank.
struct Board::Header {
  alignas(64) Word arrived;
  alignas(64) Word generation;
  alignas(64) Word orders;
  char line[kMaxLine];
  double values[kMaxWorld];
  int pids[kMaxWorld];
};

Board::Board(const std::string& path, int rank, int world, int cores, Waiting waiting)
    : bytes_(sizeof(Header) + sizeof(double) * kMaxIterations * static_cast<std::size_t>(world)),
      rank_(rank),
      world_(world),
      spins_(world <= cores ? kSpins : 0),
      waiting_(waiting) {
  if (world < 1 || world > kMaxWorld) throw std::runtime_error("a board is for 1 to 64 ranks");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (pages == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  header_ = static_cast<Header*>(pages);
}

Board::~Board() { munmap(header_, bytes_); }

double* Board::row(int rank) const {
  return reinterpret_cast<double*>(header_ + 1) + static_cast<std::ptrdiff_t>(rank) * kMaxIterations;
}

void Board::barrier() {
  const std::uint32_t generation = header_->generation.load(std::memory_order_acquire);
  if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(world_)) {
    header_->arrived.store(0, std::memory_order_relaxed);
    header_->generation.store(generation + 1, std::memory_order_release);
    if (waiting_ == Waiting::block) futex_wake(header_->generation);
    return;
  }
  for (int spin = 0; header_->generation.load(std::memory_order_acquire) == generation; ++spin) {
    if (waiting_ == Waiting::block) {
      futex_wait(header_->generation, generation);
    } else if (spin < spins_) {
      relax();
    } else {
      sched_yield();
    }
  }
}

double Board::max(double value) {
  header_->values[rank_] = value;
  barrier();
  const double largest = *std::max_element(header_->values, header_->values + world_);
  barrier();
  return largest;
}

double Board::sum(double value) {
  header_->values[rank_] = value;
  barrier();
  double total = 0;
  for (int rank = 0; rank < world_; ++rank) total += header_->values[rank];
  barrier();
  return total;
}

double Board::slowest(int iteration) const {
  double time = 0;
  for (int rank = 0; rank < world_; ++rank) time = std::max(time, row(rank)[iteration]);
  return time;
}

void Board::publish(const std::string& line) {
  if (line.size() >= kMaxLine) throw std::runtime_error("a line of the driver is too long");
  std::memcpy(header_->line, line.c_str(), line.size() + 1);
  header_->orders.fetch_add(1, std::memory_order_release);
  futex_wake(header_->orders);
}

std::string Board::next() {
  while (header_->orders.load(std::memory_order_acquire) == seen_) futex_wait(header_->orders, seen_);
  ++seen_;
  return header_->line;
}

void Board::set_pid(int pid) { header_->pids[rank_] = pid; }
int Board::pid(int rank) const { return header_->pids[rank]; }

}  // namespace peers
