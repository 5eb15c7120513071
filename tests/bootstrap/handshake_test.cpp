#include "lib/bootstrap/handshake.hpp"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

using State = HandshakeState;

/// Moves bytes between the two until neither has anything to say, `piece` bytes at a time.
void converse(HandshakeClient& client, HandshakeServer& server, std::size_t piece) {
  const auto move = [piece](auto& from, auto& to) {
    const std::size_t bytes = std::min({piece, from.outgoing().size(), to.wanted()});
    to.consume(from.outgoing().first(bytes));
    from.sent(bytes);
    return bytes > 0;
  };
  for (bool moved = true; moved;) {
    moved = move(client, server);
    moved = move(server, client) || moved;
  }
}

HandshakeHello hello_of(int rank, int world) {
  HandshakeHello hello;
  hello.rank = rank;
  hello.world = world;
  hello.peer = 0;
  hello.channel = 77;
  hello.process = 4711;
  return hello;
}

struct Pair {
  HandshakeKey client_key = make_handshake_key("job", "secret");
  HandshakeKey server_key = make_handshake_key("job", "secret");
  HandshakeHello hello = hello_of(3, 4);
  HandshakeServerSide side{0, 4, {}};

  struct Outcome {
    HandshakeStatus client, server;
    std::string client_text, server_text;
  };
  Outcome run() {
    HandshakeClient client(client_key, hello, "rank 0 at 10.0.0.1:5000");
    HandshakeServer server(server_key, side, "10.0.0.3:51234");
    converse(client, server, kMaxHandshakeBytes);
    EXPECT_NE(client.state(), State::running);
    return {client.verdict(), server.verdict(), client.status().message(), server.status().message()};
  }
};

TEST(Handshake, EstablishesWhateverTheSplits) {
  for (std::size_t piece = 1; piece <= kMaxHandshakeBytes; ++piece) {
    const HandshakeKey key = make_handshake_key("job", "secret");
    HandshakeClient client(key, hello_of(3, 4), "server");
    HandshakeServer server(key, {0, 4, {}}, "client");
    converse(client, server, piece);
    ASSERT_EQ(client.state(), State::established) << piece;
    ASSERT_EQ(server.state(), State::established) << piece;
    EXPECT_EQ(client.wanted(), 0u);
    EXPECT_EQ(server.wanted(), 0u);
    EXPECT_EQ(server.hello().rank, 3);
    EXPECT_EQ(server.hello().channel, 77u);
    EXPECT_EQ(server.hello().process, 4711u);
  }
}

TEST(Handshake, WorksWithoutSecretAndJob) {
  Pair pair;
  pair.client_key = pair.server_key = make_handshake_key("", "");
  EXPECT_EQ(pair.run().client, HandshakeStatus::ok);
}

TEST(Handshake, WrongSecretIsToldToBothSides) {
  Pair pair;
  pair.client_key = make_handshake_key("job", "another");
  const auto outcome = pair.run();
  EXPECT_EQ(outcome.client, HandshakeStatus::wrong_secret);
  EXPECT_EQ(outcome.server, HandshakeStatus::wrong_secret);
  EXPECT_EQ(outcome.client_text,
            "rank 3 was not accepted by rank 0 at 10.0.0.1:5000: wrong secret; LOCKSTEP_SECRET or "
            "LOCKSTEP_SECRET_FILE must hold the same secret on all ranks");
  EXPECT_EQ(outcome.server_text,
            "a connection from 10.0.0.3:51234 that calls itself rank 3 was refused: wrong secret; "
            "LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE must hold the same secret on all ranks");
}

// A place in an acceptor is held for longer once there was an answer.
TEST(Handshake, WhoDoesNotKnowTheSecretIsRefusedByItsHello) {
  HandshakeClient client(make_handshake_key("job", "a guess"), hello_of(3, 4), "server");
  HandshakeServer server(make_handshake_key("job", "secret"), {0, 4, {}}, "client");
  server.consume(client.outgoing());
  EXPECT_EQ(server.state(), State::failed);
  EXPECT_EQ(server.verdict(), HandshakeStatus::wrong_secret);
}

TEST(Handshake, WrongJobNamesOnlyTheOwnJob) {
  Pair pair;
  pair.client_key = make_handshake_key("mine", "secret");
  const auto outcome = pair.run();
  EXPECT_EQ(outcome.client, HandshakeStatus::wrong_job);
  EXPECT_EQ(outcome.server, HandshakeStatus::wrong_job);
  EXPECT_NE(outcome.client_text.find("wrong job (this side's job is \"mine\")"), std::string::npos);
  EXPECT_NE(outcome.server_text.find("wrong job (this side's job is \"job\")"), std::string::npos);
}

