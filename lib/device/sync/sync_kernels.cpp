#include "lib/device/sync/sync_kernels.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/device/sync/cuda_kernels.hpp"
#include "lib/device/sync/message_body.hpp"
#include "lib/device/sync/packet_body.hpp"
#include "lib/reduce/cuda/kernel_list.hpp"

namespace lockstep::internal::sync {
namespace {

static_assert(sizeof(PacketArguments) <= KernelLaunch::kArgumentBytes);
static_assert(sizeof(PhaseArguments) <= KernelLaunch::kArgumentBytes);
static_assert(sizeof(PermitArguments) <= KernelLaunch::kArgumentBytes);
static_assert(sizeof(MessageArguments) <= KernelLaunch::kArgumentBytes);
static_assert(sizeof(CourierArguments) <= KernelLaunch::kArgumentBytes);

/// Of a block, on the host; they run one after the other.
constexpr std::size_t kHostThreads = 4;

using Body = void (*)(const PacketArguments&, std::uint64_t epoch, std::size_t thread, std::size_t threads);
using Bodies = std::map<std::pair<DataType, ReduceOp>, Body>;

struct AddBody {
  Bodies* bodies;
  template <class Element, class Op>
  void operator()(DataType type, ReduceOp op) const {
    bodies->emplace(std::pair(type, op), &PacketBody<Element, Op>::run);
  }
};

const Bodies& bodies() {
  static const Bodies all = [] {
    Bodies list;
    cuda::list_all(AddBody{&list});
    return list;
  }();
  return all;
}

/// As packet_kernel.
void run_block(const PacketArguments& call, Body body, int block) {
  const std::uint64_t epoch = call.epochs[block] + 1;
  const auto threads = static_cast<std::size_t>(call.blocks) * kHostThreads;
  for (std::size_t t = 0; t < kHostThreads; ++t)
    body(call, epoch, static_cast<std::size_t>(block) * kHostThreads + t, threads);
  for (int place = block; place < kMaxPacketBlocks; place += call.blocks) call.epochs[place] = epoch;
}

/// The grid: a thread of the host for each block.
template <typename Run>
void run_blocks(int blocks, Run run) {
  std::vector<std::thread> others;
  for (int block = 1; block < blocks; ++block) others.emplace_back([&run, block] { run(block); });
  run(0);
  for (std::thread& other : others) other.join();
}

void run_packets(const void* arguments) {
  PacketArguments call;
  std::memcpy(&call, arguments, sizeof call);
  const Body body = bodies().at({call.type, call.op});
  run_blocks(call.blocks, [&](int block) { run_block(call, body, block); });
}

/// A block of one thread.
struct AloneBlock {
  static bool first() { return true; }
  static std::size_t thread() { return 0; }
  static std::size_t threads() { return 1; }
  static bool any(bool one) { return one; }
  static void sync() {}
};

/// As message_kernel.
void run_messages(const void* arguments) {
  MessageArguments call;
  std::memcpy(&call, arguments, sizeof call);
  run_blocks(call.lists * call.channels,
             [&](int block) { MessageBody<AloneBlock>::run(call, block, AloneBlock()); });
}

/// As courier_kernel.
void run_couriers(const void* arguments) {
  CourierArguments call;
  std::memcpy(&call, arguments, sizeof call);
  run_blocks(call.blocks, [&](int block) { run_courier(call, block, AloneBlock()); });
}

/// As phase_kernel, its threads one after the other between two barriers.
void run_phase(const void* arguments) {
  PhaseArguments phase;
  std::memcpy(&phase, arguments, sizeof phase);
  for (int peer = 0; peer < phase.world; ++peer) PhaseBody::publish(phase, peer);
  for (int peer = 0; peer < phase.world; ++peer) PhaseBody::await(phase, peer);
  if (phase.advance != 0) PhaseBody::end(phase);
}

/// As the permit kernels.
template <typename Part>
void run_permit(const void* arguments, Part part) {
  PermitArguments permit;
  std::memcpy(&permit, arguments, sizeof permit);
  part(permit);
}
void run_enter(const void* arguments) {
  run_permit(arguments, [](const PermitArguments& a) {
    bool open = true;
    for (int peer = 0; peer < a.world; ++peer) open = PermitBody::enter(a, peer) && open;
    *a.permit = open ? 1 : 0;
  });
}
void run_leave(const void* arguments) {
  run_permit(arguments, [](const PermitArguments& a) {
    for (int peer = 0; peer < a.world; ++peer) PermitBody::leave(a, peer);
  });
}
void run_close(const void* arguments) {
  run_permit(arguments, [](const PermitArguments& a) {
    PermitBody::close(a);
    for (int peer = 0; peer < a.world; ++peer) PermitBody::note_writer(a, peer);
  });
}

template <typename Arguments>
Status launch(Backend& backend, const char* name, const Arguments& arguments, void (*on_host)(const void*),
              StartKernel on_cuda, DeviceStream stream) {
  return backend.launch({.name = name,
                         .arguments = &arguments,
                         .argument_bytes = sizeof arguments,
                         .on_host = on_host,
                         .on_cuda = on_cuda},
                        stream);
}

}  // namespace

int packet_blocks(std::uint64_t largest_region_bytes) {
  constexpr std::uint64_t kBlockBytes = kPacketThreads * kPacketPayload;
  const std::uint64_t blocks = (largest_region_bytes + kBlockBytes - 1) / kBlockBytes;
  return static_cast<int>(std::clamp<std::uint64_t>(blocks, 1, kMaxPacketBlocks));
}

Status start(Backend& backend, const PacketArguments& call, DeviceStream stream) {
  return launch(backend, "packets", call, run_packets, cuda_kernels().packets, stream);
}
Status start(Backend& backend, const PhaseArguments& phase, DeviceStream stream) {
  return launch(backend, "phase", phase, run_phase, cuda_kernels().phase, stream);
}
Status start(Backend& backend, const MessageArguments& call, DeviceStream stream) {
  return launch(backend, "messages", call, run_messages, cuda_kernels().messages, stream);
}
Status start(Backend& backend, const CourierArguments& call, DeviceStream stream) {
  return launch(backend, "courier", call, run_couriers, cuda_kernels().courier, stream);
}
Status enter(Backend& backend, const PermitArguments& permit, DeviceStream stream) {
  return launch(backend, "enter", permit, run_enter, cuda_kernels().enter, stream);
}
Status leave(Backend& backend, const PermitArguments& permit, DeviceStream stream) {
  return launch(backend, "leave", permit, run_leave, cuda_kernels().leave, stream);
}
Status close(Backend& backend, const PermitArguments& permit, DeviceStream stream) {
  return launch(backend, "close", permit, run_close, cuda_kernels().close, stream);
}

Status load(Backend& backend, Kernels which) {
  const bool on_host = backend.is_host();
  if (on_host || cuda_kernels().load_all == nullptr) return {};
  return which == Kernels::all ? cuda_kernels().load_all() : cuda_kernels().load_permits();
}

}  // namespace lockstep::internal::sync
