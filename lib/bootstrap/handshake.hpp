// Handshake: how two processes of one job prove to each other that they belong together, before anything is
// allocated or looked up.
//
// Three messages of fixed size. Client: hello (who I am, whom I want, a nonce, and a mark that takes the
// secret to make). Server: reply (status, its nonce, its proof). Client: proof. A proof is HMAC-SHA256 over
// everything said before, with a key derived from the job's secret and name, and a label of its direction; so
// neither replay, nor reflection, nor a changed version or rank goes through. Without a secret the handshake
// still keeps jobs, versions and ranks apart, but authenticates nobody.
//
// Both sides are state machines without I/O. The owner moves bytes:
//     while (!h.outgoing().empty()) h.sent(write(fd, h.outgoing()));
//     if (h.wanted() > 0) h.consume(read(fd, at most h.wanted() bytes));
// until state() is established and outgoing() is empty. Reading no more than wanted() leaves the first byte
// after the handshake on the socket. On `failed`, outgoing() still holds what tells the other side why: write
// it, then close. Deadlines are the owner's (kHandshakeDeadline). Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lib/bootstrap/digest.hpp"
#include "lib/bootstrap/limits.hpp"

namespace lockstep::internal {

/// Of the handshake, and of what follows it.
inline constexpr std::uint16_t kHandshakeVersion = 4;
inline constexpr std::size_t kHelloBytes = 128;
inline constexpr std::size_t kReplyBytes = 88;
inline constexpr std::size_t kProofBytes = 40;
static_assert(kHelloBytes <= kMaxHandshakeBytes && kReplyBytes <= kMaxHandshakeBytes &&
              kProofBytes <= kMaxHandshakeBytes);

/// What the client wants from the port it reached.
enum class HandshakeService : std::uint16_t {
  store = 1,  ///< Keys and values.
  watch = 2,  ///< To be told who died, and to be missed when this connection ends.
  link = 3,   ///< Data between two ranks.
  knock = 4,  ///< Nothing but to be connected to: the lower rank of a pair makes their links.
  probe = 5,  ///< Nothing but to know that the way is open.
};

/// Verdict of one side on the other. Values travel: never renumber.
enum class HandshakeStatus : std::uint32_t {
  ok = 0,
  malformed = 1,
  wrong_version = 2,
  wrong_byte_order = 3,
  wrong_job = 4,
  wrong_secret = 5,
  wrong_service = 6,
  wrong_peer = 7,
  wrong_world = 8,
  bad_rank = 9,
  duplicate_rank = 10,
};

/// Key material of a job; holds the secret in no readable form. Cheap to copy, made once per job.
struct HandshakeKey {
  Digest job_hash{};
  Digest key{};
  std::string job_id;  ///< For messages.
};
HandshakeKey make_handshake_key(std::string_view job_id, std::string_view secret);

/// What the client says of itself.
struct HandshakeHello {
  HandshakeService service = HandshakeService::link;
  std::int32_t rank = -1;     ///< Claimed by the client.
  std::int32_t world = 0;     ///< As the client was told.
  std::int32_t peer = -1;     ///< The rank that the client wants to reach; -1 = whoever serves here.
  std::uint64_t channel = 0;  ///< Meaning is the service's: a communicator and stream for links, a
                              ///< group's number for the store and the watch.
  std::uint64_t process = 0;  ///< Token of the client's process, tells a restarted rank from its predecessor.
};

enum class HandshakeState : std::uint8_t { running, established, failed };

/// What both sides share: one fixed buffer per direction.
class HandshakeBuffers {
 public:
  /// Bytes to write now.
  std::span<const std::byte> outgoing() const {
    return std::span(out_).subspan(out_begin_, out_end_ - out_begin_);
  }
  /// `bytes` of outgoing() were written.
  void sent(std::size_t bytes) { out_begin_ += bytes; }
  /// How many bytes consume() takes at most; 0 = do not read.
  std::size_t wanted() const { return in_wanted_ - in_have_; }
  HandshakeState state() const { return state_; }
  /// Why it failed: one sentence for the user of this side.
  const Status& status() const { return status_; }

 protected:
  HandshakeBuffers() = default;
  ~HandshakeBuffers() = default;
  /// Replaces outgoing(), whose bytes must all be written before the peer can answer.
  void send_message(std::string_view message);
  void expect_message(std::size_t bytes);
  /// Adds to the expected message; true when it is complete.
  bool append(std::span<const std::byte> bytes);
  std::span<const std::byte> message() const { return std::span(in_).first(in_have_); }
  void establish();
  void fail(Status status);

 private:
  std::array<std::byte, kMaxHandshakeBytes> out_{};
  std::array<std::byte, kMaxHandshakeBytes> in_{};
  std::size_t out_begin_ = 0, out_end_ = 0;
  std::size_t in_have_ = 0, in_wanted_ = 0;
  HandshakeState state_ = HandshakeState::running;
  Status status_;
};

class HandshakeClient : public HandshakeBuffers {
 public:
  /// `server` names the other side in errors: "rank 3 at 10.0.0.2:41833".
  HandshakeClient(const HandshakeKey& key, const HandshakeHello& hello, std::string server);
  /// Takes at most wanted() bytes.
  void consume(std::span<const std::byte> bytes);
  HandshakeStatus verdict() const { return verdict_; }

 private:
  void judge_reply();

  HandshakeKey key_;
  HandshakeHello hello_;
  std::string server_;
  std::string transcript_;
  HandshakeStatus verdict_ = HandshakeStatus::ok;
};

/// What the server side is.
struct HandshakeServerSide {
  std::int32_t rank = -1;  ///< This process's rank, -1 for a launcher's store.
  /// Claimed ranks must be below it and worlds equal to it; 0 = any world up to kMaxWorld.
  std::int32_t world = 0;
  /// Further judgement of a well-formed hello of the right job (service, duplicate ranks ...). The claims are
  /// not proved yet: it must change nothing. May be empty.
  std::function<HandshakeStatus(const HandshakeHello&)> admit;
};

class HandshakeServer : public HandshakeBuffers {
 public:
  /// `client` names the other side in errors: "10.0.0.3:51234".
  HandshakeServer(const HandshakeKey& key, HandshakeServerSide side, std::string client);
  /// Takes at most wanted() bytes.
  void consume(std::span<const std::byte> bytes);
  HandshakeStatus verdict() const { return verdict_; }
  /// What the client claimed (proved once established); only after its hello was read.
  const HandshakeHello& hello() const { return hello_; }

 private:
  HandshakeStatus judge_hello();
  void reply(HandshakeStatus status);
  void judge_proof();
  void refuse(HandshakeStatus status);

  HandshakeKey key_;
  HandshakeServerSide side_;
  std::string client_;
  HandshakeHello hello_;
  std::string transcript_;
  bool replied_ = false;
  HandshakeStatus verdict_ = HandshakeStatus::ok;
};

}  // namespace lockstep::internal
