// What ranks read from the store, and from one another where they meet: every decoder, of any bytes.
#include "collectives/engine/reason.hpp"
#include "collectives/select/model_source.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/member.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/memory/descriptor_packet.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/fuzz/input.hpp"
#include "transports/tcp/published_address.hpp"
#include "transports/tcp/reachability.hpp"

namespace lockstep::internal::fuzz {
namespace {

/// What was decoded is written as what means the same, and is no longer.
template <typename Decode>
void take_frame(std::span<const std::byte> bytes, std::size_t most, Decode decode) {
  const auto body = first_frame(bytes, most);
  if (!body.ok() || !body.value()) return;
  const auto decoded = decode(*body.value());
  if (!decoded.ok()) return require(decoded.status().code() == ErrorCode::unauthorized);
  const std::string again = encode(decoded.value());
  require(again.size() <= body.value()->size() + kFrameOverhead);
  require(encode(decode(as_bytes(again).subspan(kFrameOverhead)).value()) == again);
}

void decode(Input input) {
  switch (input.below(10)) {
    case 0:
      return take_frame(input.bytes(), kMaxRequestBytes, [](auto body) { return decode_request(body); });
    case 1:
      return take_frame(input.bytes(), kMaxReplyBytes, [](auto body) { return decode_reply(body); });
    case 2:
      if (const auto member = decode_member(input.text())) {
        const std::string again = encode(*member);
        require(encode(*decode_member(again)) == again);
      }
      return;
    case 3:
      if (const auto address = PublishedAddress::parse(std::string(input.text())); address.ok()) {
        const auto again = PublishedAddress::parse(address.value().text());
        require(again.ok() && again.value().text() == address.value().text());
      }
      return;
    case 4: {
      const int hosts = 1 + static_cast<int>(input.below(8));
      if (const auto row = decode_reach_row(input.text(), hosts); row.ok()) {
        for (const HostReach& reach : row.value()) require(reach.host >= 0 && reach.host < hosts);
      }
      return;
    }
    case 5: {
      const Status reason = decode_reason(input.text(), 4);
      require(!reason.ok() && reason.culprit() < 4);
      return;
    }
    case 6:
      static_cast<void>(decode_request(input.text()));
      return;
    case 7:
      static_cast<void>(decode_service_name(input.text()));
      return;
    case 8:
      if (const auto address = parse_host_port(input.text()); address.ok()) {
        const auto again = parse_host_port(address.value().text());
        require(again.ok() && again.value().text() == address.value().text());
      }
      return;
    default:
      static_cast<void>(adopt_model(std::string(input.text())));
  }
}

}  // namespace
}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::decode({data, size});
  return 0;
}
