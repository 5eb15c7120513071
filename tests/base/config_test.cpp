// The registry of environment variables: values, defaults, and the text of its errors.
#include "lib/base/config.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/scoped_variable.hpp"

namespace lockstep::internal {
namespace {

using testing::ScopedVariable;

TEST(Config, GivesDefaultsWhenNothingIsSet) {
  EXPECT_EQ(config_milliseconds("LOCKSTEP_TIMEOUT"), 30 * 60 * 1000);
  EXPECT_EQ(config_text("LOCKSTEP_TRANSPORTS"), "auto");
  EXPECT_EQ(config_integer("LOCKSTEP_VERBS_TIMEOUT"), 16);
  EXPECT_FALSE(config_flag("LOCKSTEP_INSECURE"));
  EXPECT_EQ(config_bytes("LOCKSTEP_SEGMENT"), 0u);
  EXPECT_FALSE(config_is_set("LOCKSTEP_TIMEOUT"));
  EXPECT_TRUE(check_environment().ok());
}

TEST(Config, ReadsTheEnvironment) {
  const ScopedVariable timeout("LOCKSTEP_TIMEOUT", "90s");
  const ScopedVariable segment("LOCKSTEP_SEGMENT", "64K");
  const ScopedVariable insecure("LOCKSTEP_INSECURE", "yes");
  const ScopedVariable rank("LOCKSTEP_RANK", "7");
  EXPECT_EQ(config_milliseconds("LOCKSTEP_TIMEOUT"), 90'000);
  EXPECT_EQ(config_bytes("LOCKSTEP_SEGMENT"), 65536u);
  EXPECT_TRUE(config_flag("LOCKSTEP_INSECURE"));
  EXPECT_EQ(config_integer("LOCKSTEP_RANK"), 7);
  EXPECT_TRUE(config_is_set("LOCKSTEP_RANK"));
  EXPECT_TRUE(check_environment().ok());
}

TEST(Config, AnEmptyValueCountsAsNotSet) {
  const ScopedVariable timeout("LOCKSTEP_TIMEOUT", "");
  EXPECT_FALSE(config_is_set("LOCKSTEP_TIMEOUT"));
  EXPECT_EQ(config_milliseconds("LOCKSTEP_TIMEOUT"), 30 * 60 * 1000);
  EXPECT_TRUE(check_environment().ok());
}

TEST(Config, AnUnknownNameIsAnErrorWithTheNearestOne) {
  const ScopedVariable typo("LOCKSTEP_TIMEOUTS", "5m");
  const Status status = check_environment();
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_EQ(status.message(),
            "unknown variable LOCKSTEP_TIMEOUTS in the environment: did you mean LOCKSTEP_TIMEOUT? Otherwise "
            "unset it");
}

TEST(Config, WhatKubernetesSaysOfAServiceIsIgnoredWithAWarning) {
  const ScopedVariable address("LOCKSTEP_PORT_29500_TCP_ADDR", "10.96.0.7");
  const ScopedVariable port("LOCKSTEP_PORT", "tcp://10.96.0.7:29500");
  const ScopedVariable web("LOCKSTEP_WEB_PORT", "tcp://10.96.0.8:80");
  EXPECT_NE(check_environment().message().find("unknown variable LOCKSTEP_"), std::string::npos);
  const ScopedVariable host("LOCKSTEP_SERVICE_HOST", "10.96.0.7"), web_host("LOCKSTEP_WEB_SERVICE_HOST", "x");
  const ScopedVariable number("LOCKSTEP_SERVICE_PORT", "29500"),
      web_number("LOCKSTEP_WEB_SERVICE_PORT", "80");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(check_environment().message(), "");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(", which Kubernetes sets for a service"),
            std::string::npos);
  const ScopedVariable typo("LOCKSTEP_TIMEOUTS", "5m");
  EXPECT_NE(check_environment().message().find("unknown variable LOCKSTEP_TIMEOUTS"), std::string::npos);
}

TEST(Config, AValueThatDoesNotParseIsAnErrorThatShowsWhatToWrite) {
  const ScopedVariable timeout("LOCKSTEP_TIMEOUT", "soon");
  EXPECT_EQ(check_environment().message(),
            "LOCKSTEP_TIMEOUT=soon is not allowed: write a duration, such as 500ms, 30s or 5m");
  EXPECT_EQ(config_milliseconds("LOCKSTEP_TIMEOUT"), 30 * 60 * 1000);
}

TEST(Config, ANumberOutsideItsRangeIsAnErrorThatNamesIt) {
  for (const char* value : {"4095", "2G", "18446744073709551615"}) {
    const ScopedVariable segment("LOCKSTEP_SEGMENT", value);
    EXPECT_EQ(check_environment().message(), std::string("LOCKSTEP_SEGMENT=") + value +
                                                 " is not allowed: write bytes, such as 512, 64K or 1M, from "
                                                 "4K to 1G");
    EXPECT_EQ(config_bytes("LOCKSTEP_SEGMENT"), 0u);
  }
}

TEST(Config, AChoiceOutsideTheListIsAnError) {
  const ScopedVariable log("LOCKSTEP_LOG", "loud");
  EXPECT_EQ(check_environment().message(), "LOCKSTEP_LOG=loud is not allowed: write one of off|warn|info");
  EXPECT_EQ(config_text("LOCKSTEP_LOG"), "warn");
}

TEST(Config, EveryDefaultIsAValueThatTheVariableAccepts) {
  for (const Variable& variable : variables()) {
    const ScopedVariable set(std::string(variable.name), std::string(variable.default_value));
    EXPECT_TRUE(check_environment().ok()) << variable.name << ": " << check_environment().message();
    EXPECT_FALSE(variable.help.empty()) << variable.name;
  }
}

}  // namespace
}  // namespace lockstep::internal
