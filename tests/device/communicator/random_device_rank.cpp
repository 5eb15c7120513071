#include "tests/device/communicator/random_device_rank.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "lib/reduce/reduce.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/reference_numbers.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

/// Operations in flight at most, before all are waited for.
constexpr std::size_t kInFlight = 8;
constexpr std::size_t kStreams = 3;
/// Largest message but for the large ones: above the sizes at which the library changes its algorithms.
constexpr std::size_t kUsualBytes = 192 << 10;
/// One round in so many is a single large operation.
constexpr std::size_t kLargeOneIn = 128;
constexpr std::size_t kLeastLargeBytes = 1 << 20, kMostLargeBytes = 9 << 20;
/// Input and output of the largest; and of kInFlight usual ones of up to eight ranks.
constexpr std::size_t kArenaBytes = 2 * kMostLargeBytes + (64 << 10);
/// Before one call in so many a rank is late, for the others to wait long.
constexpr std::size_t kLateOneIn = 128;
constexpr std::chrono::microseconds kLate(2000);
/// Device memory for the factors of a round, which may be captured three at a time.
constexpr std::size_t kFactorBytes = 64, kFactors = 4 * kInFlight;
/// What is looked at of each arena after a failure.
constexpr std::size_t kMarkedBytes = 1 << 20;
constexpr std::byte kMark{0x77};

Backend& backend() { return *must(device_backend()); }

std::size_t draw_count(std::mt19937_64& random, const CollectiveCase& c, bool large) {
  const bool whole = c.collective == Collective::all_reduce || c.collective == Collective::reduce ||
                     c.collective == Collective::broadcast;
  const std::size_t each = size_of(c.type) * (whole ? 1 : static_cast<std::size_t>(c.world));
  if (large) return (kLeastLargeBytes + random() % (kMostLargeBytes - kLeastLargeBytes)) / each;
  // Every order of magnitude is equally likely, and so most are small.
  return random() % ((kUsualBytes / each >> (random() % 17)) + 1);
}

/// Drawn alike by all ranks.
CollectiveCase draw(std::mt19937_64& random, int world, bool several_hosts, bool large) {
  CollectiveCase c;
  c.world = world;
  c.collective = static_cast<Collective>(random() % kCollectiveCount);
  const auto fits = [&] {
    const bool small = c.type == DataType::f8e4m3 || c.type == DataType::f8e5m2;
    const bool complex = c.type == DataType::complex64 || c.type == DataType::complex128;
    // Hosts round in between, and multiply in another order, which shows in the sign of a complex zero.
    if (several_hosts && (small || (complex && c.op == ReduceOp::prod))) return false;
    return check_reduction(c.type, c.op).ok();
  };
  do {
    c.type = static_cast<DataType>(random() % kDataTypeCount);
    c.op = static_cast<ReduceOp>(random() % static_cast<std::uint64_t>(ReduceOp::user));
  } while (!fits());
  c.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
  c.count = draw_count(random, c, large);
  c.seed = random();
  return c;
}

}  // namespace

RandomDeviceRank::RandomDeviceRank(int rank, int world, const lockstep::testing::MeetingPlace& place,
                                   bool several_hosts, std::uint64_t seed)
    : several_hosts_(several_hosts),
      host_(place.join(rank, world, "auto")),
      device_(lockstep::testing::device_of(rank % 3)),  // Some ranks share a device, some have their own.
      shared_(seed),
      own_(seed * 64 + static_cast<std::uint64_t>(rank) + 1),
      communicator_(host_, device_) {
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams_.push_back(std::make_unique<TestStream>(device_));
    arenas_.push_back(std::make_unique<DeviceArena>(kArenaBytes, device_));
    ends_.push_back(must(backend().create_event()));
  }
  spare_ = std::make_unique<DeviceArena>(kArenaBytes, device_);
  factors_ = std::make_unique<DeviceArena>(kFactors * kFactorBytes, device_);
  communicator_.register_buffer(arenas_[kRegistered]->device(), kArenaBytes);
  communicator_.register_window(arenas_[kWindow]->device(), kArenaBytes, true);
  host_.barrier();  // An allocation may wait for kernels on its device, and these for this rank.
}

RandomDeviceRank::~RandomDeviceRank() {
  for (const DeviceEvent end : ends_) static_cast<void>(backend().destroy_event(end));
}

