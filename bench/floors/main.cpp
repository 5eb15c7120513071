// The floors as a contender of tools/compare-peers: variants "registered", "staged", and "tcp-" with the name
// of a congestion control. For 2 ranks, the first two for 4 as well.
#include "bench/floors/floor.hpp"

namespace {

using peers::Call;

constexpr std::string_view kTcp = "tcp-";

class Floors final : public peers::Contender {
 public:
  Floors(const peers::Place& place, peers::Board& board) : registered_(place, board), staged_(place, board) {
    if (place.world == 2) tcp_ = std::make_unique<floors::Tcp>(place);
  }

  std::string version() const override { return "floors"; }

  bool supports(const Call& call) const override {
    if (call.kind != peers::Kind{} || call.op != peers::Op::all_reduce ||
        (call.world != 2 && call.world != 4))
      return false;
    if (call.variant.starts_with(kTcp)) return tcp_ && tcp_->congestion(call.variant.substr(kTcp.size()));
    return call.registered() || call.variant == "staged";
  }

  void* allocate(const Call& call, std::size_t bytes) override {
    return call.registered() ? registered_.allocate(bytes) : Contender::allocate(call, bytes);
  }
  void release(const Call& call, void* memory) override {
    call.registered() ? registered_.release(static_cast<float*>(memory)) : Contender::release(call, memory);
  }

  std::function<void()> bind(const Call& call, void*, void* output) override {
    auto* const memory = static_cast<float*>(output);
    if (call.registered()) return registered_.bind(call.bytes, memory);
    if (call.variant == "staged") return staged_.bind(call.bytes, memory);
    return tcp_->bind(call.bytes, memory);
  }

 private:
  floors::Registered registered_;
  floors::Staged staged_;
  std::unique_ptr<floors::Tcp> tcp_;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::run_harness(
      argc, argv, peers::Waiting::spin,
      [](const peers::Place& place, peers::Board& board) { return std::make_unique<Floors>(place, board); });
}
