#include "lib/bootstrap/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lib/base/config.hpp"
#include "lib/base/parse.hpp"
#include "lib/bootstrap/digest.hpp"
#include "lib/bootstrap/group_number.hpp"
#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/launch.hpp"
#include "lib/bootstrap/launch_source.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/local_session.hpp"
#include "lib/bootstrap/loss_board.hpp"
#include "lib/bootstrap/loss_channel.hpp"
#include "lib/bootstrap/rendezvous.hpp"
#include "lib/bootstrap/roll_call.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/net/abstract_socket.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

// After a failed start the host of the store stays this long for the others to read why.
constexpr milliseconds kFailureLinger{5'000};
constexpr milliseconds kLingerLook{10};
// How often a rank that waits for the secret looks whether rank 0 died.
constexpr milliseconds kSecretLook{200};
constexpr std::size_t kDrawnSecretBytes = 32;
// Of a group whose store a rank's process serves: that rank.
constexpr const char* kServerKey = "server";
// Enough to notice that two secrets differ, too few to find one by them.
constexpr std::size_t kSecretMarkBytes = 4;

class JoinedSession final : public Session {
 public:
  JoinedSession(Launch launch, std::string secret, Meeting meeting, std::uint64_t group)
      : launch_(std::move(launch)),
        job_id_(group == 1 ? launch_.job_id : launch_.job_id + "#" + std::to_string(group)),
        secret_(std::move(secret)),
        meeting_(std::move(meeting)),
        store_(meeting_.store, group),
        board_(LossBoard::make(launch_.rank, launch_.world_size)) {}

  Status join(const Deadline& deadline, Env& env, std::string transports, std::string notice) {
    const Digest digest = hmac_sha256(as_bytes(secret_), as_bytes("lockstep roll call"));
    const std::string mark(as_text(std::span(digest).first(kSecretMarkBytes)));
    Member self = this_member(launch_.rank);
    self.transports = std::move(transports);
    self.notice = std::move(notice);
    show_life_sign(self);
    RollCall roll_call(store_, std::move(self), launch_.world_size, mark, meeting_.hint, deadline);
    Status status = with_hint(meet(roll_call, deadline, env), meeting_.hint);
    meeting_.store->be_patient_until(0);  // The start may wait for ever; a destructor may not.
    if (status.ok()) return status;
    end_failed_start(roll_call, status, env);
    if (status.code() != ErrorCode::peer_lost || status.culprit() >= 0 || meeting_.server_rank != 0)
      return status;
    return Status(ErrorCode::peer_lost,
                  "rank 0, which hosts the store, was lost while the ranks met: " + end_of_host(status, env),
                  0);
  }

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.world_size; }
  const std::vector<Member>& members() const override { return members_; }
  const std::string& job_id() const override { return job_id_; }
  const std::string& secret() const override { return secret_; }
  Store& store() override { return store_; }
  const std::string& source() const override { return launch_.source; }
  void on_loss(std::uint64_t id, std::function<void(const Loss&)> callback) override {
    board_->listen(id, std::move(callback));
  }
  void remove_loss_callback(std::uint64_t id) override { board_->remove(id); }
  void report_loss(const Loss& loss) override {
    if (loss.rank == launch_.rank && tell_server_here(loss)) return;
    board_->add(loss);
    channel_->report(loss);
  }
  void leave() override {
    channel_->leave();
    if (launch_.is_served()) StoreServer::leave_here(meeting_.client->server, store_.number(), launch_.rank);
  }

 private:
  /// Before the others hear of this rank: a sign that they never saw is not missed.
  void show_life_sign(const Member& self) {
    if (meeting_.client) return;  // The server misses the connection.
    if (auto sign = LifeSign::show(life_sign_of(self)); sign.ok()) life_sign_ = std::move(*sign);
  }

  /// A server in this process may end with it before it has read what comes over a connection. False where
  /// there is none.
  bool tell_server_here(const Loss& own) {
    if (meeting_.hosted)
      return StoreServer::lose_here(meeting_.hosted->server().address(), store_.number(), own);
    return launch_.is_served() && StoreServer::lose_here(meeting_.client->server, store_.number(), own);
  }

  /// Rank 0 may have met the others and failed since: of this the session hears when its store has ended.
  std::string end_of_host(const Status& noticed, Env& env) {
    if (!channel_) return noticed.message();
    std::string evidence = noticed.message();
    await_word(env, [&] {
      const auto loss = board_->first();
      if (!loss || loss->rank != 0) return false;
      evidence = loss->evidence;
      return true;
    });
    return evidence;
  }

  Status meet(RollCall& roll_call, const Deadline& deadline, Env& env) {
    LOCKSTEP_RETURN_IF_ERROR(roll_call.arrive());
    if (launch_.is_served() && launch_.own_numbers)
      LOCKSTEP_RETURN_IF_ERROR(store_.set_one(kOwnNumbersKey, "1"));
    if (meeting_.client) {
      auto watch =
          connect_to_server(*meeting_.client, HandshakeService::watch, deadline.left(), env, meeting_.report);
      if (!watch.ok()) return watch.status();
      channel_ = make_tcp_loss_channel(std::move(*watch), meeting_.server_rank, board_);
    }
    if (launch_.is_served() && StoreServer::is_here(meeting_.client->server))
      LOCKSTEP_RETURN_IF_ERROR(store_.set_one(kServerKey, std::to_string(launch_.rank)));
    LOCKSTEP_RETURN_IF_ERROR(roll_call.publish());
    auto members = roll_call.await_all([this] { return board_->first(); });
    if (!members.ok()) return members.status();
    members_ = std::move(*members);
    LOCKSTEP_RETURN_IF_ERROR(check_transports(members_));
    if (!channel_) channel_ = make_store_loss_channel(store(), launch_.rank, members_, board_);
    if (launch_.is_served()) LOCKSTEP_RETURN_IF_ERROR(find_server());
    return meeting_.client ? Status() : agree_on_secret(roll_call, deadline);
  }

  /// Of a served store: a rank's process may do it, whose death nobody else would tell.
  Status find_server() {
    const auto known = store_.wait(std::vector<std::string>{kServerKey}, milliseconds(0));
    if (!known.ok() || !known.value().front()) return known.status();
    const auto text = store_.get_one(kServerKey, milliseconds(0));
    if (!text.ok()) return text.status();
    const std::optional<std::int64_t> rank = parse_integer(text.value());
    if (!rank || *rank < 0 || *rank >= launch_.world_size)
      return Status(ErrorCode::unauthorized, "what the store says of its server is damaged");
    meeting_.server_rank = static_cast<int>(*rank);
    channel_->server_is(meeting_.server_rank);
    return Status();
  }

  /// Where the store is private to the job's user, rank 0 draws a secret for the links of ranks that were
  /// given none.
  Status agree_on_secret(RollCall& roll_call, const Deadline& deadline) {
    if (!secret_.empty()) return Status();
    if (launch_.rank == 0) {
      std::array<std::uint8_t, kDrawnSecretBytes> bytes;
      secure_random(bytes);
      LOCKSTEP_RETURN_IF_ERROR(store().set_one("secret", std::string(bytes.begin(), bytes.end())));
    }
    for (;;) {
      auto secret = store().get_one("secret", std::min(deadline.left(), kSecretLook));
      if (secret.ok()) secret_ = *secret;
      if (secret.status().code() != ErrorCode::timeout || deadline.passed()) return secret.status();
      if (const auto loss = board_->first(); loss && loss->rank == 0) return roll_call.end_by(*loss);
    }
  }

  void end_failed_start(RollCall& roll_call, const Status& why, Env& env) {
    // Who has not come in time, or is dead, need not be waited for. Nor is a store asked once more that may
    // be late itself.
    const bool more_will_come = why.code() != ErrorCode::timeout && why.code() != ErrorCode::peer_lost;
    if (more_will_come) roll_call.acknowledge();
    if (channel_) channel_->leave();
    if (!meeting_.hosted) return;
    const Deadline linger(env, kFailureLinger);
    // Its own connections: one for requests, and one to be missed by.
    const std::size_t own = channel_ ? 2 : 1;
    while (!linger.passed() && !roll_call.all_acknowledged()) {
      if (!more_will_come && meeting_.hosted->server().connections(store_.number()) <= own) return;
      sleep_for(kLingerLook);
    }
  }

  const Launch launch_;
  const std::string job_id_;
  std::string secret_;
  Meeting meeting_;
  GroupStore store_;
  std::optional<LifeSign> life_sign_;  ///< Outlives the channel, which says when this rank leaves.
  std::shared_ptr<LossBoard> board_;
  std::unique_ptr<LossChannel> channel_;  ///< Uses the store: destroyed before it.
  std::vector<Member> members_;
};

