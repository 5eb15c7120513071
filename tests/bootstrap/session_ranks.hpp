// Ranks as real processes that meet, over every kind of store.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/bootstrap/file_store.hpp"
#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/bootstrap/child_process.hpp"
#include "tests/bootstrap/own_address.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {

/// The parameter is the kind: "tcp", "file" or "local".
class SessionTest : public testing::TestWithParam<std::string> {
 protected:
  SessionTest() {
    if (GetParam() == "tcp") rendezvous_ = "tcp://" + own_address();
    if (GetParam() == "file") rendezvous_ = "file://" + directory_.path() + "/store";
    if (GetParam() == "local") rendezvous_ = "local://session-test";
  }
  Environment environment(int rank, int world) const {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(world)},
            {"LOCKSTEP_RENDEZVOUS", rendezvous_},
            {"LOCKSTEP_SECRET", "s3cret"},
            {"LOCKSTEP_LOG", "off"},  // A busy machine makes ranks late, which the others would mention.
            {"XDG_RUNTIME_DIR", directory_.path()}};
  }
  static ChildProcess start(const Environment& environment, int timeout_ms = 60'000) {
    return ChildProcess({LOCKSTEP_SESSION_RANK, std::to_string(timeout_ms)}, environment);
  }
  std::vector<ChildProcess> start_all(int world) const {
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(start(environment(rank, world)));
    return ranks;
  }
  /// Looks into the ranks' store, as rank `rank` of `world` that never gets ready, until `members` are.
  void await_members(const std::vector<int>& members, int rank, int world) const {
    std::vector<std::string> keys;
    for (const int member : members) keys.push_back(group_prefix(1) + "member/" + std::to_string(member));
    auto store = open_store(rank, world);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_TRUE(store.value()->get(keys, std::chrono::seconds(60)).ok());
  }
  Result<std::unique_ptr<Store>> open_store(int rank, int world) const {
    if (GetParam() == "file") return open_file_store(rendezvous_.substr(7), kSoon, real_env());
    StoreClientOptions client;
    client.server = parse_host_port(rendezvous_.substr(6)).value();
    client.key = make_handshake_key("", "s3cret");
    client.rank = rank;
    client.world = world;
    return open_tcp_store(client, std::chrono::seconds(60), real_env());
  }
  /// A file goes with the last rank that saw the problem, unless somebody keeps it for those that come later.
  std::unique_ptr<Store> keep_place() const {
    if (GetParam() != "file") return nullptr;
    auto store = open_store(0, 1);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }

  TemporaryDirectory directory_;
  std::string rendezvous_;
};

}  // namespace lockstep::internal
