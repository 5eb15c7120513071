// The Gloo contender, over its TCP transport, the only one it has on a host without InfiniBand.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "bench/peers/harness.hpp"

namespace {

using peers::Call;
using peers::Op;
using Context = std::shared_ptr<gloo::rendezvous::Context>;
using Run = std::function<void()>;

void sum(void* out, const void* a, const void* b, std::size_t count) { gloo::sum<float>(out, a, b, count); }

Context connect(const peers::Place& place) {
  const std::string folder = place.folder + "/gloo";
  mkdir(folder.c_str(), 0700);
  gloo::rendezvous::FileStore store(folder);
  const char* address = std::getenv("PEERS_ADDRESS");  // Of this rank's host.
  auto device = gloo::transport::tcp::CreateDevice(
      gloo::transport::tcp::attr(address != nullptr ? address : "127.0.0.1"));
  auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.world);
  context->connectFullMesh(store, device);
  return context;
}

class Gloo final : public peers::Contender {
 public:
  explicit Gloo(const peers::Place& place) : context_(connect(place)) {}

  std::string version() const override { return "Gloo"; }  // the library does not tell
  bool supports(const Call& call) const override {
    return call.kind == peers::Kind{} && (call.op == Op::all_reduce) != (call.variant == "default");
  }
  std::string algorithm(const Call& call) const override {
    return call.op == Op::all_reduce ? call.variant : "-";
  }

  Run bind(const Call& call, void* input, void* output) override {
    auto* const in = static_cast<float*>(input);
    auto* const out = static_cast<float*>(output);
    switch (call.op) {
      case Op::all_reduce:
        return bind_all_reduce(call, out);
      case Op::reduce_scatter:
        return bind_reduce_scatter(call, in, out);
      case Op::reduce:
        return bind_reduce(call, in, out);
      case Op::broadcast:
        return bind_broadcast(call, out);
      case Op::all_gather:
        return bind_all_gather(call, in, out);
      case Op::gather:
        return bind_gather(call, in, out);
      case Op::scatter:
        return bind_scatter(call, in, out);
      case Op::all_to_all:
        return bind_all_to_all(call, in, out);
      case Op::barrier:
        return [this] {
          gloo::BarrierOptions options(context_);
          gloo::barrier(options);
        };
    }
    return {};
  }

 private:
  Run bind_reduce(const Call& call, float* in, float* out) {
    return [this, in, out, count = call.count()] {
      gloo::ReduceOptions options(context_);
      options.setInput(in, count);
      options.setOutput(out, count);
      options.setRoot(peers::kRoot);
      options.setReduceFunction(sum);
      gloo::reduce(options);
    };
  }

  Run bind_broadcast(const Call& call, float* out) {
    return [this, out, count = call.count()] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(out, count);
      options.setRoot(peers::kRoot);
      gloo::broadcast(options);
    };
  }

  Run bind_all_gather(const Call& call, float* in, float* out) {
    return [this, in, out, count = call.count(), all = call.output_count()] {
      gloo::AllgatherOptions options(context_);
      options.setInput(in, count);
      options.setOutput(out, all);
      gloo::allgather(options);
    };
  }

  Run bind_gather(const Call& call, float* in, float* out) {
    return [this, in, out, count = call.count(), all = call.output_count()] {
      gloo::GatherOptions options(context_);
      options.setInput(in, count);
      if (context_->rank == peers::kRoot) options.setOutput(out, all);
      options.setRoot(peers::kRoot);
      gloo::gather(options);
    };
  }

  Run bind_scatter(const Call& call, float* in, float* out) {
    return [this, in, out, count = call.count()] {
      gloo::ScatterOptions options(context_);
      std::vector<float*> blocks;
      for (int rank = 0; rank < context_->size; ++rank) {
        blocks.push_back(in + static_cast<std::size_t>(rank) * count);
      }
      if (context_->rank == peers::kRoot) options.setInputs(blocks, count);
      options.setOutput(out, count);
      options.setRoot(peers::kRoot);
      gloo::scatter(options);
    };
  }

  Run bind_all_to_all(const Call& call, float* in, float* out) {
    return [this, in, out, all = call.input_count()] {
      gloo::AlltoallOptions options(context_);
      options.setInput(in, all);
      options.setOutput(out, all);
      gloo::alltoall(options);
    };
  }

  Run bind_all_reduce(const Call& call, float* out) {
    const std::size_t count = call.count();
    if (call.variant == "ring") {
      return [this, out, count] {
        gloo::AllreduceOptions options(context_);
        options.setOutput(out, count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
      };
    }
    const std::vector<float*> buffers{out};
    const int elements = static_cast<int>(count);
    if (call.variant == "bcube") {
      return keep(std::make_shared<gloo::AllreduceBcube<float>>(context_, buffers, elements));
    }
    return keep(std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context_, buffers, elements));
  }

  // Gloo reduces in place and leaves each rank's block at the front of its buffer.
  Run bind_reduce_scatter(const Call& call, float* in, float* out) {
    const std::vector<int> blocks(static_cast<std::size_t>(call.world), static_cast<int>(call.count()));
    Run run = keep(std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{in}, static_cast<int>(call.input_count()), blocks));
    return [run, in, out, count = call.count()] {
      run();
      std::memcpy(out, in, count * sizeof(float));
    };
  }

  // These classes end an operation with a notification that may still be under way when the call returns, so
  // the last ones outlive their turn.
  Run keep(std::shared_ptr<gloo::Algorithm> algorithm) {
    kept_[next_++ % kKept] = algorithm;
    return [algorithm] { algorithm->run(); };
  }

  static constexpr std::size_t kKept = 4;
  Context context_;
  std::shared_ptr<gloo::Algorithm> kept_[kKept];
  std::size_t next_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::run_harness(argc, argv, peers::Waiting::block, [](const peers::Place& place, peers::Board&) {
    return std::make_unique<Gloo>(place);
  });
}
