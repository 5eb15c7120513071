#include "lib/bootstrap/handshake.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "lib/base/env.hpp"
#include "lib/bootstrap/handshake_text.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

constexpr std::string_view kHandshakeMagic = "lockstep";
constexpr std::uint32_t kByteOrder = 0x01020304;  // Travels in the writer's own order, as frames do later.
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMarkBytes = 16;

void append_nonce(std::string& message) {
  std::array<std::uint8_t, kNonceBytes> nonce;
  secure_random(nonce);
  WireWriter(message).raw(std::as_bytes(std::span(nonce)));
}

void append_byte_order(std::string& message) {
  message.append(reinterpret_cast<const char*>(&kByteOrder), sizeof kByteOrder);
}

bool read_byte_order(WireReader& reader, bool& equal) {
  std::span<const std::byte> bytes;
  if (!reader.raw(sizeof kByteOrder, bytes)) return false;
  equal = std::memcmp(bytes.data(), &kByteOrder, sizeof kByteOrder) == 0;
  return true;
}

bool read_magic(WireReader& reader) {
  std::span<const std::byte> bytes;
  return reader.raw(kHandshakeMagic.size(), bytes) && as_text(bytes) == kHandshakeMagic;
}

Digest proof_of(const HandshakeKey& key, std::string_view direction, std::string_view transcript) {
  return hmac_sha256(key.key, as_bytes(std::string(direction) + std::string(transcript)));
}

/// What a hello ends with: who does not know the secret is refused before it is answered.
std::array<std::byte, kMarkBytes> mark_of(const HandshakeKey& key, std::string_view hello) {
  const Digest proof = proof_of(key, "hello", hello);
  std::array<std::byte, kMarkBytes> mark;
  std::copy_n(proof.begin(), mark.size(), mark.begin());
  return mark;
}

std::string encode_hello(const HandshakeHello& hello, const HandshakeKey& key) {
  std::string message(kHandshakeMagic);
  append_byte_order(message);
  WireWriter writer(message);
  writer.integer(kHandshakeVersion);  // Lowest that this side speaks,
  writer.integer(kHandshakeVersion);  // and highest.
  writer.integer(static_cast<std::uint16_t>(hello.service));
  writer.integer(std::uint16_t{0});
  writer.integer(hello.rank);
  writer.integer(hello.world);
  writer.integer(hello.peer);
  writer.integer(hello.channel);
  writer.integer(hello.process);
  writer.raw(key.job_hash);
  append_nonce(message);
  writer.raw(mark_of(key, message));
  assert(message.size() == kHelloBytes);
  return message;
}

struct HelloMessage {
  HandshakeHello hello;
  bool magic = false;
  bool byte_order = false;
  std::uint16_t version_low = 0, version_high = 0;
  std::span<const std::byte> job_hash;
};

// The message has its full length, so that reading fails at the magic or not at all.
HelloMessage decode_hello(std::span<const std::byte> message) {
  HelloMessage m;
  WireReader reader(message);
  std::uint16_t service = 0, reserved = 0;
  m.magic = read_magic(reader) && read_byte_order(reader, m.byte_order) && reader.integer(m.version_low) &&
            reader.integer(m.version_high) && reader.integer(service) && reader.integer(reserved) &&
            reader.integer(m.hello.rank) && reader.integer(m.hello.world) && reader.integer(m.hello.peer) &&
            reader.integer(m.hello.channel) && reader.integer(m.hello.process) &&
            reader.raw(sizeof(Digest), m.job_hash);
  m.hello.service = static_cast<HandshakeService>(service);
  return m;
}

struct ReplyMessage {
  bool magic = false;
  HandshakeStatus status = HandshakeStatus::malformed;
  HandshakeFacts facts;
  std::span<const std::byte> proof;
};

std::string encode_reply_head(HandshakeStatus status, const HandshakeServerSide& side) {
  std::string message(kHandshakeMagic);
  WireWriter writer(message);
  writer.integer(static_cast<std::uint32_t>(status));
  writer.integer(kHandshakeVersion);
  writer.integer(std::uint16_t{0});
  // Strangers learn nothing of the job.
  const bool tell = status != HandshakeStatus::wrong_job;
  writer.integer(tell ? side.rank : -1);
  writer.integer(tell ? side.world : 0);
  append_nonce(message);
  return message;
}

ReplyMessage read_reply(std::span<const std::byte> message) {
  ReplyMessage m;
  WireReader reader(message);
  std::uint32_t status = 0;
  std::uint16_t reserved = 0;
  std::span<const std::byte> nonce;
  m.magic = read_magic(reader) && reader.integer(status) && reader.integer(m.facts.server_version) &&
            reader.integer(reserved) && reader.integer(m.facts.server_rank) &&
            reader.integer(m.facts.server_world) && reader.raw(kNonceBytes, nonce) &&
            reader.raw(sizeof(Digest), m.proof);
  m.status = static_cast<HandshakeStatus>(status);
  return m;
}

std::string encode_proof(HandshakeStatus status, const Digest& proof) {
  std::string message;
  WireWriter writer(message);
  writer.integer(static_cast<std::uint32_t>(status));
  writer.integer(std::uint32_t{0});
  writer.raw(proof);
  return message;
}

}  // namespace

HandshakeKey make_handshake_key(std::string_view job_id, std::string_view secret) {
  HandshakeKey key;
  key.job_id = job_id;
  key.job_hash = sha256(as_bytes(job_id));
  const std::string purpose = "lockstep handshake key 1:" + std::string(as_text(key.job_hash));
  key.key = hmac_sha256(as_bytes(secret), as_bytes(purpose));
  return key;
}