TEST(Handshake, WrongWorldNamesBothSizes) {
  Pair pair;
  pair.hello = hello_of(3, 5);
  const auto outcome = pair.run();
  EXPECT_EQ(outcome.client, HandshakeStatus::wrong_world);
  EXPECT_NE(outcome.client_text.find("rank 3 was started with 5, the other side with 4"), std::string::npos);
  EXPECT_NE(outcome.server_text.find("rank 3 was started with 5, the other side with 4"), std::string::npos);
}

TEST(Handshake, RankOutOfRange) {
  for (int rank : {-1, 4, 1 << 30}) {
    Pair pair;
    pair.hello.rank = rank;
    const auto outcome = pair.run();
    EXPECT_EQ(outcome.client, HandshakeStatus::bad_rank);
    EXPECT_NE(outcome.client_text.find("out of range for world size 4"), std::string::npos);
  }
  Pair any_world;
  any_world.side.world = 0;
  for (const int world : {kMaxWorld + 1, 0, -1}) {
    any_world.hello = hello_of(0, world);
    EXPECT_EQ(any_world.run().client, HandshakeStatus::wrong_world) << world;
  }
}

TEST(Handshake, WrongPeerIsNoticed) {
  Pair pair;
  pair.hello.peer = 0;
  pair.side.rank = 1;
  EXPECT_EQ(pair.run().client, HandshakeStatus::wrong_peer);
  pair.hello.peer = 2;
  pair.side.rank = 0;
  const auto outcome = pair.run();
  EXPECT_EQ(outcome.client, HandshakeStatus::wrong_peer);
  EXPECT_NE(outcome.client_text.find("rank 2 was wanted but rank 0 is listening there"), std::string::npos);
}

TEST(Handshake, AdmissionSeesTheClaims) {
  Pair pair;
  pair.side.admit = [](const HandshakeHello& hello) {
    return hello.rank == 3 ? HandshakeStatus::duplicate_rank : HandshakeStatus::ok;
  };
  const auto outcome = pair.run();
  EXPECT_EQ(outcome.client, HandshakeStatus::duplicate_rank);
  EXPECT_NE(outcome.client_text.find("rank 3 is already taken by another process"), std::string::npos);
}

/// Runs a handshake in which byte `at` of message `which` (0 hello, 1 reply, 2 proof) is flipped on the way.
std::pair<State, State> converse_tampered(int which, std::size_t at) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  HandshakeClient client(key, hello_of(3, 4), "server");
  HandshakeServer server(key, {0, 4, {}}, "client");
  const auto deliver = [&](auto& from, auto& to, int message) {
    std::vector<std::byte> bytes(from.outgoing().begin(), from.outgoing().end());
    from.sent(bytes.size());
    if (message == which && at < bytes.size()) bytes[at] ^= std::byte{0x40};
    to.consume(bytes);
  };
  deliver(client, server, 0);
  deliver(server, client, 1);
  deliver(client, server, 2);
  return {client.state(), server.state()};
}

TEST(Handshake, EveryFlippedByteIsNoticed) {
  for (std::size_t at = 0; at < kHelloBytes; ++at) {
    const auto [client, server] = converse_tampered(0, at);
    EXPECT_NE(client, State::established) << "hello byte " << at;
    EXPECT_NE(server, State::established) << "hello byte " << at;
  }
  for (std::size_t at = 0; at < kReplyBytes; ++at) {
    const auto [client, server] = converse_tampered(1, at);
    EXPECT_NE(client, State::established) << "reply byte " << at;
    EXPECT_NE(server, State::established) << "reply byte " << at;
  }
  for (std::size_t at = 0; at < kProofBytes; ++at) {
    EXPECT_NE(converse_tampered(2, at).second, State::established) << "proof byte " << at;
  }
}

/// What both sides say of a hello whose version, or byte order, is another.
HandshakeStatus verdict_on(const std::function<void(std::span<std::byte> hello)>& change) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  HandshakeClient client(key, hello_of(3, 4), "server");
  HandshakeServer server(key, {0, 4, {}}, "client");
  std::vector<std::byte> hello(client.outgoing().begin(), client.outgoing().end());
  change(hello);
  client.sent(hello.size());
  server.consume(hello);
  client.consume(server.outgoing());
  EXPECT_EQ(client.state(), State::failed);
  if (server.state() == State::failed) {
    EXPECT_EQ(client.verdict(), server.verdict());
  }
  return client.verdict();
}

