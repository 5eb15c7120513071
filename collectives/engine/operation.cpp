#include "collectives/engine/operation.hpp"

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program.hpp"

namespace lockstep::internal {

std::string describe(const CallFacts& facts) {
  std::string text(name_of(facts.collective));
  if (facts.collective == Collective::barrier) return text;
  text += "(" + std::string(name_of(facts.type));
  if (facts.count > 0 || facts.extra == 0) text += " x " + std::to_string(facts.count);
  if (is_reduction(facts.collective)) text += ", " + std::string(name_of(facts.op));
  const bool rooted = facts.collective == Collective::reduce || facts.collective == Collective::broadcast ||
                      facts.collective == Collective::scatter || facts.collective == Collective::gather ||
                      facts.collective == Collective::scatter_v || facts.collective == Collective::gather_v;
  if (rooted) text += ", root " + std::to_string(facts.root);
  if (facts.algorithm > 0 && facts.algorithm <= algorithms().size()) {
    text += ", algorithm " + std::string(algorithms()[facts.algorithm - 1u].name);
  }
  return text + ")";
}

std::string describe(const Message& message) {
  const std::string peer = message.peer == kAnySource ? "any rank" : "rank " + std::to_string(message.peer);
  const std::string tag = message.tag == kAnyTag ? "any tag" : "tag " + std::to_string(message.tag);
  return std::string(message.is_send ? "send" : "recv") + "(" + std::string(name_of(message.type)) + " x " +
         std::to_string(message.count) + (message.is_send ? ") to " : ") from ") + peer + " with " + tag;
}

std::string Operation::describe() const {
  if (kind == Kind::batch) return "batch";
  if (kind == Kind::message) return internal::describe(message);
  return internal::describe(call.facts) + " #" + std::to_string(sequence);
}

}  // namespace lockstep::internal
