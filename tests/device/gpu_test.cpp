// The CUDA backend on a real GPU; skipped where there is none. Kernels give the bits of lib/reduce, streams
// wait for words, and memory crosses processes.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/device/cuda/cuda_backend.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/reduce/convert.hpp"
#include "lib/reduce/reduce.hpp"
#include "tests/device/small_allocations.hpp"
#include "tests/reduce/reference.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/must.hpp"
#include "transports/cuda_ipc/device_imports.hpp"

namespace lockstep::internal::testing {
namespace {

/// Memory of device 0 with a copy of host bytes in it.
class OnDevice {
 public:
  OnDevice(Backend& backend, const Bytes& bytes, std::size_t past = 0)
      : backend_(backend), bytes_(bytes.size()) {
    memory_ = static_cast<std::byte*>(must(backend.allocate(0, bytes_ + past + 1)));
    place_ = memory_ + past;
    must(backend.copy(place_, bytes.data(), bytes_, nullptr));
  }
  ~OnDevice() { static_cast<void>(backend_.free(memory_)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void* data() const { return place_; }
  Bytes read() const {
    Bytes bytes(bytes_);
    must(backend_.copy(bytes.data(), place_, bytes_, nullptr));
    must(backend_.synchronize(nullptr));
    return bytes;
  }

 private:
  Backend& backend_;
  const std::size_t bytes_;
  std::byte* memory_;
  std::byte* place_;
};

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Backend*> opened = open_cuda_backend();
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    backend_ = *opened;
  }

  /// `past`: elements between a multiple of 16 bytes and where each buffer begins.
  void check_reduction(DataType type, ReduceOp op, std::size_t count, const std::vector<std::size_t>& past) {
    const std::size_t size = size_of(type);
    std::vector<Bytes> inputs;
    std::vector<std::unique_ptr<OnDevice>> there;
    std::vector<const void*> sources, host_sources;
    for (const std::size_t p : past) {
      inputs.push_back(random_elements(type, count, generator_, true));
      there.push_back(std::make_unique<OnDevice>(*backend_, inputs.back(), p * size));
      sources.push_back(there.back()->data());
    }
    for (const Bytes& input : inputs) host_sources.push_back(input.data());
    Bytes expected(count * size);
    const OnDevice one(*backend_, expected, past[0] * size), two(*backend_, expected, past[0] * size);
    void* const destinations[] = {one.data(), two.data()};
    void* const host = expected.data();
    reduce({.type = type, .op = op, .count = count, .divisor = 3}, host_sources, {&host, 1});
    must(backend_->reduce({type, op, count, sources, destinations, 3}, nullptr));
    ASSERT_EQ(first_difference(type, one.read(), expected), count) << name_of(type) << ' ' << name_of(op);
    ASSERT_EQ(first_difference(type, two.read(), expected), count) << name_of(type) << ' ' << name_of(op);
  }

  Backend* backend_ = nullptr;
  Generator generator_{11};
};

TEST_F(Gpu, EveryTypeAndOperator) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < static_cast<int>(ReduceOp::user); ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!internal::check_reduction(type, op).ok()) continue;
      check_reduction(type, op, 1, {0});
      check_reduction(type, op, 100'003, {0, 0});
      check_reduction(type, op, 10'007, {1, 1, 1});
      check_reduction(type, op, 5'003, {0, 1, 2, 3, 4, 5, 6, 7});
    }
  }
}

/// All bit patterns of the small floats, by a sum with zero: widened and narrowed by the GPU's instructions.
TEST_F(Gpu, EverySmallFloatComesBack) {
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    const std::size_t size = size_of(type), count = std::size_t{1} << (8 * size);
    Bytes all(count * size), zeros(count * size), expected(count * size);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(all.data() + i * size, &i, size);
    const OnDevice a(*backend_, all), b(*backend_, zeros), sum(*backend_, zeros);
    const void* const sources[] = {a.data(), b.data()};
    const void* const host_sources[] = {all.data(), zeros.data()};
    void* const destination = sum.data();
    void* const host = expected.data();
    must(backend_->reduce({type, ReduceOp::sum, count, sources, {&destination, 1}}, nullptr));
    reduce({.type = type, .op = ReduceOp::sum, .count = count}, host_sources, {&host, 1});
    EXPECT_EQ(first_difference(type, sum.read(), expected), count) << name_of(type);
  }
}

