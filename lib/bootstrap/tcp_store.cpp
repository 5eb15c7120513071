#include "lib/bootstrap/tcp_store.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/store_table.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

// Pauses between attempts to reach a server that is not up yet.
constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{200};
// One attempt to reach the server's host. Nothing is lost with it but the wait for an answer.
constexpr milliseconds kConnectPatience{5'000};
// How often a thread that waits for the server asks whether the server's host is still there.
constexpr int kLookForHostMillis = 1000;
constexpr std::size_t kAnswerBytes = 64 << 10;

Status await(const Fd& socket, short events, const Deadline& deadline,
             const WhileWaiting& while_waiting = {}) {
  pollfd entry{socket.get(), events, 0};
  for (;;) {
    const int ready = poll(&entry, 1, std::min(deadline.poll_timeout(), kLookForHostMillis));
    if (ready > 0) return Status();
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
    if (is_silent(socket.get())) return Status(ErrorCode::peer_lost, silence_text());
    const Status late(ErrorCode::timeout, "no answer in time");
    if (deadline.passed()) return late;
    if (while_waiting) while_waiting(late);
  }
}

Status connection_ended(const Transfer& last) {
  if (last.ended) return Status(ErrorCode::peer_lost, "the connection was closed");
  if (last.error == ETIMEDOUT) return Status(ErrorCode::peer_lost, silence_text());
  return Status(ErrorCode::peer_lost, std::string("the connection failed: ") + std::strerror(last.error));
}

Status send_all(const Fd& socket, std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const Transfer some = send_some(socket.get(), bytes);
    if (some.error != 0) return connection_ended(some);
    bytes = bytes.subspan(some.bytes);
    if (some.bytes == 0) LOCKSTEP_RETURN_IF_ERROR(await(socket, POLLOUT, deadline));
  }
  return Status();
}

/// At least one byte of at most into.size().
Result<std::size_t> receive(const Fd& socket, std::span<std::byte> into, const Deadline& deadline,
                            const WhileWaiting& while_waiting = {}) {
  for (;;) {
    const Transfer some = receive_some(socket.get(), into);
    if (some.bytes > 0) return some.bytes;
    if (some.ended || some.error != 0) return connection_ended(some);
    LOCKSTEP_RETURN_IF_ERROR(await(socket, POLLIN, deadline, while_waiting));
  }
}

Status shake_hands(const Fd& socket, HandshakeClient& handshake, const Deadline& deadline,
                   const WhileWaiting& while_waiting) {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(send_all(socket, handshake.outgoing(), deadline));
    handshake.sent(handshake.outgoing().size());
    if (handshake.state() == HandshakeState::established) return Status();
    if (handshake.state() == HandshakeState::failed) return handshake.status();
    std::array<std::byte, kMaxHandshakeBytes> bytes;
    auto count = receive(socket, std::span(bytes).first(handshake.wanted()), deadline, while_waiting);
    if (!count.ok()) return count.status();
    handshake.consume(std::span(bytes).first(*count));
  }
}

std::string server_text(const StoreClientOptions& options) { return "the store at " + options.server.text(); }

Result<Fd> try_to_connect(const StoreClientOptions& options, HandshakeService service,
                          const Deadline& deadline, Env& env, const WhileWaiting& while_waiting) {
  auto socket = tcp_connect(options.server, std::min(deadline.left(), kConnectPatience), env);
  if (!socket.ok()) return socket;
  LOCKSTEP_RETURN_IF_ERROR(notice_vanished_peer(*socket));
  HandshakeHello hello;
  hello.service = service;
  hello.rank = options.rank;
  hello.world = options.world;
  hello.process = options.process;
  hello.channel = options.group;
  HandshakeClient handshake(options.key, hello, server_text(options));
  LOCKSTEP_RETURN_IF_ERROR(shake_hands(*socket, handshake, deadline, while_waiting));
  return socket;
}

/// Whether the other side itself said no, or this process lacks what it takes: trying again would not change
/// that.
bool is_final(ErrorCode code) {
  return code == ErrorCode::unauthorized || code == ErrorCode::configuration || code == ErrorCode::system ||
         code == ErrorCode::out_of_memory;
}

/// One connection, one request at a time.
class Connection {
 public:
  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  Result<StoreReply> exchange(const StoreRequest& request, const Deadline& deadline,
                              const WhileWaiting& while_waiting) {
    LOCKSTEP_RETURN_IF_ERROR(send_all(socket_, as_bytes(encode(request)), deadline));
    std::string received;
    for (;;) {
      const auto body = first_frame(as_bytes(received), kMaxReplyBytes);
      if (!body.ok()) return body.status();
      if (body.value()) return decode_reply(*body.value());
      const std::size_t before = received.size();
      received.resize(before + kAnswerBytes);  // Not of the stack, which is a program's thread's.
      const auto room = std::as_writable_bytes(std::span(received).subspan(before));
      auto count = receive(socket_, room, deadline, while_waiting);
      if (!count.ok()) return count.status();
      received.resize(before + *count);
    }
  }

 private:
  Fd socket_;
};

class TcpStore final : public Store {
 public:
  TcpStore(StoreClientOptions options, Fd socket, Env& env, WhileWaiting while_waiting)
      : options_(std::move(options)), env_(env), while_waiting_(std::move(while_waiting)) {
    idle_.emplace_back(std::move(socket));
  }

  Status set(std::span<const Entry> entries) override {
    StoreRequest request;
    request.verb = StoreVerb::set;
    request.entries.assign(entries.begin(), entries.end());
    return exchange(request).status();
  }

