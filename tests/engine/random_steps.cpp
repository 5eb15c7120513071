#include "tests/engine/random_steps.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>

#include "lib/base/env.hpp"
#include "lockstep/memory.hpp"
#include "tests/engine/draw_case.hpp"
#include "tests/engine/public_call.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kSideBySide = 4;
/// Memory of one call, for up to five ranks, canaries included.
constexpr std::size_t kBytesOfOne = 1 << 20;
constexpr std::size_t kArenaBytes = kSideBySide * kBytesOfOne;
/// Most messages are small, so that a fault finds many ranks between two calls; one in so many is large, so
/// that it finds them in the midst of one.
constexpr std::size_t kUsualBytes = 32 << 10, kLargeBytes = 320 << 10;
constexpr std::size_t kLargeOneIn = 4;
constexpr std::byte kMark{0x5c};

bool long_deadline(const CallOptions& options) { return options.timeout >= std::chrono::seconds(10); }

void expect(const std::string& wrong, const std::string& of) {
  if (!wrong.empty()) throw std::runtime_error(of + ": " + wrong);
}

/// Element i of what `rank` gives to the step with this seed.
std::uint32_t value(std::uint64_t seed, int rank, std::size_t i) {
  return static_cast<std::uint32_t>(seed >> 40) + static_cast<std::uint32_t>(rank + 1) * 1'000'003u +
         static_cast<std::uint32_t>(i) * 7u;
}
std::vector<std::uint32_t> values(std::uint64_t seed, int rank, std::size_t count) {
  std::vector<std::uint32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value(seed, rank, i);
  return all;
}
std::vector<std::uint32_t> sums(std::uint64_t seed, int world, std::size_t count) {
  std::vector<std::uint32_t> all(count, 0);
  for (int rank = 0; rank < world; ++rank) {
    for (std::size_t i = 0; i < count; ++i) all[i] += value(seed, rank, i);
  }
  return all;
}

/// Ends every one of `parts`, and throws what the first that failed did.
template <class... Part>
void end_all(Part&&... parts) {
  std::exception_ptr first;
  const auto end = [&](auto&& part) {
    try {
      part();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  (end(parts), ...);
  if (first) std::rethrow_exception(first);
}

/// Another call at this place in the order: one of its facts is another.
CollectiveCase another(CollectiveCase c, std::uint64_t draw) {
  if (c.collective == Collective::barrier) {
    c.collective = Collective::all_reduce;
    c.count = 3;
    return c;
  }
  switch (draw % 4) {
    case 0:
      c.collective = Collective::barrier;
      break;
    case 1:
      c.type = c.type == DataType::f32 ? DataType::f64 : DataType::f32;
      c.op = ReduceOp::sum;
      c.count /= 2;
      break;
    case 2:
      c.root = c.rooted() ? (c.root + 1) % c.world : c.root;
      c.collective = c.rooted() ? c.collective : Collective::broadcast;
      break;
    default:
      c.collective = c.irregular() ? Collective::all_gather : c.collective;
      c.count = c.count / 2 + (c.count < 2 ? 2 : 0);
  }
  return c;
}

}  // namespace

RandomSteps::RandomSteps(std::uint64_t seed, std::uint64_t own)
    : shared_(seed),
      own_(seed ^ (own + 1) * 0x9e3779b97f4a7c15),
      heap_(kArenaBytes),
      registered_(static_cast<std::byte*>(lockstep::allocate(kArenaBytes))) {}
RandomSteps::~RandomSteps() { lockstep::free(registered_); }

void RandomSteps::mark_memory() {
  std::fill(heap_.begin(), heap_.end(), kMark);
  std::fill_n(registered_, kArenaBytes, kMark);
}

bool RandomSteps::memory_is_as_marked() const {
  const auto is_marked = [](std::byte b) { return b == kMark; };
  return std::all_of(heap_.begin(), heap_.end(), is_marked) &&
         std::all_of(registered_, registered_ + kArenaBytes, is_marked);
}

CollectiveCase RandomSteps::draw(int world) {
  CollectiveCase c = draw_case(shared_, world);
  c.count = draw_count(shared_, c, shared_() % kLargeOneIn == 0 ? kLargeBytes : kUsualBytes);
  c.seed = shared_();
  while (CallBuffers::bytes_needed(c) > kBytesOfOne) c.count /= 2;
  return c;
}

CollectiveCase RandomSteps::draw_with_data(int world) {
  CollectiveCase c = draw(world);
  while (c.irregular()) c = draw(world);
  c.count += 1;
  return c;
}

CallBuffers RandomSteps::buffers_for(const CollectiveCase& what, int rank, std::size_t place) {
  const std::span arena = own_() % 2 == 0 ? std::span(heap_) : std::span(registered_, kArenaBytes);
  return {what, rank, own_() % 2 == 0, arena.subspan(place * kBytesOfOne, kBytesOfOne)};
}

/// In one of the ways in which a caller can.
void RandomSteps::wait(Work& work) {
  switch (own_() % 4) {
    case 0:
      while (!work.test()) sleep_for(std::chrono::microseconds(20));
      break;
    case 1:
      while (!work.wait_for(std::chrono::microseconds(50))) {
      }
      break;
    default:
      break;
  }
  work.wait();
}

void RandomSteps::start(Communicator& group, InFlight& call, const CallOptions& options) {
  if (own_() % 2 == 0) {
    run_public(group, call.what, call.buffers, options);
  } else {
    call.work = start_public(group, call.what, call.buffers, options);
  }
  call.started = true;
}

void RandomSteps::run(Communicator& group, CallOptions options) {
  if (shared_() % 4 == 0) options.priority = 1;
  switch (shared_() % 8) {
    case 0:
      return run_messages(group, options);
    case 1:
      // Of a batch the messages have a deadline of their own, a long one.
      return long_deadline(options) ? run_batch(group, options) : run_plan(group, options);
    case 2:
      return run_plan(group, options);
    case 3:
      return run_side_by_side(group, options);
    default:
      return run_one(group, draw(group.size()), options);
  }
}

void RandomSteps::run_collective(Communicator& group, const CallOptions& options, Twist twist) {
  CollectiveCase what = draw_with_data(group.size());
  const std::uint64_t other = shared_();
  if (twist == Twist::differs) what = another(what, other);
  CallOptions mine = options;
  if (twist == Twist::refused) mine.algorithm = "no such algorithm";
  run_one(group, what, mine);
}

void RandomSteps::run_one(Communicator& group, const CollectiveCase& what, const CallOptions& options) {
  InFlight call{what, buffers_for(what, group.rank(), 0), {}, false};
  try {
    start(group, call, options);
    wait(call.work);
  } catch (const Error&) {
    expect(call.buffers.check_unharmed(), what.describe() + ", which failed");
    throw;
  }
  expect(call.buffers.check_result(), what.describe());
}

void RandomSteps::leave_with_collective(Communicator group, const CallOptions& options) {
  const CollectiveCase what = draw_with_data(group.size());
  const CallBuffers buffers = buffers_for(what, group.rank(), 0);
  Communicator leaving = std::move(group);  // Ends before what its call uses.
  static_cast<void>(start_public(leaving, what, buffers, options));
}

void RandomSteps::run_side_by_side(Communicator& group, const CallOptions& options) {
  std::vector<InFlight> calls;
  calls.reserve(kSideBySide);  // A user's operator points to its case, so the calls stay where they are.
  const std::size_t together = 2 + shared_() % (kSideBySide - 1);
  for (std::size_t i = 0; i < together; ++i) {
    const CollectiveCase what = draw(group.size());
    calls.push_back({what, buffers_for(what, group.rank(), i), {}, false});
  }
  std::exception_ptr first;
  const auto keep_first = [&](auto&& part) {
    try {
      part();
      return true;
    } catch (const Error&) {
      if (!first) first = std::current_exception();
      return false;
    }
  };
  for (InFlight& call : calls) keep_first([&] { start(group, call, options); });
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), own_);
  for (const std::size_t i : order) {
    InFlight& call = calls[i];
    const bool good = keep_first([&] { wait(call.work); }) && call.started;
    expect(good ? call.buffers.check_result() : call.buffers.check_unharmed(), call.what.describe());
  }
  if (first) std::rethrow_exception(first);
}

