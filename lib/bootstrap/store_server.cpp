#include "lib/bootstrap/store_server.hpp"

#include <algorithm>
#include <utility>

#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

// The server remembers the refusals of so many ranks of groups, one per rank of a small job, and of as many
// that may be strangers': those would else keep no place for what the job's own ranks do wrong.
constexpr std::size_t kMaxRefusals = 64;

/// The servers of this process by address, for the reactor's thread.
std::map<std::string, StoreServer*>& servers_here() {
  static auto* servers = new std::map<std::string, StoreServer*>;  // Communicators may be static.
  return *servers;
}

/// Found before anything has shown that the client knows so much as the job's name.
bool may_be_strangers(HandshakeStatus verdict) {
  return verdict == HandshakeStatus::malformed || verdict == HandshakeStatus::wrong_version ||
         verdict == HandshakeStatus::wrong_byte_order || verdict == HandshakeStatus::wrong_job;
}

StoreRequest notice_of(const Loss& loss) {
  StoreRequest notice;
  notice.verb = StoreVerb::lost;
  notice.loss = loss;
  return notice;
}

Status protocol_breach() {
  return Status(ErrorCode::unauthorized, "a request that this connection is not for");
}

std::size_t reply_bytes(const StoreTable& table, std::span<const std::string> keys) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) bytes += sizeof(std::uint32_t) + table.find(key)->size();
  return bytes;
}

}  // namespace

std::string refusal_key(int rank) { return "refused/" + std::to_string(rank); }

Result<std::unique_ptr<StoreServer>> StoreServer::start(StoreServerOptions options) {
  auto listeners = tcp_listen_everywhere(options.at);
  if (!listeners.ok()) return listeners.status();
  std::unique_ptr<StoreServer> server(new StoreServer(std::move(options)));
  server->address_ = {server->options_.at.host, local_address(listeners->front()).port};
  server->reactor_.run_there([&] { server->open(std::move(*listeners)); });
  return server;
}

StoreServer::~StoreServer() {
  reactor_.run_there([this] {
    servers_here().erase(address_.text());
    acceptors_.clear();
    for (const auto& [number, group] : groups_) say_goodbye(number);
    clients_.clear();
    for (const auto& [id, waiter] : waiters_) reactor_.remove(waiter.timer);
    for (const auto& [number, group] : groups_) {
      for (const auto& [rank, timer] : group.suspicions) reactor_.remove(timer);
    }
  });
}

void StoreServer::report_loss(const Loss& loss) { report(loss, true); }
void StoreServer::report_end(const Loss& loss) { report(loss, false); }

void StoreServer::report(const Loss& loss, bool to_those_it_left) {
  reactor_.run_there([&] {
    reported_.emplace(loss.rank, loss);
    for (const auto& [number, group] : groups_) {
      if (!group.watched || numbers_itself(number)) continue;
      if (to_those_it_left || !group.left.contains(loss.rank)) lose(number, loss);
    }
  });
}

void StoreServer::say_goodbye(std::uint64_t group) {
  StoreRequest goodbye;
  goodbye.verb = StoreVerb::leave;
  reactor_.run_there([&] { tell(group, goodbye); });
}

bool StoreServer::is_here(const HostPort& at) {
  bool here = false;
  Reactor::instance().run_there([&] { here = servers_here().contains(at.text()); });
  return here;
}

void StoreServer::leave_here(const HostPort& at, std::uint64_t group, int rank) {
  Reactor::instance().run_there([&] {
    const auto server = servers_here().find(at.text());
    if (server == servers_here().end()) return;
    for (auto& [id, client] : server->second->clients_) {
      const HandshakeHello& hello = client.hello;
      if (hello.service == HandshakeService::watch && hello.channel == group && hello.rank == rank)
        return server->second->leave(client);
    }
  });
}

bool StoreServer::lose_here(const HostPort& at, std::uint64_t group, const Loss& own) {
  bool here = false;
  Reactor::instance().run_there([&] {
    const auto server = servers_here().find(at.text());
    here = server != servers_here().end();
    if (here) server->second->lose(group, own);
  });
  return here;
}

std::size_t StoreServer::connections(std::uint64_t group) const {
  std::size_t count = 0;
  reactor_.run_there([&] {
    for (const auto& [id, client] : clients_) count += client.hello.channel == group ? 1 : 0;
  });
  return count;
}

bool StoreServer::is_idle() const {
  bool idle = false;
  reactor_.run_there([&] {
    idle = clients_.empty() && std::all_of(acceptors_.begin(), acceptors_.end(),
                                           [](const auto& acceptor) { return acceptor->is_idle(); });
  });
  return idle;
}

// ---- groups ----------------------------------------------------------------------------------------------

StoreServer::Group& StoreServer::group_of(std::uint64_t number) { return groups_[number]; }

bool StoreServer::numbers_itself(std::uint64_t group) const {
  return table_.find(group_prefix(group) + kOwnNumbersKey) != nullptr;
}