TEST_F(Gpu, ConversionsOfAllMagnitudes) {
  constexpr std::size_t kCount = 1 << 20, kBlock = 128, kBlocks = kCount / kBlock;
  Bytes input(kCount * sizeof(float));
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<std::uint32_t>(i * 4093);
    std::memcpy(input.data() + i * sizeof bits, &bits, sizeof bits);
  }
  const auto* const floats = reinterpret_cast<const float*>(input.data());
  const OnDevice from(*backend_, input);
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    Bytes expected(kCount * size_of(type));
    const OnDevice to(*backend_, expected);
    must(backend_->convert({DataType::f32, type, from.data(), to.data(), kCount, 0.5f}, nullptr));
    internal::narrow(type, floats, expected.data(), kCount, 0.5f);
    EXPECT_EQ(first_difference(type, to.read(), expected), kCount) << name_of(type);
  }
  for (const DataType type : {DataType::f8e4m3, DataType::f8e5m2}) {
    Bytes codes(kCount), scales(kBlocks * sizeof(float));
    const OnDevice codes_there(*backend_, codes), scales_there(*backend_, scales);
    must(backend_->quantise({type, static_cast<const float*>(from.data()), kCount, kBlock,
                             static_cast<float*>(scales_there.data()), codes_there.data()},
                            nullptr));
    quantise(type, floats, kCount, kBlock, reinterpret_cast<float*>(scales.data()), codes.data());
    EXPECT_EQ(first_difference(DataType::f32, scales_there.read(), scales), kBlocks);
    EXPECT_EQ(first_difference(type, codes_there.read(), codes), kCount) << name_of(type);
  }
}

TEST_F(Gpu, StreamsWaitForWords) {
  const DeviceStream first = must(backend_->create_stream()), second = must(backend_->create_stream());
  auto* const words = static_cast<std::uint32_t*>(must(backend_->allocate_pinned(2 * sizeof(std::uint32_t))));
  must(backend_->wait_value(&words[0], 1, first));
  must(backend_->write_value(&words[1], 7, first));
  must(backend_->wait_value(&words[1], 7, second));
  EXPECT_FALSE(must(backend_->idle(second)));
  std::atomic_ref(words[0]).store(1);
  must(backend_->synchronize(second));
  EXPECT_EQ(words[1], 7u);
  must(backend_->destroy_stream(first));
  must(backend_->destroy_stream(second));
  must(backend_->free_pinned(words));
}

