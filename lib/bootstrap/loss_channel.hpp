// LossChannel: how the news of a lost rank gets from process to process. What is heard goes to the LossBoard.
#pragma once

#include <memory>
#include <vector>

#include "lib/bootstrap/loss.hpp"
#include "lib/bootstrap/loss_board.hpp"
#include "lib/bootstrap/member.hpp"
#include "lib/bootstrap/store.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Destroyed by a thread that holds no lock which a callback takes.
class LossChannel {
 public:
  virtual ~LossChannel() = default;
  /// Tells the others. Returns at once; of this rank itself as leave().
  virtual void report(const Loss& loss) = 0;
  /// Where there is a server: its end is the end of `rank`, in whose process it turned out to be.
  virtual void server_is(int /*rank*/) {}
  /// The others will not take this rank's end for a death. Has left this process when it returned.
  virtual void leave() = 0;
};

/// Over a connection to the TCP store's server (HandshakeService::watch). The end of that connection is the
/// end of `server_rank` (-1: of a launcher, which is no rank, or not known yet), unless the server said
/// goodbye.
std::unique_ptr<LossChannel> make_tcp_loss_channel(Fd watch, int server_rank,
                                                   std::shared_ptr<LossBoard> board);

/// Where there is no server: watches this host's other members by pidfd and life_sign_of(), and passes news
/// on through keys of the store, which it reads now and then. `store` outlives the channel.
std::unique_ptr<LossChannel> make_store_loss_channel(Store& store, int own_rank,
                                                     const std::vector<Member>& members,
                                                     std::shared_ptr<LossBoard> board);

}  // namespace lockstep::internal
