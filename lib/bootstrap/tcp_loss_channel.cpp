// Losses over a connection to the TCP store's server.
#include <optional>
#include <utility>

#include "lib/bootstrap/frame_connection.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/loss_channel.hpp"
#include "lib/bootstrap/store_protocol.hpp"

namespace lockstep::internal {
namespace {

/// Turns what the server says, and its end, into losses.
struct Listener {
  std::shared_ptr<LossBoard> board;
  int server_rank = -1;
  bool server_left = false;
  std::optional<Status> ended{};

  Status hear(std::span<const std::byte> body) {
    const auto notice = decode_request(body);
    if (!notice.ok()) return notice.status();
    if (notice.value().verb == StoreVerb::leave) server_left = true;
    if (notice.value().verb == StoreVerb::lost) board->add(notice.value().loss);
    return Status();
  }
  void end(const Status& why) {
    ended = why;
    if (!server_left && server_rank >= 0) board->add({server_rank, why.message()});
  }
  void server_is(int rank) {
    server_rank = rank;
    if (ended) end(Status(*ended));
  }
};

class TcpLossChannel final : public LossChannel {
 public:
  TcpLossChannel(Fd watch, int server_rank, std::shared_ptr<LossBoard> board)
      : reactor_(Reactor::instance()),
        silence_(reactor_, real_env()),
        listener_(std::make_shared<Listener>(Listener{std::move(board), server_rank})) {
    FrameConnection::Events events;
    events.frame = [listener = listener_](std::span<const std::byte> body) { return listener->hear(body); };
    events.closed = [listener = listener_](const Status& why) { listener->end(why); };
    reactor_.run_there([&] {
      connection_ =
          FrameConnection::open(reactor_, silence_, std::move(watch), kMaxRequestBytes, std::move(events));
    });
  }
  ~TcpLossChannel() override {
    reactor_.run_there([this] { connection_.reset(); });
  }

  void report(const Loss& loss) override {
    StoreRequest request;
    request.verb = StoreVerb::lost;
    request.loss = loss;
    const std::weak_ptr<FrameConnection> weak = connection_;
    reactor_.post([weak, frame = encode(request)] {
      if (const auto connection = weak.lock()) connection->send(frame);
    });
  }

  void server_is(int rank) override {
    reactor_.run_there([&] { listener_->server_is(rank); });
  }

  void leave() override {
    StoreRequest request;
    request.verb = StoreVerb::leave;
    reactor_.run_there([&] { connection_->send(encode(request)); });
  }

 private:
  Reactor& reactor_;
  SilenceWatch silence_;
  std::shared_ptr<Listener> listener_;  // Of the reactor's thread.
  std::shared_ptr<FrameConnection> connection_;
};

}  // namespace

std::unique_ptr<LossChannel> make_tcp_loss_channel(Fd watch, int server_rank,
                                                   std::shared_ptr<LossBoard> board) {
  return std::make_unique<TcpLossChannel>(std::move(watch), server_rank, std::move(board));
}

}  // namespace lockstep::internal
