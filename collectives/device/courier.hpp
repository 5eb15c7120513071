// Courier: a kernel in the caller's stream copies what the worker tells it to
// (lib/device/sync/courier_body.hpp).
//
// So sends and receives that the worker passes on need no call to the driver, which a program that blocks
// there would keep it from: between hosts, and of more ranks than a kernel with messages serves.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "collectives/device/copier.hpp"
#include "collectives/device/hosts/transit_memory.hpp"
#include "lib/device/sync/courier_body.hpp"

namespace lockstep::internal {

class Courier final : public Copier {
 public:
  /// `backend` outlives it; `stream` is of `device`, which is selected. `is_over`: whether nobody needs what
  /// is waited for any more.
  static Result<std::unique_ptr<Courier>> make(Backend& backend, int device, DeviceStream stream,
                                               std::function<bool()> is_over);

  /// From here on the stream runs errands, until send_home(). In the order of the calls.
  Status enqueue(DeviceStream stream);

  // For the worker, in the same order, once the stream has come there.
  void begin(Nanos end) override { end_ = end; }
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status await() override { return await(posted_); }
  void let_end() override {}
  /// The stream goes on. What was begun is done before.
  void send_home();

  /// Ends all errands, now and later. From any thread.
  void let_pass();

 private:
  Courier(Backend& backend, std::function<bool()> is_over)
      : backend_(backend),
        blocks_(backend.is_host() ? 2 : sync::kCourierBlocks),
        is_over_(std::move(is_over)) {}
  Status post(const sync::Errand& errand);
  Status await(std::uint32_t number);
  Status look() const;
  sync::CourierDesk& desk() const { return *reinterpret_cast<sync::CourierDesk*>(desk_->data()); }

  Backend& backend_;
  const int blocks_;
  std::unique_ptr<TransitMemory> desk_, done_;
  const std::function<bool()> is_over_;
  Nanos end_ = kForever;
  std::uint32_t posted_ = 0;
};

}  // namespace lockstep::internal
