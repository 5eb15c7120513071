// Both directions of a link at once: messages of given sizes, sent and checked step by step.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal::testing {

/// One end's sends and receives. Every second message is received through borrow().
class Traffic {
 public:
  Traffic(Link& link, std::vector<std::size_t> to_send, std::vector<std::size_t> to_receive)
      : link_(link), to_send_(std::move(to_send)), to_receive_(std::move(to_receive)) {
    next_out();
  }

  bool sent() const { return sent_ == to_send_.size(); }
  bool received() const { return received_ == to_receive_.size(); }
  bool done() const { return sent() && received(); }
  bool going() const { return status_.ok() && !done(); }
  const Status& status() const { return status_; }
  /// Of all messages, and of that which is under way.
  std::uint64_t payload_received() const { return payload_of_whole_ + in_.received; }

  /// Everything that can be done now. Whether anything moved.
  bool step() {
    const std::uint64_t before = moved();
    while (going() && !sent() && send_some()) {
    }
    while (going() && !received() && receive_some()) {
    }
    return moved() != before;
  }
  /// Until all is done or an error.
  void run() {
    while (going()) {
      if (!step()) sched_yield();
    }
    EXPECT_TRUE(status_.ok()) << status_.message();
  }

 private:
  std::uint64_t moved() const {
    return link_.bytes_sent() + payload_received() + in_.have_header + sent_ + received_;
  }
  void next_out() {
    if (!sent()) out_ = message(to_send_[sent_], sent_);
  }

  bool send_some() {
    const auto all = push(link_, out_);
    if (!all.ok()) status_ = all.status();
    if (!out_.done) return false;
    ++sent_;
    next_out();
    return true;
  }

  bool receive_some() {
    const auto all = pull(link_, in_);
    if (!all.ok()) status_ = all.status();
    if (!in_.done) return false;
    EXPECT_EQ(in_.header.sequence, received_);
    EXPECT_TRUE(in_.payload == pattern(to_receive_[received_], received_)) << "message " << received_;
    ++received_;
    payload_of_whole_ += in_.received;
    in_ = Incoming(received_ % 2 == 0 ? 0 : 16);
    return true;
  }

  Link& link_;
  const std::vector<std::size_t> to_send_, to_receive_;
  std::size_t sent_ = 0, received_ = 0;
  std::uint64_t payload_of_whole_ = 0;  // Of the messages received.
  Outgoing out_;
  Incoming in_;
  Status status_;
};

/// Drives several links from one thread until all are done.
inline void run_all(std::vector<Traffic>& traffic) {
  while (std::any_of(traffic.begin(), traffic.end(), [](const Traffic& t) { return t.going(); })) {
    bool moved = false;
    for (Traffic& each : traffic) moved |= each.step();
    if (!moved) sched_yield();
  }
  for (const Traffic& each : traffic) EXPECT_TRUE(each.status().ok()) << each.status().message();
}

}  // namespace lockstep::internal::testing
