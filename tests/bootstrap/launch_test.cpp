#include "lib/bootstrap/launch.hpp"

#include <gtest/gtest.h>

#include "tests/bootstrap/launch_fixtures.hpp"

namespace lockstep::internal {
namespace {

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
  EXPECT_TRUE(launch.is_served());
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
  EXPECT_FALSE(resolve(environment, options).is_served());
  options.rendezvous = "served://127.0.0.1:5000";
  const Launch launch = resolve(environment, options);
  EXPECT_TRUE(launch.is_served());
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
  EXPECT_EQ(launch.job_id, "none.29500.0");
  EXPECT_EQ(launch.rendezvous.rfind("local://torchrun-none.29500.0-", 0), 0u) << launch.rendezvous;
  Environment other = torchrun();
  other["MASTER_PORT"] = "29501";
  EXPECT_NE(resolve(other).rendezvous, launch.rendezvous);
}

// Two containers may have one /tmp, and each a torchrun with port 29500, or a first process with children.
TEST(Launch, WhereNumbersNameThePlaceItIsAnotherInAnotherContainer) {
  const Environment mpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  const auto place = [](const Environment& environment, const char* container) {
    return resolve_launch({}, environment, {4712, 4711, container}).value().rendezvous;
  };
  for (const Environment& environment : {torchrun(), mpich}) {
    EXPECT_EQ(place(environment, "one"), place(environment, "one"));
    EXPECT_NE(place(environment, "one"), place(environment, "other"));
  }
  Environment named = mpich;
  named["LOCKSTEP_JOB_ID"] = "job";  // That is the user's, who may mean both.
  EXPECT_EQ(place(named, "one"), place(named, "other"));
}

int port_of(const Environment& environment) {
  const std::string place = resolve(environment).rendezvous;
  return std::stoi(place.substr(place.rfind(':') + 1));
}

// An agent whose own ranks were well counts no restart where another's were not.
TEST(Launch, TorchrunsAgentsMayCountRestartsEachForItself) {
  Environment environment = torchrun();
  environment["LOCAL_WORLD_SIZE"] = "4";
  const Launch well = resolve(environment);
  environment["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_EQ(resolve(environment).rendezvous, well.rendezvous);
  EXPECT_EQ(resolve(environment).job_id, well.job_id);
  environment["MASTER_PORT"] = "29501";  // Another job, or attempt.
  EXPECT_NE(resolve(environment).rendezvous, well.rendezvous);
  EXPECT_NE(resolve(environment).job_id, well.job_id);
}

TEST(Launch, TorchrunOnSeveralHostsLeavesTheAgentsPortAlone) {
  Environment environment = torchrun();
  environment["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(resolve(environment).rendezvous, "tcp://localhost:" + std::to_string(port_of(environment)));
  // Two jobs of one name may have agents side by side.
  std::set<int> ports;
  for (int agent = 29'400; agent < 29'600; ++agent) {
    environment["MASTER_PORT"] = std::to_string(agent);
    ports.insert(port_of(environment));
  }
  EXPECT_EQ(ports.size(), 200u);
  EXPECT_TRUE(*ports.begin() >= 20'000 && *ports.rbegin() < 29'400)
      << *ports.begin() << ' ' << *ports.rbegin();
  for (int agent = 20'000; agent < 29'400; ++agent) {
    environment["MASTER_PORT"] = std::to_string(agent);
    EXPECT_NE(port_of(environment), agent);
  }
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

// Two containers of one host name may have one /tmp, and each an mpirun of one pid.
TEST(Launch, WhereTwoMpirunsHaveOneNameTheirJobsMeetApart) {
  const auto place = [](const std::string& server, const std::string& job) {
    return resolve({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                    {"PMIX_NAMESPACE", "prterun-host-7@1"},
                    {"PMIX_SERVER_URI41", "prterun-host-7@0.0;tcp4://127.0.0.1:" + server},
                    {"LOCKSTEP_JOB_ID", job}})
        .rendezvous;
  };
  EXPECT_EQ(place("4001", ""), place("4001", ""));
  EXPECT_NE(place("4001", ""), place("4002", ""));
  EXPECT_EQ(place("4001", "job"), place("4002", "job"));
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

TEST(Launch, PlainVariables) {
  const Launch launch =
      resolve({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "5000"}});
  EXPECT_EQ(launch.rendezvous, "tcp://[::1]:5000");
  EXPECT_FALSE(launch.is_served());
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
  EXPECT_EQ(resolve(several).rendezvous, "tcp://localhost:" + std::to_string(port_of(several)));
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

}  // namespace
}  // namespace lockstep::internal
