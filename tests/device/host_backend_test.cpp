// The host backend keeps the rules of streams, events and waits.
#include "lib/device/host/host_backend.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

class HostBackendTest : public ::testing::Test {
 protected:
  ~HostBackendTest() override {
    static_cast<void>(backend_.select(0));
    for (const DeviceStream stream : streams_) static_cast<void>(backend_.destroy_stream(stream));
  }
  DeviceStream stream() {
    streams_.push_back(must(backend_.create_stream(Backend::Priority::normal)));
    return streams_.back();
  }
  std::uint32_t* words(std::size_t count) {
    return static_cast<std::uint32_t*>(must(backend_.allocate_pinned(count * sizeof(std::uint32_t))));
  }
  static void raise(std::uint32_t* word, std::uint32_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }

  HostBackend backend_;
  std::vector<DeviceStream> streams_;
};

/// A GPU runs what a stream has when it is destroyed, and its memory may not be gone by then.
TEST_F(HostBackendTest, FreeingMemoryWaitsForADestroyedStream) {
  std::uint32_t* const gate = words(1);
  void* const memory = must(backend_.allocate(0, 1000, MemoryKind::plain));
  const DeviceStream s = must(backend_.create_stream(Backend::Priority::normal));
  must(backend_.wait_value(gate, 1, s));
  must(backend_.fill(memory, 7, 1000, s));
  must(backend_.destroy_stream(s));
  auto freed = std::async(std::launch::async, [&] { must(backend_.free(memory)); });
  EXPECT_EQ(freed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  raise(gate, 1);
  freed.get();
}

TEST_F(HostBackendTest, AStreamRunsInOrderAndReturnsBefore) {
  const DeviceStream s = stream();
  std::uint32_t* const gate = words(1);
  must(backend_.wait_value(gate, 1, s));  // Nothing below can have run yet.
  auto* const a = static_cast<std::uint8_t*>(must(backend_.allocate_pinned(1000)));
  auto* const b = static_cast<std::uint8_t*>(must(backend_.allocate_pinned(1000)));
  std::memset(a, 1, 1000);
  std::memset(b, 2, 1000);
  must(backend_.copy(b, a, 500, s));
  must(backend_.fill(a, 7, 1000, s));
  must(backend_.copy(b + 500, a, 500, s));
  EXPECT_FALSE(must(backend_.idle(s)));
  EXPECT_EQ(b[0], 2);
  raise(gate, 1);
  must(backend_.synchronize(s));
  EXPECT_TRUE(must(backend_.idle(s)));
  EXPECT_EQ(std::accumulate(b, b + 1000, 0), 500 * 1 + 500 * 7);
}

/// What `call` does on a thread of its own, which works on `device`; where it blocks, until the word is
/// raised.
class Elsewhere {
 public:
  Elsewhere(HostBackend& backend, int device, std::function<Status()> call)
      : result_(std::async(std::launch::async, [&backend, device, call = std::move(call)] {
          must(backend.select(device));
          return call();
        })) {}
  /// Long enough for what does not block.
  bool blocks() { return result_.wait_for(std::chrono::milliseconds(30)) == std::future_status::timeout; }
  void end() { must(result_.get()); }

 private:
  std::future<Status> result_;
};

TEST_F(HostBackendTest, ACopyToPageableMemoryBlocksAllCallsForItsDevice) {
  const DeviceStream s = stream();
  std::uint32_t* const word = words(2);
  const DeviceEvent event = must(backend_.create_event());
  for (const bool to_pageable : {true, false}) {
    std::uint32_t pageable = 5;
    const std::uint32_t turn = to_pageable ? 1 : 2;
    must(backend_.wait_value(word, turn, s));
    Elsewhere copy(backend_, 0, [&] {
      return to_pageable ? backend_.copy(&pageable, word + 1, 4, s)
                         : backend_.copy(word + 1, &pageable, 4, s);
    });
    EXPECT_TRUE(copy.blocks());
    std::optional<Elsewhere> question;  // Asked again where the copy has yet to begin.
    EXPECT_TRUE(lockstep::testing::eventually([&] {
      question.emplace(backend_, 0, [&] { return backend_.query(event).status(); });
      return question->blocks();
    }));
    Elsewhere on_another_device(backend_, 1, [&] { return backend_.locate(word).status(); });
    on_another_device.end();
    raise(word, turn);
    copy.end();
    question->end();
  }
  EXPECT_EQ(word[1], 5u);
  must(backend_.destroy_event(event));
}

TEST_F(HostBackendTest, WhatGivesMemoryBackWaitsForItsDevice) {
  const DeviceStream s = stream();
  std::uint32_t* const word = words(1);
  void* const memory = must(backend_.allocate(0, 64, MemoryKind::plain));
  void* const elsewhere = must(backend_.allocate(1, 64, MemoryKind::plain));
  void* const pinned = must(backend_.allocate_pinned(64));
  must(backend_.wait_value(word, 1, s));
  must(backend_.free(elsewhere));
  Elsewhere frees(backend_, 0, [&] {
    must(backend_.free(memory));
    return backend_.free_pinned(pinned);
  });
  EXPECT_TRUE(frees.blocks());
  raise(word, 1);
  frees.end();
}

TEST_F(HostBackendTest, AQuestionBreaksTheCaptureOfAProcessUnlessItsThreadHeedsNone) {
  const DeviceStream s = stream(), other = stream();
  const DeviceEvent event = must(backend_.create_event());
  must(backend_.record(event, other));
  const auto asked_on_a_thread = [&] {
    Status status;
    std::thread([&] { status = backend_.query(event).status(); }).join();
    return status;
  };
  must(backend_.begin_capture(s, CaptureScope::process));
  std::thread([&] {
    const BesideCaptures beside(backend_);
    must(backend_.synchronize_event(event));
    EXPECT_TRUE(must(backend_.query(event)));
  }).join();
  must(backend_.destroy_graph(must(backend_.end_capture(s))));

  must(backend_.begin_capture(s, CaptureScope::process));
  EXPECT_EQ(asked_on_a_thread().code(), ErrorCode::invalid_argument);
  EXPECT_NE(backend_.end_capture(s).status().message().find("broken"), std::string::npos);
  must(asked_on_a_thread());

  must(backend_.begin_capture(s, CaptureScope::thread));
  must(asked_on_a_thread());
  must(backend_.destroy_graph(must(backend_.end_capture(s))));
  must(backend_.destroy_event(event));
}

TEST_F(HostBackendTest, WhatCouldWaitForRecordedWorkIsRefusedInACaptureAndBreaksIt) {
  const DeviceStream s = stream(), other = stream();
  const DeviceEvent event = must(backend_.create_event());
  must(backend_.record(event, other));
  void* const memory = must(backend_.allocate(0, 64, MemoryKind::plain));
  void* const pinned = must(backend_.allocate_pinned(64));
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"allocating memory", [&] { return backend_.allocate(0, 64, MemoryKind::plain).status(); }},
      {"allocating memory", [&] { return backend_.allocate_pinned(64).status(); }},
      {"freeing memory", [&] { return backend_.free(memory); }},
      {"freeing memory", [&] { return backend_.free_pinned(pinned); }},
      {"waiting for a stream", [&] { return backend_.synchronize(other); }},
      {"asking for the state of a stream", [&] { return backend_.idle(other).status(); }},
      {"waiting for an event", [&] { return backend_.synchronize_event(event); }},
      {"asking for the state of an event", [&] { return backend_.query(event).status(); }},
  };
  for (const auto& [what, call] : calls) {
    must(backend_.begin_capture(s, CaptureScope::thread));
    EXPECT_EQ(call().message(), std::string(what) + " is not allowed while a stream is being captured");
    EXPECT_EQ(backend_.end_capture(s).status().message(),
              std::string("the capture is broken: ") + what + " meanwhile");
  }
  must(backend_.free(memory));  // Nothing was done, and nothing is captured any more.
  must(backend_.free_pinned(pinned));
  must(backend_.destroy_event(event));
}

