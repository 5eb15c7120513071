#include "bench/operation.hpp"

namespace lockstep::bench {
namespace {

using Comm = Communicator;
using Args = Arguments;

// A ring of messages: each rank sends to the next one.
void sendrecv(Comm& comm, const Args& a) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  Work receive = comm.recv_async(a.output, a.count, a.type, previous, 0, a.options);
  Work send = comm.send_async(a.input, a.count, a.type, next, 0, a.options);
  receive.wait();
  send.wait();
}

double one(int) { return 1; }
double others(int n) { return static_cast<double>(n - 1) / n; }
double twice_others(int n) { return 2 * others(n); }

// name, source, rooted, blocks in, blocks out, out of place, in place, busbw factor, call
constexpr Operation kOperations[] = {
    {"all_reduce", Source::reduction, false, false, false, true, true, twice_others,
     [](Comm& c, const Args& a) { c.all_reduce(a.input, a.output, a.count, a.type, a.op, a.options); }},
    {"reduce", Source::reduction, true, false, false, true, true, one,
     [](Comm& c, const Args& a) { c.reduce(a.input, a.output, a.count, a.type, a.op, a.root, a.options); }},
    {"broadcast", Source::root, true, false, false, false, true, one,
     [](Comm& c, const Args& a) { c.broadcast(a.output, a.count, a.type, a.root, a.options); }},
    {"scatter", Source::root, true, true, false, true, true, others,
     [](Comm& c, const Args& a) { c.scatter(a.input, a.output, a.count, a.type, a.root, a.options); }},
    {"gather", Source::block, true, false, true, true, true, others,
     [](Comm& c, const Args& a) { c.gather(a.input, a.output, a.count, a.type, a.root, a.options); }},
    {"all_gather", Source::block, false, false, true, true, true, others,
     [](Comm& c, const Args& a) { c.all_gather(a.input, a.output, a.count, a.type, a.options); }},
    {"reduce_scatter", Source::reduction, false, true, false, true, true, others,
     [](Comm& c, const Args& a) { c.reduce_scatter(a.input, a.output, a.count, a.type, a.op, a.options); }},
    {"all_to_all", Source::block, false, true, true, true, false, others,
     [](Comm& c, const Args& a) { c.all_to_all(a.input, a.output, a.count, a.type, a.options); }},
    {"barrier", Source::none, false, false, false, true, false, one,
     [](Comm& c, const Args& a) { c.barrier(a.options); }},
    {"sendrecv", Source::predecessor, false, false, false, true, false, one, sendrecv},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

std::uint64_t Operation::count(std::uint64_t message, DataType type, int world) const {
  return source == Source::none ? 0 : message / size_of(type) / blocks(blocks_in || blocks_out, world);
}

std::uint64_t Operation::bytes(std::uint64_t call_count, DataType type, int world) const {
  return call_count * size_of(type) * blocks(blocks_in || blocks_out, world);
}

bool Operation::writes_output(int rank, int root) const {
  if (source == Source::none) return false;
  const bool only_root = rooted && source != Source::root;
  return !only_root || rank == root;
}

Placement place(const Operation& operation, bool in_place, int rank, int root, std::uint64_t block_bytes,
                std::byte* first, std::byte* second) {
  if (!in_place) return {first, second};
  // Of a rooted operation only root has both sides; elsewhere the shift is no part of the contract.
  const bool shifted = !operation.rooted || rank == root;
  const std::uint64_t shift = shifted ? static_cast<std::uint64_t>(rank) * block_bytes : 0;
  if (operation.blocks_in && !operation.blocks_out) return {first, first + shift};
  if (operation.blocks_out && !operation.blocks_in) return {first + shift, first};
  return {first, first};
}

}  // namespace lockstep::bench
