// The reducer through the C API, between real processes: its options, its errors, and what a rank's end does
// to the others.
#include <stdlib.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/engine/c_group.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;
using testing::alone;
using testing::CMeetingPlace;
using testing::fails;
using testing::ok;
using testing::refuses_null;

/// Two vectors of four, and the C structs that say so.
struct CModel {
  std::size_t shape[1] = {4};
  float values[2][4] = {};
  lockstep_parameter_t list[2] = {{"first", LOCKSTEP_F32, shape, 1, values[0], nullptr},
                                  {nullptr, LOCKSTEP_F32, shape, 1, values[1], nullptr}};
};

lockstep_reducer_t make(lockstep_comm_t comm, const CModel& model,
                        const lockstep_reducer_options_t& options = {}) {
  lockstep_reducer_t reducer = nullptr;
  ok(lockstep_reducer_create(comm, model.list, 2, &options, &reducer));
  return reducer;
}

float* gradient_of(lockstep_reducer_t reducer, std::size_t parameter) {
  void* gradient = nullptr;
  ok(lockstep_reducer_gradient(reducer, parameter, &gradient));
  return static_cast<float*>(gradient);
}

void fill_and_mark(lockstep_reducer_t reducer, std::size_t parameter, float value) {
  for (int i = 0; i < 4; ++i) gradient_of(reducer, parameter)[i] = value;
  ok(lockstep_reducer_mark_ready(reducer, parameter));
}

void expect_gradient(lockstep_reducer_t reducer, std::size_t parameter, float value) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(gradient_of(reducer, parameter)[i], value) << parameter;
}

/// Runs body(comm) on two ranks, whose handles it may free.
void on_two(const std::function<void(lockstep_comm_t)>& body) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    setenv("LOCKSTEP_TIMEOUT", "60s", 1);  // Who waits in vain fails.
    body(place.join(rank, 2, "auto"));
    board->meet(2);
  });
}

TEST(CApiReducer, RefusesWhatIsNoHandle) {
  run_forked(1, [](int) {
    double norm = 0;
    int goes_on = 0;
    void* gradient = nullptr;
    EXPECT_TRUE(refuses_null(lockstep_reducer_gradient(nullptr, 0, &gradient), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_mark_ready(nullptr, 0), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_mark_unused(nullptr, 0), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_wait(nullptr), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_wait_gradients(nullptr, LOCKSTEP_ALL_GRADIENTS), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_wait_gradients(nullptr, 0), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_add_parameters(nullptr, nullptr, 0), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_no_sync(nullptr, 1), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_begin_step(nullptr, 1, &goes_on), "reducer"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_clip(nullptr, 1, &norm), "reducer"));
    EXPECT_EQ(lockstep_reducer_report(nullptr), nullptr);
    lockstep_reducer_free(nullptr);

    CModel model;
    lockstep_comm_t comm = alone();
    EXPECT_TRUE(refuses_null(lockstep_reducer_create(comm, model.list, 2, nullptr, nullptr), "reducer"));
    lockstep_reducer_t reducer = make(comm, model);
    EXPECT_TRUE(refuses_null(lockstep_reducer_gradient(reducer, 0, nullptr), "gradient"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_begin_step(reducer, 1, nullptr), "goes_on"));
    for (const lockstep_error_t result :
         {lockstep_reducer_gradient(reducer, 2, &gradient), lockstep_reducer_mark_ready(reducer, 2),
          lockstep_reducer_mark_unused(reducer, 2), lockstep_reducer_wait_gradients(reducer, 2)})
      EXPECT_EQ(result, LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_EQ(gradient, nullptr);
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

// A difference is named with all that is not as by default: so it shows how each field was understood.
TEST(CApiReducer, TakesEveryOption) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    const auto differ = [&](const lockstep_reducer_options_t& options, const char* words) {
      lockstep_reducer_t reducer = nullptr;
      const lockstep_error_t result = lockstep_reducer_create(
          comm, model.list, 2, lockstep_rank(comm) == 1 ? &options : nullptr, &reducer);
      EXPECT_TRUE(
          fails(result, LOCKSTEP_MISMATCH, std::string("on rank 1, which has ") + words + "; rank 0", 1));
      EXPECT_EQ(reducer, nullptr);
    };
    lockstep_reducer_options_t options{};
    options.bucket_bytes = 700;
    options.first_bucket_bytes = 500;
    options.sum = options.find_unused = options.static_graph = options.check_finite = options.check_first = 1;
    options.check_replicas_every = 3;
    options.hook = "bf16";
    differ(options,
           "bucket_bytes 700, first_bucket_bytes 500, sum, hook \"bf16\", find_unused, static_graph, "
           "check_first, check_finite, check_replicas_every 3");
    options = {};
    options.weighted = options.overlap_forward = 1;
    options.check_first = -1;
    differ(options,
           "bucket_bytes 4194304, first_bucket_bytes 1048576, average, no hook, weighted, overlap_forward");
    lockstep_comm_free(comm);
  });
}

TEST(CApiReducer, KeepsGradientsWhereTheParametersSayAndSums) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    float gradients[2][4] = {};
    for (std::size_t i = 0; i < 2; ++i) model.list[i].gradient = gradients[i];
    lockstep_reducer_options_t options{};
    options.own_gradients = options.sum = 1;
    lockstep_reducer_t reducer = make(comm, model, options);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(gradient_of(reducer, i), gradients[i]);
      fill_and_mark(reducer, i, static_cast<float>(lockstep_rank(comm) + 1));
    }
    ok(lockstep_reducer_wait(reducer));
    for (std::size_t i = 0; i < 2; ++i) expect_gradient(reducer, i, 3);
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

