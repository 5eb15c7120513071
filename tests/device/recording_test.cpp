// The recording backend lists what it passes on.
#include <gtest/gtest.h>

#include "lib/device/host/host_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep::internal::testing {
namespace {

TEST(RecordingBackend, ListsAndPassesOn) {
  HostBackend host;
  RecordingBackend backend(host);
  std::uint32_t words[2] = {5, 0};
  const void* const sources[] = {&words[0], &words[0]};
  void* const destination = &words[1];
  must(backend.reduce({DataType::u32, ReduceOp::sum, 1, sources, {&destination, 1}}, nullptr));
  must(backend.wait_value(&words[1], 10, nullptr));
  must(backend.write_value(&words[0], 7, nullptr));
  must(backend.synchronize(nullptr));
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[1], 10u);
  const std::vector<Enqueued> list = backend.take();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].what, "reduce");
  EXPECT_EQ(list[0].sources.size(), 2u);
  EXPECT_EQ(list[0].bytes, 4u);
  EXPECT_EQ(list[1].what, "wait");
  EXPECT_EQ(list[1].value, 10u);
  EXPECT_EQ(list[2].what, "write");
  EXPECT_EQ(list[2].destinations[0], &words[0]);
  EXPECT_TRUE(backend.take().empty());
}

}  // namespace
}  // namespace lockstep::internal::testing
