#include "tests/device/communicator/random_messages.hpp"

#include <algorithm>

#include "lockstep/device_runtime.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kMostMessages = 24, kMostBytes = 64 << 10;
constexpr std::size_t kMargin = 64;
constexpr std::byte kCanary{0xa5}, kNothing{0x5a};

std::size_t memory_of(const RandomMessages::One& message) {
  return 3 * kMargin + (message.bytes() + kMargin - 1) / kMargin * kMargin;
}

std::byte content(std::uint64_t seed, std::size_t i) {
  return static_cast<std::byte>((seed + i * 0x9E3779B97F4A7C15u) >> 29);
}

}  // namespace

RandomMessages::RandomMessages(std::mt19937_64& random, int world) {
  const auto ranks = static_cast<std::uint64_t>(world);
  single_ = world > 1 && random() % 3 == 0;
  for (std::size_t left = single_ ? 1 : 1 + random() % kMostMessages; left > 0; --left) {
    One one{};
    one.from = static_cast<int>(random() % ranks);
    one.to =
        single_
            ? static_cast<int>((static_cast<std::uint64_t>(one.from) + 1 + random() % (ranks - 1)) % ranks)
            : static_cast<int>(random() % ranks);
    one.type = static_cast<DataType>(random() % kDataTypeCount);
    one.count = random() % ((kMostBytes / size_of(one.type) >> (random() % 17)) + 1);
    one.seed = random();
    all_.push_back(one);
  }
}

std::size_t RandomMessages::bytes() const {
  std::size_t bytes = 0;
  for (const One& one : all_) bytes += 2 * memory_of(one);  // A message to oneself has both ends here.
  return bytes;
}

MessageBuffers::MessageBuffers(const RandomMessages& messages, int rank, std::size_t at, DeviceArena& arena)
    : messages_(messages), arena_(arena) {
  for (const RandomMessages::One& one : messages_.all()) {
    for (const bool is_send : {true, false}) {
      if ((is_send ? one.from : one.to) != rank) continue;
      Buffer buffer{&one, is_send, arena.host().subspan(at, memory_of(one)), {}, nullptr};
      buffer.data = buffer.memory.subspan(kMargin + one.seed % 4 * size_of(one.type), one.bytes());
      std::fill(buffer.memory.begin(), buffer.memory.end(), kCanary);
      for (std::size_t i = 0; i < one.bytes(); ++i)
        buffer.data[i] = is_send ? content(one.seed, i) : kNothing;
      buffers_.push_back(buffer);
      at += buffer.memory.size();
    }
  }
}

/// Only those with one peer in one direction keep theirs.
std::vector<MessageBuffers::Buffer*> MessageBuffers::own_order(std::mt19937_64& random) {
  std::vector<Buffer*> order;
  std::vector<std::pair<int, bool>> kinds;
  std::map<std::pair<int, bool>, std::deque<Buffer*>> waiting;
  for (Buffer& buffer : buffers_) {
    const std::pair kind(buffer.is_send ? buffer.message->to : buffer.message->from, buffer.is_send);
    waiting[kind].push_back(&buffer);
    kinds.push_back(kind);
  }
  std::shuffle(kinds.begin(), kinds.end(), random);
  for (const auto& kind : kinds) {
    order.push_back(waiting[kind].front());
    waiting[kind].pop_front();
  }
  return order;
}

/// `as_bytes`: what counts are the bytes.
void MessageBuffers::call(DeviceCommunicator& communicator, DeviceBatch* batch, const Buffer& buffer,
                          bool as_bytes, const DeviceCallOptions& options) {
  const RandomMessages::One& one = *buffer.message;
  void* const at = arena_.on_device(buffer.data.data());
  const std::size_t count = as_bytes ? one.bytes() : one.count;
  const DataType type = as_bytes ? DataType::u8 : one.type;
  if (batch != nullptr)
    return buffer.is_send ? batch->send(at, count, type, one.to, buffer.stream)
                          : batch->recv(at, count, type, one.from, buffer.stream);
  buffer.is_send ? communicator.send(at, count, type, one.to, buffer.stream, options)
                 : communicator.recv(at, count, type, one.from, buffer.stream, options);
}

void MessageBuffers::start(DeviceCommunicator& communicator, const std::vector<Stream>& streams,
                           const DeviceCallOptions& options, std::mt19937_64& random) {
  for (Buffer& buffer : buffers_) {
    buffer.stream = streams[random() % streams.size()];
    void* const there = arena_.on_device(buffer.memory.data());
    device::copy(there, buffer.memory.data(), buffer.memory.size(), buffer.stream);
  }
  DeviceBatch batch = communicator.batch();
  for (const Buffer* const buffer : own_order(random))
    call(communicator, messages_.is_single() ? nullptr : &batch, *buffer, random() % 4 == 0, options);
  if (!messages_.is_single()) batch.submit(options);
}

void MessageBuffers::download() {
  for (const Buffer& buffer : buffers_) {
    void* const there = arena_.on_device(buffer.memory.data());
    device::copy(buffer.memory.data(), there, buffer.memory.size(), buffer.stream);
  }
}

std::string MessageBuffers::check() const {
  for (const Buffer& buffer : buffers_) {
    const RandomMessages::One& one = *buffer.message;
    const std::string what = std::string(buffer.is_send ? "send" : "receive") + " of " +
                             std::to_string(one.bytes()) + " bytes from " + std::to_string(one.from) +
                             " to " + std::to_string(one.to);
    for (std::size_t i = 0; i < one.bytes(); ++i)
      if (buffer.data[i] != content(one.seed, i)) return what + ": byte " + std::to_string(i) + " is wrong";
    const std::byte* const first = buffer.memory.data();
    const auto before = static_cast<std::size_t>(buffer.data.data() - first);
    for (std::size_t i = 0; i < buffer.memory.size(); ++i) {
      if (i >= before && i < before + one.bytes()) continue;
      if (first[i] != kCanary) return what + ": bytes beside the buffer were written";
    }
  }
  return {};
}

}  // namespace lockstep::internal
