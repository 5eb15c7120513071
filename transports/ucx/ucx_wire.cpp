#include "transports/ucx/ucx_wire.hpp"

#include <cstring>

namespace lockstep::internal {
namespace {

constexpr int kCancelRounds = 1000;  // Cancelled requests end within a few.

void name_memory(ucp_request_param_t& params, ucs_memory_type_t type) {
  if (type == UCS_MEMORY_TYPE_UNKNOWN) return;
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.memory_type = type;
}

}  // namespace

UcxWire::UcxWire(UcxWorker& worker, UcxPeer& peer, Channel channel, std::span<std::byte> memory)
    : worker_(worker), ucx_(worker.ucx()), peer_(peer), channel_(channel), memory_(memory) {
  for (std::uint32_t slot = 0; slot < kLinkSlots; ++slot) {
    free_send_slots_.push_back(slot);
    post(slot);
  }
}

UcxWire::~UcxWire() {
  for (const Pending& pending : receiving_) cancel(pending.request);
  for (void* request : landings_) cancel(request);
  for (void* request : taken_back_) cancel(request);
  for (const Pending& pending : sending_) {
    if (pending.request != nullptr) ucx_.request_free(pending.request);
  }
  for (void* request : fillings_) {
    if (request != nullptr) ucx_.request_free(request);
  }
}

void UcxWire::cancel(void* request) {
  if (request == nullptr) return;
  ucx_.request_cancel(worker_.handle(), request);
  ucx_.request_free(request);
}

void UcxWire::fail(ucs_status_t status) {
  if (!peer_.failure.ok()) return;
  peer_.failure = Status(
      ErrorCode::peer_lost,
      "rank " + std::to_string(peer_.rank) + " is gone: UCX says: " + ucx_.status_string(status), peer_.rank);
}

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

void* UcxWire::receive(std::span<std::byte> memory, ucp_tag_t tag) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;  // So that the length is told in one way only.
  name_memory(params, worker_.type_of(memory.data()));
  void* request =
      ucx_.tag_recv_nbx(worker_.handle(), memory.data(), memory.size(), tag, ~ucp_tag_t{0}, &params);
  if (UCS_PTR_IS_PTR(request)) return request;
  fail(UCS_PTR_STATUS(request));
  return nullptr;
}

void UcxWire::post(std::uint32_t slot) {
  const auto tag = UcxTag::of(peer_.rank, channel_, UcxTag::message, next_receive_++);
  receiving_.push_back({slot, receive({receive_slot(slot), kSlotBytes}, tag)});
}

std::optional<Arrival> UcxWire::next() {
  if (receiving_.empty() || receiving_.front().request == nullptr) return std::nullopt;
  std::size_t bytes = 0;
  Pending& front = receiving_.front();
  if (state_of(front.request, &bytes) != State::over) return std::nullopt;
  const std::uint32_t slot = front.slot;
  receiving_.pop_front();
  return Arrival{{receive_slot(slot), bytes}, slot};
}

bool UcxWire::unfinished() {
  while (!sending_.empty() && state_of(sending_.front().request) != State::pending) {
    free_send_slots_.push_back(sending_.front().slot);
    sending_.pop_front();
  }
  return !sending_.empty() && peer_.failure.ok();
}

Result<bool> UcxWire::send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (!peer_.failure.ok()) return peer_.failure;
  if (free_send_slots_.empty()) unfinished();
  if (free_send_slots_.empty()) return false;
  const std::uint32_t slot = free_send_slots_.front();
  std::byte* const message = send_slot(slot);
  std::memcpy(message, head.data(), head.size());
  if (!body.empty()) std::memcpy(message + head.size(), body.data(), body.size());
  ucp_request_param_t none{};
  void* request = ucx_.tag_send_nbx(peer_.endpoint, message, head.size() + body.size(),
                                    UcxTag::of(worker_.rank(), channel_, UcxTag::message, next_send_), &none);
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

// ---- transfers ----

Status UcxWire::open_landing(std::span<std::byte> memory, Landing& landing) {
  if (!peer_.failure.ok()) return peer_.failure;
  landing.number = next_landing_++;
  landing.bytes = memory.size();
  landings_.push_back(receive(memory, UcxTag::of(peer_.rank, channel_, UcxTag::transfer, landing.number)));
  return peer_.failure;
}

/// How many requests at the front are over; they are dropped. A failed one stays, and those behind it.
std::uint64_t UcxWire::count_over(std::deque<void*>& requests) {
  std::uint64_t over = 0;
  while (!requests.empty() && peer_.failure.ok() && state_of(requests.front()) == State::over) {
    requests.pop_front();
    ++over;
  }
  return over;
}

// A receive that no message has met is cancelled at once; another one goes on. A message that comes after all
// meets a receive without room, so that its sender gets rid of it.
std::size_t UcxWire::take_back(std::size_t most) {
  std::size_t closed = 0;
  for (; closed < most && !landings_.empty() && landings_.back() != nullptr; ++closed) {
    ucx_.request_cancel(worker_.handle(), landings_.back());
    if (ucx_.request_check_status(landings_.back()) != UCS_ERR_CANCELED) break;
    ucx_.request_free(landings_.back());
    landings_.pop_back();
    const std::uint64_t number = next_landing_ - 1 - closed;
    taken_back_.push_back(receive({}, UcxTag::of(peer_.rank, channel_, UcxTag::transfer, number)));
  }
  return closed;
}

std::uint64_t UcxWire::landed() { return landed_ += count_over(landings_); }

Result<bool> UcxWire::fill(const Landing& landing, std::span<const std::byte> memory) {
  if (!peer_.failure.ok()) return peer_.failure;
  ucp_request_param_t params{};
  name_memory(params, worker_.type_of(memory.data()));
  void* request =
      ucx_.tag_send_nbx(peer_.endpoint, memory.data(), memory.size(),
                        UcxTag::of(worker_.rank(), channel_, UcxTag::transfer, landing.number), &params);
  if (UCS_PTR_IS_ERR(request)) {
    fail(UCS_PTR_STATUS(request));
    return peer_.failure;
  }
  fillings_.push_back(request);
  return true;
}

std::uint64_t UcxWire::filled() { return filled_ += count_over(fillings_); }

void UcxWire::cut(Status why) {
  worker_.cut(peer_, std::move(why));
  for (void* request : landings_) {
    if (request != nullptr) ucx_.request_cancel(worker_.handle(), request);
  }
  const auto pending = [&](std::deque<void*>& requests) {
    bool any = false;
    for (void*& request : requests) any |= state_of(request) == State::pending;
    return any;
  };
  bool any = true;
  for (int i = 0; i < kCancelRounds && any; ++i) {
    worker_.progress();
    any = pending(landings_);
    any |= pending(fillings_);
  }
  if (any) worker_.stop();
}

}  // namespace lockstep::internal