void RandomDeviceRank::run_round() {
  used_ = 0;
  checks_.clear();
  fetched_.clear();
  const bool large = shared_() % kLargeOneIn == 0;
  for (std::size_t left = large ? 1 : 1 + shared_() % kInFlight; left > 0; --left) {
    before();
    if (own_() % kLateOneIn == 0) sleep_for(kLate);
    if (own_() % 16 == 0) static_cast<void>(communicator_.state());
    run_operation(large);
    fetch();
    ++done_;
  }
  finish_round();
}

void RandomDeviceRank::run_operation(bool large) {
  const std::uint64_t kind = large ? 0 : shared_() % 16;
  if (kind < 10) return run_collective(large, stream());
  if (kind < 13) return run_messages({*streams_[0], *streams_[1], *streams_[2]});
  if (kind < 15) return captures() ? run_graph() : run_collective(false, stream());
  join_streams();
}

void RandomDeviceRank::finish_round() {
  drain();
  if (own_() % 2 == 0 || communicator_.state() != ErrorCode::ok) communicator_.wait();
  for (const auto& check : checks_) {
    const std::string wrong = check();
    if (!wrong.empty()) throw std::runtime_error("before operation " + std::to_string(done_) + ", " + wrong);
  }
}

void RandomDeviceRank::drain() {
  for (const auto& stream : streams_) stream->synchronize();
}

void RandomDeviceRank::mark_memory() {
  for (const auto& arena : arenas_) {
    std::fill_n(arena->host().begin(), kMarkedBytes, kMark);
    arena->upload(kMarkedBytes, *streams_[0]);
  }
  drain();
}

std::string RandomDeviceRank::check_marks() {
  for (const auto& arena : arenas_) {
    arena->download(kMarkedBytes, *streams_[0]);
    drain();
    const auto wrong = std::find_if(arena->host().begin(), arena->host().begin() + kMarkedBytes,
                                    [](std::byte byte) { return byte != kMark; });
    if (wrong != arena->host().begin() + kMarkedBytes)
      return "byte " + std::to_string(wrong - arena->host().begin()) + " was written afterwards";
  }
  return {};
}

/// Enqueues the copies to the host of what was called. Outside graphs, whose next replay begins with what
/// lies there.
void RandomDeviceRank::fetch() {
  for (const auto& copy : fetched_) copy();
  fetched_.clear();
}

/// The same place in every arena, on all ranks.
std::size_t RandomDeviceRank::take(std::size_t bytes) {
  const std::size_t at = used_;
  used_ += (bytes + 63) / 64 * 64;
  if (used_ > kArenaBytes) throw std::logic_error("the arenas of this test are too small");
  return at;
}

/// A window is named by all ranks or none, at the same places. Blocks of different sizes lie at the same
/// places where one buffer holds them all.
RandomDeviceRank::Prepared RandomDeviceRank::prepare(bool large) {
  const CollectiveCase what = draw(shared_, communicator_.size(), several_hosts_, large);
  const bool in_window = shared_() % 3 == 0, window_in_place = what.irregular() || shared_() % 2 == 0;
  const std::size_t bytes = CallBuffers::bytes_needed(what), at = take(bytes);
  DeviceArena& arena = *arenas_[in_window ? std::size_t{kWindow} : own_() % 2];
  const bool in_place = in_window ? window_in_place : own_() % 2 == 0;
  const std::span memory = arena.host().subspan(at, bytes);
  return {what, arena, at, bytes, CallBuffers(what, communicator_.rank(), in_place, memory)};
}

/// This rank's, in the type of the call, written in the order of the stream.
const void* RandomDeviceRank::factor_of(const CollectiveCase& what, Stream stream) {
  const std::size_t at = next_factor_++ % kFactors * kFactorBytes;
  std::byte* const host = factors_->host().data() + at;
  with_storage(what.type, [&](auto stored) {
    with_number(what.type, [&](auto number) {
      number = static_cast<decltype(number)>(what.scale(communicator_.rank()));
      stored = stored_as<decltype(stored)>(what.type, number);
    });
    std::memcpy(host, &stored, sizeof stored);
  });
  must(backend().copy(factors_->device() + at, host, kFactorBytes, stream));
  return factors_->device() + at;
}

