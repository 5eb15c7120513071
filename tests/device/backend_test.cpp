// Which backend a process gets.
#include "lib/device/backend.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/device.hpp"
#include "lockstep/device_runtime.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/forked.hpp"

namespace lockstep::internal {
namespace {

TEST(Backend, HostByTheVariable) {
  testing::run_forked(1, [](int) {
    ::setenv("LOCKSTEP_DEVICE_BACKEND", "host", 1);
    const Result<Backend*> backend = device_backend();
    ASSERT_TRUE(backend.ok());
    EXPECT_STREQ(backend.value()->name(), "host");
    EXPECT_EQ(device_backend().value(), backend.value());
  });
}

/// With a device the backend works; without one there is an error that names the cause and the next step.
TEST(Backend, CudaOrOneClearError) {
  testing::run_forked(1, [](int) {
    ::unsetenv("LOCKSTEP_DEVICE_BACKEND");
    const Result<Backend*> backend = device_backend();
    if (backend.ok()) {
      EXPECT_STREQ(backend.value()->name(), "cuda");
      EXPECT_GE(backend.value()->device_count().value(), 1);
      return;
    }
    EXPECT_EQ(backend.status().code(), ErrorCode::not_supported);
    EXPECT_EQ(backend.status().message().find("no CUDA device: "), 0u) << backend.status().message();
    EXPECT_NE(backend.status().message().find("LOCKSTEP_DEVICE_BACKEND=host"), std::string::npos);
    EXPECT_EQ(device_backend().status().message(), backend.status().message());
  });
}

/// Before there is a communicator, too: CUDA's would be taken silently, and complain of a missing device.
TEST(Backend, NoneForWhatTheEnvironmentSaysWrong) {
  testing::run_forked(1, [](int) {
    ::setenv("LOCKSTEP_DEVICE_BACKEND", "hots", 1);
    const auto [code, text] = lockstep::testing::error_of([] { device::count(); });
    EXPECT_EQ(code, ErrorCode::configuration);
    EXPECT_EQ(text, "LOCKSTEP_DEVICE_BACKEND=hots is not allowed: write one of cuda|host");
  });
  testing::run_forked(1, [](int) {
    ::setenv("LOCKSTEP_DEVICE_BACKND", "host", 1);
    const auto [code, text] = lockstep::testing::error_of([] { static_cast<void>(allocate_device(64, 0)); });
    EXPECT_EQ(code, ErrorCode::configuration);
    EXPECT_NE(text.find("did you mean LOCKSTEP_DEVICE_BACKEND?"), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace lockstep::internal