void StoreServer::tell(std::uint64_t group, const StoreRequest& notice) {
  const std::string frame = encode(notice);
  for (const auto& [id, client] : clients_) {
    if (client.hello.service == HandshakeService::watch && client.hello.channel == group)
      client.connection->send(frame);
  }
}

/// The latest one stays: its ranks may not all have come.
void StoreServer::forget_earlier_groups() {
  for (auto group = groups_.begin(); group != groups_.end() && std::next(group) != groups_.end();) {
    const bool empty = connections(group->first) == 0;
    if (empty) {
      for (const auto& [rank, timer] : group->second.suspicions) reactor_.remove(timer);
      table_.erase(group_prefix(group->first));
      for (auto* refused : {&strangers_refused_, &ranks_refused_})
        std::erase_if(*refused, [&](const Claim& claim) { return claim.first == group->first; });
    }
    group = empty ? groups_.erase(group) : std::next(group);
  }
}

// ---- clients ---------------------------------------------------------------------------------------------

void StoreServer::open(std::vector<Fd> listeners) {
  servers_here()[address_.text()] = this;
  Acceptor::Events events;
  events.admit = [this](const HandshakeHello& hello) { return admit(hello); };
  events.accepted = [this](Fd socket, const HandshakeHello& hello) { add_client(std::move(socket), hello); };
  events.refused = [this](const HandshakeHello& hello, HandshakeStatus verdict, const Status& why) {
    note_refusal(hello, verdict, why);
  };
  // Any world is let in: a rank with a wrong one is told so by name, through the store.
  constexpr std::int32_t kAnyWorld = 0;
  for (Fd& listener : listeners) {
    acceptors_.push_back(std::make_unique<Acceptor>(reactor_, std::move(listener), options_.key,
                                                    options_.rank, kAnyWorld, events));
  }
}

HandshakeStatus StoreServer::admit(const HandshakeHello& hello) const {
  if (hello.service == HandshakeService::store) return HandshakeStatus::ok;
  if (hello.service != HandshakeService::watch) return HandshakeStatus::wrong_service;
  return is_watched(hello.channel, hello.rank) ? HandshakeStatus::duplicate_rank : HandshakeStatus::ok;
}

/// Whether the end of a connection would be this rank's death.
bool StoreServer::is_watched(std::uint64_t group, int rank) const {
  return std::any_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
    const auto& [id, client] = entry;
    return client.hello.service == HandshakeService::watch && client.hello.rank == rank &&
           client.hello.channel == group && !client.left;
  });
}

/// Whether a rank of this process is there and has not left.
bool StoreServer::serves_itself(std::uint64_t group) const {
  return std::any_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
    const auto& [id, client] = entry;
    return client.hello.service == HandshakeService::watch && client.hello.channel == group &&
           client.hello.process == process_token() && !client.left;
  });
}

void StoreServer::add_client(Fd socket, const HandshakeHello& hello) {
  if (admit(hello) != HandshakeStatus::ok) return;  // Another proved the same rank meanwhile.
  const std::uint64_t id = ++next_id_;
  FrameConnection::Events events;
  events.frame = [this, id](std::span<const std::byte> body) { return handle(id, body); };
  events.closed = [this, id](const Status& why) { forget(id, why); };
  Client& client = clients_[id];
  client.hello = hello;
  client.connection =
      FrameConnection::open(reactor_, silence_, std::move(socket), kMaxRequestBytes, std::move(events));
  Group& group = group_of(hello.channel);
  forget_earlier_groups();
  if (hello.service != HandshakeService::watch) return;
  if (!std::exchange(group.watched, true) && !numbers_itself(hello.channel))
    group.losses.insert(reported_.begin(), reported_.end());
  for (const auto& [rank, loss] : group.losses) client.connection->send(encode(notice_of(loss)));
}

/// The latest of a rank counts, but no stranger's instead of its own.
void StoreServer::note_refusal(const HandshakeHello& hello, HandshakeStatus verdict, const Status& why) {
  if (hello.rank < 0 || hello.rank >= kMaxWorld) return;
  const Claim claim{hello.channel, hello.rank};
  const bool stranger = may_be_strangers(verdict);
  std::set<Claim>& refused = stranger ? strangers_refused_ : ranks_refused_;
  if (stranger && ranks_refused_.contains(claim)) return;
  if (refused.size() == kMaxRefusals && !refused.contains(claim)) return;
  refused.insert(claim);
  const Store::Entry entry{group_prefix(hello.channel) + refusal_key(hello.rank), why.message()};
  (void)table_.set({&entry, 1});  // A full store has worse troubles.
  serve_waiters();
}

void StoreServer::forget(std::uint64_t id, const Status& why) {
  suspect(clients_[id], why.message());  // First: without memory for it this client's end comes again.
  clients_.erase(id);
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const bool own = waiter->second.client == id;
    if (own) reactor_.remove(waiter->second.timer);
    waiter = own ? waiters_.erase(waiter) : std::next(waiter);
  }
  forget_earlier_groups();
}

