// What every store must do, run on each kind of store.
#include "lib/bootstrap/store.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/store_table.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

class StoreContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<StoreMaker> maker_ = make_store_maker(GetParam());
  std::unique_ptr<Store> open() { return maker_->open(); }
};

TEST_P(StoreContract, WhatOneSetsAnotherGets) {
  const auto a = open(), b = open();
  const std::vector<Store::Entry> entries{{"x", "1"}, {"y", std::string("\0\n\xff", 3)}, {"empty", ""}};
  ASSERT_TRUE(a->set(entries).ok());
  const std::vector<std::string> keys{"empty", "y", "x"};
  const auto values = b->get(keys, kSoon);
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_EQ(values.value(), (std::vector<std::string>{"", std::string("\0\n\xff", 3), "1"}));
}

TEST_P(StoreContract, ExistingKeysAreOverwritten) {
  const auto store = open();
  ASSERT_TRUE(store->set_one("x", "long enough to shrink").ok());
  ASSERT_TRUE(store->set_one("x", "2").ok());
  EXPECT_EQ(store->get_one("x", kSoon).value(), "2");
}

// More than a connection takes at once.
TEST_P(StoreContract, ManyLargeValuesComeTogether) {
  const auto store = open();
  std::vector<std::string> keys, values;
  for (char key = 'a'; key < 'q'; ++key) {
    keys.emplace_back(1, key);
    values.emplace_back(kMaxValueBytes, key);
    ASSERT_TRUE(store->set_one(keys.back(), values.back()).ok());
  }
  const auto got = store->get(keys, kSoon);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_TRUE(got.value() == values);
}

TEST_P(StoreContract, GetWaitsForAnotherRank) {
  const auto a = open(), b = open();
  std::thread setter([&] {
    ASSERT_TRUE(b->set_one("first", "1").ok());
    ASSERT_TRUE(b->set_one("second", "2").ok());
  });
  const std::vector<std::string> keys{"second", "first"};
  const auto values = a->get(keys, kSoon);
  setter.join();
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values.value(), (std::vector<std::string>{"2", "1"}));
}

TEST_P(StoreContract, OneStoreServesAWaitingAndASettingThread) {
  const auto store = open();
  std::thread waiter([&] { EXPECT_EQ(store->get_one("x", kSoon).value(), "1"); });
  ASSERT_TRUE(store->set_one("x", "1").ok());
  waiter.join();
}

TEST_P(StoreContract, TimeoutNamesTheMissingKeys) {
  const auto store = open();
  ASSERT_TRUE(store->set_one("here", "1").ok());
  const std::vector<std::string> keys{"here", "gone", "lost"};
  const auto values = store->get(keys, milliseconds(1));
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), ErrorCode::timeout);
  EXPECT_EQ(values.status().message(), "no rank has set \"gone\", \"lost\" in the store in time");
}

TEST_P(StoreContract, TimeoutNamesAFewOfManyMissingKeys) {
  std::vector<std::string> keys;
  for (int key = 0; key < 9; ++key) keys.push_back(std::to_string(key));
  EXPECT_EQ(open()->get(keys, milliseconds(0)).status().message(),
            "no rank has set \"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\" and 1 more in the store "
            "in time");
}

TEST_P(StoreContract, WaitTellsWhichAreThere) {
  const auto store = open();
  ASSERT_TRUE(store->set_one("here", "1").ok());
  const std::vector<std::string> keys{"gone", "here"};
  EXPECT_EQ(store->wait(keys, milliseconds(1)).value(), (std::vector<bool>{false, true}));
  const std::vector<std::string> present{"here"};
  EXPECT_EQ(store->wait(present, kSoon).value(), std::vector<bool>{true});
  EXPECT_TRUE(store->wait({}, kSoon).value().empty());
}

