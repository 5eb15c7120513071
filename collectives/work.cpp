#include "lockstep/work.hpp"

#include <algorithm>
#include <utility>

#include "collectives/engine/engine.hpp"
#include "collectives/forked_child.hpp"
#include "lib/net/fd.hpp"

namespace lockstep {
namespace {

/// In a forked child the operation is the parent's, whose threads may have held its engine's lock.
void release(internal::Operation* operation) {
  if (operation != nullptr && !internal::in_forked_child()) operation->engine->release(operation);
}

/// What nobody lives to see, and does not fit, is for ever.
internal::Nanos patience(std::chrono::microseconds limit) {
  constexpr std::int64_t kMost = internal::kForever / 2 / 1000;
  return limit.count() > kMost ? internal::kForever : std::max<std::int64_t>(limit.count(), 0) * 1000;
}

}  // namespace

Work::Work(Work&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    release(operation_);
    operation_ = std::exchange(other.operation_, nullptr);
  }
  return *this;
}

Work::~Work() { release(operation_); }

void Work::wait() { static_cast<void>(wait_for(std::chrono::microseconds::max())); }

bool Work::wait_for(std::chrono::microseconds limit) {
  if (operation_ == nullptr) return true;
  internal::refuse_in_forked_child();
  if (!operation_->engine->wait(*operation_, patience(limit))) return false;
  operation_->status.throw_if_error();
  return true;
}

bool Work::test() noexcept {
  if (operation_ == nullptr) return true;
  if (internal::in_forked_child()) return operation_->done.load(std::memory_order_acquire);
  return operation_->engine->test(*operation_);
}

ErrorCode Work::error() const noexcept {
  if (operation_ == nullptr || !operation_->done.load(std::memory_order_acquire)) return ErrorCode::ok;
  return operation_->status.code();
}

RecvStatus Work::status() const {
  const bool ended = operation_ != nullptr && operation_->done.load(std::memory_order_acquire);
  return ended && operation_->status.ok() ? operation_->received : RecvStatus{};
}

}  // namespace lockstep