/// A watch has ended, or is about to.
void StoreServer::suspect(const Client& client, const std::string& evidence) {
  const int rank = client.hello.rank;
  const std::uint64_t number = client.hello.channel;
  if (client.hello.service != HandshakeService::watch || client.left) return;
  Group& group = group_of(number);
  if (group.suspicions.contains(rank)) return;
  const Loss loss{rank, evidence};
  if (options_.evidence_grace.count() == 0) return lose(number, loss);
  group.suspicions[rank] = reactor_.at(real_env().now() + to_nanos(options_.evidence_grace),
                                       [this, number, loss] { lose(number, loss); });
}

void StoreServer::lose(std::uint64_t number, const Loss& loss) {
  Group& group = group_of(number);
  if (!group.losses.contains(loss.rank)) {
    tell(number, notice_of(loss));
    group.losses.emplace(loss.rank, loss);
  }
  // Last: without memory for the rest its timer tries again.
  if (const auto suspicion = group.suspicions.extract(loss.rank)) reactor_.remove(suspicion.mapped());
}

// ---- requests --------------------------------------------------------------------------------------------

Status StoreServer::handle(std::uint64_t id, std::span<const std::byte> body) {
  auto request = decode_request(body);
  if (!request.ok()) return request.status();
  Client& client = clients_[id];
  if (client.hello.service == HandshakeService::watch) return handle_watch(client, *request);
  return handle_store(id, client, std::move(*request));
}

Status StoreServer::handle_watch(Client& client, const StoreRequest& request) {
  switch (request.verb) {
    case StoreVerb::leave:
      leave(client);
      return Status();
    case StoreVerb::lost:
      // Its own end may follow from that of another, who is still only suspected.
      if (request.loss.rank == client.hello.rank) {
        suspect(client, request.loss.evidence);
        return Status();
      }
      // What is known is kept: of no more ranks than a group can have.
      if (request.loss.rank < 0 || request.loss.rank >= client.hello.world) return protocol_breach();
      lose(client.hello.channel, request.loss);
      return Status();
    default:
      return protocol_breach();
  }
}

void StoreServer::leave(Client& client) {
  const std::uint64_t group = client.hello.channel;
  client.left = true;
  group_of(group).left.insert(client.hello.rank);
  // The others may outlive this process.
  if (client.hello.process == process_token() && !serves_itself(group)) say_goodbye(group);
}

Status StoreServer::handle_store(std::uint64_t id, Client& client, StoreRequest request) {
  if (client.waiting) return protocol_breach();
  StoreReply result;
  switch (request.verb) {
    case StoreVerb::set:
      result.status = table_.set(request.entries);
      break;
    case StoreVerb::add: {
      auto sum = table_.add(request.keys.front(), request.delta);
      result.status = sum.status();
      if (sum.ok()) result.sum = *sum;
      break;
    }
    case StoreVerb::get:
    case StoreVerb::wait:
      start_waiting(id, client, std::move(request));
      return Status();
    default:
      return protocol_breach();
  }
  reply(client, result);
  serve_waiters();
  return Status();
}

void StoreServer::start_waiting(std::uint64_t id, Client& client, StoreRequest request) {
  Waiter waiter{id, std::move(request), 0, 0};
  if (is_served(waiter) || waiter.request.timeout_ms == 0) return answer(waiter);
  client.waiting = true;
  const std::uint64_t number = ++next_id_;
  const Nanos until = real_env().now() + to_nanos(std::chrono::milliseconds(waiter.request.timeout_ms));
  waiter.timer = reactor_.at(until, [this, number] { expire(number); });
  waiters_.emplace(number, std::move(waiter));
}

bool StoreServer::is_served(Waiter& waiter) {
  const auto& keys = waiter.request.keys;
  while (waiter.known < keys.size() && table_.find(keys[waiter.known]) != nullptr) ++waiter.known;
  return waiter.known == keys.size();
}

void StoreServer::serve_waiters() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const bool served = is_served(waiter->second);
    if (served) {
      reactor_.remove(waiter->second.timer);
      answer(waiter->second);
    }
    waiter = served ? waiters_.erase(waiter) : std::next(waiter);
  }
}

void StoreServer::expire(std::uint64_t number) {
  const auto waiter = waiters_.find(number);
  if (waiter == waiters_.end()) return;
  answer(waiter->second);
  waiters_.erase(waiter);
}

void StoreServer::answer(const Waiter& waiter) {
  const auto& keys = waiter.request.keys;
  StoreReply result;
  if (waiter.request.verb == StoreVerb::wait) {
    result.present = table_.which(keys);
  } else if (waiter.known < keys.size()) {
    result.status = missing_keys_error(keys, table_.which(keys));
  } else if (reply_bytes(table_, keys) > kMaxTotalBytes) {
    result.status = Status(ErrorCode::invalid_argument, "one request to the store asks for more than " +
                                                            std::to_string(kMaxTotalBytes) + " bytes");
  } else {
    result.values = table_.values(keys);
  }
  Client& client = clients_[waiter.client];
  client.waiting = false;
  reply(client, result);
}

void StoreServer::reply(Client& client, const StoreReply& reply) { client.connection->send(encode(reply)); }

}  // namespace lockstep::internal