TEST(CApiReducer, WeighsBySamplesUntilNobodyHasData) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    lockstep_reducer_options_t options{};
    options.weighted = 1;
    lockstep_reducer_t reducer = make(comm, model, options);
    const int rank = lockstep_rank(comm);
    int goes_on = 0;
    ok(lockstep_reducer_begin_step(reducer, rank == 0 ? 1 : 3, &goes_on));
    EXPECT_EQ(goes_on, 1);
    for (std::size_t i = 0; i < 2; ++i) fill_and_mark(reducer, i, rank == 0 ? 4 : 8);
    ok(lockstep_reducer_wait(reducer));
    expect_gradient(reducer, 0, 7);
    ok(lockstep_reducer_begin_step(reducer, rank == 0 ? 0 : 2, &goes_on));
    EXPECT_EQ(goes_on, 1);
    for (std::size_t i = 0; rank == 1 && i < 2; ++i) fill_and_mark(reducer, i, 5);
    ok(lockstep_reducer_wait(reducer));
    expect_gradient(reducer, 1, 5);
    ok(lockstep_reducer_begin_step(reducer, 0, &goes_on));
    EXPECT_EQ(goes_on, 0);
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

TEST(CApiReducer, CountsWhatIsUnusedAsZero) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    lockstep_reducer_options_t options{};
    options.find_unused = 1;
    lockstep_reducer_t reducer = make(comm, model, options);
    const int rank = lockstep_rank(comm);
    for (int step = 0; step < 2; ++step) {
      for (float* place : {gradient_of(reducer, 0), gradient_of(reducer, 1)}) place[0] = 99;  // Counts not.
      ok(lockstep_reducer_mark_unused(reducer, 0));
      if (rank == 0) fill_and_mark(reducer, 1, 6);
      if (rank == 1) ok(lockstep_reducer_mark_unused(reducer, 1));
      ok(lockstep_reducer_wait(reducer));
      expect_gradient(reducer, 0, 0);
      expect_gradient(reducer, 1, 3);
    }
    lockstep_reducer_free(reducer);

    reducer = make(comm, model);
    EXPECT_TRUE(fails(lockstep_reducer_mark_unused(reducer, 0), LOCKSTEP_INVALID_ARGUMENT, "find_unused"));
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

