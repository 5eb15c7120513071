// Board: memory that the ranks of one contender share beside the library that they measure: the barrier
// before each operation, what each rank saw, and the order that is being carried out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace peers {

/// Timed iterations of one turn, at most.
inline constexpr int kMaxIterations = 20'000;

/// How ranks wait at the barrier. Libraries with progress threads of their own would starve behind a barrier
/// that spins.
enum class Waiting { spin, block };

/// Tells the core that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Board {
 public:
  /// Maps `path`; the first rank to come creates it. `cores` are those that all ranks have together. Throws
  /// std::system_error.
  Board(const std::string& path, int rank, int world, int cores, Waiting waiting);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  /// Spins of a wait before it yields its core: none when ranks outnumber the cores.
  int spins() const { return spins_; }

  void barrier();
  /// The largest of all ranks' values, on every rank.
  double max(double value);
  double sum(double value);

  /// This rank's times of a turn; slowest(i) may be read between two barriers after they are written.
  double* times() { return row(rank_); }
  double slowest(int iteration) const;

  /// Rank 0 hands a line to the others, who sleep until then.
  void publish(const std::string& line);
  std::string next();

  void set_pid(int pid);
  int pid(int rank) const;

 private:
  struct Header;
  double* row(int rank) const;

  Header* header_;
  std::size_t bytes_;
  int rank_, world_, spins_;
  Waiting waiting_;
  std::uint32_t seen_ = 0;
};

}  // namespace peers
