// HostedStore: a group's share in the store that this process serves at an address. The groups that rank 0
// joins there one after another, or side by side, share one server: another rank may have come for the next
// group before rank 0 has let go of the last one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/base/status.hpp"
#include "lib/bootstrap/handshake.hpp"
#include "lib/bootstrap/store_server.hpp"

namespace lockstep::internal {

class HostedStore {
 public:
  using Start = std::function<Result<std::unique_ptr<StoreServer>>()>;

  /// The server that runs at `place` for `key`, or one that `start` gives.
  static Result<std::unique_ptr<HostedStore>> open(const std::string& place, const HandshakeKey& key,
                                                   std::uint64_t group, const Start& start);
  /// Says goodbye to its group. The server ends soon after the last share, once nobody is connected to it.
  ~HostedStore();
  HostedStore(const HostedStore&) = delete;
  HostedStore& operator=(const HostedStore&) = delete;

  StoreServer& server() { return *server_; }

 private:
  HostedStore(std::string place, std::shared_ptr<StoreServer> server, std::uint64_t group)
      : place_(std::move(place)), server_(std::move(server)), group_(group) {}

  const std::string place_;
  std::shared_ptr<StoreServer> server_;
  const std::uint64_t group_;
};

}  // namespace lockstep::internal
