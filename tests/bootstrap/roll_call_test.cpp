// What ranks say of themselves in the store, where it is wrong.
#include "lib/bootstrap/roll_call.hpp"

#include <gtest/gtest.h>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/memory_store.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

namespace lockstep::internal {
namespace {

Deadline soon() { return Deadline(real_env(), kSoon); }

/// What rank 0 of two makes of it that rank 1 says `text` of itself.
Result<std::vector<Member>> members_where_rank_1_says(const std::string& text) {
  GroupStore store(open_memory_store("roll call"), 1);
  RollCall roll_call(store, this_member(0), 2, "", "", soon());
  EXPECT_TRUE(roll_call.arrive().ok());
  EXPECT_TRUE(roll_call.publish().ok());
  EXPECT_TRUE(store.set_one("member/1", text).ok());
  return roll_call.await_all([] { return std::optional<Loss>(); });
}

TEST(RollCall, ADescriptionOfAnotherRankIsDamaged) {
  EXPECT_TRUE(members_where_rank_1_says(encode(this_member(1))).ok());
  for (const int rank : {0, 2, -1, 1'000'000'000}) {
    const auto members = members_where_rank_1_says(encode(this_member(rank)));
    ASSERT_FALSE(members.ok()) << rank;
    EXPECT_EQ(members.status().message(), "the description of rank 1 in the store is damaged");
  }
}

// Another process's numbers are its own: that it is this rank anew is found out when it comes.
TEST(RollCall, AProcessCountsTheGroupsThatItCameToItself) {
  const std::shared_ptr<Store> whole = open_memory_store("roll call");
  Member other = this_member(0);
  other.process ^= 2;
  GroupStore fifth(whole, 5);
  ASSERT_TRUE(RollCall(fifth, other, 2, "", "", soon()).arrive().ok());
  EXPECT_EQ(next_group(*whole, 0, 2, 0).value(), 1u);
  GroupStore third(whole, 3);
  ASSERT_TRUE(RollCall(third, this_member(0), 2, "", "", soon()).arrive().ok());
  EXPECT_EQ(next_group(*whole, 0, 2, 0).value(), 4u);
}

// More would hide the cause.
TEST(RollCall, OfManyMissingRanksTheFirstAreNamedAndFewerExplained) {
  GroupStore store(open_memory_store("roll call"), 1);
  for (int rank = 1; rank < 7; ++rank) ASSERT_TRUE(store.set_one(refusal_key(rank), "why").ok());
  RollCall roll_call(store, this_member(0), 40, "", "", Deadline(real_env(), std::chrono::milliseconds(0)));
  ASSERT_TRUE(roll_call.arrive().ok());
  ASSERT_TRUE(roll_call.publish().ok());
  const auto members = roll_call.await_all([] { return std::optional<Loss>(); });
  EXPECT_EQ(members.status().message().rfind("1 of 40 ranks is here, missing: rank 1 (why), rank 2 (why), "
                                             "rank 3 (why), rank 4 (why), rank 5, rank 6, rank 7, ",
                                             0),
            0u)
      << members.status().message();
  EXPECT_NE(members.status().message().find(", rank 16 and 23 more after "), std::string::npos)
      << members.status().message();
}

TEST(RollCall, AnErrorThatIsNoneIsDamaged) {
  for (const std::string& text :
       {std::string(8, '\0') + "words", std::string(8, '\1') + "words", std::string(7, '\1')}) {
    GroupStore store(open_memory_store("roll call"), 1);
    ASSERT_TRUE(store.set_one("problem", text).ok());
    EXPECT_EQ(RollCall(store, this_member(0), 2, "", "", soon()).arrive().message(),
              "the ranks' common error in the store is damaged");
  }
}

TEST(RollCall, ADescriptionThatIsCutIsDamaged) {
  const std::string whole = encode(this_member(1));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(members_where_rank_1_says(whole.substr(0, size)).ok()) << size;
}

}  // namespace
}  // namespace lockstep::internal
