// Slurm: its steps, what it tells by PMI and PMIx, and other launchers within its jobs.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/bootstrap/launch_fixtures.hpp"

namespace lockstep::internal {
namespace {

TEST(Launch, PmixUnderSlurmTakesTheStepsSize) {
  Environment environment = slurm_step();
  environment["PMIX_RANK"] = "1";
  environment["PMIX_NAMESPACE"] = "slurm.pmix.1234.0";
  const Launch launch = resolve(environment);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world_size, 6);
}

/// What Slurm's own service adds to slurm_step(): srun --mpi=pmix, and --mpi=pmi2.
const std::vector<Environment>& slurms_own_services() {
  static const std::vector<Environment> services{
      {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.1234.0"}},
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "6"}, {"PMI_FD", "5"}, {"PMI_JOBID", "1234.0"}}};
  return services;
}

TEST(Launch, WhatSlurmTellsByPmiOrPmixIsTheStepOnceMore) {
  for (const char* nodes : {"1", "2"}) {
    Environment plain = slurm_step();
    plain["SLURM_STEP_NUM_NODES"] = nodes;
    for (const std::string task : {"4712", "4711"}) {  // The rank itself, or a script that started it.
      plain["SLURM_TASK_PID"] = task;
      for (Environment told : slurms_own_services()) {
        told.insert(plain.begin(), plain.end());
        EXPECT_EQ(resolve(told).rendezvous, resolve(plain).rendezvous);
        EXPECT_EQ(resolve(told).job_id, "1234.0");
        EXPECT_EQ(resolve(told).source, "Slurm");
      }
    }
  }
}

TEST(Launch, AgentsThatSlurmTellsOfByPmiOrPmixAreNotAskedForRanks) {
  const Environment hydra{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}};
  for (const Environment& agents : {torchrun(), hydra}) {
    for (const Environment& service : slurms_own_services()) {
      Environment environment = agents;
      environment.insert(service.begin(), service.end());
      environment.merge(slurm_step());
      environment["SLURM_TASK_PID"] = std::to_string(kProcess.parent);
      environment["LOCKSTEP_RENDEZVOUS"] = "tcp://h:1";
      EXPECT_EQ(resolve(environment).rank, 3);
      EXPECT_EQ(resolve(environment).world_size, 8);
    }
  }
}

TEST(Launch, MpirunWithinAStepIsNoServiceOfSlurms) {
  Environment environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "6"}, {"MPI_LOCALNRANKS", "6"}};  // By chance.
  environment.merge(slurm_step());
  environment["SLURM_TASK_PID"] = std::to_string(kProcess.parent);
  EXPECT_EQ(resolve(environment).source, "MPICH");
  EXPECT_EQ(resolve(environment).rendezvous.rfind("local://mpich-parent4711-", 0), 0u);
}

TEST(Launch, OtherNumbersThanTheStepsAreNotSlurms) {
  const Environment other_rank{{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}},
      other_size{{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}};
  for (Environment environment : {other_rank, other_size, Environment{{"PMIX_RANK", "2"}}}) {
    environment.merge(slurm_step());
    EXPECT_NE(refuse(environment).find("but Slurm says rank 1 of 6"), std::string::npos);
  }
}

TEST(Launch, SlurmStepOnSeveralNodes) {
  const Launch launch = resolve(slurm_step());
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world_size, 6);
  EXPECT_EQ(launch.job_id, "1234.0");
  EXPECT_EQ(launch.rendezvous.rfind("tcp://node07:2", 0), 0u) << launch.rendezvous;
  Environment plain = slurm_step();
  plain["SLURM_STEP_NODELIST"] = "alpha,beta";
  EXPECT_EQ(resolve(plain).rendezvous.rfind("tcp://alpha:", 0), 0u);
}