// ---- buffers ---------------------------------------------------------------------------------------------

void HandshakeBuffers::send_message(std::string_view message) {
  assert(message.size() <= out_.size());
  std::memcpy(out_.data(), message.data(), message.size());
  out_begin_ = 0;
  out_end_ = message.size();
}

void HandshakeBuffers::expect_message(std::size_t bytes) {
  in_have_ = 0;
  in_wanted_ = bytes;
}

bool HandshakeBuffers::append(std::span<const std::byte> bytes) {
  const std::size_t taken = std::min(bytes.size(), wanted());
  std::copy_n(bytes.begin(), taken, in_.begin() + static_cast<std::ptrdiff_t>(in_have_));
  in_have_ += taken;
  return taken > 0 && wanted() == 0;
}

void HandshakeBuffers::establish() {
  expect_message(0);
  state_ = HandshakeState::established;
}

void HandshakeBuffers::fail(Status status) {
  expect_message(0);
  state_ = HandshakeState::failed;
  status_ = std::move(status);
}

// ---- client ----------------------------------------------------------------------------------------------

HandshakeClient::HandshakeClient(const HandshakeKey& key, const HandshakeHello& hello, std::string server)
    : key_(key), hello_(hello), server_(std::move(server)), transcript_(encode_hello(hello, key)) {
  send_message(transcript_);
  expect_message(kReplyBytes);
}

void HandshakeClient::consume(std::span<const std::byte> bytes) {
  if (append(bytes)) judge_reply();
}

void HandshakeClient::judge_reply() {
  const ReplyMessage reply = read_reply(message());
  verdict_ = reply.magic ? reply.status : HandshakeStatus::malformed;
  transcript_ += as_text(message().first(message().size() - sizeof(Digest)));
  if (verdict_ == HandshakeStatus::ok &&
      !equal_in_constant_time(reply.proof, proof_of(key_, "server", transcript_))) {
    verdict_ = HandshakeStatus::wrong_secret;
  }
  if (verdict_ == HandshakeStatus::ok) {
    send_message(encode_proof(verdict_, proof_of(key_, "client", transcript_)));
    establish();
    return;
  }
  // The server could not know by itself that the secrets differ.
  if (verdict_ == HandshakeStatus::wrong_secret) send_message(encode_proof(verdict_, Digest{}));
  fail(explain_to_client(verdict_, hello_, reply.facts, key_.job_id, server_));
}

// ---- server ----------------------------------------------------------------------------------------------

HandshakeServer::HandshakeServer(const HandshakeKey& key, HandshakeServerSide side, std::string client)
    : key_(key), side_(std::move(side)), client_(std::move(client)) {
  expect_message(kHelloBytes);
}

void HandshakeServer::consume(std::span<const std::byte> bytes) {
  if (!append(bytes)) return;
  if (replied_) return judge_proof();
  reply(judge_hello());
}

HandshakeStatus HandshakeServer::judge_hello() {
  const HelloMessage m = decode_hello(message());
  transcript_ = as_text(message());
  if (!m.magic) return HandshakeStatus::malformed;
  hello_ = m.hello;
  if (!m.byte_order) return HandshakeStatus::wrong_byte_order;
  if (m.version_low > kHandshakeVersion || m.version_high < kHandshakeVersion)
    return HandshakeStatus::wrong_version;
  if (!equal_in_constant_time(m.job_hash, key_.job_hash)) return HandshakeStatus::wrong_job;
  const auto mark = mark_of(key_, std::string_view(transcript_).substr(0, kHelloBytes - kMarkBytes));
  if (!equal_in_constant_time(message().last(kMarkBytes), mark)) return HandshakeStatus::wrong_secret;
  const std::int32_t limit = side_.world > 0 ? side_.world : kMaxWorld;
  if (hello_.world < 1 || hello_.world > kMaxWorld) return HandshakeStatus::wrong_world;
  if (side_.world > 0 && hello_.world != side_.world) return HandshakeStatus::wrong_world;
  if (hello_.rank < 0 || hello_.rank >= limit) return HandshakeStatus::bad_rank;
  if (hello_.peer >= 0 && hello_.peer != side_.rank) return HandshakeStatus::wrong_peer;
  return side_.admit ? side_.admit(hello_) : HandshakeStatus::ok;
}

void HandshakeServer::reply(HandshakeStatus status) {
  // What is not a hello gets no answer: a stranger's protocol must not be kept talking.
  if (status == HandshakeStatus::malformed) return refuse(status);
  std::string message = encode_reply_head(status, side_);
  transcript_ += message;
  WireWriter(message).raw(proof_of(key_, "server", transcript_));
  send_message(message);
  replied_ = true;
  if (status != HandshakeStatus::ok) return refuse(status);
  expect_message(kProofBytes);
}

void HandshakeServer::judge_proof() {
  const std::string expected = encode_proof(HandshakeStatus::ok, proof_of(key_, "client", transcript_));
  if (!equal_in_constant_time(message(), as_bytes(expected))) return refuse(HandshakeStatus::wrong_secret);
  establish();
}

void HandshakeServer::refuse(HandshakeStatus status) {
  verdict_ = status;
  const HandshakeFacts facts{kHandshakeVersion, side_.rank, side_.world};
  fail(explain_to_server(status, hello_, facts, key_.job_id, client_));
}

}  // namespace lockstep::internal
