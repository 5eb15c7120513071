#include "lib/bootstrap/loss.hpp"

#include "lib/bootstrap/deadline.hpp"

namespace lockstep::internal {
namespace {

constexpr std::chrono::milliseconds kWordComesWithin{2'000};
constexpr std::chrono::milliseconds kWordLook{10};

}  // namespace

std::optional<Loss> await_word(Env& env, const std::function<std::optional<Loss>()>& heard) {
  const Deadline moment(env, kWordComesWithin);
  for (; !moment.passed(); sleep_for(kWordLook)) {
    if (auto loss = heard()) return loss;
  }
  return std::nullopt;
}

}  // namespace lockstep::internal
