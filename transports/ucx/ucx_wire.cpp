#include "transports/ucx/ucx_wire.hpp"

#include <cstring>

namespace lockstep::internal {

UcxWire::UcxWire(UcxWorker& worker, UcxPeer& peer, Channel channel, std::span<std::byte> memory)
    : worker_(worker), ucx_(worker.ucx()), peer_(peer), channel_(channel), memory_(memory) {
  for (std::uint32_t slot = 0; slot < kLinkSlots; ++slot) {
    free_send_slots_.push_back(slot);
    post(slot);
  }
}

UcxWire::~UcxWire() {
  for (const Pending& pending : receiving_) cancel(pending.request);
  for (const Open& open : landings_) cancel(open.request);
  for (void* request : taken_back_) cancel(request);
  for (const Pending& pending : sending_) let_go(pending.request);
  for (const Filling& filling : fillings_) let_go(filling.request);
}

void UcxWire::cancel(void* request) {
  if (request != nullptr) ucx_.request_cancel(worker_.handle(), request);
  let_go(request);
}

void UcxWire::let_go(void* request) {
  if (request == nullptr) return;
  peer_.left_over |= ucx_.request_check_status(request) == UCS_INPROGRESS;
  ucx_.request_free(request);
}

void UcxWire::fail(ucs_status_t status) { peer_.fail(ucx_, status); }

/// A request that is over is freed, and set to null.
UcxWire::State UcxWire::state_of(void*& request, std::size_t* bytes) {
  if (request == nullptr) return State::over;
  ucp_tag_recv_info_t info{};
  const auto status =
      bytes != nullptr ? ucx_.tag_recv_request_test(request, &info) : ucx_.request_check_status(request);
  if (status == UCS_INPROGRESS) return State::pending;
  ucx_.request_free(request);
  request = nullptr;
  if (bytes != nullptr) *bytes = info.length;
  if (status == UCS_OK) return State::over;
  fail(status);
  return State::failed;
}

// ---- small messages ----

/// What UCX is told of memory, so that it need not find out.
ucp_request_param_t UcxWire::params_of(const void* memory, const UcxRegion* region) const {
  ucp_request_param_t params{};
  if (const auto type = worker_.type_of(memory); type != UCS_MEMORY_TYPE_UNKNOWN) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.memory_type = type;
  }
#if UCP_API_VERSION >= UCP_VERSION(1, 13)
  if (region != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = region->handle();
  }
#endif
  return params;
}

void* UcxWire::receive(std::span<std::byte> memory, ucp_tag_t tag, const UcxRegion* region) {
  ucp_request_param_t params = params_of(memory.data(), region);
  params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;  // So that the length is told in one way only.
  void* request =
      ucx_.tag_recv_nbx(worker_.handle(), memory.data(), memory.size(), tag, ~ucp_tag_t{0}, &params);
  if (UCS_PTR_IS_PTR(request)) return request;
  fail(UCS_PTR_STATUS(request));
  return nullptr;
}

void UcxWire::post(std::uint32_t slot) {
  const auto tag = UcxTag::of(peer_.rank, channel_, UcxTag::Kind::message, next_receive_++);
  receiving_.push_back({slot, receive({receive_slot(slot), kSlotBytes}, tag)});
}

std::optional<Arrival> UcxWire::next() {
  if (receiving_.empty() || receiving_.front().request == nullptr) return std::nullopt;
  std::size_t bytes = 0;
  Pending& front = receiving_.front();
  if (state_of(front.request, &bytes) != State::over) return std::nullopt;
  const std::uint32_t slot = front.slot;
  receiving_.pop_front();
  peer_.heard = true;
  return Arrival{{receive_slot(slot), bytes}, slot};
}

void UcxWire::retire_sends() {
  while (!sending_.empty() && state_of(sending_.front().request) != State::pending) {
    free_send_slots_.push_back(sending_.front().slot);
    sending_.pop_front();
  }
}

bool UcxWire::unfinished() {
  retire_sends();
  return !sending_.empty() && peer_.failure.ok();
}

Result<bool> UcxWire::send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (!peer_.failure.ok()) return peer_.failure;
  if (free_send_slots_.empty()) retire_sends();
  if (free_send_slots_.empty()) return false;
  const std::uint32_t slot = free_send_slots_.front();
  std::byte* const message = send_slot(slot);
  std::memcpy(message, head.data(), head.size());
  if (!body.empty()) std::memcpy(message + head.size(), body.data(), body.size());
  // Eagerly, which needs nothing of the receiver. Newer UCX (1.23) has rendezvous within a host from 5 KiB
  // on, and what a rank has sent would be lost where it leaves before the receiver looks.
  ucp_request_param_t eager{};
  eager.op_attr_mask = UCP_OP_ATTR_FLAG_FAST_CMPL;
  void* request =
      ucx_.tag_send_nbx(peer_.endpoint, message, head.size() + body.size(),
                        UcxTag::of(worker_.rank(), channel_, UcxTag::Kind::message, next_send_), &eager);
  if (UCS_PTR_IS_ERR(request)) {
    fail(UCS_PTR_STATUS(request));
    return peer_.failure;
  }
  ++next_send_;
  if (request == nullptr) return true;
  free_send_slots_.pop_front();
  sending_.push_back({slot, request});
  return true;
}

}  // namespace lockstep::internal
