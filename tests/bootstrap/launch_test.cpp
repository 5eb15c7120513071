#include "lib/bootstrap/launch.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

constexpr ProcessIds kProcess{4712, 4711};

Launch resolve(const Environment& environment, const InitOptions& options = {}) {
  auto launch = resolve_launch(options, environment, kProcess);
  EXPECT_TRUE(launch.ok()) << launch.status().message();
  return launch.ok() ? launch.value() : Launch{};
}

std::string refuse(const Environment& environment, const InitOptions& options = {}) {
  const auto launch = resolve_launch(options, environment, kProcess);
  EXPECT_FALSE(launch.ok());
  EXPECT_TRUE(launch.ok() || launch.status().code() == ErrorCode::configuration);
  return launch.status().message();
}

Environment torchrun() {
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
Environment slurm_step() {
  return {{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "6"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LOCALID", "1"},
          {"SLURM_NTASKS", "6"},         {"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "node[07-08]"}};
}

TEST(Launch, NothingIsASingleProcess) {
  const Launch launch = resolve({{"PATH", "/bin"}, {"MASTER_ADDR", "somewhere"}});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.world_size, 1);
  EXPECT_EQ(launch.source, "single process");
  EXPECT_EQ(launch.rendezvous, "");
}

TEST(Launch, ExplicitArgumentsWin) {
  InitOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = "memory://group";
  options.job_id = "mine";
  const Launch launch = resolve(torchrun(), options);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world_size, 2);
  EXPECT_EQ(launch.rendezvous, "memory://group");
  EXPECT_EQ(launch.job_id, "mine");
  EXPECT_EQ(launch.source, "explicit arguments");
}

TEST(Launch, HalfOfTheExplicitArgumentsIsCompleted) {
  InitOptions options;
  options.rank = 7;
  const Launch launch = resolve(torchrun(), options);
  EXPECT_EQ(launch.rank, 7);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(refuse({}, options),
            "InitOptions gives a rank but no world size, and the environment gives neither; set both");
}

TEST(Launch, LockstepRun) {
  const Environment environment{{"LOCKSTEP_RANK", "2"},
                                {"LOCKSTEP_WORLD_SIZE", "4"},
                                {"LOCKSTEP_RENDEZVOUS", "tcp://127.0.0.1:4000"},
                                {"LOCKSTEP_STORE", "launcher"},
                                {"LOCKSTEP_JOB_ID", "j"},
                                {"RANK", "2"},
                                {"WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", "5000"}};
  const Launch launch = resolve(environment);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.rendezvous, "tcp://127.0.0.1:4000");
  EXPECT_TRUE(launch.store_is_served);
  EXPECT_EQ(launch.job_id, "j");
  EXPECT_EQ(launch.source, "lockstep-run");
}

// What the program itself says of the place is not the launcher's.
TEST(Launch, APlaceThatTheProgramNamesIsServedByRank0UnlessItSaysOtherwise) {
  const Environment environment{{"LOCKSTEP_RANK", "2"},
                                {"LOCKSTEP_WORLD_SIZE", "4"},
                                {"LOCKSTEP_RENDEZVOUS", "tcp://127.0.0.1:4000"},
                                {"LOCKSTEP_STORE", "launcher"}};
  InitOptions options;
  options.rendezvous = "tcp://127.0.0.1:5000";
  EXPECT_FALSE(resolve(environment, options).store_is_served);
  options.rendezvous = "served://127.0.0.1:5000";
  const Launch launch = resolve(environment, options);
  EXPECT_TRUE(launch.store_is_served);
  EXPECT_EQ(launch.rendezvous, "tcp://127.0.0.1:5000");
}

TEST(Launch, NumbersAreTheProgramsOwnWhereOneOfTheTwoIs) {
  const Environment environment{
      {"LOCKSTEP_RANK", "2"}, {"LOCKSTEP_WORLD_SIZE", "4"}, {"LOCKSTEP_RENDEZVOUS", "tcp://h:1"}};
  InitOptions options;
  EXPECT_FALSE(resolve(environment, options).own_numbers);
  options.rank = 2;
  EXPECT_FALSE(resolve(environment, options).own_numbers);
  options.world_size = 3;
  EXPECT_TRUE(resolve(environment, options).own_numbers);
  options.rank = 1;
  options.world_size = 4;
  EXPECT_TRUE(resolve(environment, options).own_numbers);
}

TEST(Launch, TorchrunOnOneHostMeetsLocally) {
  const Launch launch = resolve(torchrun());
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.source, "torchrun");
  EXPECT_EQ(launch.job_id, "none.0");
  EXPECT_EQ(launch.rendezvous.rfind("local://torchrun-none.29500.0-", 0), 0u) << launch.rendezvous;
  Environment other = torchrun();
  other["MASTER_PORT"] = "29501";
  EXPECT_NE(resolve(other).rendezvous, launch.rendezvous);
}

