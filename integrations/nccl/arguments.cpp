#include "integrations/nccl/arguments.hpp"

#include <string>

#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {
namespace {

void check_rank(const char* what, int rank, const ncclComm& comm) {
  if (rank >= 0 && rank < comm.size()) return;
  throw invalid_argument(std::string(what) + " " + std::to_string(rank) + " is not one of " +
                         std::to_string(comm.size()) + " ranks");
}

/// More than an address space holds is a mistake, most often a negative number.
void check_count(std::size_t count, std::size_t blocks, DataType type) {
  if (count <= static_cast<std::size_t>(PTRDIFF_MAX) / size_of(type) / blocks) return;
  throw invalid_argument("a count of " + std::to_string(count) + " is more than memory holds");
}

void check_buffer(const char* name, const void* buffer, DataType type) {
  if (buffer == nullptr) throw invalid_argument(std::string(name) + " is NULL, and the count is not 0");
  if (reinterpret_cast<std::uintptr_t>(buffer) % size_of(type) == 0) return;
  throw invalid_argument(std::string(name) + " is not aligned to the " + std::to_string(size_of(type)) +
                         " bytes of an element");
}

}  // namespace

void check_collective(const ncclComm& comm, DataType type, const Arguments& arguments) {
  check_rank("root", arguments.root, comm);
  if (arguments.count == 0) return;
  check_count(arguments.count, static_cast<std::size_t>(comm.size()), type);
  const bool is_root = comm.rank() == arguments.root;
  if (is_root || arguments.only_root != OnlyRoot::sends) check_buffer("sendbuff", arguments.send, type);
  if (is_root || arguments.only_root != OnlyRoot::receives) check_buffer("recvbuff", arguments.receive, type);
}

void check_message(const ncclComm& comm, DataType type, const void* buffer, std::size_t count, int peer) {
  check_rank("peer", peer, comm);
  if (count == 0) return;
  check_count(count, 1, type);
  check_buffer("buffer", buffer, type);
}

}  // namespace lockstep::nccl