TEST(Handshake, OtherVersionsAndByteOrdersAreTold) {
  constexpr std::size_t kOrderAt = 8, kVersionsAt = 12;  // Lowest and highest, of 2 bytes each.
  const auto speaks = [](std::uint8_t lowest, std::uint8_t highest) {
    return verdict_on([=](std::span<std::byte> hello) {
      hello[kVersionsAt] = std::byte{lowest};
      hello[kVersionsAt + 2] = std::byte{highest};
    });
  };
  EXPECT_EQ(speaks(kHandshakeVersion + 1, kHandshakeVersion + 2), HandshakeStatus::wrong_version);
  EXPECT_EQ(speaks(0, kHandshakeVersion - 1), HandshakeStatus::wrong_version);
  // The mark is of what the client has said.
  EXPECT_EQ(speaks(0, kHandshakeVersion + 1), HandshakeStatus::wrong_secret);
  const auto swapped = [](std::span<std::byte> hello) {
    std::reverse(hello.begin() + kOrderAt, hello.begin() + kVersionsAt);
  };
  EXPECT_EQ(verdict_on(swapped), HandshakeStatus::wrong_byte_order);
}

TEST(Handshake, StrangersLearnNothingOfTheJob) {
  for (const bool stranger : {false, true}) {
    HandshakeClient client(make_handshake_key(stranger ? "mine" : "job", "secret"), hello_of(3, 5), "server");
    HandshakeServer server(make_handshake_key("job", "secret"), {2, 4, {}}, "client");
    server.consume(client.outgoing());
    constexpr std::size_t kRankAt = 16;  // And the world, of 4 bytes each.
    EXPECT_EQ(as_text(server.outgoing()).substr(kRankAt, 8),
              stranger ? std::string("\xff\xff\xff\xff\0\0\0\0", 8) : std::string("\2\0\0\0\4\0\0\0", 8));
  }
}

TEST(Handshake, ReplayedHelloAndProofAreRefused) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  HandshakeClient client(key, hello_of(3, 4), "server");
  HandshakeServer first(key, {0, 4, {}}, "client");
  const std::vector<std::byte> hello(client.outgoing().begin(), client.outgoing().end());
  first.consume(hello);
  client.consume(first.outgoing());
  const std::vector<std::byte> proof(client.outgoing().begin(), client.outgoing().end());
  first.consume(proof);
  ASSERT_EQ(first.state(), State::established);

  HandshakeServer second(key, {0, 4, {}}, "replayer");
  second.consume(hello);
  second.consume(proof);
  EXPECT_EQ(second.state(), State::failed);
  EXPECT_EQ(second.verdict(), HandshakeStatus::wrong_secret);
}

TEST(Handshake, ServersOwnProofReflectedIsRefused) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  HandshakeClient client(key, hello_of(3, 4), "server");
  HandshakeServer server(key, {0, 4, {}}, "reflector");
  server.consume(client.outgoing());
  std::vector<std::byte> proof(kProofBytes - sizeof(Digest));
  const auto reply = server.outgoing();
  proof.insert(proof.end(), reply.end() - sizeof(Digest), reply.end());
  server.consume(proof);
  EXPECT_EQ(server.state(), State::failed);
}

TEST(Handshake, ForeignProtocolsGetNoAnswer) {
  HandshakeServer server(make_handshake_key("job", "secret"), {0, 4, {}}, "10.9.9.9:1");
  std::string request = "GET / HTTP/1.1\r\n" + std::string(kHelloBytes, 'x');
  server.consume(std::as_bytes(std::span(request)));
  EXPECT_EQ(server.state(), State::failed);
  EXPECT_TRUE(server.outgoing().empty());
  EXPECT_EQ(server.status().message(),
            "a connection from 10.9.9.9:1 was refused: it does not speak lockstep's protocol; is the port "
            "another program's?");
}

TEST(Handshake, RandomBytesNeverEstablish) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  for (int i = 0; i < 2000; ++i) {
    HandshakeServer server(key, {0, 4, {}}, "noise");
    std::array<std::uint8_t, kMaxHandshakeBytes * 2> noise;
    secure_random(noise);
    server.consume(std::as_bytes(std::span(noise)));
    server.consume(std::as_bytes(std::span(noise)));
    ASSERT_EQ(server.state(), State::failed);
    HandshakeClient client(key, hello_of(3, 4), "noise");
    client.consume(std::as_bytes(std::span(noise)));
    ASSERT_EQ(client.state(), State::failed);
  }
}

// At exit, where another library has let it clean up while peers still call.
TEST(Handshake, IsAcceptedByNobodyOnceOpensslIsGone) {
  const std::vector<std::byte> text(100, std::byte{7});
  const Digest right = sha256(text), right_keyed = hmac_sha256(text, text);
  const auto all_differ = [&] {
    OPENSSL_cleanup();
    return sha256(text) != right && hmac_sha256(text, text) != right_keyed && sha256(text) != sha256(text);
  };
  EXPECT_EXIT(_exit(all_differ() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::internal
