// Contender: one library under measurement. One small program an API implements it; all share the core.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>

#include "bench/peers/board.hpp"
#include "bench/peers/call.hpp"

namespace peers {

class Contender {
 public:
  virtual ~Contender() = default;

  /// The library and its version, for the report.
  virtual std::string version() const = 0;
  virtual bool supports(const Call& call) const = 0;
  /// The name of what runs such a call; "-" where the library does not tell.
  virtual std::string algorithm(const Call&) const { return "-"; }

  /// Memory for one side of a call, not yet touched. The same on all ranks, in the same order.
  virtual void* allocate(const Call&, std::size_t bytes) { return std::malloc(bytes); }
  virtual void release(const Call&, void* memory) { std::free(memory); }

  /// One call on these buffers, ready to be run again and again. Whatever the API lets a program do once is
  /// done here, untimed. `input` and `output` are equal where the call is in place.
  virtual std::function<void()> bind(const Call& call, void* input, void* output) = 0;
};

}  // namespace peers
