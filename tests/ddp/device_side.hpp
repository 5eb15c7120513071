// What a ScriptedTraining trains with on a device: a DeviceReducer. Gradients are computed on the host, and
// several streams copy them, one of them as late as its work before that makes it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/device_reducer.hpp"
#include "tests/ddp/device_twins.hpp"

namespace lockstep::testing {

struct FreePinned {
  void operator()(std::byte* block) const { static_cast<void>(backend().free_pinned(block)); }
};
using PinnedBytes = std::unique_ptr<std::byte, FreePinned>;

class DeviceSide {
  static constexpr std::size_t kDelayBytes = 1 << 20;
  static constexpr int kDelays = 4;

 public:
  /// Both communicators outlive it. `tolerance`: nothing where compression rounds what travels.
  DeviceSide(Communicator& communicator, DeviceCommunicator& device, DeviceReducerOptions options,
             std::optional<double> tolerance)
      : communicator_(communicator), device_(device), options_(std::move(options)), tolerance_(tolerance) {}
  ~DeviceSide() {
    reducer_.reset();
    for (void* const block : values_) free_device(block);
    free_device(delay_);
    must(backend().destroy_event(event_));
    for (const Stream stream : streams_) must(backend().destroy_stream(stream));
  }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  void add(const std::vector<DataType>& types, const std::vector<std::size_t>& elements) {
    std::vector<Parameter> list;
    for (std::size_t k = 0; k < types.size(); ++k) {
      const std::size_t bytes = elements[k] * size_of(types[k]);
      values_.push_back(allocate_device(bytes, device_.device()));
      must(backend().fill(values_.back(), 0x11 * communicator_.rank(), bytes, main()));
      gradients_.emplace_back(bytes);
      is_unmarked_.emplace_back(false);
      list.push_back(
          {"p" + std::to_string(values_.size() - 1), types[k], {elements[k]}, values_.back(), nullptr});
    }
    must(backend().synchronize(main()));
    reducer_ ? reducer_->add_parameters(list)
             : void(reducer_.emplace(communicator_, device_, list, options_));
    fetch();
  }

  void* gradient(std::size_t i) { return gradients_[i].data(); }
  void give(std::size_t i) {
    if (!std::exchange(is_late_, true)) {
      for (int k = 0; k < kDelays; ++k) must(backend().fill(delay_, k, kDelayBytes, late_));
    }
    const std::vector<std::byte>& from = gradients_[i];
    given_.emplace_back(static_cast<std::byte*>(must(backend().allocate_pinned(from.size()))));
    std::copy(from.begin(), from.end(), given_.back().get());
    must(backend().copy(reducer_->gradient(i), given_.back().get(), from.size(), stream_of(i)));
    is_unmarked_[i] = true;
  }
  auto no_sync() { return reducer_->no_sync(); }
  bool begin_step(std::uint64_t samples) { return reducer_->begin_step(samples, main()); }
  void freeze(const std::vector<std::size_t>& list) {
    reducer_->freeze(list, main());
    fetch();
  }
  bool used(std::size_t i) const { return reducer_->used(i); }
  void mark_ready(std::size_t i) {
    is_unmarked_[i] = false;
    reducer_->mark_ready(i, stream_of(i));
  }
  void mark_unused(std::size_t i) { reducer_->mark_unused(i, stream_of(i)); }
  /// Throws as the reducer does.
  void wait() {
    is_late_ = false;
    follow_unmarked();
    try {
      reducer_->wait(main());
    } catch (const Error&) {
      end_step();
      undoes() ? fetch() : give_again();
      throw;
    }
    end_step();
    fetch();
  }
  bool undoes() const { return options_.undo || options_.check_first; }
  std::optional<double> tolerance(DataType type) const {
    return tolerance_ ? std::optional(size_of(type) < 4 ? 0.2 : *tolerance_) : std::nullopt;
  }
  const BucketPlan& plan() const { return reducer_->plan(); }

 private:
  Stream main() const { return streams_[0]; }
  Stream stream_of(std::size_t i) const { return streams_[i % streams_.size()]; }
  /// Of these the reducer is told by wait() where they were used.
  void follow_unmarked() {
    for (std::size_t i = 0; i < is_unmarked_.size(); ++i) {
      if (!is_unmarked_[i].exchange(false)) continue;
      must(backend().record(event_, stream_of(i)));
      must(backend().wait_event(main(), event_));
    }
  }
  void end_step() {
    for (const Stream stream : streams_) must(backend().synchronize(stream));
    given_.clear();
  }
  void fetch() {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      must(backend().copy(gradients_[i].data(), reducer_->gradient(i), gradients_[i].size(), main()));
    must(backend().synchronize(main()));
  }
  /// What a step has left undefined that is to be repeated.
  void give_again() {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      must(backend().copy(reducer_->gradient(i), gradients_[i].data(), gradients_[i].size(), main()));
    must(backend().synchronize(main()));
  }

  Communicator& communicator_;
  DeviceCommunicator& device_;
  const DeviceReducerOptions options_;
  const std::optional<double> tolerance_;
  std::array<Stream, 3> streams_{must(backend().create_stream()), must(backend().create_stream()),
                                 must(backend().create_stream())};
  const Stream late_ = streams_.back();
  bool is_late_ = false;
  void* const delay_ = allocate_device(kDelayBytes, device_.device());
  const internal::DeviceEvent event_ = must(backend().create_event());
  std::vector<void*> values_;
  std::vector<std::vector<std::byte>> gradients_;
  std::deque<std::atomic<bool>> is_unmarked_;  ///< What was given since its last mark.
  std::vector<PinnedBytes> given_;             ///< Enqueuing a copy of it returns at once.
  std::optional<DeviceReducer> reducer_;
};

}  // namespace lockstep::testing