/// The driver cuts small ones from blocks of 2 MiB.
TEST_F(Gpu, SmallAllocationsAreLocatedEachForItself) {
  std::vector<void*> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(must(backend_->allocate(0, 10'000, MemoryKind::plain)));
    const Allocation found = must(backend_->locate(static_cast<std::byte*>(all.back()) + 9'999));
    EXPECT_EQ(found.base, all.back());
    EXPECT_FALSE(found.is_part);
    EXPECT_EQ(backend_->export_memory(all.back()).status().code(), ErrorCode::not_supported);
  }
  for (void* const memory : all) must(backend_->free(memory));
}

TEST_F(Gpu, PointersAreLocated) {
  auto* const memory = static_cast<std::byte*>(must(backend_->allocate(0, 10'000)));
  const Allocation found = must(backend_->locate(memory + 9'999));
  EXPECT_EQ(found.space, MemorySpace::device);
  EXPECT_EQ(found.base, memory);
  EXPECT_GE(found.bytes, 10'000u);
  int plain = 0;
  EXPECT_EQ(must(backend_->locate(&plain)).space, MemorySpace::unregistered);
  void* const pool = must(backend_->allocate(0, 10'000, MemoryKind::pool));
  EXPECT_EQ(backend_->export_memory(pool).status().code(), ErrorCode::not_supported);
  must(backend_->free(pool));
  must(backend_->free(memory));
}

/// And has none afterwards.
TEST_F(Gpu, AThreadWithoutADeviceLocatesExportsAndFrees) {
  void* const memory = must(backend_->allocate(0, kLegacyBlock, MemoryKind::plain));
  std::thread([&] {
    EXPECT_EQ(must(backend_->locate(memory)).base, memory);
    EXPECT_TRUE(must(backend_->export_memory(memory)).has_legacy);
    must(backend_->free(memory));
    EXPECT_EQ(must(backend_->enter(0)), ThreadDevice{0});
    backend_->leave(0);
  }).join();
}

struct Meeting {
  std::atomic<bool> device;  ///< There is one.
  Board board;
  std::uint64_t process;
  SegmentRef ref[2];
  std::array<std::byte, kLegacyHandleBytes> handle;
};

/// A child of a process that used CUDA cannot: a suite of this name runs before all others.
TEST(GpuProcessesDeathTest, MapEachOthersMemoryInBothForms) {
  Shared<Meeting> shared;
  run_forked(2, [&](int rank) {
    Meeting& meeting = *shared;
    Result<Backend*> opened = open_cuda_backend();
    if (!opened.ok()) return;  // On both.
    meeting.device.store(true);
    Backend& backend = **opened;
    const MemoryKind kinds[] = {MemoryKind::plain, MemoryKind::shareable};
    constexpr std::size_t kBytes = 6 << 20;
    DeviceExports exports(backend);
    DeviceImports imports(backend, exports);
    if (rank == 0) {
      meeting.process = process_token();
      meeting.board.post(0, must(descriptor_service_name()));
      std::vector<void*> memory;
      for (std::size_t k = 0; k < 2; ++k) {
        memory.push_back(must(backend.allocate(0, kBytes, kinds[k])));
        must(backend.fill(memory[k], static_cast<std::uint8_t>(k + 1), kBytes, nullptr));
        meeting.ref[k] = *must(exports.share(static_cast<std::byte*>(memory[k]) + 256, 1'000));
      }
      must(backend.synchronize(nullptr));
      meeting.board.meet(2);
      meeting.board.meet(2);
      for (std::size_t k = 0; k < 2; ++k) {
        exports.unshare(meeting.ref[k]);
        EXPECT_FALSE(exports.held(meeting.ref[k]));
        must(backend.free(memory[k]));
      }
      return;
    }
    meeting.board.meet(2);
    const DeviceOwner owner{meeting.process, meeting.board.read(0)};
    for (std::size_t k = 0; k < 2; ++k) {
      const DeviceLease lease = must(imports.resolve(owner, meeting.ref[k], 1'000, 0));
      std::vector<std::uint8_t> bytes(1'000);
      must(backend.copy(bytes.data(), lease.address, bytes.size(), nullptr));
      must(backend.synchronize(nullptr));
      EXPECT_EQ(bytes, std::vector<std::uint8_t>(1'000, static_cast<std::uint8_t>(k + 1)));
    }
    imports.drop_owner(owner.process);
    meeting.board.meet(2);
  });
  if (!shared->device.load()) GTEST_SKIP() << "no CUDA device";
}

/// The driver cuts what is smaller from blocks that have one handle.
TEST(GpuProcessesDeathTest, SmallAllocationsForPeersAreMappedSideBySide) {
  ::setenv("LOCKSTEP_DEVICE_BACKEND", "cuda", 1);
  if (!map_small_allocations_of_a_peer()) GTEST_SKIP() << "no CUDA device";
}

/// The driver gives the same address again.
TEST(GpuProcessesDeathTest, AHandleIsClosedAsOftenAsItWasOpened) {
  Shared<Meeting> shared;
  run_forked(2, [&](int rank) {
    Meeting& meeting = *shared;
    Result<Backend*> opened = open_cuda_backend();
    if (!opened.ok()) return;  // On both.
    meeting.device.store(true);
    Backend& backend = **opened;
    if (rank == 0) {
      void* const memory = must(backend.allocate(0, kLegacyBlock, MemoryKind::plain));
      meeting.handle = must(backend.export_memory(memory)).legacy;
      meeting.board.meet(2);
      meeting.board.meet(2);
      must(backend.free(memory));
      return;
    }
    meeting.board.meet(2);
    must(backend.select(0));
    MemoryExport exported;
    exported.bytes = kLegacyBlock;
    exported.has_legacy = true;
    exported.legacy = meeting.handle;
    void* const first = must(backend.import_memory(exported));
    void* const second = must(backend.import_memory(exported));
    must(backend.close_imported(first));
    must(backend.fill(second, 1, 4096, nullptr));  // Still there.
    must(backend.synchronize(nullptr));
    must(backend.close_imported(second));
    EXPECT_FALSE(backend.close_imported(second).ok());
    meeting.board.meet(2);
  });
  if (!shared->device.load()) GTEST_SKIP() << "no CUDA device";
}

}  // namespace
}  // namespace lockstep::internal::testing
