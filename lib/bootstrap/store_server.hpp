// StoreServer: the TCP store's server, in the launcher or in rank 0. Keeps the table, answers waiting gets,
// and is where deaths become known: every rank of a group holds a watch connection, and one that ends without
// a `leave` is told to all the others of that group. Groups follow one another, or live side by side; what an
// earlier one wrote is forgotten when a later one is there and nobody of the earlier one is.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/acceptor.hpp"
#include "lib/bootstrap/frame_connection.hpp"
#include "lib/bootstrap/loss.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/store_table.hpp"
#include "lib/net/reactor.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// Of a connection that claimed to be `rank` and was refused, the sentence that says why is found in the
/// store under this key of its group.
std::string refusal_key(int rank);
/// Set in its part of the store, before it watches, by each rank of a group that the caller has numbered: to
/// it the launcher's numbers are those of others.
inline constexpr const char* kOwnNumbersKey = "own_numbers";

struct StoreServerOptions {
  HostPort at{"127.0.0.1", 0};  ///< Port 0 takes a free one.
  HandshakeKey key;
  std::int32_t rank = -1;  ///< The rank that hosts the store, -1 for a launcher.
  /// How long the end of a connection waits for better evidence (report_loss) before it counts. A launcher
  /// that will know the signal gives itself a moment.
  std::chrono::milliseconds evidence_grace{0};
};

/// Served by the reactor. Every member may be called from any thread that holds no lock a reactor callback
/// may take.
class StoreServer {
 public:
  /// Listens from the moment it returns.
  static Result<std::unique_ptr<StoreServer>> start(StoreServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const HostPort& address() const { return address_; }
  /// What the launcher knows first-hand, told to all groups that have its numbers. The first evidence per
  /// rank counts.
  void report_loss(const Loss& loss);
  /// As report_loss, of a rank that ended in good order: a loss only to groups that it has not left, among
  /// them those that are still to come.
  void report_end(const Loss& loss);
  /// Tells the members of `group` that the end of the server's connections is no death of its rank.
  void say_goodbye(std::uint64_t group);
  /// Whether the server at `at` is in this process.
  static bool is_here(const HostPort& at);
  /// `rank` of this process leaves `group`, whose store is at `at`. Where the server is in this process, too,
  /// it hears so before it may end with the process.
  static void leave_here(const HostPort& at, std::uint64_t group, int rank);
  /// As leave_here, of a rank that ends after a failure: to the others it is lost. False where no server is.
  static bool lose_here(const HostPort& at, std::uint64_t group, const Loss& own);
  /// Authenticated connections of `group` that are open.
  std::size_t connections(std::uint64_t group) const;
  /// Nobody is connected, or about to be.
  bool is_idle() const;

 private:
  using Claim = std::pair<std::uint64_t, int>;  ///< A group, and a rank of it.
  struct Client {
    HandshakeHello hello;
    std::shared_ptr<FrameConnection> connection;
    bool left = false;     ///< Said `leave`.
    bool waiting = false;  ///< Has a request in waiters_.
  };
  struct Waiter {
    std::uint64_t client = 0;
    StoreRequest request;
    std::size_t known = 0;  ///< So many of the keys exist; those of a group that is there are never removed.
    Reactor::Handle timer = 0;
  };
  struct Group {
    std::map<int, Loss> losses;
    std::set<int> left;    ///< Ranks that said `leave`.
    bool watched = false;  ///< Some rank has watched: by then it is known whose numbers they are.
    /// Ranks whose connection ended, until evidence_grace is over.
    std::map<int, Reactor::Handle> suspicions;
  };

  explicit StoreServer(StoreServerOptions options)
      : options_(std::move(options)), reactor_(Reactor::instance()), silence_(reactor_, real_env()) {}
  void open(std::vector<Fd> listeners);
  void report(const Loss& loss, bool to_those_it_left);
  Group& group_of(std::uint64_t number);
  bool numbers_itself(std::uint64_t group) const;
  void tell(std::uint64_t group, const StoreRequest& notice);
  void forget_earlier_groups();
  HandshakeStatus admit(const HandshakeHello& hello) const;
  bool is_watched(std::uint64_t group, int rank) const;
  bool serves_itself(std::uint64_t group) const;
  void add_client(Fd socket, const HandshakeHello& hello);
  void note_refusal(const HandshakeHello& hello, HandshakeStatus verdict, const Status& why);
  Status handle(std::uint64_t client, std::span<const std::byte> body);
  Status handle_watch(Client& client, const StoreRequest& request);
  void leave(Client& client);
  Status handle_store(std::uint64_t id, Client& client, StoreRequest request);
  void start_waiting(std::uint64_t id, Client& client, StoreRequest request);
  void reply(Client& client, const StoreReply& reply);
  void serve_waiters();
  bool is_served(Waiter& waiter);
  void answer(const Waiter& waiter);
  void expire(std::uint64_t waiter);
  void forget(std::uint64_t client, const Status& why);
  void suspect(const Client& client, const std::string& evidence);
  void lose(std::uint64_t group, const Loss& loss);

  const StoreServerOptions options_;
  Reactor& reactor_;
  SilenceWatch silence_;
  HostPort address_;
  // The rest lives on the reactor's thread.
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  ///< One an address of the host.
  StoreTable table_;
  std::set<Claim> strangers_refused_, ranks_refused_;  ///< Whose refusals the table has.
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Client> clients_;
  std::map<std::uint64_t, Waiter> waiters_;
  std::map<std::uint64_t, Group> groups_;
  std::map<int, Loss> reported_;  ///< By the launcher: what later groups hear as well.
};

}  // namespace lockstep::internal
