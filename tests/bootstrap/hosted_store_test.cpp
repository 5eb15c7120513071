// The servers of one process: who shares them.
#include "lib/bootstrap/hosted_store.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

TEST(HostedStore, IsSharedByGroupsOfOneJobAlone) {
  const HandshakeKey job = make_handshake_key("job", "secret"), other = make_handshake_key("job", "another");
  int started = 0;
  const auto open = [&](const HandshakeKey& key, std::uint64_t group) {
    auto hosted = HostedStore::open("here", key, group, [&] {
      ++started;
      StoreServerOptions options;
      options.key = key;
      return StoreServer::start(std::move(options));
    });
    EXPECT_TRUE(hosted.ok()) << hosted.status().message();
    return std::move(*hosted);
  };
  const auto first = open(job, 1), second = open(job, 2);
  EXPECT_EQ(started, 1);
  EXPECT_EQ(&first->server(), &second->server());
  const auto of_other = open(other, 1);
  EXPECT_EQ(started, 2);
  EXPECT_NE(&of_other->server(), &first->server());
}

}  // namespace
}  // namespace lockstep::internal
