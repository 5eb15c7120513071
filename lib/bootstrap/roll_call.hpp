// Roll call: how ranks that meet in a store find out that they are all there, once each, and of one mind
// about the size of the group.
//
// The first error that any rank finds is written into the store, so that every rank ends with the same
// sentence. Keys: arrivals/R (how many processes called themselves rank R), who/R (the first of them), terms
// (size and secret of the first to come), member/R (published last: R is ready), problem. And, seen by all
// groups that meet there, latest/R: the latest group that R came to, and failed/N: group N met a problem.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/loss.hpp"
#include "lib/bootstrap/member.hpp"

namespace lockstep::internal {

/// Which group `rank` of this process comes to, at a place where it has met `met` times: not to one that it
/// has failed in, nor to one that the others have given up since.
Result<std::uint64_t> next_group(Store& whole, int rank, int world, std::uint64_t met);

class RollCall {
 public:
  /// The latest group that a rank came to, and as which process.
  struct Latest {
    int rank = -1;
    std::uint64_t group = 0;
    std::uint64_t process = 0;  ///< Its process_token(): pids come again.
    std::string who;
  };

  /// `secret_mark` is a short hash of the secret, equal on all ranks. `hint`: what to look at where ranks are
  /// missing; said while this one waits, until `deadline`.
  RollCall(GroupStore& store, Member self, int world, std::string secret_mark, std::string hint,
           const Deadline& deadline)
      : store_(store),
        self_(std::move(self)),
        name_(who_is(self_.rank, self_)),
        world_(world),
        secret_mark_(std::move(secret_mark)),
        hint_(std::move(hint)),
        deadline_(deadline) {}

  /// Step 1: nobody else is this rank, and the first to come was told the same size and secret.
  Status arrive();
  /// Step 2, once deaths of this rank would be noticed: the others may count on it.
  Status publish() { return store_.set_one(member_key(self_.rank), encode(self_)); }
  /// Step 3: waits for all. `lost` tells of a rank that died meanwhile. Names missing ranks on stderr now and
  /// then.
  Result<std::vector<Member>> await_all(const std::function<std::optional<Loss>()>& lost);

  /// The error of a start that fails by this loss, also for the others.
  Status end_by(const Loss& loss);

  /// After a failure: this rank has read it.
  void acknowledge() { (void)store_.add("acknowledged", 1); }
  /// For the host of the store: whether every rank of the group has read the failure.
  bool all_acknowledged();

 private:
  static std::string member_key(int rank) { return "member/" + std::to_string(rank); }
  std::vector<std::string> member_keys() const;
  Status explain_second();
  Status check_terms();
  Status declare(const Status& problem);
  Status find_apart(const std::vector<bool>& present);
  Status tell_apart(const Latest& other);
  std::chrono::milliseconds moment() const;
  std::vector<bool> nobody() const { return std::vector<bool>(static_cast<std::size_t>(world_)); }
  Result<std::vector<bool>> who_is_here(std::chrono::milliseconds patience);
  Status known_problem();
  std::string who(int rank, std::chrono::milliseconds patience);
  std::string missing_text(const std::vector<bool>& present);
  void report_missing(const std::vector<bool>& present, std::int64_t seconds);
  Result<std::vector<Member>> collect();

  GroupStore& store_;
  const Member self_;
  const std::string name_;
  const int world_;
  const std::string secret_mark_;
  const std::string hint_;
  const Deadline deadline_;
};

}  // namespace lockstep::internal