TEST(CApiReducer, ABadStepIsTheSameErrorOnAllAndTheNextIsGood) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    lockstep_reducer_options_t options{};
    options.check_finite = 1;
    lockstep_reducer_t reducer = make(comm, model, options);
    const bool bad = lockstep_rank(comm) == 1;
    fill_and_mark(reducer, 0, 1);
    fill_and_mark(reducer, 1, bad ? std::numeric_limits<float>::quiet_NaN() : 1);
    EXPECT_TRUE(fails(lockstep_reducer_wait(reducer), LOCKSTEP_INVALID_ARGUMENT, "parameter 1", 1));
    fill_and_mark(reducer, 0, 2);  // And not the other.
    if (!bad) fill_and_mark(reducer, 1, 2);
    EXPECT_TRUE(fails(lockstep_reducer_wait(reducer), LOCKSTEP_INVALID_ARGUMENT, "did not mark 1 of 2", 1));
    for (std::size_t i = 0; i < 2; ++i) fill_and_mark(reducer, i, 3);
    ok(lockstep_reducer_wait(reducer));
    expect_gradient(reducer, 1, 3);
    double norm = 0;
    ok(lockstep_reducer_clip(reducer, 1, nullptr));
    ok(lockstep_reducer_clip(reducer, 1, &norm));
    EXPECT_NEAR(norm, 1, 1e-5);
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

/// What of a rank's arguments is not even a list is an error on all, like any other difference, and harms
/// nobody.
TEST(CApiReducer, WhatOneRankCannotPassIsToldToAll) {
  on_two([](lockstep_comm_t comm) {
    CModel model, shapeless;
    shapeless.list[1].shape = nullptr;
    lockstep_reducer_options_t odd{};
    odd.hook = "zip";
    const bool wrong = lockstep_rank(comm) == 1;
    const auto refused = [&](lockstep_error_t result, const char* word) {
      EXPECT_TRUE(fails(result, wrong ? LOCKSTEP_INVALID_ARGUMENT : LOCKSTEP_REFUSED, word, 1));
    };
    lockstep_reducer_t reducer = nullptr;
    refused(lockstep_reducer_create(comm, wrong ? nullptr : model.list, 2, nullptr, &reducer),
            "parameters is NULL");
    refused(lockstep_reducer_create(comm, wrong ? shapeless.list : model.list, 2, nullptr, &reducer),
            "parameter 1, \"parameter 1\", has a null shape");
    refused(lockstep_reducer_create(comm, model.list, 2, wrong ? &odd : nullptr, &reducer),
            "no hook is called \"zip\"");
    float gradient[4] = {};
    CModel unread;
    unread.list[1].gradient = gradient;
    refused(lockstep_reducer_create(comm, wrong ? unread.list : model.list, 2, nullptr, &reducer),
            "parameter 1, \"parameter 1\" f32 [4], has memory for its gradient, which nothing reads");
    EXPECT_EQ(reducer, nullptr);
    reducer = make(comm, model);
    CModel joins;
    for (int i = 0; i < 2; ++i) joins.list[i].name = i == 0 ? "third" : nullptr;
    shapeless.list[0].name = "third";
    refused(lockstep_reducer_add_parameters(reducer, wrong ? nullptr : joins.list, 2), "parameters is NULL");
    refused(lockstep_reducer_add_parameters(reducer, wrong ? shapeless.list : joins.list, 2),
            "parameter 3, \"parameter 3\", has a null shape");
    ok(lockstep_reducer_add_parameters(reducer, joins.list, 2));
    for (std::size_t i = 4; i-- > 0;) fill_and_mark(reducer, i, 1);
    ok(lockstep_reducer_wait(reducer));
    lockstep_reducer_free(reducer);
    lockstep_comm_free(comm);
  });
}

// The communicator's handle may go first.
TEST(CApiReducer, FreedInTheMidstOfAStepItEndsTheOthers) {
  on_two([](lockstep_comm_t comm) {
    CModel model;
    lockstep_reducer_t reducer = make(comm, model);
    const bool leaves = lockstep_rank(comm) == 1;
    fill_and_mark(reducer, 1, 1);
    lockstep_comm_free(comm);
    if (!leaves) {
      fill_and_mark(reducer, 0, 1);
      EXPECT_TRUE(fails(lockstep_reducer_wait(reducer), LOCKSTEP_ABORTED, "rank 1", 1));
    }
    lockstep_reducer_free(reducer);
  });
}

}  // namespace
}  // namespace lockstep