  Result<std::vector<std::string>> get(std::span<const std::string> keys, milliseconds timeout) override {
    auto reply = exchange(waiting_request(StoreVerb::get, keys, timeout));
    if (!reply.ok()) return reply.status();
    if (reply->values.size() != keys.size()) return nonsense();
    return std::move(reply->values);
  }

  Result<std::vector<bool>> wait(std::span<const std::string> keys, milliseconds timeout) override {
    auto reply = exchange(waiting_request(StoreVerb::wait, keys, timeout));
    if (!reply.ok()) return reply.status();
    if (reply->present.size() != keys.size()) return nonsense();
    return std::move(reply->present);
  }

  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    StoreRequest request;
    request.verb = StoreVerb::add;
    request.keys.emplace_back(key);
    request.delta = delta;
    auto reply = exchange(request);
    if (!reply.ok()) return reply.status();
    return reply->sum;
  }

 private:
  static StoreRequest waiting_request(StoreVerb verb, std::span<const std::string> keys,
                                      milliseconds timeout) {
    StoreRequest request;
    request.verb = verb;
    request.keys.assign(keys.begin(), keys.end());
    request.timeout_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(timeout.count(), 0, INT32_MAX));
    return request;
  }

  Status nonsense() const {
    return Status(ErrorCode::unauthorized,
                  server_text(options_) + " sent an answer that does not fit the question");
  }

  /// The reply, or the error that it carries.
  Result<StoreReply> exchange(const StoreRequest& request) {
    // There the connections are closed, and their numbers may be other files' by now.
    if (in_forked_child()) return forked_child_error();
    LOCKSTEP_RETURN_IF_ERROR(check(request));
    const Deadline answer(env_, milliseconds(request.timeout_ms));
    const Deadline deadline(env_, patience_at(env_.now(), milliseconds(request.timeout_ms) + kStorePatience));
    const Deadline late(env_, milliseconds(request.timeout_ms) + kLateAfter);
    const auto tell = [&](const Status&) {
      if (while_waiting_ && late.passed() && is_patient(env_.now())) while_waiting_(silence(answer));
    };
    auto connection = take_connection(deadline, tell);
    if (!connection.ok()) return connection.status();
    auto reply = connection->exchange(request, deadline, tell);
    if (!reply.ok() && reply.status().code() == ErrorCode::timeout) return silence(answer);
    if (!reply.ok()) return reply.status().with_context(server_text(options_));
    give_back(std::move(*connection));
    if (!reply->status.ok()) return reply->status;
    return reply;
  }

  /// Of one that let `answer` pass.
  Status silence(const Deadline& answer) const {
    const std::string& by = options_.served_by;
    return Status(ErrorCode::timeout, server_text(options_) +
                                          (by.empty() ? "" : ", which " + by + " serves,") +
                                          " has not answered for " + std::to_string(answer.seconds_waited()) +
                                          " s: is its process, or its host, stopped?");
  }

  /// What the server could not even read is refused here, by the same words.
  static Status check(const StoreRequest& request) {
    LOCKSTEP_RETURN_IF_ERROR(check_keys(request.keys));
    std::size_t bytes = 0;
    for (const Entry& entry : request.entries) {
      LOCKSTEP_RETURN_IF_ERROR(check_entry(entry));
      bytes += entry.first.size() + entry.second.size();
    }
    for (const std::string& key : request.keys) bytes += key.size();
    bytes += (2 * request.entries.size() + request.keys.size()) * sizeof(std::uint32_t);
    constexpr std::size_t kOtherFields = 64;
    if (bytes + kOtherFields <= kMaxRequestBytes) return Status();
    return Status(ErrorCode::invalid_argument, "one request to the store has " + std::to_string(bytes) +
                                                   " bytes, at most " + std::to_string(kMaxRequestBytes) +
                                                   " are allowed");
  }

  Result<Connection> take_connection(const Deadline& deadline, const WhileWaiting& while_waiting) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Connection connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    auto socket = connect_to_server(options_, HandshakeService::store, deadline.left(), env_, while_waiting);
    if (!socket.ok()) return socket.status();
    return Connection(std::move(*socket));
  }

  void give_back(Connection connection) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

  const StoreClientOptions options_;
  Env& env_;
  const WhileWaiting while_waiting_;
  std::mutex mutex_;
  std::vector<Connection> idle_;
};

}  // namespace

Result<Fd> connect_to_server(const StoreClientOptions& options, HandshakeService service,
                             milliseconds timeout, Env& env, const WhileWaiting& while_waiting) {
  const Deadline deadline(env, timeout);
  const auto unreachable = [&](const Status& why) {
    const std::string missing =
        options.served_by.empty()
            ? ""
            : options.served_by + " is missing after " + std::to_string(deadline.seconds_waited()) + " s: ";
    return Status(ErrorCode::timeout,
                  missing + server_text(options) + " could not be reached: " + why.message());
  };
  const auto tell = [&](const Status& why) {
    if (while_waiting) while_waiting(unreachable(why));
  };
  Status reason;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto socket = try_to_connect(options, service, deadline, env, tell);
    if (socket.ok() || is_final(socket.status().code())) return socket;
    // That the last attempt ran out of time says less than why those before it failed.
    if (reason.ok() || socket.status().code() != ErrorCode::timeout) reason = socket.status();
    if (deadline.left() <= pause) return unreachable(reason);
    tell(reason);
    sleep_for(pause);
  }
}

Result<std::unique_ptr<Store>> open_tcp_store(StoreClientOptions options, milliseconds timeout, Env& env,
                                              const WhileWaiting& while_waiting) {
  auto socket = connect_to_server(options, HandshakeService::store, timeout, env, while_waiting);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<Store>(
      std::make_unique<TcpStore>(std::move(options), std::move(*socket), env, while_waiting));
}

}  // namespace lockstep::internal