// Two containers may have one /tmp, and each a torchrun with port 29500, or a first process with children.
TEST(Launch, WhereNumbersNameThePlaceItIsAnotherInAnotherNetwork) {
  const Environment mpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  const auto place = [](const Environment& environment, const char* network) {
    return resolve_launch({}, environment, {4712, 4711, network}).value().rendezvous;
  };
  for (const Environment& environment : {torchrun(), mpich}) {
    EXPECT_EQ(place(environment, "one"), place(environment, "one"));
    EXPECT_NE(place(environment, "one"), place(environment, "other"));
  }
  Environment named = mpich;
  named["LOCKSTEP_JOB_ID"] = "job";  // That is the user's, who may mean both.
  EXPECT_EQ(place(named, "one"), place(named, "other"));
}

TEST(Launch, TorchrunOnSeveralHostsLeavesTheAgentsPortAlone) {
  Environment environment = torchrun();
  environment["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(resolve(environment).rendezvous, "tcp://localhost:29501");
  environment["MASTER_PORT"] = "65535";
  EXPECT_EQ(refuse(environment), "MASTER_PORT=65535 is not a port that can be used");
  environment["MASTER_PORT"] = "0";
  EXPECT_EQ(refuse(environment), "MASTER_PORT=0 is not a port that can be used");
  environment["MASTER_PORT"] = "9223372036854775807";
  EXPECT_EQ(refuse(environment), "MASTER_PORT=9223372036854775807 is not a port that can be used");
}

TEST(Launch, RendezvousOverridesTheLaunchers) {
  Environment environment = torchrun();
  environment["LOCKSTEP_RENDEZVOUS"] = "file:///shared/job";
  const Launch launch = resolve(environment);
  EXPECT_EQ(launch.rendezvous, "file:///shared/job");
  EXPECT_EQ(launch.source, "torchrun");
}

TEST(Launch, OpenMpi) {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_RANK", "1"},
                                {"PMIX_NAMESPACE", "prterun-host-99@1"}};
  const Launch launch = resolve(environment);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world_size, 2);
  EXPECT_EQ(launch.job_id, "prterun-host-99@1");
  EXPECT_EQ(launch.rendezvous.rfind("local://openmpi-prterun-host-99_1-", 0), 0u) << launch.rendezvous;
}

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

