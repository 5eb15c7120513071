// Board: what the ranks of a benchmark share beside the library that they measure: a barrier to start each
// timed operation together, and the exchange of what each rank saw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// One rank's view. All ranks make the same calls in the same order. Throws std::runtime_error when another
/// rank has failed.
class Board {
 public:
  virtual ~Board() = default;
  virtual void barrier() = 0;
  /// values[i] becomes the largest of all ranks' values[i]. At most kMaxIterations values.
  virtual void max(std::span<double> values) = 0;
  virtual std::uint64_t sum(std::uint64_t value) = 0;
};

/// A few shared pages that processes forked later, and threads, meet on. The library has no part in it.
class SharedPages {
 public:
  explicit SharedPages(int world);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::unique_ptr<Board> board(int rank);
  /// Ends every wait of every rank, now and later.
  void fail() noexcept;

  struct Header;

 private:
  int world_;
  std::size_t bytes_;
  Header* header_;
};

/// Ranks started by a launcher share nothing else: the library's own collectives, outside the timed moments.
std::unique_ptr<Board> make_collective_board(Communicator& communicator);

}  // namespace lockstep::bench
