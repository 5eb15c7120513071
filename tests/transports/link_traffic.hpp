// Messages with known contents, sent and checked over any Link, both directions at once.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "transports/transport.hpp"

namespace lockstep::internal::testing {

/// Byte `i` of message `number`.
inline std::byte byte_of(std::size_t number, std::size_t i) {
  return static_cast<std::byte>(number * 131 + i * 7 + i / 251);
}

inline std::vector<std::byte> message_of(std::size_t number, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::size_t i = 0; i < bytes; ++i) message[i] = byte_of(number, i);
  return message;
}

/// One end's sends and receives of messages of the given sizes, driven step by step.
class Traffic {
 public:
  Traffic(Link& link, std::vector<std::size_t> to_send, std::vector<std::size_t> to_receive)
      : link_(link), to_send_(std::move(to_send)), to_receive_(std::move(to_receive)) {}

  bool sent() const { return sent_ == to_send_.size(); }
  bool received() const { return received_ == to_receive_.size(); }
  bool done() const { return sent() && received(); }
  const Status& status() const { return status_; }

  /// Everything that can be done now. Whether anything moved.
  bool step() {
    const std::uint64_t before = link_.bytes_sent() + link_.bytes_received() + sent_ + received_;
    while (status_.ok() && !sent() && send_some()) {
    }
    while (status_.ok() && !received() && receive_some()) {
    }
    return link_.bytes_sent() + link_.bytes_received() + sent_ + received_ != before;
  }
  /// Until all is done or an error.
  void run() {
    while (!done() && status_.ok()) {
      if (!step()) sched_yield();
    }
    EXPECT_TRUE(status_.ok()) << status_.message();
  }

 private:
  bool send_some() {
    const std::size_t bytes = to_send_[sent_];
    if (cursor_.header_bytes == 0) message_ = message_of(sent_, bytes);
    FrameHeader header;
    header.sequence = sent_;
    header.bytes = bytes;
    const auto all = link_.send(header, message_, cursor_);
    if (!all.ok()) status_ = all.status();
    if (!all.ok() || !all.value()) return false;
    cursor_ = {};
    ++sent_;
    return true;
  }

  // Even messages are read into a buffer in odd pieces, odd ones borrowed in units of 16 bytes and a tail.
  bool receive_some() {
    const auto header = link_.peek();
    if (!header.ok()) status_ = header.status();
    if (!header.ok() || header.value() == nullptr) return false;
    EXPECT_EQ(header.value()->sequence, received_);
    EXPECT_EQ(header.value()->bytes, to_receive_[received_]);
    const std::size_t left = to_receive_[received_] - at_;
    if (left == 0) {
      link_.pop();
      at_ = 0;
      ++received_;
      return true;
    }
    const std::size_t got = received_ % 2 == 0 || left < 16 ? read_piece(left) : borrow_piece(left);
    at_ += got;
    return got > 0;
  }

  std::size_t read_piece(std::size_t left) {
    std::byte piece[1013];
    const auto got = link_.read(std::span(piece, std::min(left, sizeof piece)));
    if (!got.ok()) status_ = got.status();
    if (!got.ok()) return 0;
    check(std::span(piece, got.value()));
    return got.value();
  }

  std::size_t borrow_piece(std::size_t left) {
    const auto piece = link_.borrow(16, left);
    if (!piece.ok()) status_ = piece.status();
    if (!piece.ok()) return 0;
    const std::span<const std::byte> bytes = piece.value();
    EXPECT_EQ(bytes.size() % 16, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 16, 0u);
    check(bytes);
    link_.release(bytes.size());
    return bytes.size();
  }

  void check(std::span<const std::byte> bytes) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != byte_of(received_, at_ + i);
    EXPECT_EQ(wrong, 0u) << "message " << received_ << " after byte " << at_;
  }

  Link& link_;
  const std::vector<std::size_t> to_send_, to_receive_;
  std::size_t sent_ = 0, received_ = 0, at_ = 0;
  SendCursor cursor_;
  std::vector<std::byte> message_;
  Status status_;
};

}  // namespace lockstep::internal::testing
