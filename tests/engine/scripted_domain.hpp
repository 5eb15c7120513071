// An engine whose ranks share memory: rank 0, the part of whose peer a test writes.
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "collectives/engine/call_identity.hpp"
#include "tests/engine/failing_engine.hpp"

namespace lockstep::internal::testing {

class ScriptedDomain final : public Domain {
 public:
  explicit ScriptedDomain(std::vector<MemberControl*> controls) : Domain(0, std::move(controls)) {}
  std::byte* staging(int) override { return nullptr; }
  Result<std::byte*> resolve(int, const SegmentRef&, std::size_t) override {
    return Status(ErrorCode::internal, "nothing is registered");
  }
  void ring(int member) override { rung.insert(member); }
  int bell_fd() override { return -1; }

  std::set<int> rung;
};

class DomainEngine : public FailingEngine {
 protected:
  DomainEngine() {
    auto domain = std::make_unique<ScriptedDomain>(std::vector{&mine_, &theirs_});
    domain_ = domain.get();
    make(2, std::move(domain));
  }
  /// The peer's part of a call whose payload, here zero, rides beside the flag.
  void answer(const CallFacts& facts, std::uint64_t sequence) {
    InlineLine& line = theirs_.inline_line[sequence % 2];
    line.fingerprint = fingerprint_of(hash_of(facts), sequence);
    line.flag.store(sequence + 1);
  }

  MemberControl mine_{}, theirs_{};
  ScriptedDomain* domain_ = nullptr;
};

}  // namespace lockstep::internal::testing
