// Session: what one rank knows of its job after start-up: who everybody is, the store, the secret, and who
// died.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/loss.hpp"
#include "lib/bootstrap/member.hpp"
#include "lib/bootstrap/store.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

class Session {
 public:
  virtual ~Session() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<Member>& members() const = 0;  ///< Index = rank.
  /// The job's name; of its second group at one rendezvous and later ones with the number behind it
  /// ("job#2").
  virtual const std::string& job_id() const = 0;
  virtual const std::string& secret() const = 0;
  virtual Store& store() = 0;
  /// "torchrun", "lockstep-run", "explicit arguments", "single process" ...
  virtual const std::string& source() const = 0;

  /// `callback` is called on the reactor's thread once per lost rank (also for ranks lost before). One
  /// callback per id; it may not call back into the session. May be called under a lock that the callback
  /// takes.
  virtual void on_loss(std::uint64_t id, std::function<void(const Loss&)> callback) = 0;
  /// After it returned the callback is not running and never will. Call it holding no lock that a callback
  /// takes.
  virtual void remove_loss_callback(std::uint64_t id) = 0;
  /// Tells what another layer found out (a link's end of stream, a pidfd). First report per rank wins and is
  /// spread. Returns at once. Of this rank itself, in place of leave(): it ends after a failure, so the
  /// others take it for lost, also those that wait for it and have heard of no failure. It is on its way when
  /// the session ends; call it as leave().
  virtual void report_loss(const Loss& loss) = 0;
  /// This rank leaves in good order: the others will not take its end for a death. Call it holding no lock
  /// that a callback takes.
  virtual void leave() = 0;
};

/// What errors call a rank of the session.
std::string who_is(const Session& session, int rank);

/// How long the start may take: options.timeout, or LOCKSTEP_START_TIMEOUT where it is unset.
std::chrono::milliseconds start_timeout(const InitOptions& options);
/// `wanted`, but at most kLongestStart, which 0 means as well.
std::chrono::milliseconds limit_of_start(std::chrono::milliseconds wanted);
/// The transport asked for, LOCKSTEP_TRANSPORTS where it is empty.
std::string wanted_transports(std::string_view asked);

/// Resolves who this rank is (options, launchers' variables: lib/bootstrap/launch.hpp), meets the others,
/// exchanges Member entries. Blocks at most start_timeout(options); where it fails kLastMoment longer, in the
/// host of the store 5 s, for the others to hear why. Every rank gets the same error: who is missing, who is
/// there twice, whose world size, secret or transport differs. Names missing ranks on stderr every 5 s.
/// `notice` gives what this rank has to tell all others (Member::notice); called once its number is known.
/// May be empty.
Result<std::unique_ptr<Session>> join_session(const InitOptions& options, Env& env,
                                              const std::function<std::string(int rank)>& notice = {});

}  // namespace lockstep::internal
