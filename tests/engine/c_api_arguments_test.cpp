// Wrong arguments of the C API: each is refused with a code and a text, before anything is touched.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "tests/engine/c_group.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using testing::alone;
using testing::fails;
using testing::ok;
using testing::refuses_null;

constexpr lockstep_comm_t kNoComm = nullptr;
constexpr auto kF32 = LOCKSTEP_F32;
constexpr auto kSum = LOCKSTEP_SUM;

// The enumerations are copies: what C passes as a number, C++ must take for the same.
static_assert(LOCKSTEP_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument));
static_assert(LOCKSTEP_MISMATCH == static_cast<int>(ErrorCode::mismatch));
static_assert(LOCKSTEP_PEER_LOST == static_cast<int>(ErrorCode::peer_lost));
static_assert(LOCKSTEP_TIMEOUT == static_cast<int>(ErrorCode::timeout));
static_assert(LOCKSTEP_ABORTED == static_cast<int>(ErrorCode::aborted));
static_assert(LOCKSTEP_REFUSED == static_cast<int>(ErrorCode::refused));
static_assert(LOCKSTEP_SYSTEM == static_cast<int>(ErrorCode::system));
static_assert(LOCKSTEP_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(LOCKSTEP_NOT_SUPPORTED == static_cast<int>(ErrorCode::not_supported));
static_assert(LOCKSTEP_CONFIGURATION == static_cast<int>(ErrorCode::configuration));
static_assert(LOCKSTEP_UNAUTHORIZED == static_cast<int>(ErrorCode::unauthorized));
static_assert(LOCKSTEP_INTERNAL == static_cast<int>(ErrorCode::internal));
static_assert(LOCKSTEP_DEVICE_FAILED == static_cast<int>(ErrorCode::device_failed));
static_assert(LOCKSTEP_ANY_SOURCE == kAnySource && LOCKSTEP_ANY_TAG == kAnyTag);

TEST(CApiArguments, TypesAndOperatorsAreThoseOfCpp) {
  const std::vector<std::pair<lockstep_type_t, const char*>> types = {
      {LOCKSTEP_F16, "f16"},       {LOCKSTEP_BF16, "bf16"},
      {LOCKSTEP_F32, "f32"},       {LOCKSTEP_F64, "f64"},
      {LOCKSTEP_I8, "i8"},         {LOCKSTEP_U8, "u8"},
      {LOCKSTEP_I32, "i32"},       {LOCKSTEP_U32, "u32"},
      {LOCKSTEP_I64, "i64"},       {LOCKSTEP_U64, "u64"},
      {LOCKSTEP_BOOL, "bool"},     {LOCKSTEP_COMPLEX64, "complex64"},
      {LOCKSTEP_F8E4M3, "f8e4m3"}, {LOCKSTEP_COMPLEX128, "complex128"},
      {LOCKSTEP_F8E5M2, "f8e5m2"}};
  EXPECT_EQ(types.size(), std::size_t{kDataTypeCount});
  for (const auto& [type, name] : types) {
    EXPECT_EQ(name_of(static_cast<DataType>(type)), name);
    EXPECT_EQ(lockstep_type_size(type), size_of(static_cast<DataType>(type))) << name;
    EXPECT_GT(lockstep_type_size(type), 0u) << name;
  }
  const std::vector<std::pair<lockstep_op_t, const char*>> operators = {
      {LOCKSTEP_SUM, "sum"},  {LOCKSTEP_PROD, "prod"}, {LOCKSTEP_MIN, "min"},
      {LOCKSTEP_MAX, "max"},  {LOCKSTEP_AVG, "avg"},   {LOCKSTEP_BAND, "band"},
      {LOCKSTEP_BOR, "bor"},  {LOCKSTEP_BXOR, "bxor"}, {LOCKSTEP_PREMUL_SUM, "premul_sum"},
      {LOCKSTEP_USER, "user"}};
  EXPECT_EQ(operators.size(), std::size_t{kReduceOpCount});
  for (const auto& [op, name] : operators) EXPECT_EQ(name_of(static_cast<ReduceOp>(op)), name);
}

TEST(CApiArguments, NoCommunicator) {
  run_forked(1, [](int) {
    float x = 0;
    const std::size_t one = 1;
    lockstep_comm_t part = nullptr;
    lockstep_batch_t batch = nullptr;
    lockstep_plan_t plan = nullptr;
    lockstep_reducer_t reducer = nullptr;
    EXPECT_TRUE(refuses_null(lockstep_split(kNoComm, 0, 0, &part), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_finalize(kNoComm), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_abort(kNoComm, "why"), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_state(kNoComm), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_refuse(kNoComm, "all_reduce", "why"), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_rendezvous_create("job", "secret", nullptr), "rendezvous"));
    EXPECT_EQ(lockstep_describe(kNoComm), nullptr);
    EXPECT_EQ(lockstep_rank(kNoComm), -1);
    EXPECT_EQ(lockstep_size(kNoComm), -1);
    lockstep_work_t started = nullptr;
    for (lockstep_work_t* work : {static_cast<lockstep_work_t*>(nullptr), &started}) {
      const auto refused = [](lockstep_error_t result) {
        EXPECT_TRUE(refuses_null(result, "comm"));
        EXPECT_NE(lockstep_register(nullptr, 0), LOCKSTEP_OK);  // So that the next text is the next call's.
      };
      refused(lockstep_all_reduce(kNoComm, &x, &x, 1, kF32, kSum, nullptr, work));
      refused(lockstep_reduce(kNoComm, &x, &x, 1, kF32, kSum, 0, nullptr, work));
      refused(lockstep_broadcast(kNoComm, &x, 1, kF32, 0, nullptr, work));
      refused(lockstep_scatter(kNoComm, &x, &x, 1, kF32, 0, nullptr, work));
      refused(lockstep_gather(kNoComm, &x, &x, 1, kF32, 0, nullptr, work));
      refused(lockstep_all_gather(kNoComm, &x, &x, 1, kF32, nullptr, work));
      refused(lockstep_reduce_scatter(kNoComm, &x, &x, 1, kF32, kSum, nullptr, work));
      refused(lockstep_all_to_all(kNoComm, &x, &x, 1, kF32, nullptr, work));
      refused(lockstep_barrier(kNoComm, nullptr, work));
      refused(lockstep_scatter_v(kNoComm, &x, &one, &x, 1, kF32, 0, nullptr, work));
      refused(lockstep_gather_v(kNoComm, &x, 1, &x, &one, kF32, 0, nullptr, work));
      refused(lockstep_all_gather_v(kNoComm, &x, &x, &one, kF32, nullptr, work));
      refused(lockstep_reduce_scatter_v(kNoComm, &x, &x, &one, kF32, kSum, nullptr, work));
      refused(lockstep_all_to_all_v(kNoComm, &x, &one, &x, &one, kF32, nullptr, work));
      refused(lockstep_send(kNoComm, &x, 1, kF32, 0, 0, nullptr, work));
      refused(lockstep_recv(kNoComm, &x, 1, kF32, 0, 0, nullptr, nullptr, nullptr, nullptr, work));
    }
    EXPECT_TRUE(refuses_null(lockstep_batch_create(kNoComm, &batch), "comm"));
    EXPECT_TRUE(
        refuses_null(lockstep_plan_all_reduce(kNoComm, &x, &x, 1, kF32, kSum, nullptr, &plan), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_plan_broadcast(kNoComm, &x, 1, kF32, 0, nullptr, &plan), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_plan_all_gather(kNoComm, &x, &x, 1, kF32, nullptr, &plan), "comm"));
    EXPECT_TRUE(
        refuses_null(lockstep_plan_reduce_scatter(kNoComm, &x, &x, 1, kF32, kSum, nullptr, &plan), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_reducer_create(kNoComm, nullptr, 0, nullptr, &reducer), "comm"));
    EXPECT_TRUE(!part && !started && !batch && !plan && !reducer);
    lockstep_comm_free(kNoComm);
  });
}

TEST(CApiArguments, NoHandleOfAnOperation) {
  run_forked(1, [](int) {
    float x = 0;
    int done = 0;
    lockstep_work_t work = nullptr;
    EXPECT_TRUE(refuses_null(lockstep_batch_all_reduce(nullptr, &x, &x, 1, kF32, kSum, nullptr), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_batch_broadcast(nullptr, &x, 1, kF32, 0, nullptr), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_batch_send(nullptr, &x, 1, kF32, 0, 0, nullptr), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_batch_recv(nullptr, &x, 1, kF32, 0, 0, nullptr), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_batch_submit(nullptr, nullptr), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_batch_submit(nullptr, &work), "batch"));
    EXPECT_TRUE(refuses_null(lockstep_plan_start(nullptr, nullptr), "plan"));
    EXPECT_TRUE(refuses_null(lockstep_plan_start(nullptr, &work), "plan"));
    EXPECT_TRUE(refuses_null(lockstep_work_wait(nullptr), "work"));
    EXPECT_TRUE(refuses_null(lockstep_work_wait_for(nullptr, 0, &done), "work"));
    EXPECT_TRUE(refuses_null(lockstep_work_test(nullptr, &done), "work"));
    EXPECT_TRUE(refuses_null(lockstep_work_status(nullptr, nullptr, nullptr, nullptr), "work"));
    EXPECT_EQ(work, nullptr);
    lockstep_batch_free(nullptr);
    lockstep_plan_free(nullptr);
    lockstep_work_free(nullptr);
    lockstep_free(nullptr);
  });
}

TEST(CApiArguments, NoPlaceForTheResult) {
  run_forked(1, [](int) {
    float x = 0;
    lockstep_init_t init{};
    EXPECT_TRUE(refuses_null(lockstep_allocate(1, nullptr), "pointer"));
    EXPECT_TRUE(refuses_null(lockstep_create(&init, nullptr), "comm"));
    EXPECT_TRUE(refuses_null(lockstep_local_group(1, nullptr, nullptr), "comms"));
    lockstep_comm_t comm = alone();
    EXPECT_TRUE(refuses_null(lockstep_split(comm, 0, 0, nullptr), "part"));
    EXPECT_TRUE(refuses_null(lockstep_batch_create(comm, nullptr), "batch"));
    EXPECT_TRUE(
        refuses_null(lockstep_plan_all_reduce(comm, &x, &x, 1, kF32, kSum, nullptr, nullptr), "plan"));
    EXPECT_TRUE(refuses_null(lockstep_plan_broadcast(comm, &x, 1, kF32, 0, nullptr, nullptr), "plan"));
    EXPECT_TRUE(refuses_null(lockstep_plan_all_gather(comm, &x, &x, 1, kF32, nullptr, nullptr), "plan"));
    EXPECT_TRUE(
        refuses_null(lockstep_plan_reduce_scatter(comm, &x, &x, 1, kF32, kSum, nullptr, nullptr), "plan"));
    lockstep_work_t work = nullptr;
    ok(lockstep_barrier(comm, nullptr, &work));
    EXPECT_TRUE(refuses_null(lockstep_work_wait_for(work, 0, nullptr), "done"));
    EXPECT_TRUE(refuses_null(lockstep_work_test(work, nullptr), "done"));
    ok(lockstep_work_wait(work));
    lockstep_work_free(work);
    EXPECT_EQ(lockstep_state(comm), LOCKSTEP_OK);
    lockstep_comm_free(comm);
  });
}

/// Of a group that has no wrong call behind it. `word` is in the text; the buffer, all 5, stays as it was.
void expect_refused(const std::string& word,
                    const std::function<lockstep_error_t(lockstep_comm_t, float*)>& call) {
  lockstep_comm_t comm = alone();
  std::vector<float> data(8, 5);
  EXPECT_TRUE(fails(call(comm, data.data()), LOCKSTEP_INVALID_ARGUMENT, word, 0));
  EXPECT_EQ(std::count(data.begin(), data.end(), 5.0f), 8) << word;
  lockstep_comm_free(comm);
}

TEST(CApiArguments, OfCollectives) {
  run_forked(1, [](int) {
    const auto type = static_cast<lockstep_type_t>(256 + LOCKSTEP_F32);  // Not taken for what a byte holds.
    const auto op = static_cast<lockstep_op_t>(256 + LOCKSTEP_SUM);
    EXPECT_EQ(lockstep_type_size(type), 0u);
    EXPECT_EQ(lockstep_type_size(static_cast<lockstep_type_t>(-1)), 0u);
    using Comm = lockstep_comm_t;
    expect_refused("no element type", [=](Comm c, float* x) {
      return lockstep_all_reduce(c, x, x, 1, type, kSum, nullptr, nullptr);
    });
    expect_refused("no element type", [](Comm c, float* x) {
      return lockstep_all_reduce(c, x, x, 1, static_cast<lockstep_type_t>(-1), kSum, nullptr, nullptr);
    });
    expect_refused("reduction 255 does not exist", [=](Comm c, float* x) {
      return lockstep_all_reduce(c, x, x, 1, kF32, op, nullptr, nullptr);
    });
    expect_refused("user_op", [](Comm c, float* x) {
      return lockstep_all_reduce(c, x, x, 1, kF32, LOCKSTEP_USER, nullptr, nullptr);
    });
    expect_refused("input is null", [](Comm c, float* x) {
      return lockstep_reduce(c, nullptr, x, 1, kF32, kSum, 0, nullptr, nullptr);
    });
    expect_refused("root 1 is out of range",
                   [](Comm c, float* x) { return lockstep_broadcast(c, x, 1, kF32, 1, nullptr, nullptr); });
    expect_refused("root -1 is out of range",
                   [](Comm c, float* x) { return lockstep_scatter(c, x, x, 1, kF32, -1, nullptr, nullptr); });
    expect_refused("output is null", [](Comm c, float* x) {
      return lockstep_gather(c, x, nullptr, 1, kF32, 0, nullptr, nullptr);
    });
    expect_refused("overlap", [](Comm c, float* x) {
      return lockstep_all_gather(c, x, x + 1, 4, kF32, nullptr, nullptr);
    });
    expect_refused("not aligned to 4 bytes", [](Comm c, float* x) {
      return lockstep_reduce_scatter(c, reinterpret_cast<char*>(x) + 1, x + 4, 1, kF32, kSum, nullptr,
                                     nullptr);
    });
    expect_refused("does not work in place",
                   [](Comm c, float* x) { return lockstep_all_to_all(c, x, x, 1, kF32, nullptr, nullptr); });
    expect_refused("more than memory holds", [](Comm c, float* x) {
      return lockstep_broadcast(c, x, static_cast<std::size_t>(-1), kF32, 0, nullptr, nullptr);
    });
    expect_refused("rong", [](Comm c, float* x) {
      lockstep_options_t options = LOCKSTEP_OPTIONS_INIT;
      options.algorithm = "rong";
      return lockstep_all_reduce(c, x, x, 1, kF32, kSum, &options, nullptr);
    });
  });
}

TEST(CApiArguments, OfCollectivesWithCounts) {
  run_forked(1, [](int) {
    using Comm = lockstep_comm_t;
    expect_refused("counts has 0 entries", [](Comm c, float* x) {
      return lockstep_scatter_v(c, x, nullptr, x, 1, kF32, 0, nullptr, nullptr);
    });
    expect_refused("counts has 0 entries", [](Comm c, float* x) {
      return lockstep_gather_v(c, x, 1, x, nullptr, kF32, 0, nullptr, nullptr);
    });
    expect_refused("counts has 0 entries", [](Comm c, float* x) {
      return lockstep_all_gather_v(c, x, x, nullptr, kF32, nullptr, nullptr);
    });
    expect_refused("counts has 0 entries", [](Comm c, float* x) {
      return lockstep_reduce_scatter_v(c, x, x, nullptr, kF32, kSum, nullptr, nullptr);
    });
    expect_refused("one entry per rank", [](Comm c, float* x) {
      return lockstep_all_to_all_v(c, x, nullptr, x + 4, nullptr, kF32, nullptr, nullptr);
    });
    expect_refused("own count is 1", [](Comm c, float* x) {
      const std::size_t two = 2;
      return lockstep_scatter_v(c, x, &two, x, 1, kF32, 0, nullptr, nullptr);
    });
  });
}

/// What is wrong with a message is known at once; the communicator goes on.
TEST(CApiArguments, OfMessages) {
  run_forked(1, [](int) {
    lockstep_comm_t comm = alone();
    float x = 5;
    lockstep_work_t work = nullptr;
    const auto refused = [](lockstep_error_t result, const char* word) {
      EXPECT_TRUE(fails(result, LOCKSTEP_INVALID_ARGUMENT, word));
    };
    refused(lockstep_send(comm, &x, 1, kF32, 1, 0, nullptr, nullptr), "destination 1 is out of range");
    refused(lockstep_send(comm, &x, 1, kF32, LOCKSTEP_ANY_SOURCE, 0, nullptr, &work), "destination -1");
    refused(lockstep_send(comm, &x, 1, kF32, 0, LOCKSTEP_ANY_TAG, nullptr, nullptr), "tag -1 is negative");
    refused(lockstep_send(comm, nullptr, 1, kF32, 0, 0, nullptr, nullptr), "the buffer is null");
    refused(lockstep_recv(comm, &x, 1, kF32, 7, 0, nullptr, nullptr, nullptr, nullptr, &work), "source 7");
    refused(lockstep_recv(comm, &x, 1, kF32, 0, -2, nullptr, nullptr, nullptr, nullptr, nullptr), "tag -2");
    refused(lockstep_recv(comm, &x, 1, static_cast<lockstep_type_t>(99), 0, 0, nullptr, nullptr, nullptr,
                          nullptr, nullptr),
            "no element type 99");
    lockstep_batch_t batch = nullptr;
    ok(lockstep_batch_create(comm, &batch));
    refused(lockstep_batch_send(batch, &x, 1, kF32, 1, 0, nullptr), "destination 1");
    refused(lockstep_batch_recv(batch, nullptr, 1, kF32, 0, 0, nullptr), "the buffer is null");
    ok(lockstep_batch_submit(batch, nullptr));  // Neither is in it.
    lockstep_batch_free(batch);
    EXPECT_EQ(work, nullptr);
    EXPECT_EQ(x, 5);
    EXPECT_EQ(lockstep_state(comm), LOCKSTEP_OK);
    lockstep_comm_free(comm);
  });
}

/// A collective that is wrong in a batch or a plan takes its place in the order, and is refused there.
TEST(CApiArguments, OfWhatStartsLater) {
  run_forked(1, [](int) {
    using Comm = lockstep_comm_t;
    const auto submitted = [](Comm comm, const std::function<lockstep_error_t(lockstep_batch_t)>& add) {
      lockstep_batch_t batch = nullptr;
      ok(lockstep_batch_create(comm, &batch));
      ok(add(batch));
      const lockstep_error_t result = lockstep_batch_submit(batch, nullptr);
      lockstep_batch_free(batch);
      return result;
    };
    expect_refused("input is null", [&](Comm c, float* x) {
      return submitted(c, [&](auto batch) {
        return lockstep_batch_all_reduce(batch, nullptr, x, 1, kF32, kSum, nullptr);
      });
    });
    expect_refused("root 1 is out of range", [&](Comm c, float* x) {
      return submitted(c,
                       [&](auto batch) { return lockstep_batch_broadcast(batch, x, 1, kF32, 1, nullptr); });
    });
    const auto run = [](lockstep_error_t made, lockstep_plan_t plan) {
      ok(made);
      const lockstep_error_t result = lockstep_plan_start(plan, nullptr);
      lockstep_plan_free(plan);
      return result;
    };
    lockstep_plan_t plan = nullptr;
    expect_refused("input is null", [&](Comm c, float* x) {
      const auto made = lockstep_plan_all_reduce(c, nullptr, x, 1, kF32, kSum, nullptr, &plan);
      return run(made, plan);
    });
    expect_refused("root 1 is out of range", [&](Comm c, float* x) {
      const auto made = lockstep_plan_broadcast(c, x, 1, kF32, 1, nullptr, &plan);
      return run(made, plan);
    });
    expect_refused("output is null", [&](Comm c, float* x) {
      const auto made = lockstep_plan_all_gather(c, x, nullptr, 1, kF32, nullptr, &plan);
      return run(made, plan);
    });
    expect_refused("no element type", [&](Comm c, float* x) {
      const auto made =
          lockstep_plan_reduce_scatter(c, x, x, 1, static_cast<lockstep_type_t>(99), kSum, nullptr, &plan);
      return run(made, plan);
    });
  });
}

TEST(CApiArguments, OfMemory) {
  run_forked(1, [](int) {
    void* pointer = nullptr;
    EXPECT_EQ(lockstep_allocate(0, &pointer), LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_EQ(lockstep_allocate(static_cast<std::size_t>(-1) / 2, &pointer), LOCKSTEP_OUT_OF_MEMORY);
    EXPECT_EQ(pointer, nullptr);
    EXPECT_TRUE(fails(lockstep_register(nullptr, 4096), LOCKSTEP_INVALID_ARGUMENT, "null or empty"));
    EXPECT_TRUE(fails(lockstep_deregister(nullptr), LOCKSTEP_INVALID_ARGUMENT, "not the start"));
    ok(lockstep_allocate(4096, &pointer));
    EXPECT_TRUE(is_registered(pointer, 4096));
    EXPECT_TRUE(fails(lockstep_deregister(pointer), LOCKSTEP_INVALID_ARGUMENT, "deregister"));
    lockstep_free(pointer);
  });
}

}  // namespace
}  // namespace lockstep
