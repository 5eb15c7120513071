// AddressSwap: two ranks tell each other, over a connection of the job's own, where their ends of an RDMA
// connection are, and then that these are able to receive: what is sent before would be repeated, and given
// up in the end.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"
#include "transports/verbs/queue_pair_address.hpp"

namespace lockstep::internal {

/// Never blocks. Errors are final, and name the peer.
class AddressSwap {
 public:
  /// `socket` is connected and non-blocking, and nothing has travelled over it yet. Tells the address.
  static Result<AddressSwap> begin(Fd socket, int peer, const QueuePairAddress& own);

  /// The peer's address; nothing while it is not here.
  Result<std::optional<QueuePairAddress>> address();
  /// This side can receive now.
  Status say_ready();
  /// Whether the peer can. Ask once its address is here.
  Result<bool> peer_is_ready();
  int descriptor() const { return socket_.get(); }

 private:
  AddressSwap(Fd socket, int peer) : socket_(std::move(socket)), peer_(peer) {}
  Status tell(const void* bytes, std::size_t count);
  Result<bool> hear(std::size_t count);
  Status broken(const std::string& evidence) const;

  Fd socket_;
  int peer_;
  std::array<std::byte, sizeof(QueuePairAddress) + 1>
      heard_{};  // The address, and the word that it is ready.
  std::size_t have_ = 0;
};

}  // namespace lockstep::internal