/// Where groups are counted. A served store keeps jobs apart; a file or a table in memory does not.
std::string meeting_place(const Launch& launch) {
  return launch.rendezvous.starts_with("tcp://") ? launch.rendezvous + " " + launch.job_id
                                                 : launch.rendezvous;
}

/// A launcher knows the ranks of its store by its own words for the job, which the program may have replaced.
Status explain_refusal(const Status& why, const InitOptions& options, const Environment& environment) {
  const auto replaces = [&](const std::string& option, std::string_view variable) {
    return !option.empty() && option != value_of(environment, variable);
  };
  const bool is_of_launcher =
      value_of(environment, "LOCKSTEP_STORE") == "launcher" && options.rendezvous.empty();
  const bool other =
      replaces(options.job_id, "LOCKSTEP_JOB_ID") || replaces(options.secret, "LOCKSTEP_SECRET");
  if (why.code() != ErrorCode::unauthorized || !is_of_launcher || !other) return why;
  return Status(why.code(),
                why.message() +
                    "; the program's InitOptions have a job_id or a secret, and the launcher serves this "
                    "store under its own: leave them empty, or give InitOptions a rendezvous as well");
}

struct Place {
  Meeting meeting;
  std::uint64_t group = 0;  ///< That comes together there.
};

/// Opens the meeting for the group that is this process's next by its own count, and again where the store
/// knows better.
Result<Place> find_place(const Launch& launch, const std::string& secret, std::uint64_t met,
                         const Deadline& deadline, Env& env) {
  std::optional<Meeting> kept;  // What the store knows must outlast the next opening.
  for (std::uint64_t group = met + 1;;) {
    auto meeting = open_meeting(launch, secret, group, deadline, env);
    if (!meeting.ok()) return meeting.status();
    meeting->store->be_patient_until(deadline.when());
    auto next = next_group(*meeting->store, launch.rank, launch.world_size, met);
    // The roll call will say what is wrong with a store that cannot be asked.
    if (!next.ok() || *next == group) return Place{std::move(*meeting), group};
    kept.emplace(std::move(*meeting));
    group = *next;
  }
}

}  // namespace

