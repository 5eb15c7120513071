#include "lockstep/work.hpp"

#include <utility>

#include "collectives/engine/engine.hpp"

namespace lockstep {

Work::Work(Work&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    if (operation_ != nullptr) operation_->engine->release(operation_);
    operation_ = std::exchange(other.operation_, nullptr);
  }
  return *this;
}

Work::~Work() {
  if (operation_ != nullptr) operation_->engine->release(operation_);
}

void Work::wait() { static_cast<void>(wait_for(std::chrono::microseconds::max())); }

bool Work::wait_for(std::chrono::microseconds limit) {
  if (operation_ == nullptr) return true;
  const bool forever = limit == std::chrono::microseconds::max();
  if (!operation_->engine->wait(*operation_, forever ? internal::kForever : internal::to_nanos(limit)))
    return false;
  operation_->status.throw_if_error();
  return true;
}

bool Work::test() noexcept { return operation_ == nullptr || operation_->engine->test(*operation_); }

ErrorCode Work::error() const noexcept {
  if (operation_ == nullptr || !operation_->done.load(std::memory_order_acquire)) return ErrorCode::ok;
  return operation_->status.code();
}

RecvStatus Work::status() const { return operation_ == nullptr ? RecvStatus{} : operation_->received; }

}  // namespace lockstep