TEST_F(HostBackendTest, ACaptureThatIsNoneIsRefused) {
  const DeviceStream s = stream();
  EXPECT_EQ(backend_.begin_capture(nullptr, CaptureScope::thread).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(backend_.end_capture(s).status().message(), "the stream is not being captured");
  EXPECT_FALSE(must(backend_.capturing(s)));
  must(backend_.begin_capture(s, CaptureScope::thread));
  EXPECT_TRUE(must(backend_.capturing(s)));
  EXPECT_EQ(backend_.begin_capture(s, CaptureScope::thread).message(),
            "the stream is being captured already");
  const DeviceGraph graph = must(backend_.end_capture(s));
  must(backend_.destroy_graph(graph));
  EXPECT_EQ(backend_.replay(graph, s).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(backend_.destroy_graph(graph).code(), ErrorCode::invalid_argument);
}

TEST_F(HostBackendTest, AWaitComparesAsSequenceNumbersDo) {
  const DeviceStream s = stream();
  std::uint32_t* const word = words(2);
  raise(word, 0xfffffff0u);
  must(backend_.wait_value(word, 0xfffffff0u, s));
  must(backend_.wait_value(word, 0xffffff00u, s));  // Passed already.
  must(backend_.wait_value(word, 3, s));            // Not reached before the wrap.
  must(backend_.write_value(word + 1, 1, s));
  raise(word, 2);
  EXPECT_FALSE(must(backend_.idle(s)));
  EXPECT_EQ(std::atomic_ref(word[1]).load(), 0u);
  raise(word, 4);
  must(backend_.synchronize(s));
  EXPECT_EQ(word[1], 1u);
}

TEST_F(HostBackendTest, StreamsTalkThroughWords) {
  const DeviceStream ping = stream(), pong = stream();
  std::uint32_t* const word = words(2);
  std::uint64_t data = 0;
  constexpr std::uint32_t kRounds = 300;
  struct Add {
    std::uint64_t* to;
  };
  const Add arguments{&data};
  const KernelLaunch add{.name = "add",
                         .arguments = &arguments,
                         .argument_bytes = sizeof arguments,
                         .on_host = [](const void* a) { ++*static_cast<const Add*>(a)->to; }};
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    must(backend_.wait_value(word + 1, round - 1, ping));
    must(backend_.launch(add, ping));
    must(backend_.write_value(word, round, ping));
    const WordOperation wait{WordOperation::Kind::wait, word, round};
    must(backend_.operate({&wait, 1}, pong));
    must(backend_.launch(add, pong));
    must(backend_.write_value(word + 1, round, pong));
  }
  must(backend_.synchronize(pong));
  EXPECT_EQ(data, 2 * kRounds);
}

TEST_F(HostBackendTest, AnAbortEndsAWait) {
  const DeviceStream s = stream();
  std::uint32_t* const word = words(1);
  must(backend_.wait_value(word, 1'000, s));
  const DeviceEvent event = must(backend_.create_event());
  must(backend_.record(event, s));
  EXPECT_FALSE(must(backend_.query(event)));
  raise(word, 0x7fffffffu);  // What an abort does: every value in use counts as reached.
  must(backend_.synchronize_event(event));
  EXPECT_TRUE(must(backend_.query(event)));
  must(backend_.destroy_event(event));
}

TEST_F(HostBackendTest, AWaitForAnEventBindsToTheLastRecordBeforeIt) {
  const DeviceStream first = stream(), second = stream();
  std::uint32_t* const gate = words(1);
  const DeviceEvent event = must(backend_.create_event());
  EXPECT_TRUE(must(backend_.query(event)));  // Nothing recorded.
  must(backend_.wait_event(second, event));  // So nothing to wait for.
  must(backend_.synchronize(second));
  must(backend_.record(event, first));
  must(backend_.wait_event(second, event));
  must(backend_.wait_value(gate, 1, first));
  must(backend_.record(event, first));  // Later than the wait above.
  must(backend_.synchronize(second));   // Does not need the gate.
  must(backend_.wait_event(second, event));
  EXPECT_FALSE(must(backend_.query(event)));
  EXPECT_FALSE(must(backend_.idle(second)));
  raise(gate, 1);
  must(backend_.synchronize(second));
  EXPECT_TRUE(must(backend_.query(event)));
  must(backend_.destroy_event(event));
}

TEST_F(HostBackendTest, ADestroyedStreamRunsWhatItHas) {
  const DeviceStream s = must(backend_.create_stream(Backend::Priority::high));
  std::uint32_t* const word = words(2);
  must(backend_.wait_value(word, 1, s));
  must(backend_.write_value(word + 1, 5, s));
  must(backend_.destroy_stream(s));
  EXPECT_EQ(backend_.synchronize(s).code(), ErrorCode::invalid_argument);
  raise(word, 1);
  const DeviceStream other = stream();
  must(backend_.wait_value(word + 1, 5, other));
  must(backend_.synchronize(other));
}

TEST_F(HostBackendTest, AStreamBelongsToItsDevice) {
  const DeviceStream s = stream();
  std::vector<std::byte> bytes(16);
  {
    const DeviceScope scope(backend_, 3);
    must(scope.status());
    const Status refused = backend_.fill(bytes.data(), 1, bytes.size(), s);
    EXPECT_EQ(refused.message(),
              "the stream belongs to device 0, but this call works on device 3: select device 3 before its "
              "streams are made");
    must(backend_.fill(bytes.data(), 1, bytes.size(), nullptr));
    must(backend_.synchronize(nullptr));
  }
  EXPECT_EQ(must(backend_.selected()), 0);
  EXPECT_EQ(bytes[15], std::byte{1});
  EXPECT_EQ(DeviceScope(backend_, 99).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(backend_.identify(-1).status().code(), ErrorCode::invalid_argument);
}

TEST_F(HostBackendTest, AnAddressIsLocatedInItsAllocation) {
  auto* const memory = static_cast<std::byte*>(must(backend_.allocate(2, 10'000, MemoryKind::plain)));
  const Allocation inside = must(backend_.locate(memory + 9'999));
  EXPECT_EQ(inside.space, MemorySpace::device);
  EXPECT_EQ(inside.device, 2);
  EXPECT_EQ(inside.base, memory);
  EXPECT_EQ(inside.bytes, 10'000u);
  EXPECT_EQ(must(backend_.locate(memory + 10'000)).space, MemorySpace::unregistered);
  must(backend_.free(memory));
  EXPECT_EQ(must(backend_.locate(memory)).space, MemorySpace::unregistered);
  EXPECT_EQ(backend_.free(memory).code(), ErrorCode::invalid_argument);

  auto* const again = static_cast<std::byte*>(must(backend_.allocate(2, 10'000, MemoryKind::plain)));
  EXPECT_NE(must(backend_.locate(again)).generation, inside.generation);
  must(backend_.free(again));

  void* const pinned = must(backend_.allocate_pinned(100));
  EXPECT_EQ(must(backend_.locate(pinned)).space, MemorySpace::pinned);
  must(backend_.free_pinned(pinned));
  EXPECT_EQ(must(backend_.locate(&inside)).space, MemorySpace::unregistered);
}

TEST_F(HostBackendTest, HostMemoryOfTheCallerIsRegisteredByPages) {
  Mapping pages = must(Mapping::map_private(2 * page_size()));
  EXPECT_EQ(backend_.register_host(pages.data() + 1, 100).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(must(backend_.register_host(pages.data(), pages.size())), pages.data());
  EXPECT_EQ(backend_.register_host(pages.data(), pages.size()).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(must(backend_.locate(pages.data() + page_size())).space, MemorySpace::pinned);
  must(backend_.unregister_host(pages.data()));
  EXPECT_EQ(must(backend_.locate(pages.data())).space, MemorySpace::unregistered);
}

}  // namespace
}  // namespace lockstep::internal
