// A transport of two: who carries what, and that neither is forgotten.
#include "transports/mixed/mixed_transport.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::internal {
namespace {

/// Says what it was asked, and answers as it is told.
class Part final : public Transport {
 public:
  Part(std::string name, std::vector<std::string>& asked) : name_(std::move(name)), asked_(asked) {}

  Status state;
  bool streams_all = true, lets_go = true, has_more = false;

  std::string_view name() const override { return name_; }
  Result<Link*> link(int peer, Channel) override {
    note("link", peer);
    return nullptr;
  }
  Link* existing_link(int peer, Channel) override {
    note("existing link", peer);
    return nullptr;
  }
  bool link_is_under_way(int peer, Channel) override {
    note("link under way", peer);
    return false;
  }
  Status service() override {
    asked_.push_back(name_ + " service");
    return state;
  }
  void append_poll_entries(std::vector<pollfd>& entries) override { entries.emplace_back(); }
  Domain* domain() override { return nullptr; }
  void close() override { asked_.push_back(name_ + " close"); }
  bool withdraw(int peer, bool) override {
    note("withdraw", peer);
    return lets_go;
  }
  bool streams() const override { return streams_all; }
  bool unfinished() override { return has_more; }

 private:
  void note(const char* what, int peer) { asked_.push_back(name_ + " " + what + " " + std::to_string(peer)); }

  const std::string name_;
  std::vector<std::string>& asked_;
};

/// Of four ranks, of which 1 and 3 share a host.
class Mixed : public ::testing::Test {
 protected:
  Mixed() {
    auto near = std::make_unique<Part>("near", asked_), far = std::make_unique<Part>("far", asked_);
    parts_[0] = near.get(), parts_[1] = far.get();
    mixed_ = make_mixed_transport(std::move(near), {1, 3}, std::move(far), 4);
  }
  std::vector<std::string> asked() { return std::exchange(asked_, {}); }

  std::vector<std::string> asked_;
  Part* parts_[2];
  std::unique_ptr<Transport> mixed_;
};
using Asked = std::vector<std::string>;

TEST_F(Mixed, EachPartNumbersItsPeersItself) {
  EXPECT_EQ(mixed_->name(), "near+far");
  EXPECT_EQ(mixed_->link_name(3), "near");
  EXPECT_EQ(mixed_->link_name(0), "far");
  for (const int peer : {3, 2}) {
    EXPECT_TRUE(mixed_->link(peer, Channel::collective).ok());
    EXPECT_EQ(mixed_->existing_link(peer, Channel::collective), nullptr);
    EXPECT_FALSE(mixed_->link_is_under_way(peer, Channel::collective));
    EXPECT_TRUE(mixed_->withdraw(peer, false));
  }
  EXPECT_EQ(asked(), (Asked{"near link 1", "near existing link 1", "near link under way 1", "near withdraw 1",
                            "far link 2", "far existing link 2", "far link under way 2", "far withdraw 2"}));
}

TEST_F(Mixed, BothAreServedAndClosedAndWatched) {
  EXPECT_TRUE(mixed_->service().ok());
  mixed_->close();
  EXPECT_EQ(asked(), (Asked{"near service", "far service", "near close", "far close"}));
  std::vector<pollfd> entries;
  mixed_->append_poll_entries(entries);
  EXPECT_EQ(entries.size(), 2u);
}

TEST_F(Mixed, WhatHoldsForOnePartHoldsForAll) {
  EXPECT_TRUE(mixed_->streams());
  EXPECT_FALSE(mixed_->unfinished());
  for (Part* part : parts_) {
    part->streams_all = part->lets_go = false;
    part->has_more = true;
    part->state = Status(ErrorCode::system, "it failed");
    EXPECT_FALSE(mixed_->streams());
    EXPECT_TRUE(mixed_->unfinished());
    EXPECT_EQ(mixed_->service().message(), "it failed");
    EXPECT_NE(mixed_->withdraw(1, true), part == parts_[0]);
    EXPECT_NE(mixed_->withdraw(0, true), part == parts_[1]);
    part->streams_all = part->lets_go = true;
    part->has_more = false;
    part->state = {};
  }
}

}  // namespace
}  // namespace lockstep::internal
