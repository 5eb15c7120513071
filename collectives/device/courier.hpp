// Courier: a kernel in the caller's stream copies what the worker tells it to
// (lib/device/sync/courier_body.hpp).
//
// So sends and receives that the worker passes on need no call to the driver, which a program that blocks
// there would keep it from: between hosts, and of more ranks than a kernel with messages serves.
#pragma once

#include <memory>

#include "collectives/device/copier.hpp"
#include "collectives/device/hosts/transit_memory.hpp"
#include "lib/device/sync/courier_body.hpp"

namespace lockstep::internal {

class Courier final : public Copier {
 public:
  /// `backend` outlives it; `stream` is of `device`, which is selected.
  static Result<std::unique_ptr<Courier>> make(Backend& backend, int device, DeviceStream stream);

  /// From here on the stream runs errands, until send_home(). In the order of the calls.
  Status enqueue(DeviceStream stream);

  // For the worker, in the same order, once the stream has come there.
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status await(Nanos end) override;
  void let_end() override {}
  /// The stream goes on. What was begun is done before.
  void send_home();

  /// Ends all errands, now and later. From any thread.
  void let_pass();

 private:
  explicit Courier(Backend& backend)
      : backend_(backend), blocks_(backend.is_host() ? 2 : sync::kCourierBlocks) {}
  Status post(const sync::Errand& errand);
  Status await(std::uint32_t number, Nanos end);
  sync::CourierDesk& desk() const { return *reinterpret_cast<sync::CourierDesk*>(desk_->data()); }

  Backend& backend_;
  const int blocks_;
  std::unique_ptr<TransitMemory> desk_, done_;
  std::uint32_t posted_ = 0;
};

}  // namespace lockstep::internal
