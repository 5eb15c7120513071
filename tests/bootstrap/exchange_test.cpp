// What ends an exchange, and what does not. (Where the store is late: late_store_test.cpp.)
#include "lib/bootstrap/exchange.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>

#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/transports/static_session.hpp"

namespace lockstep::internal {
namespace {

/// An exchange of rank 0 with rank 1, of three, which has begun.
struct Begun {
  explicit Begun(const StillWanted& still_wanted = {}) {
    values = std::async(std::launch::async, [this, still_wanted] {
      const std::vector<int> ranks{0, 1};
      return exchange(session, real_env(), "x", "0", ranks, "the numbers", kSoon, still_wanted);
    });
    EXPECT_TRUE(session.store().get_one(exchange_key("x", 0), kSoon).ok());
  }

  testing::StaticSession session{0, 3, "begun"};
  std::future<Result<std::vector<std::string>>> values;
};

TEST(Exchange, GoesOnThoughARankIsLostThatHasNoPartInIt) {
  Begun begun;
  begun.session.lose(2, "killed");
  poll(nullptr, 0, 500);  // So that it has looked.
  ASSERT_TRUE(begun.session.store().set_one(exchange_key("x", 1), "1").ok());
  EXPECT_TRUE(begun.values.get().ok());
}

TEST(Exchange, EndsWithTheFirstLoss) {
  Begun begun;
  begun.session.lose(1, "killed");
  begun.session.lose(1, "its link ended");
  const Status lost = begun.values.get().status();
  EXPECT_EQ(lost.code(), ErrorCode::peer_lost);
  EXPECT_EQ(lost.culprit(), 1);
  EXPECT_NE(lost.message().find("is gone: killed"), std::string::npos) << lost.message();
}

TEST(Exchange, EndsOnceNobodyWantsIt) {
  Begun begun([] { return Status(ErrorCode::aborted, "nobody wants it"); });
  EXPECT_EQ(begun.values.get().status().message(),
            "while waiting for the numbers of all ranks: nobody wants it");
}

}  // namespace
}  // namespace lockstep::internal
