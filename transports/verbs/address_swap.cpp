#include "transports/verbs/address_swap.hpp"

#include <cstring>
#include <string>

#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

constexpr std::byte kReady{1};

}  // namespace

Result<AddressSwap> AddressSwap::begin(Fd socket, int peer, const QueuePairAddress& own) {
  AddressSwap swap(std::move(socket), peer);
  LOCKSTEP_RETURN_IF_ERROR(swap.tell(&own, sizeof own));
  return swap;
}

Status AddressSwap::broken(const std::string& evidence) const {
  return Status(
      ErrorCode::peer_lost,
      "rank " + std::to_string(peer_) + " broke off before its RDMA connection was made: " + evidence, peer_);
}

// Far less than an empty socket takes at once.
Status AddressSwap::tell(const void* bytes, std::size_t count) {
  const Transfer sent = send_some(socket_.get(), {static_cast<const std::byte*>(bytes), count});
  if (sent.bytes == count) return {};
  return broken(sent.error != 0 ? std::strerror(sent.error) : "it takes no bytes");
}

/// Whether the first `count` bytes are here.
Result<bool> AddressSwap::hear(std::size_t count) {
  while (have_ < count) {
    const Transfer got = receive_some(socket_.get(), std::span(heard_).subspan(have_, count - have_));
    have_ += got.bytes;
    if (got.error != 0) return broken(std::strerror(got.error));
    if (got.ended) return broken("it closed the connection");
    if (got.bytes == 0) return false;
  }
  return true;
}

Result<std::optional<QueuePairAddress>> AddressSwap::address() {
  QueuePairAddress theirs;
  const auto here = hear(sizeof theirs);
  if (!here.ok()) return here.status();
  if (!here.value()) return std::optional<QueuePairAddress>();
  std::memcpy(&theirs, heard_.data(), sizeof theirs);
  return std::optional(theirs);
}

Status AddressSwap::say_ready() { return tell(&kReady, sizeof kReady); }

Result<bool> AddressSwap::peer_is_ready() {
  auto here = hear(heard_.size());
  if (here.ok() && *here && heard_.back() != kReady) return broken("it sent what is no address");
  return here;
}

}  // namespace lockstep::internal
