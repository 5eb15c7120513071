// First the first ranks of two hosts swap messages, alone on the network; then every rank sends to the rank
// of its number on the next host and hears from the one before. All take the worst of what the ranks found.
#include "collectives/network_probe.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "collectives/call_builder.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/bootstrap/deadline.hpp"

namespace lockstep::internal {
namespace {

constexpr std::uint64_t kShortBytes = 8;
/// What others do can only add to a message's time, so the least of a few tries counts.
constexpr int kShortTries = 8, kShortRounds = 4, kLongTries = 3;
/// Before the bytes that count: networks let so much pass faster than they can go on (a token bucket).
constexpr std::uint64_t kDrainBytes = 256 << 10;
constexpr std::uint64_t kLongBytes = 1 << 20;
/// Longer than this no noise matters, and start-up should not wait.
constexpr Nanos kLongEnough = 5'000'000;

class NetworkProbe {
 public:
  NetworkProbe(Engine& engine, std::chrono::milliseconds timeout)
      : engine_(engine), hosts_(engine.choices().ground().hosts), sent_(kLongBytes), received_(kLongBytes) {
    options_.timeout = timeout;
  }

  Result<MeasuredNetwork> run() {
    auto alone = measure(first_pair());
    if (!alone.ok()) return alone.status();
    auto busy = measure(ring());
    if (!busy.ok()) return busy.status();
    return MeasuredNetwork{alone->latency, alone->byte, busy->latency - alone->latency,
                           busy->byte - alone->byte};
  }

 private:
  /// Whom this rank sends to and hears from; nobody where it takes no part. `sharing`: the ranks of a host
  /// that do.
  struct Partners {
    int next = kNobody, previous = kNobody, sharing = 1;
  };
  struct Figures {
    Nanos latency;
    std::int64_t byte;  ///< Picoseconds.
  };
  static constexpr int kNobody = -1;

  std::vector<int> ranks_of(int host) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < engine_.group().size(); ++rank)
      if (hosts_[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
    return ranks;
  }

  Partners first_pair() const {
    const int first = ranks_of(0).front(), second = ranks_of(1).front(), self = engine_.group().rank;
    if (self != first && self != second) return {};
    return {first + second - self, first + second - self};
  }

  Partners ring() const {
    const int count = *std::max_element(hosts_.begin(), hosts_.end()) + 1;
    const int own = hosts_[static_cast<std::size_t>(engine_.group().rank)];
    std::size_t sharing = hosts_.size();
    for (int host = 0; host < count; ++host) sharing = std::min(sharing, ranks_of(host).size());
    const std::vector<int> mine = ranks_of(own);
    const auto number =
        static_cast<std::size_t>(std::find(mine.begin(), mine.end(), engine_.group().rank) - mine.begin());
    if (number >= sharing) return {};
    return {ranks_of((own + 1) % count)[number], ranks_of((own + count - 1) % count)[number],
            static_cast<int>(sharing)};
  }

  Result<Figures> measure(const Partners& partners) {
    auto latency = least(partners, kShortBytes, kShortRounds, kShortTries);
    if (!latency.ok()) return latency.status();
    const auto share = [&](std::uint64_t bytes) {
      return bytes / static_cast<std::uint64_t>(partners.sharing);
    };
    auto drained = least(partners, share(kDrainBytes), 1, 1);
    if (!drained.ok()) return drained.status();
    const std::uint64_t bytes = *drained < kLongEnough ? kLongBytes : kDrainBytes;
    auto taken = least(partners, share(bytes), 1, kLongTries);
    if (!taken.ok()) return taken.status();
    const Nanos moving = std::max<Nanos>(*taken - *latency, 0);
    return Figures{*latency, moving * 1000 / static_cast<Nanos>(bytes)};
  }

  /// Of `tries` runs of `rounds` messages each way the fastest one's time for a message, as the slowest rank
  /// saw it.
  Result<Nanos> least(const Partners& partners, std::uint64_t bytes, int rounds, int tries) {
    Nanos best = kForever;
    for (int i = 0; i < tries && (i == 0 || best < kLongEnough); ++i) {
      const Nanos start = real_env().now();
      for (int round = 0; round < rounds; ++round) LOCKSTEP_RETURN_IF_ERROR(swap(partners, bytes));
      auto agreed = agree((real_env().now() - start) / rounds);
      if (!agreed.ok()) return agreed;
      best = std::min(best, *agreed);
    }
    return best;
  }

  Status swap(const Partners& partners, std::uint64_t bytes) {
    if (partners.next == kNobody) return {};
    const Nanos timeout = to_nanos(*options_.timeout);
    const Message send{true, sent_.data(), bytes, DataType::u8, partners.next, 0, timeout};
    const Message receive{false, received_.data(), bytes, DataType::u8, partners.previous, 0, timeout};
    if (bytes <= kEagerBytes) {
      auto sent = engine_.run(send);  // Ends without its receiver.
      return sent.ok() ? engine_.run(receive).status() : sent.status();
    }
    const Message both[] = {send, receive};
    Operation* operation = engine_.start_batch({}, {}, both);
    engine_.wait(*operation);
    Status status = operation->status;
    engine_.release(operation);
    return status;
  }

  /// The most of all ranks.
  Result<Nanos> agree(Nanos own) {
    Nanos most = 0;
    CallBuilder call(Collective::all_reduce, engine_, options_);
    call.elements(DataType::i64, 1).reduction(ReduceOp::max).buffers(&own, &most);
    LOCKSTEP_RETURN_IF_ERROR(engine_.run(call.build()));
    return most;
  }

  Engine& engine_;
  const std::vector<int>& hosts_;
  CallOptions options_;
  std::vector<std::byte> sent_, received_;
};

bool worth_measuring(const World& world) {
  const std::vector<Member>& members = world.session->members();
  if (world.model.network.known() || members.size() > kWalkedRanks) return false;
  return !on_one_host(members);
}

}  // namespace

Result<Network> measure_network(const std::shared_ptr<World>& world, std::uint64_t id,
                                std::chrono::milliseconds timeout) {
  if (!worth_measuring(*world)) return world->model.network;
  std::vector<int> ranks(static_cast<std::size_t>(world->session->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const Deadline deadline(real_env(), timeout);
  auto core = CommunicatorCore::make(world, id, "network probe", ranks, timeout);
  if (!core.ok()) return core.status();
  auto left = deadline.left_for("measuring the network");
  if (!left.ok()) return left.status();
  auto measured = NetworkProbe((*core)->engine(), *left).run();
  if (!measured.ok()) {  // A message of its own may have failed, of which the others know nothing.
    (*core)->end_as_unable("measure the network", measured.status());
    return measured.status();
  }
  LOCKSTEP_RETURN_IF_ERROR((*core)->finalize());
  return coarse(*measured);
}

}  // namespace lockstep::internal
