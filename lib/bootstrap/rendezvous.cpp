#include "lib/bootstrap/rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lib/base/config.hpp"
#include "lib/base/log.hpp"
#include "lib/bootstrap/file_store.hpp"
#include "lib/bootstrap/memory_store.hpp"
#include "lib/bootstrap/runtime_directory.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

constexpr std::chrono::milliseconds kReportEvery{5'000};
// A cluster's name server may learn of a host only after its processes started. A misspelt name is an error
// after this.
constexpr std::chrono::milliseconds kNameComesWithin{20'000};
constexpr std::chrono::milliseconds kLookUpEvery{200};

/// What follows `scheme` in `address`, or nothing.
std::optional<std::string> after(const std::string& address, std::string_view scheme) {
  if (address.compare(0, scheme.size(), scheme) != 0 || address.size() == scheme.size()) return std::nullopt;
  return address.substr(scheme.size());
}

/// Says on stderr now and then for whom this rank waits. Two voices are enough: the first rank that may wait
/// for the store, and one on the last host, since the first may have been meant for a host that is missing.
WhileWaiting make_report(const Launch& launch, int first, Env& env) {
  const bool is_voice = launch.rank == first || launch.rank == launch.world_size - 1;
  if (!is_voice) return {};
  return [&env, next = Deadline(env, kReportEvery)](const Status& why) mutable {
    if (!next.passed()) return;
    warn(why.message());
    next = Deadline(env, kReportEvery);
  };
}

/// `elsewhere`: whose file of that name is another one.
Result<Meeting> open_file_meeting(const Launch& launch, const std::string& path, const std::string& elsewhere,
                                  const Deadline& deadline, Env& env) {
  auto store = open_file_store(path, deadline.left(), env, make_report(launch, 0, env));
  if (!store.ok()) return store.status();
  Meeting meeting;
  meeting.store = std::move(*store);
  meeting.hint = "these ranks meet in the file " + path + "; " + elsewhere;
  return meeting;
}

Result<Meeting> open_named_file_meeting(const Launch& launch, const std::string& path,
                                        const Deadline& deadline, Env& env) {
  if (!path.starts_with('/')) {
    return Status(ErrorCode::configuration,
                  "file://" + path +
                      " is not a rendezvous: ranks that are started in several directories would wait at "
                      "several files; write file:///path, from the root");
  }
  // Who may not open the file has no way to tell those who wait in it.
  const std::string hint = "it belongs to user " + std::to_string(geteuid()) +
                           ": a rank of another user is refused, and says so itself; ranks of other hosts "
                           "must share its file system";
  return open_file_meeting(launch, path, hint, deadline, env);
}

Result<Meeting> open_local_meeting(const Launch& launch, const std::string& name, const Deadline& deadline,
                                   Env& env) {
  if (name.find('/') != std::string::npos) {
    return Status(ErrorCode::configuration, "local://" + name + " is not a rendezvous: a name has no slash");
  }
  auto directory = runtime_directory();
  if (!directory.ok()) return directory.status();
  return open_file_meeting(launch, *directory + "/" + name,
                           "ranks of another user or host, or with another XDG_RUNTIME_DIR, look elsewhere",
                           deadline, env);
}

/// Why such ranks may wait for each other in vain.
std::string parent_hint(const std::string& place) {
  return "these ranks meet at " + place +
         ", named after the process that started them: where each has a starter of its own, such as a "
         "script, "
         "set LOCKSTEP_JOB_ID equally on all ranks";
}

Status check_security(const HostPort& at, const std::string& secret) {
  if (!secret.empty() || is_loopback(at.host) || config_flag("LOCKSTEP_INSECURE")) return Status();
  return Status(ErrorCode::configuration,
                "the ranks would meet at " + at.text() +
                    " without a secret, where anyone on the network could join; set LOCKSTEP_SECRET_FILE on "
                    "all ranks, or LOCKSTEP_INSECURE=1 on a network that you trust");
}

/// Waits for the server.
Result<std::unique_ptr<Store>> connect(const StoreClientOptions& client, const WhileWaiting& report,
                                       const Deadline& deadline, Env& env) {
  auto store = open_tcp_store(client, deadline.left(), env, report);
  if (store.ok() || store.status().code() != ErrorCode::timeout) return store;
  return Status(ErrorCode::timeout,
                store.status().message() + "; look at the output of what should have started it");
}

/// Until rank 0's own name is known.
Status await_name(const std::string& host, const Deadline& start, Env& env) {
  const Deadline deadline(env, std::min(start.left(), kNameComesWithin));
  Status known = check_host(host);
  for (; known.code() == ErrorCode::peer_lost && !deadline.passed(); known = check_host(host))
    sleep_for(kLookUpEvery);
  known = known.with_context("rank 0 cannot host the meeting of the ranks");
  if (known.code() != ErrorCode::peer_lost) return known;
  return Status(ErrorCode::system, known.message() +
                                       "; correct that name in the rendezvous, or make it known on rank 0's "
                                       "host");
}

/// Why rank 0 cannot listen, and the way out where the place is none of its host's.
Status explain_deafness(const Status& cannot_listen, const HostPort& at) {
  std::string text = "rank 0 cannot host the meeting of the ranks: " + cannot_listen.message();
  if (is_elsewhere(at.host))
    text +=
        "; start rank 0 on the host that the rendezvous names, or, where the others reach it by an address "
        "that is translated on the way, give rank 0 alone tcp://0.0.0.0:" +
        std::to_string(at.port);
  return Status(cannot_listen.code(), std::move(text));
}

/// The port is taken: by another process that is rank 0 of this job, who is met there and told, or by a
/// stranger.
Result<Meeting> join_as_second(Meeting meeting, const StoreClientOptions& client, const Status& cannot_listen,
                               const Deadline& deadline, Env& env) {
  auto store = open_tcp_store(client, std::min(deadline.left(), kHandshakeDeadline), env);
  if (!store.ok()) return explain_deafness(cannot_listen, client.server);
  meeting.store = std::move(*store);
  meeting.client = client;
  return meeting;
}

/// Debian's installer writes a host's own name into /etc/hosts with the address 127.0.1.1: rank 0 would
/// listen where no other host finds it, so it listens on all addresses, once strangers are kept out.
bool is_name_of_loopback(const std::string& host) {
  return host != "localhost" && !is_numeric_address(host) && is_loopback(host);
}

std::string loopback_hint(const std::string& host) {
  return host +
         " leads to a loopback address here (see /etc/hosts), where ranks of other hosts are not heard";
}

Result<std::unique_ptr<StoreServer>> start_server(StoreServerOptions options, bool everywhere) {
  if (!everywhere) return StoreServer::start(std::move(options));
  options.at.host = "::";  // IPv4, too.
  auto server = StoreServer::start(options);
  if (server.ok()) return server;
  options.at.host = "0.0.0.0";
  return StoreServer::start(std::move(options));
}

/// What to name in place of port 0.
std::string way_to_a_port(const Launch& launch) {
  if (launch.given.starts_with(kServedScheme)) return "take the address() of its Rendezvous";
  const std::string of_rank_0 = "name a free port of rank 0's host";
  if (!launch.is_served()) return of_rank_0;
  return "name the port at which the launcher listens, or, where none does, unset LOCKSTEP_STORE and " +
         of_rank_0;
}

Result<Meeting> open_tcp_meeting(const Launch& launch, const std::string& where, const std::string& secret,
                                 std::uint64_t group, const Deadline& deadline, Env& env) {
  auto at = parse_host_port(where);
  if (!at.ok()) return at.status().with_context("rendezvous " + launch.given);
  if (at->port == 0) {  // Rank 0 alone would know which one it took.
    return Status(
        ErrorCode::configuration,
        "rendezvous " + launch.given + " has port 0, at which nobody is found: " + way_to_a_port(launch));
  }
  LOCKSTEP_RETURN_IF_ERROR(check_security(*at, secret));
  Meeting meeting;
  StoreClientOptions client{*at,
                            launch.is_served() ? launch.served_by : "rank 0",
                            make_handshake_key(launch.job_id, secret),
                            launch.rank,
                            launch.world_size,
                            process_token(),
                            group};
  if (!launch.is_served()) meeting.server_rank = 0;
  meeting.report = make_report(launch, launch.is_served() ? 0 : 1, env);
  const bool serves = launch.rank == meeting.server_rank;
  if (serves) LOCKSTEP_RETURN_IF_ERROR(await_name(at->host, deadline, env));
  const bool hidden = is_name_of_loopback(at->host);
  if (hidden) meeting.hint = loopback_hint(at->host);
  if (serves) {
    StoreServerOptions options;
    options.at = *at;
    options.key = client.key;
    options.rank = launch.rank;
    const bool may_be_seen = !secret.empty() || config_flag("LOCKSTEP_INSECURE");
    auto hosted = HostedStore::open(at->text(), client.key, group,
                                    [&] { return start_server(options, hidden && may_be_seen); });
    if (!hosted.ok()) return join_as_second(std::move(meeting), client, hosted.status(), deadline, env);
    meeting.hosted = std::move(*hosted);
    client.server.port = meeting.hosted->server().address().port;
    if (may_be_seen) meeting.hint.clear();
    if (!meeting.hint.empty())
      meeting.hint += "; set LOCKSTEP_SECRET_FILE and rank 0 listens on all addresses";
  }
  auto store = connect(client, meeting.report, deadline, env);
  if (!store.ok()) return with_hint(store.status(), meeting.hint);
  meeting.store = std::move(*store);
  meeting.client = std::move(client);
  return meeting;
}

}  // namespace

Status with_hint(const Status& status, const std::string& hint) {
  if (hint.empty() || status.code() != ErrorCode::timeout) return status;
  return Status(status.code(), status.message() + "; " + hint, status.culprit());
}

Result<Meeting> open_meeting(const Launch& launch, const std::string& secret, std::uint64_t group,
                             const Deadline& deadline, Env& env) {
  if (const auto name = after(launch.rendezvous, "memory://")) {
    Meeting meeting;
    meeting.store = open_memory_store(*name);
    meeting.hint = "at " + launch.rendezvous + " meet threads of one process, and no other process";
    return meeting;
  }
  if (const auto path = after(launch.rendezvous, "file://"))
    return open_named_file_meeting(launch, *path, deadline, env);
  if (const auto name = after(launch.rendezvous, "local://")) {
    auto meeting = open_local_meeting(launch, *name, deadline, env);
    if (meeting.ok() && launch.named_by_parent) meeting->hint = parent_hint(launch.rendezvous);
    return meeting;
  }
  if (const auto where = after(launch.rendezvous, "tcp://"))
    return open_tcp_meeting(launch, *where, secret, group, deadline, env);
  return Status(ErrorCode::configuration, "\"" + launch.given +
                                              "\" is not a rendezvous; write tcp://host:port, file:///path, "
                                              "local://name, memory://name or served://host:port");
}

}  // namespace lockstep::internal