TEST(Launch, WhatOneSourceLacksTheNextAdds) {
  const Environment pmix{{"PMIX_RANK", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(resolve(pmix).world_size, 2);
  EXPECT_EQ(resolve(pmix).rendezvous.rfind("local://openmpi-", 0), 0u);
  EXPECT_EQ(
      refuse({{"LOCKSTEP_WORLD_SIZE", "2"}, {"RANK", "5"}, {"WORLD_SIZE", "2"}}),
      "rank 5 (from RANK and LOCKSTEP_WORLD_SIZE) is out of range for world size 2; ranks count from 0 to 1");
  Environment step = slurm_step();
  step.merge(Environment{{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_WORLD_SIZE", "6"}});
  EXPECT_EQ(resolve(step).source, "lockstep-run");
  EXPECT_EQ(resolve(step).rendezvous.rfind("tcp://node07:", 0), 0u);
}

TEST(Launch, MpichIsNamedAfterItsParent) {
  const Environment environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
  EXPECT_EQ(resolve(environment).rendezvous.rfind("local://mpich-parent4711-", 0), 0u);
  EXPECT_TRUE(resolve(environment).named_by_parent);
  Environment named = environment;
  named["LOCKSTEP_JOB_ID"] = "job";
  EXPECT_FALSE(resolve(named).named_by_parent);
  named = environment;
  named["LOCKSTEP_RENDEZVOUS"] = "local://place";
  EXPECT_FALSE(resolve(named).named_by_parent);
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

TEST(Launch, PlainVariables) {
  const Launch launch =
      resolve({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "5000"}});
  EXPECT_EQ(launch.rendezvous, "tcp://[::1]:5000");
  EXPECT_FALSE(launch.store_is_served);
  EXPECT_EQ(resolve({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "5000"}})
                .rendezvous,
            "tcp://[::1]:5000");
  EXPECT_EQ(refuse({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "the group has several ranks but no place to meet; set LOCKSTEP_RENDEZVOUS=tcp://HOST:PORT on "
            "all ranks, with the host of rank 0 and a free port there, or LOCKSTEP_RENDEZVOUS=local://NAME "
            "where all are on one host");
  EXPECT_NE(refuse({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}})
                .find("but MASTER_PORT is not; set"),
            std::string::npos);
  EXPECT_NE(
      refuse({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "50"}}).find("but MASTER_ADDR is not; set"),
      std::string::npos);
}

TEST(Launch, TheNumberOfRanksOnThisHostMayBeSaidBesideAnyLauncher) {
  Environment plain{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(resolve(plain).rendezvous.rfind("local://env-parent4711-", 0), 0u);
  Environment several = torchrun();
  several["LOCKSTEP_LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(resolve(several).rendezvous, "tcp://localhost:29501");
  Environment step = slurm_step();
  step["LOCKSTEP_LOCAL_WORLD_SIZE"] = "6";
  EXPECT_EQ(resolve(step).rendezvous.rfind("local://slurm-1234.0-", 0), 0u);
}

TEST(Launch, DisagreeingSourcesAreBothNamed) {
  Environment environment = torchrun();
  environment["SLURM_PROCID"] = "0";
  environment["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_EQ(refuse(environment),
            "torchrun says rank 3 of 8 (RANK, WORLD_SIZE), but Slurm says rank 0 of 2 (SLURM_PROCID, "
            "SLURM_STEP_NUM_TASKS); set "
            "LOCKSTEP_LAUNCHER=torchrun or LOCKSTEP_LAUNCHER=slurm to choose");
  environment["LOCKSTEP_LAUNCHER"] = "torchrun";
  EXPECT_EQ(resolve(environment).rank, 3);
  environment["LOCKSTEP_LAUNCHER"] = "slurm";
  EXPECT_EQ(resolve(environment).world_size, 2);
  environment["LOCKSTEP_LAUNCHER"] = "slrum";
  EXPECT_EQ(
      refuse(environment),
      "LOCKSTEP_LAUNCHER=slrum is not known; choose one of lockstep, torchrun, openmpi, mpich, slurm, env");
  environment["LOCKSTEP_LAUNCHER"] = "openmpi";
  EXPECT_EQ(refuse(environment),
            "LOCKSTEP_LAUNCHER=openmpi, but OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set");
  EXPECT_EQ(refuse({{"LOCKSTEP_LAUNCHER", "slurm"}}),
            "LOCKSTEP_LAUNCHER=slurm, but SLURM_PROCID and SLURM_STEP_NUM_TASKS are not set");
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

TEST(Launch, AgreeingSourcesAreFine) {
  Environment environment = torchrun();
  environment["PMI_RANK"] = "3";
  environment["PMI_SIZE"] = "8";
  EXPECT_EQ(resolve(environment).source, "torchrun");
}

TEST(Launch, ALauncherWithoutASizeIsAnError) {
  const std::string advice = "; set LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE, to 0 and 1 for a group of one";
  const std::string size = " is not, so the size of the group is not known" + advice;
  EXPECT_EQ(refuse({{"LOCKSTEP_RANK", "0"}}), "LOCKSTEP_RANK is set but LOCKSTEP_WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"LOCKSTEP_RENDEZVOUS", "tcp://h:1"}}),
            "LOCKSTEP_RENDEZVOUS is set but LOCKSTEP_WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"TORCHELASTIC_RUN_ID", "x"}}), "TORCHELASTIC_RUN_ID is set but WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"PMIX_RANK", "0"}}), "PMIX_RANK is set but OMPI_COMM_WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"PMIX_NAMESPACE", "ns"}}), "PMIX_NAMESPACE is set but OMPI_COMM_WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"PMI_RANK", "0"}}), "PMI_RANK is set but PMI_SIZE" + size);
  EXPECT_EQ(refuse({{"PMI_FD", "5"}}), "PMI_FD is set but PMI_SIZE" + size);
  EXPECT_EQ(refuse({{"RANK", "0"}}), "RANK is set but WORLD_SIZE" + size);
  EXPECT_EQ(refuse({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is set but RANK is not, so the rank of this process is not known" + advice);
}

TEST(Launch, RanksAndSizesOutOfRange) {
  EXPECT_EQ(refuse({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "rank 4 (from RANK and WORLD_SIZE) is out of range for world size 4; ranks count from 0 to 3");
  EXPECT_EQ(refuse({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}),
            "rank -1 (from PMI_RANK and PMI_SIZE) is out of range for world size 2; ranks count from 0 to 1");
  EXPECT_EQ(refuse({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "world size 0 (from RANK and WORLD_SIZE) is out of range; it counts the ranks, from 1 to 16384");
  EXPECT_EQ(refuse({{"RANK", "4294967296"}, {"WORLD_SIZE", "2"}}),
            "RANK=4294967296 in the environment is not a number");
  EXPECT_EQ(refuse({{"RANK", "0x1"}, {"WORLD_SIZE", "2"}}), "RANK=0x1 in the environment is not a number");
  InitOptions options;
  options.rank = 5;
  options.world_size = 2;
  EXPECT_EQ(refuse({}, options),
            "rank 5 (from explicit arguments) is out of range for world size 2; ranks count from 0 to 1");
}

TEST(Secret, OptionsThenVariableThenFile) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "from file\n");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  Environment environment{{"LOCKSTEP_SECRET_FILE", path}};
  EXPECT_EQ(load_secret({}, {}).value(), "");
  EXPECT_EQ(load_secret({}, environment).value(), "from file");
  environment["LOCKSTEP_SECRET"] = "from variable";
  EXPECT_EQ(load_secret({}, environment).value(), "from variable");
  InitOptions options;
  options.secret = "from options";
  EXPECT_EQ(load_secret(options, environment).value(), "from options");
}

TEST(Secret, TheEndOfItsLineIsNotOfIt) {
  const TemporaryDirectory directory;
  const std::string longest(4096, 's');
  for (const std::string& secret : {std::string("secret"), longest}) {
    for (const char* end : {"", "\n", "\r\n"}) {
      if (secret == longest && *end != '\0') continue;
      const std::string path = directory.write("secret", secret + end);
      ASSERT_EQ(chmod(path.c_str(), 0600), 0);
      EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).value(), secret);
    }
  }
}

TEST(Secret, FilesThatOthersMayReadAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "secret");
  for (const mode_t mode : {0640, 0604, 0660}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).status().message(),
              "LOCKSTEP_SECRET_FILE=" + path +
                  " can be read by other users; make it yours alone: chmod 600 " + path);
  }
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).ok());
}

TEST(Secret, AFileOfAnotherUserIsRefusedAndNotCalledReadable) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "secret");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const uid_t other = geteuid() + 1;
  if (chown(path.c_str(), other, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).status().message(),
            "LOCKSTEP_SECRET_FILE=" + path + " belongs to user " + std::to_string(other) +
                ", and this process runs as user " + std::to_string(geteuid()) +
                "; give it a copy of its own, with mode 0600");
}

TEST(Secret, EmptyOverlongAndMissingFilesAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/secret";
  const Environment environment{{"LOCKSTEP_SECRET_FILE", path}};
  EXPECT_EQ(load_secret({}, environment).status().message(),
            "cannot open LOCKSTEP_SECRET_FILE=" + path + ": No such file or directory");
  for (const std::size_t size : {0u, 5000u}) {
    directory.write("secret", std::string(size, 's'));
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(load_secret({}, environment).status().message(),
              "LOCKSTEP_SECRET_FILE=" + path + " must hold between 1 and 4096 bytes");
  }
}

}  // namespace
}  // namespace lockstep::internal
