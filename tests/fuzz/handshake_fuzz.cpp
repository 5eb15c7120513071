// The handshake, either side: bytes of a stranger, in any pieces, and those of a peer who knows the secret or
// not. Nobody is let in who does not know it, and nothing is wanted after the end.
#include "lib/bootstrap/handshake.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

const HandshakeKey kKey = make_handshake_key("job", "secret");
const HandshakeKey kOtherKey = make_handshake_key("job", "another");

HandshakeHello hello(Input& input) {
  HandshakeHello hello;
  hello.service = static_cast<HandshakeService>(input.below(8));
  hello.rank = static_cast<std::int32_t>(input.number());
  hello.world = static_cast<std::int32_t>(input.number());
  hello.peer = static_cast<std::int32_t>(input.number());
  hello.channel = input.number();
  hello.process = input.number();
  return hello;
}

HandshakeServerSide side(Input& input) {
  return {static_cast<std::int32_t>(input.below(5)) - 1, static_cast<std::int32_t>(input.below(5)), {}};
}

/// Whether one end's bytes came to the other as they are.
bool pass(Input& input, HandshakeBuffers& from, auto& to) {
  bool untouched = true;
  while (!from.outgoing().empty() && to.wanted() > 0) {
    const std::size_t piece = 1 + input.below(to.wanted());
    const auto out = from.outgoing().first(std::min(piece, from.outgoing().size()));
    std::array<std::byte, kMaxHandshakeBytes> bytes;
    std::copy(out.begin(), out.end(), bytes.begin());
    if (input.below(16) == 1) {
      const auto change = input.take<std::uint8_t>();
      bytes[input.below(out.size())] ^= std::byte{change};
      untouched = untouched && change == 0;
    }
    to.consume(std::span(bytes).first(out.size()));
    from.sent(out.size());
  }
  return untouched;
}

void meet(Input& input) {
  const bool knows = input.flag();
  HandshakeClient client(knows ? kKey : kOtherKey, hello(input), "server");
  HandshakeServer server(kKey, side(input), "client");
  bool untouched = true;  // Of what the proofs are over: not the last message, which is one.
  for (int message = 0; message < 3; ++message) {
    const bool proves = client.state() == HandshakeState::established;
    untouched = (pass(input, client, server) || proves) && untouched;
    untouched = pass(input, server, client) && untouched;
  }
  for (const auto state : {client.state(), server.state()})
    require(state != HandshakeState::established || (knows && untouched));
  require((client.state() == HandshakeState::failed) == !client.status().ok());
  require((server.state() == HandshakeState::failed) == !server.status().ok());
}

template <typename Side>
void hear_stranger(Input& input, Side side) {
  while (!input.empty() && side.wanted() > 0) {
    side.sent(side.outgoing().size());
    side.consume(input.bytes(std::min(side.wanted(), 1 + input.below(200))));
  }
  require(side.state() != HandshakeState::established);
}

}  // namespace

void shake_hands(Input input) {
  switch (input.below(3)) {
    case 0:
      return hear_stranger(input, HandshakeServer(kKey, side(input), "stranger"));
    case 1:
      return hear_stranger(input, HandshakeClient(kKey, hello(input), "stranger"));
    default:
      return meet(input);
  }
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::shake_hands({data, size});
  return 0;
}
