// Transfers of a UcxWire, each in one of two ways that the receiver chooses when it opens the landing.
//
// A tagged message: the receive is posted where the payload goes, and UCX makes a rendezvous.
//
// A put, to memory that UCX has mapped: nothing is matched and no rendezvous made. The sender puts, flushes
// its endpoint - before that the bytes need not be there, whichever lanes they took - and then sends an empty
// message with the transfer's tag: the flag, for which alone the landing posts a receive, and which wakes a
// receiver that sleeps, as no put does. The receiver cannot close such a landing, since it would not know of
// a put under way: only the end of the connection stops it (UcxWorker::cut).
#include <algorithm>
#include <utility>

#include "transports/ucx/ucx_wire.hpp"

namespace lockstep::internal {
namespace {

constexpr int kCancelRounds = 1000;  // Cancelled requests end within a few.

}  // namespace

// ---- receiving ----

Status UcxWire::open_landing(std::span<std::byte> memory, bool may_take_back, Landing& landing) {
  if (!peer_.failure.ok()) return peer_.failure;
  landing.number = next_landing_++;
  landing.bytes = memory.size();
  const auto tag = UcxTag::of(peer_.rank, channel_, UcxTag::Kind::transfer, landing.number);
  auto region = worker_.memory().find(memory.data(), memory.size());
  const bool put = peer_.puts && !may_take_back && region && region->key().size() <= landing.key.size();
  if (put) {
    landing.address = reinterpret_cast<std::uint64_t>(memory.data());
    landing.key_bytes = region->key().size();
    std::copy(region->key().begin(), region->key().end(), landing.key.begin());
  }
  void* const request = put ? receive({}, tag) : receive(memory, tag, region.get());
  landings_.push_back({request, std::move(region), landing.number, put});
  return peer_.failure;
}

// A receive that no message has met is cancelled at once; another one goes on. A message that comes after all
// meets a receive without room, so that its sender gets rid of it.
std::size_t UcxWire::take_back(std::size_t most) {
  std::size_t closed = 0;
  for (; closed < most && !landings_.empty(); ++closed) {
    const Open& youngest = landings_.back();
    if (youngest.request == nullptr || youngest.put) break;
    ucx_.request_cancel(worker_.handle(), youngest.request);
    if (ucx_.request_check_status(youngest.request) != UCS_ERR_CANCELED) break;
    const auto tag = UcxTag::of(peer_.rank, channel_, UcxTag::Kind::transfer, youngest.number);
    ucx_.request_free(youngest.request);
    landings_.pop_back();
    taken_back_.push_back(receive({}, tag));
  }
  return closed;
}

// A failed one stays, and those behind it.
std::uint64_t UcxWire::landed() {
  while (!landings_.empty() && peer_.failure.ok() && state_of(landings_.front().request) == State::over) {
    landings_.pop_front();
    ++landed_;
  }
  return landed_;
}

// ---- sending ----

void* UcxWire::send_transfer(std::span<const std::byte> memory, std::uint64_t number,
                             const UcxRegion* region) {
  const ucp_request_param_t params = params_of(memory.data(), region);
  void* const request =
      ucx_.tag_send_nbx(peer_.endpoint, memory.data(), memory.size(),
                        UcxTag::of(worker_.rank(), channel_, UcxTag::Kind::transfer, number), &params);
  if (!UCS_PTR_IS_ERR(request)) return request;
  fail(UCS_PTR_STATUS(request));
  return nullptr;
}

void UcxWire::begin_put(const Landing& landing, std::span<const std::byte> memory, Filling& filling) {
  ucp_rkey_h key = nullptr;
  if (const auto status = ucx_.ep_rkey_unpack(peer_.endpoint, landing.key.data(), &key); status != UCS_OK) {
    return fail(status);
  }
  filling.key = UcxRemoteKey(key, {&ucx_});
  const ucp_request_param_t params = params_of(memory.data(), filling.region.get());
  void* const put = ucx_.put_nbx(peer_.endpoint, memory.data(), memory.size(), landing.address, key, &params);
  if (UCS_PTR_IS_PTR(put)) ucx_.request_free(put);  // The flush ends after it.
  const ucp_request_param_t none{};
  filling.request = UCS_PTR_IS_ERR(put) ? put : ucx_.ep_flush_nbx(peer_.endpoint, &none);
  if (UCS_PTR_IS_ERR(filling.request)) fail(UCS_PTR_STATUS(std::exchange(filling.request, nullptr)));
}

Result<bool> UcxWire::fill(const Landing& landing, std::span<const std::byte> memory) {
  if (!peer_.failure.ok()) return peer_.failure;
  Filling filling{nullptr, worker_.memory().find(memory.data(), memory.size()), {}, landing.number};
  if (landing.key_bytes > 0) {
    begin_put(landing, memory, filling);
  } else {
    filling.request = send_transfer(memory, landing.number, filling.region.get());
  }
  fillings_.push_back(std::move(filling));  // Failed or not: something of it may be under way.
  LOCKSTEP_RETURN_IF_ERROR(peer_.failure);
  return true;
}

std::uint64_t UcxWire::filled() {
  while (!fillings_.empty() && peer_.failure.ok() && state_of(fillings_.front().request) == State::over) {
    Filling& front = fillings_.front();
    if (front.key) {
      front.key.reset();
      front.request = send_transfer({}, front.number, nullptr);
      continue;
    }
    fillings_.pop_front();
    ++filled_;
  }
  return filled_;
}

// ---- giving up ----

void UcxWire::cut(Status why) {
  worker_.cut(peer_, std::move(why));
  for (const Open& open : landings_) {
    if (open.request != nullptr) ucx_.request_cancel(worker_.handle(), open.request);
  }
  const auto pending = [&](auto& transfers) {
    bool any = false;
    for (auto& transfer : transfers) any |= state_of(transfer.request) == State::pending;
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
