#include "lib/bootstrap/still_wanted.hpp"

#include "lib/bootstrap/loss.hpp"

namespace lockstep::internal {

Status explain_loss(const Status& noticed, const StillWanted& still_wanted, Env& env) {
  Status said;
  await_word(env, [&] {
    said = still_wanted();
    return !said.ok();
  });
  return said.ok() ? noticed : said;
}

}  // namespace lockstep::internal