TEST_P(StoreContract, ConcurrentAddsAllCount) {
  constexpr int kThreads = 4, kAdds = 50;
  const auto store = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto own = open();
      for (int i = 0; i < kAdds; ++i) ASSERT_TRUE(own->add("sum", 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->add("sum", -1).value(), kThreads * kAdds - 1);
  EXPECT_EQ(store->get_one("sum", kSoon).value(), std::to_string(kThreads * kAdds - 1));
}

TEST_P(StoreContract, AddRefusesWhatIsNoNumber) {
  const auto store = open();
  ASSERT_TRUE(store->set_one("x", "12 apples").ok());
  EXPECT_EQ(store->add("x", 1).status().message(), "the value of \"x\" in the store is not a number");
  ASSERT_TRUE(store->set_one("huge", "9223372036854775808").ok());
  EXPECT_EQ(store->add("huge", 1).status().message(), "the value of \"huge\" in the store is not a number");
  ASSERT_TRUE(store->add("big", INT64_MAX).ok());
  EXPECT_EQ(store->add("big", 1).status().message(), "the number at \"big\" in the store overflows");
}

TEST_P(StoreContract, LimitsOfKeysAndValues) {
  const auto store = open();
  EXPECT_TRUE(store->set_one(std::string(kMaxKeyBytes, 'k'), std::string(kMaxValueBytes, 'v')).ok());
  EXPECT_EQ(store->get_one(std::string(kMaxKeyBytes, 'k'), kSoon).value().size(), kMaxValueBytes);
  EXPECT_EQ(store->set_one(std::string(kMaxKeyBytes + 1, 'k'), "").code(), ErrorCode::invalid_argument);
  EXPECT_EQ(store->set_one("", "").message(), "a key of the store is empty");
  EXPECT_EQ(store->set_one("x", std::string(kMaxValueBytes + 1, 'v')).message(),
            "the value of \"x\" has 1048577 bytes, at most 1048576 are allowed in the store");
  EXPECT_EQ(store->get_one(std::string(kMaxKeyBytes + 1, 'k'), kSoon).status().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(store->wait(std::vector<std::string>(kMaxKeys + 1, "x"), milliseconds(0)).status().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(store->wait(std::vector<std::string>{"x"}, milliseconds(0)).value(), std::vector<bool>{false});
}

TEST_P(StoreContract, FullStoreRefusesAndGoesOn) {
  const auto store = open();
  const std::string value(kMaxValueBytes, 'v');
  Status last;
  std::size_t stored = 0;
  while ((last = store->set_one("key" + std::to_string(stored), value)).ok()) ++stored;
  EXPECT_EQ(last.code(), ErrorCode::out_of_memory);
  EXPECT_EQ(stored, kMaxTotalBytes / kMaxValueBytes - 1);  // The keys count too.
  EXPECT_EQ(store->get_one("key0", kSoon).value(), value);
  EXPECT_TRUE(store->set_one("small", "1").ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreContract, ::testing::ValuesIn(store_kinds()),
                         [](const auto& kind) { return kind.param; });

TEST(StoreTable, HasRoomForTheLargestWorldAndNotForMore) {
  StoreTable table;
  const std::string value(kMaxTotalBytes / kMaxKeys / 2, 'v');
  for (std::size_t key = 0; key < kMaxWorld * kKeysPerRank; ++key) {
    const Store::Entry entry{"some key/" + std::to_string(key), value};
    ASSERT_TRUE(table.set({&entry, 1}).ok()) << key;
  }
  const Store::Entry known{"some key/0", ""}, one_more{"another key", ""};
  EXPECT_TRUE(table.set({&known, 1}).ok());
  EXPECT_EQ(table.set({&one_more, 1}).code(), ErrorCode::out_of_memory);
}

// More than there is room for at once.
TEST(StoreTable, WhatIsOverwrittenOrErasedMakesRoom) {
  StoreTable table;
  const std::string value(kMaxValueBytes, 'v');
  for (std::size_t turn = 0; turn < 2 * kMaxTotalBytes / kMaxValueBytes; ++turn) {
    for (const std::string& key : {std::string("1/always"), "1/" + std::to_string(turn)}) {
      const Store::Entry entry{key, value};
      ASSERT_TRUE(table.set({&entry, 1}).ok()) << "turn " << turn;
    }
    if (turn % 8 == 7) table.erase("1/");
  }
}

class StoreBetweenProcesses : public StoreContract {};

TEST_P(StoreBetweenProcesses, ForkedChildrenAreRefusedAndDoNoHarm) {
  auto store = open();
  ASSERT_TRUE(store->set_one("x", "1").ok());
  const pid_t child = fork();
  if (child == 0) {
    // As in a data loader that opens files of its own: numbers of closed descriptors are used again.
    for (int i = 0; i < 64; ++i) (void)!dup(STDERR_FILENO);
    const Status status = store->set_one("x", "2");
    store.reset();
    _exit(status.code() == ErrorCode::not_supported ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->get_one("x", kSoon).value(), "1");
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreBetweenProcesses, ::testing::Values("file", "tcp"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace lockstep::internal