void RandomSteps::run_messages(Communicator& group, const CallOptions& options) {
  const int world = group.size(), rank = group.rank();
  const int way = 1 + static_cast<int>(shared_() % static_cast<std::uint64_t>(world - 1));
  const int to = (rank + way) % world, from = (rank + world - way) % world;
  const std::size_t count = shared_() % (shared_() % 2 == 0 ? 512 : 64 << 10);
  const int tag = ++messages_;  // A rank that is ahead must not be what another receives from anybody.
  const std::uint64_t seed = shared_();
  const auto out = values(seed, rank, count);
  std::vector<std::uint32_t> in(count, 0);
  const int source = from_anybody_ && own_() % 4 == 0 ? kAnySource : from;
  Work sending, receiving;
  end_all([&] { sending = group.send_async(out.data(), count, DataType::u32, to, tag, options); },
          [&] {
            if (own_() % 2 == 0) {
              group.recv(in.data(), count, DataType::u32, source, tag, options);
            } else {
              receiving = group.recv_async(in.data(), count, DataType::u32, source, tag, options);
            }
          },
          [&] { wait(receiving); }, [&] { wait(sending); });
  if (in != values(seed, from, count)) throw std::runtime_error("a wrong message");
}

void RandomSteps::run_batch(Communicator& group, const CallOptions& options) {
  const int world = group.size(), rank = group.rank(), to = (rank + 1) % world;
  const int from = (rank + world - 1) % world;
  const std::size_t count = shared_() % (shared_() % 2 == 0 ? 64 : 32 << 10);
  const std::uint64_t seed = shared_();
  const auto out = values(seed, rank, count);
  std::vector<std::uint32_t> in(count, 0), sum(count, 0), passed(count, 0);
  if (rank == 0) passed = out;
  Batch batch = group.batch();
  batch.recv(in.data(), count, DataType::u32, from);
  batch.all_reduce(out.data(), sum.data(), count, DataType::u32, ReduceOp::sum, options);
  batch.send(out.data(), count, DataType::u32, to);
  batch.broadcast(passed.data(), count, DataType::u32, 0, options);
  Work work = batch.submit();
  wait(work);
  if (in != values(seed, from, count) || sum != sums(seed, world, count) || passed != values(seed, 0, count))
    throw std::runtime_error("a wrong batch");
}

void RandomSteps::run_plan(Communicator& group, const CallOptions& options) {
  const std::size_t count = shared_() % (shared_() % 2 == 0 ? 64 : 32 << 10);
  const std::uint64_t seed = shared_();
  const auto in = values(seed, group.rank(), count);
  std::vector<std::uint32_t> out(count, 0);
  Plan plan = group.plan_all_reduce(in.data(), out.data(), count, DataType::u32, ReduceOp::sum, options);
  for (std::uint64_t times = 1 + shared_() % 3; times > 0; --times) {
    std::fill(out.begin(), out.end(), 0u);
    if (own_() % 2 == 0) {
      plan.run();
    } else {
      Work work = plan.start();
      wait(work);
    }
    if (out != sums(seed, group.size(), count)) throw std::runtime_error("a wrong sum of a plan");
  }
}

}  // namespace lockstep::internal
