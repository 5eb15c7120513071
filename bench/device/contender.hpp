// Contender: one rank of a library of collectives on devices, as lockstep-bench --device measures it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/operation.hpp"
#include "lockstep/communicator.hpp"
#include "lockstep/device.hpp"

namespace lockstep::bench {

/// One call, enqueued on `stream`.
struct DeviceCall {
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  ReduceOp op;
  int root;
  double scale;  ///< This rank's, for ReduceOp::premul_sum.
  Stream stream;
};

/// Collective calls are made by all ranks in the same order. Errors are exceptions.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual const std::string& name() const = 0;  ///< "lockstep", "NCCL 2.28.9"
  virtual std::string describe() const = 0;     ///< One line: how it will run.
  virtual bool offers(const Operation& operation, DataType type, ReduceOp op) const = 0;
  virtual void run(const Operation& operation, const DeviceCall& call) = 0;
  /// For the whole run: memory that operations use without staging where the library can.
  virtual void register_buffer(void* memory, std::size_t bytes) = 0;
  /// Throws when an operation has failed.
  virtual void check() = 0;
  virtual void finish() = 0;
};

std::unique_ptr<Contender> make_lockstep(Communicator& ranks, int device);

struct LibraryOptions {
  std::string path;
  /// NCCL before 2.30 refuses several ranks on one device; ranks that claim to be on hosts of their own are
  /// let in, and talk over sockets.
  bool apart = false;
};
/// A library with NCCL's interface. `ranks` carries its unique id.
std::unique_ptr<Contender> make_library(Communicator& ranks, const LibraryOptions& options);

}  // namespace lockstep::bench
