// Our own contender: DeviceCommunicator of the public API.
#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "bench/device/contender.hpp"

namespace lockstep::bench {
namespace {

using Ranks = DeviceCommunicator;

DeviceCallOptions options_of(const DeviceCall& call) {
  DeviceCallOptions options;
  options.scale = call.scale;
  return options;
}

void sendrecv(Ranks& ranks, const DeviceCall& c) {
  DeviceBatch batch = ranks.batch();
  batch.send(c.input, c.count, c.type, (ranks.rank() + 1) % ranks.size(), c.stream);
  batch.recv(c.output, c.count, c.type, (ranks.rank() + ranks.size() - 1) % ranks.size(), c.stream);
  batch.submit();
}

struct Entry {
  std::string_view operation;
  void (*run)(Ranks&, const DeviceCall&);
};

constexpr Entry kEntries[] = {
    {"all_reduce",
     [](Ranks& r, const DeviceCall& c) {
       r.all_reduce(c.input, c.output, c.count, c.type, c.op, c.stream, options_of(c));
     }},
    {"reduce",
     [](Ranks& r, const DeviceCall& c) {
       r.reduce(c.input, c.output, c.count, c.type, c.op, c.root, c.stream, options_of(c));
     }},
    {"broadcast",
     [](Ranks& r, const DeviceCall& c) {
       r.broadcast(c.input, c.output, c.count, c.type, c.root, c.stream);
     }},
    {"scatter",
     [](Ranks& r, const DeviceCall& c) { r.scatter(c.input, c.output, c.count, c.type, c.root, c.stream); }},
    {"gather",
     [](Ranks& r, const DeviceCall& c) { r.gather(c.input, c.output, c.count, c.type, c.root, c.stream); }},
    {"all_gather",
     [](Ranks& r, const DeviceCall& c) { r.all_gather(c.input, c.output, c.count, c.type, c.stream); }},
    {"reduce_scatter",
     [](Ranks& r, const DeviceCall& c) {
       r.reduce_scatter(c.input, c.output, c.count, c.type, c.op, c.stream, options_of(c));
     }},
    {"all_to_all",
     [](Ranks& r, const DeviceCall& c) { r.all_to_all(c.input, c.output, c.count, c.type, c.stream); }},
    {"barrier", [](Ranks& r, const DeviceCall& c) { r.barrier(c.stream); }},
    {"sendrecv", sendrecv},
};

const Entry* find(const Operation& operation) {
  const auto* found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                   [&](const Entry& entry) { return entry.operation == operation.name; });
  return found == std::end(kEntries) ? nullptr : found;
}

class Lockstep final : public Contender {
 public:
  Lockstep(Communicator& ranks, int device) : ranks_(ranks, device) {}
  const std::string& name() const override { return name_; }
  std::string describe() const override { return ranks_.describe(); }
  bool offers(const Operation& operation, DataType, ReduceOp) const override {
    return find(operation) != nullptr;
  }
  void run(const Operation& operation, const DeviceCall& call) override {
    find(operation)->run(ranks_, call);
  }
  /// All ranks take the same places of their buffers.
  void register_buffer(void* memory, std::size_t bytes) override {
    ranks_.register_window(memory, bytes, true);
  }
  void check() override {
    if (const std::string text = ranks_.error_text(); !text.empty()) throw std::runtime_error(text);
  }
  void finish() override { ranks_.finalize(); }

 private:
  const std::string name_ = "lockstep";
  DeviceCommunicator ranks_;
};

}  // namespace

std::unique_ptr<Contender> make_lockstep(Communicator& ranks, int device) {
  return std::make_unique<Lockstep>(ranks, device);
}

}  // namespace lockstep::bench
