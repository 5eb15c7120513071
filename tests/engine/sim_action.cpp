#include "tests/engine/sim_action.hpp"

#include <span>
#include <vector>

#include "lib/base/hash.hpp"
#include "lockstep/memory.hpp"

namespace lockstep::internal {

namespace {

struct FreeRegistered {
  void operator()(std::byte* memory) const { lockstep::free(memory); }
};

class CollectiveAction final : public SimAction {
 public:
  CollectiveAction(const SimCall& call, int rank)
      : call_(call), rank_(rank), buffers_(call_.what, rank, call.in_place, allocate()) {}

  Operation* start(Engine& engine) override {
    const Call call = make_call();
    return engine.start(call);
  }

  std::string check(const Operation& operation) const override {
    return operation.status.ok() ? buffers_.check_result() : buffers_.check_unharmed();
  }

 private:
  std::span<std::byte> allocate() {
    const std::size_t bytes = CallBuffers::bytes_needed(call_.what);
    if (call_.registered) {
      registered_.reset(static_cast<std::byte*>(lockstep::allocate(bytes)));
      return {registered_.get(), bytes};
    }
    heap_.resize(bytes);
    return heap_;
  }

  Call make_call();
  void add_counts(Call& call);

  SimCall call_;
  int rank_;
  std::vector<std::byte> heap_;
  std::unique_ptr<std::byte, FreeRegistered> registered_;
  CallBuffers buffers_;
  std::vector<std::size_t> counts_, receive_counts_;
};

Call CollectiveAction::make_call() {
  const CollectiveCase& what = call_.what;
  Call call;
  call.facts.collective = what.collective;
  call.timeout = call_.timeout;
  call.priority = call_.priority;
  if (what.collective == Collective::barrier) return call;
  call.facts.type = what.type;
  call.facts.op = what.op;
  call.facts.algorithm = static_cast<std::uint8_t>(call_.algorithm);
  call.facts.root = what.root;
  call.facts.count = what.count;
  call.input = buffers_.input();
  call.output = buffers_.output();
  call.input_elements = what.input_elements(rank_);
  call.output_elements = what.output_elements(rank_);
  call.scale = what.scale(rank_);
  call.user_op = what.user_op();
  if (what.irregular()) add_counts(call);
  return call;
}

void CollectiveAction::add_counts(Call& call) {
  const CollectiveCase& what = call_.what;
  counts_ = what.counts(rank_);
  call.counts = counts_;
  call.facts.count = 0;
  if (what.collective == Collective::all_to_all_v) {
    receive_counts_ = what.receive_counts(rank_);
    call.recv_counts = receive_counts_;
  }
  if (what.collective != Collective::all_gather_v && what.collective != Collective::reduce_scatter_v) return;
  for (const std::size_t count : counts_) call.facts.extra = hash_combine(call.facts.extra, count);
}

std::byte message_byte(int source, int tag, std::size_t bytes, std::size_t index) {
  return static_cast<std::byte>(static_cast<std::size_t>(source) * 31 + static_cast<std::size_t>(tag) * 17 +
                                bytes * 7 + index * 13 + index / 256);
}

class MessageAction final : public SimAction {
 public:
  MessageAction(const SimMessage& message, int rank)
      : message_(message), rank_(rank), buffer_(message.bytes) {
    for (std::size_t i = 0; message.is_send && i < buffer_.size(); ++i) {
      buffer_[i] = message_byte(rank, message.tag, message.bytes, i);
    }
  }

  Operation* start(Engine& engine) override {
    Message message;
    message.is_send = message_.is_send;
    message.buffer = buffer_.data();
    message.count = buffer_.size();
    message.peer = message_.peer;
    message.tag = message_.tag;
    message.timeout = message_.timeout;
    return engine.start(message);
  }

  std::string check(const Operation& operation) const override {
    if (!operation.status.ok()) return {};
    const RecvStatus& got = operation.received;
    const int source = message_.is_send ? rank_ : got.source;
    const int tag = message_.is_send ? message_.tag : got.tag;
    const std::size_t bytes = message_.is_send ? buffer_.size() : got.count;
    if (message_.peer != kAnySource && !message_.is_send && source != message_.peer)
      return "came from another rank";
    if (message_.tag != kAnyTag && tag != message_.tag) return "came with another tag";
    if (bytes > buffer_.size()) return "is longer than its buffer";
    for (std::size_t i = 0; i < bytes; ++i) {
      if (buffer_[i] != message_byte(source, tag, bytes, i)) return "byte " + std::to_string(i) + " is wrong";
    }
    return {};
  }

 private:
  SimMessage message_;
  int rank_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<SimAction> SimCall::make(int rank) const {
  return std::make_unique<CollectiveAction>(*this, rank);
}

std::unique_ptr<SimAction> SimMessage::make(int rank) const {
  return std::make_unique<MessageAction>(*this, rank);
}

}  // namespace lockstep::internal