void RandomDeviceRank::run_collective(bool large, Stream stream) {
  const Prepared call = prepare(large);
  const std::size_t bytes = call.bytes;
  std::byte *const host = call.arena.host().data() + call.at, *const device = call.arena.device() + call.at;
  must(backend().copy(device, host, bytes, stream));
  DeviceCallOptions options = options_;
  if (call.what.op == ReduceOp::premul_sum && call.what.reduces() && own_() % 2 == 0)
    options.device_scale = factor_of(call.what, stream);
  if (call.what.collective == Collective::broadcast && own_() % 2 == 0) {
    broadcast_apart(call, stream);
  } else {
    start_on_device(communicator_, call.what, call.buffers, call.arena, stream, options);
  }
  fetched_.push_back([=] { must(backend().copy(host, device, bytes, stream)); });
  checks_.push_back([what = call.what, buffers = call.buffers] {
    const std::string wrong = buffers.check_result();
    return wrong.empty() ? wrong : what.describe() + ": " + wrong;
  });
}

/// The root's input is elsewhere, and what the others have does not count.
void RandomDeviceRank::broadcast_apart(const Prepared& call, Stream stream) {
  const CollectiveCase& what = call.what;
  const std::size_t bytes = what.count * size_of(what.type);
  auto* const host = static_cast<std::byte*>(call.buffers.output());
  void* const output = call.arena.on_device(host);
  void* input = nullptr;
  if (communicator_.rank() == what.root && bytes > 0) {
    input = spare_->device() + (host - call.arena.host().data());
    must(backend().copy(input, host, bytes, stream));
    must(backend().fill(output, 0x5a, bytes, stream));
  }
  communicator_.broadcast(input, output, what.count, what.type, what.root, stream, options_);
}

/// What is replayed does not overlap with calls: the streams are joined before and after.
void RandomDeviceRank::run_graph() {
  const Stream stream = *streams_[0];
  join_streams();
  fetch();
  const DeviceGraph graph = capture_calls(stream);
  for (std::size_t times = 1 + shared_() % 3; times > 0; --times) {
    must(backend().replay(graph, stream));
    if (shared_() % 2 == 0) communicator_.barrier(stream, options_);
  }
  must(backend().destroy_graph(graph));
  fetch();
  join_streams();
}

DeviceGraph RandomDeviceRank::capture_calls(Stream stream) {
  must(backend().begin_capture(stream));
  try {
    for (std::size_t calls = 1 + shared_() % 3; calls > 0; --calls)
      shared_() % 4 == 0 ? run_messages({stream}) : run_collective(false, stream);
  } catch (const Error&) {
    must(backend().destroy_graph(must(backend().end_capture(stream))));
    throw;
  }
  return must(backend().end_capture(stream));
}

void RandomDeviceRank::run_messages(const std::vector<Stream>& streams) {
  const RandomMessages messages(shared_, communicator_.size());
  const std::size_t at = take(messages.bytes());
  DeviceArena& arena = *arenas_[own_() % 2];
  auto own = std::make_shared<MessageBuffers>(messages, communicator_.rank(), at, arena);
  own->start(communicator_, streams, options_, own_);
  fetched_.push_back([own] { own->download(); });
  checks_.push_back([own] { return own->check(); });
}

/// Each of them goes on when all have come here.
void RandomDeviceRank::join_streams() {
  for (std::size_t i = 0; i < kStreams; ++i) must(backend().record(ends_[i], *streams_[i]));
  for (std::size_t i = 0; i < kStreams; ++i) {
    for (std::size_t k = 0; k < kStreams; ++k)
      if (i != k) must(backend().wait_event(*streams_[i], ends_[k]));
  }
}

/// Other memory, at another time on each rank; the window on all.
void RandomDeviceRank::register_again() {
  if (own_() % 2 == 0) {
    communicator_.deregister(arenas_[kRegistered]->device());
    if (own_() % 2 == 0) std::swap(arenas_[kRegistered], arenas_[kPrivate]);
    communicator_.register_buffer(arenas_[kRegistered]->device(), kArenaBytes);
  }
  if (shared_() % 2 != 0) return;
  communicator_.deregister(arenas_[kWindow]->device());
  const bool other = shared_() % 2 == 0;
  host_.barrier();
  if (other) arenas_[kWindow] = std::make_unique<DeviceArena>(kArenaBytes, device_);
  host_.barrier();
  communicator_.register_window(arenas_[kWindow]->device(), kArenaBytes, true);
}

}  // namespace lockstep::internal
