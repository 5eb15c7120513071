#include "ddp/device/device_clock.hpp"

#include <algorithm>

namespace lockstep::internal {

DeviceClock::DeviceClock(Backend& backend, int device, const BucketPlan& plan, int rank, std::uint64_t every)
    : backend_(backend), device_(device), plan_(plan), rank_(rank), every_(every) {}

DeviceClock::~DeviceClock() { destroy_events(); }

void DeviceClock::destroy_events() {
  const DeviceScope scope(backend_, device_);
  for (Set& set : sets_) {
    for (const DeviceEvent event : set.events) static_cast<void>(backend_.destroy_event(event));
    set = Set();
  }
  set_ = nullptr;
}

void DeviceClock::use_plan() {
  begun_ = 0;
  destroy_events();
  for (Set& set : sets_) {
    while (set.events.size() < kBuckets + 2 * plan_.buckets.size()) {
      Result<DeviceEvent> event = backend_.create_timed_event();
      event.status().throw_if_error();
      set.events.push_back(*event);
    }
  }
}

void DeviceClock::record(std::size_t event, DeviceStream stream) {
  if (set_ != nullptr) backend_.record(set_->events[event], stream).throw_if_error();
}

void DeviceClock::begin(DeviceStream stream) {
  collect();
  const bool is_due = begun_++ % every_ == 0;
  set_ = !is_due || sets_[turn_].pending ? nullptr : &sets_[turn_];
  if (set_ != nullptr) set_->marked = false;
  marked_.store(false, std::memory_order_relaxed);
  host_began_ = real_env().now();
  record(kBegan, stream);
}

void DeviceClock::mark(DeviceStream stream) {
  if (set_ == nullptr || marked_.exchange(true, std::memory_order_relaxed)) return;
  record(kMarked, stream);
  set_->marked = true;
}

void DeviceClock::wait_entered(DeviceStream stream) {
  host_entered_ = real_env().now();
  record(kEntered, stream);
}

void DeviceClock::end(std::uint64_t step, const std::vector<Nanos>& computed, DeviceStream stream) {
  record(kEnded, stream);
  if (set_ != nullptr) {
    set_->pending = true;
    set_->step = step;
    set_->computed = computed;
  }
  turn_ = 1 - turn_;
}

bool DeviceClock::passed(const Set& set) {
  const Result<bool> reached = backend_.query(set.events[kEnded]);
  reached.status().throw_if_error();
  return reached.value();
}

void DeviceClock::collect() {
  for (Set& set : sets_) {
    if (set.pending && passed(set)) collect(set);
  }
}

void DeviceClock::collect(Set& set) {
  set.pending = false;
  if (set.step < latest_.step) return;
  StepTimes times;  // Since the begin.
  if (set.marked) times.first_mark = std::max<Nanos>(since_begin(set, kMarked), 1);
  times.entered = since_begin(set, kEntered);
  times.ended = since_begin(set, kEnded);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    times.buckets.push_back({since_begin(set, kBuckets + 2 * b), since_begin(set, kBuckets + 2 * b + 1)});
  }
  latest_ = statistics_of(times, plan_, set.step, rank_, set.computed);
}

Nanos DeviceClock::since_begin(const Set& set, std::size_t event) {
  const Result<double> time = backend_.elapsed_us(set.events[kBegan], set.events[event]);
  time.status().throw_if_error();
  return static_cast<Nanos>(time.value() * 1e3);
}

}  // namespace lockstep::internal
