// Our own contender: the public API, and what lockstep-bench knows of the choice of algorithms.
#include "lockstep/lockstep.hpp"

#include <stdexcept>

#include "bench/choice.hpp"
#include "bench/peers/harness.hpp"

namespace {

using lockstep::Communicator;
using lockstep::bench::Arguments;
using lockstep::bench::Operation;
using peers::Call;

const Operation& operation_of(const Call& call) {
  for (const Operation& operation : lockstep::bench::operations()) {
    if (operation.name == peers::name_of(call.op)) return operation;
  }
  throw std::runtime_error("lockstep-bench has no operation " + std::string(peers::name_of(call.op)));
}

lockstep::DataType type_of(const peers::Kind& kind) {
  switch (kind.element) {
    case peers::Element::f32:
      return lockstep::DataType::f32;
    case peers::Element::f16:
      return lockstep::DataType::f16;
    case peers::Element::bf16:
      return lockstep::DataType::bf16;
    case peers::Element::i64:
      return lockstep::DataType::i64;
  }
  throw std::logic_error("an element without a name");
}

lockstep::ReduceOp op_of(const peers::Kind& kind) {
  return kind.reduction == peers::Reduction::sum ? lockstep::ReduceOp::sum : lockstep::ReduceOp::max;
}

Communicator join(const peers::Place& place) {
  lockstep::InitOptions options;
  options.rank = place.rank;
  options.world_size = place.world;
  options.rendezvous = "file://" + place.folder + "/store";
  options.transports = place.option;
  return Communicator::create(options);
}

class Lockstep final : public peers::Contender {
 public:
  explicit Lockstep(const peers::Place& place) : communicator_(join(place)) {}
  ~Lockstep() override { communicator_.finalize(); }

  std::string version() const override { return communicator_.describe(); }
  bool supports(const Call&) const override { return true; }

  std::string algorithm(const Call& call) const override {
    lockstep::bench::Options options;
    options.root = peers::kRoot;
    const auto ground = lockstep::bench::ground_of(communicator_, options);
    const auto choice = lockstep::bench::choose(ground, options, operation_of(call), type_of(call.kind),
                                                op_of(call.kind), call.count());
    return lockstep::bench::algorithm_name(ground, choice, call.registered());
  }

  void* allocate(const Call& call, std::size_t bytes) override {
    return call.registered() ? lockstep::allocate(bytes) : Contender::allocate(call, bytes);
  }
  void release(const Call& call, void* memory) override {
    call.registered() ? lockstep::free(memory) : Contender::release(call, memory);
  }

  std::function<void()> bind(const Call& call, void* in, void* out) override {
    const Arguments arguments{in, out, call.count(), type_of(call.kind), op_of(call.kind), peers::kRoot, {}};
    return [this, arguments, run = operation_of(call).run] { run(communicator_, arguments); };
  }

 private:
  Communicator communicator_;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::run_harness(argc, argv, peers::Waiting::spin, [](const peers::Place& place, peers::Board&) {
    return std::make_unique<Lockstep>(place);
  });
}