std::string who_is(const Session& session, int rank) {
  return who_is(rank, session.members()[static_cast<std::size_t>(rank)]);
}

milliseconds start_timeout(const InitOptions& options) {
  return limit_of_start(
      options.timeout.value_or(milliseconds(config_milliseconds("LOCKSTEP_START_TIMEOUT"))));
}

milliseconds limit_of_start(milliseconds wanted) {
  return wanted.count() == 0 ? kLongestStart : std::clamp(wanted, milliseconds(0), kLongestStart);
}

std::string wanted_transports(std::string_view asked) {
  return asked.empty() ? config_text("LOCKSTEP_TRANSPORTS") : std::string(asked);
}

Result<std::unique_ptr<Session>> join_session(const InitOptions& options, Env& env,
                                              const std::function<std::string(int)>& notice) {
  const Environment environment = current_environment();
  auto launch = resolve_launch(options, environment, {getpid(), getppid(), this_container()});
  if (!launch.ok()) return launch.status();
  std::string own_notice = notice ? notice(launch->rank) : std::string();
  if (launch->world_size == 1)
    return std::move(make_local_sessions(1, launch->source, std::move(own_notice)).front());
  auto secret = load_secret(options, environment);
  if (!secret.ok()) return secret.status();
  const Deadline deadline(env, start_timeout(options));
  const std::string place = meeting_place(*launch);
  auto found = find_place(*launch, *secret, groups_met(place), deadline, env);
  if (!found.ok()) return explain_refusal(found.status(), options, environment);
  const std::uint64_t group = found->group;
  auto session = std::make_unique<JoinedSession>(std::move(*launch), std::move(*secret),
                                                 std::move(found->meeting), group);
  LOCKSTEP_RETURN_IF_ERROR(
      session->join(deadline, env, wanted_transports(options.transports), std::move(own_notice)));
  group_has_met(place, group);
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace lockstep::internal
