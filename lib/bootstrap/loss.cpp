#include "lib/bootstrap/loss.hpp"

#include "lib/bootstrap/deadline.hpp"

namespace lockstep::internal {
namespace {

constexpr std::chrono::milliseconds kWordComesWithin{2'000};
constexpr std::chrono::milliseconds kWordLook{10};

}  // namespace

void await_word(Env& env, const std::function<bool()>& heard) {
  const Deadline moment(env, kWordComesWithin);
  while (!moment.passed() && !heard()) sleep_for(kWordLook);
}

}  // namespace lockstep::internal
