// Launchers' variables, and what becomes of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lib/bootstrap/launch.hpp"

namespace lockstep::internal {

inline const ProcessIds kProcess{4712, 4711};

inline Launch resolve(const Environment& environment, const InitOptions& options = {}) {
  auto launch = resolve_launch(options, environment, kProcess);
  EXPECT_TRUE(launch.ok()) << launch.status().message();
  return launch.ok() ? launch.value() : Launch{};
}

inline std::string refuse(const Environment& environment, const InitOptions& options = {}) {
  const auto launch = resolve_launch(options, environment, kProcess);
  EXPECT_FALSE(launch.ok());
  EXPECT_TRUE(launch.ok() || launch.status().code() == ErrorCode::configuration);
  return launch.status().message();
}

inline Environment torchrun() {
  return {{"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "8"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"}};
}
inline Environment slurm_step() {
  return {{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "6"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LOCALID", "1"},
          {"SLURM_NTASKS", "6"},         {"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "node[07-08]"}};
}

}  // namespace lockstep::internal