// Above the ports of services, below those that the kernel gives away.
TEST(Launch, StepsOfSlurmDrawPortsOfTheirOwn) {
  std::set<int> ports;
  for (int step = 0; step < 20; ++step) {
    Environment environment = slurm_step();
    environment["SLURM_STEP_ID"] = std::to_string(step);
    const std::string rendezvous = resolve(environment).rendezvous;
    ports.insert(std::stoi(rendezvous.substr(rendezvous.rfind(':') + 1)));
  }
  EXPECT_GT(ports.size(), 15u);
  EXPECT_GE(*ports.begin(), 20'000);
  EXPECT_LT(*ports.rbegin(), 32'000);
}

TEST(Launch, TheFirstHostOfASlurmList) {
  for (const auto& [list, host] : std::map<std::string, std::string>{{"rack[0-1]_blade[0-3]", "rack0_blade0"},
                                                                     {"node[1-3]-ib", "node1-ib"},
                                                                     {"node[07-09,12]-ib,other", "node07-ib"},
                                                                     {"a[2,5]b[10-11]c,d[1-2]", "a2b10c"},
                                                                     {"alpha,node[1-2]", "alpha"},
                                                                     {"node[1", "node1"},
                                                                     {"alone", "alone"}}) {
    Environment environment = slurm_step();
    environment["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(resolve(environment).rendezvous.rfind("tcp://" + host + ":", 0), 0u)
        << list << ": " << resolve(environment).rendezvous;
  }
}

TEST(Launch, SlurmStepWhoseTaskIsAScript) {
  Environment environment = slurm_step();
  environment["SLURM_TASK_PID"] = std::to_string(kProcess.parent);
  EXPECT_EQ(resolve(environment).rank, 1);
  EXPECT_EQ(resolve(environment).rendezvous.rfind("tcp://node07:", 0), 0u);
}

TEST(Launch, SlurmStepOnOneNodeMeetsLocally) {
  Environment environment = slurm_step();
  environment["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(resolve(environment).rendezvous.rfind("local://slurm-1234.0-", 0), 0u);
}

TEST(Launch, SlurmBatchScriptWithoutSrunIsNoSilentGroupOfOne) {
  const Environment batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}};
  EXPECT_EQ(refuse(batch),
            "SLURM_PROCID is set but SLURM_STEP_NUM_TASKS is not: this process was not started by srun, "
            "though the job has "
            "several tasks; start it with srun, or set LOCKSTEP_RANK=0 and LOCKSTEP_WORLD_SIZE=1 for a group "
            "of one");
  EXPECT_EQ(resolve({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).world_size, 1);
  // Where nobody asked for tasks there is one a node.
  EXPECT_EQ(resolve({{"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "1"}}).world_size, 1);
  EXPECT_EQ(refuse({{"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "2"}}), refuse(batch));
  Environment torchrun_in_batch = torchrun();
  torchrun_in_batch.insert(batch.begin(), batch.end());
  EXPECT_EQ(resolve(torchrun_in_batch).source, "torchrun");
}

TEST(Launch, AStepOfAgentsIsNotAskedForRanks) {
  for (Environment environment :
       {torchrun(), Environment{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}},
        Environment{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}}) {
    environment.merge(slurm_step());
    environment["LOCKSTEP_RENDEZVOUS"] = "tcp://h:1";
    environment["SLURM_TASK_PID"] = std::to_string(kProcess.own);  // Slurm counts this very process.
    EXPECT_NE(refuse(environment).find("but Slurm says rank 1 of 6"), std::string::npos);
    environment["SLURM_TASK_PID"] = std::to_string(kProcess.parent);  // Slurm counts its agent.
    EXPECT_EQ(resolve(environment).rank, 3);
    environment["LOCKSTEP_LAUNCHER"] = "slurm";
    EXPECT_EQ(resolve(environment).rank, 1);
  }
  // Where an agent's ranks meet is not known to Slurm.
  Environment mpi = slurm_step();
  mpi.merge(
      Environment{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"SLURM_TASK_PID", "1"}});
  EXPECT_NE(refuse(mpi).find("no place to meet"), std::string::npos);
}

TEST(Launch, AStepWithARankOfOnesOwnIsRefusedBelowItsTaskToo) {
  Environment environment = slurm_step();
  environment.merge(
      Environment{{"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_WORLD_SIZE", "8"}, {"SLURM_TASK_PID", "1"}});
  EXPECT_NE(refuse(environment).find("but Slurm says rank 1 of 6"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::internal
