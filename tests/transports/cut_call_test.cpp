// A connection between two switchboards that breaks when who called has said all of its handshake, before who
// was called has heard it.
#include <poll.h>

#include <array>
#include <atomic>
#include <thread>

#include "lib/bootstrap/handshake.hpp"
#include "lib/net/stream_io.hpp"
#include "tests/transports/switchboard_fixtures.hpp"

namespace lockstep::internal {
namespace {

using testing::address_key;
using testing::await;
using testing::fresh_store;
using testing::Rank;
using testing::StaticSession;

/// A way to a rank, which takes one call at a time and is cut in the first.
class CutWay {
 public:
  CutWay() : listener_(std::move(*tcp_listen({"127.0.0.1", 0}))) {}
  ~CutWay() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  HostPort address() const { return local_address(listener_); }
  void lead_to(const HostPort& target) {
    thread_ = std::thread([this, target] {
      for (bool cut = true; const auto caller = next_caller(); cut = false) carry(*caller, target, cut);
    });
  }
  bool was_cut() const { return was_cut_; }

 private:
  std::optional<Fd> next_caller() {
    while (!over_) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (poll(&entry, 1, 10) == 1) return std::move(*accept_connection(listener_));
    }
    return std::nullopt;
  }
  /// Both ways until an end hangs up; or until the caller says more than its hello.
  void carry(const Fd& caller, const HostPort& target, bool cut) {
    const Fd called = std::move(*tcp_connect(target, std::chrono::seconds(10), real_env()));
    std::size_t said = 0;
    while (!over_) {
      std::array<pollfd, 2> ends{pollfd{caller.get(), POLLIN, 0}, pollfd{called.get(), POLLIN, 0}};
      if (poll(ends.data(), ends.size(), 10) < 1) continue;
      for (const std::size_t from : {0u, 1u}) {
        if (ends[from].revents == 0) continue;
        std::array<std::byte, kMaxHandshakeBytes> bytes;
        const std::size_t got = receive_some(ends[from].fd, bytes).bytes;
        if (from == 0) said += got;
        if (cut && said > kHelloBytes) was_cut_ = true;
        if (got == 0 || (cut && was_cut_)) return;
        send_some(ends[1 - from].fd, std::span(bytes).first(got));
      }
    }
  }

  const Fd listener_;
  std::atomic<bool> over_{false}, was_cut_{false};
  std::thread thread_;
};

/// Of two, alone: it reads where the other is from a store of its own.
void come(Rank& rank, int number, const HostPort& other) {
  rank.session = std::make_unique<StaticSession>(number, 2, fresh_store());
  ASSERT_TRUE(rank.session->store().set_one(address_key(1 - number), other.text() + " 1").ok());
  rank.board = std::move(*Switchboard::make(*rank.session, real_env(), std::chrono::seconds(60)));
}

/// The lower rank calls; the higher one asks it to.
TEST(Switchboard, CallsAgainWhereItsLastWordWasLost) {
  for (const int calls : {0, 1}) {
    Rank calling, called;
    CutWay way;
    come(calling, calls, way.address());
    come(called, 1 - calls, calling.board->addresses().front());
    way.lead_to(called.board->addresses().front());
    calling.board->want(1 - calls, 1);
    auto here = await(*calling.board, 1 - calls, 1);
    auto there = await(*called.board, calls, 1);
    EXPECT_TRUE(way.was_cut());
    ASSERT_TRUE(here.ok() && there.ok());
    ASSERT_TRUE(*here && *there);
    std::byte word{7}, heard{0};
    ASSERT_EQ(send_some((*here)->get(), std::span(&word, 1)).bytes, 1u);
    pollfd entry{(*there)->get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 20'000), 1);
    ASSERT_EQ(receive_some((*there)->get(), std::span(&heard, 1)).bytes, 1u);
    EXPECT_EQ(heard, word);
  }
}

}  // namespace
}  // namespace lockstep::internal
