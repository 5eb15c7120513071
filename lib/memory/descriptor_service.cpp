// The serving side. All sockets are touched on the serving reactor's thread only; the table of offers is
// shared under a lock.
#include "lib/memory/descriptor_service.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "lib/base/random_text.hpp"
#include "lib/memory/descriptor_packet.hpp"
#include "lib/memory/limits.hpp"
#include "lib/net/abstract_socket.hpp"
#include "lib/net/reactor.hpp"
#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

std::string random_word() { return random_text(kDescriptorWordBytes / 2); }

/// False where the kernel keeps too many descriptors for this user that nobody has taken yet, of whatever
/// programs: the client waits. One that is gone needs no answer.
bool hand_over(const Fd& socket, std::span<const Fd> descriptors) {
  return send_answer(socket, descriptors) || errno != ETOOMANYREFS;
}

class DescriptorService {
 public:
  // Never destroyed: memory is freed by destructors of static objects.
  static DescriptorService& instance() {
    static DescriptorService* service = new DescriptorService;
    return *service;
  }

  Result<std::string> name();
  Status offer(const std::string& key, std::vector<Fd> descriptors);
  std::vector<Fd> withdraw(const std::string& key);
  Result<Fd> duplicate(const std::string& key);

 private:
  using Id = std::uint64_t;
  struct Client {
    Fd socket;
    Reactor::Handle watch = 0;
    std::string parked_for;  // The key it waits for; empty before its request.
  };

  Status start();
  void accept_clients();
  void reserve_a_number() noexcept;
  void pause_accepting();
  void add_client(Fd socket);
  void drop(Id id);
  void hear(Id id);
  bool answer_or_park(Client& client, const DescriptorRequest& request);
  void serve_parked(const std::string& key);
  void serve_later(const std::string& key);

  std::mutex mutex_;  // Guards the next three.
  ServiceName name_;  // Never changed once it is there.
  std::map<std::string, std::vector<Fd>> offers_;
  std::map<std::string, int> parked_;  // How many clients wait for a key.

  Fd listener_;
  Fd reserve_;  ///< Its number is for the next client, where the program has used up all others.
  Reactor::Handle listening_ = 0;
  std::map<Id, Client> clients_;  // Oldest first.
  Id last_id_ = 0;
};

Result<std::string> DescriptorService::name() {
  std::lock_guard lock(mutex_);
  if (name_.socket.empty()) LOCKSTEP_RETURN_IF_ERROR(start());
  return encode(name_);
}

// Under the lock.
Status DescriptorService::start() {
  LOCKSTEP_RETURN_IF_ERROR(check_may_accept());
  const std::string at = "lockstep-" + random_word();
  listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return system_error("creating the descriptor service's socket", errno);
  if (!bind_abstract(listener_, at)) return system_error("binding the descriptor service's socket", errno);
  if (::listen(listener_.get(), SOMAXCONN) != 0)
    return system_error("listening for descriptor requests", errno);
  ServiceName name{at, random_word()};
  reserve_a_number();
  Reactor::serving().post([this] {
    listening_ =
        Reactor::serving().watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); });
  });
  name_ = std::move(name);  // Last: the thread may not have started, and peers would wait for who is named.
  return Status();
}

void DescriptorService::accept_clients() {
  for (;;) {
    auto socket = accept_connection(listener_);
    if (!socket.ok() && reserve_) {
      reserve_.reset();
      continue;
    }
    if (!socket.ok()) return pause_accepting();
    if (!*socket) return reserve_a_number();  // Nobody waits any more; who was refused has left its own.
    add_client(std::move(**socket));
  }
}

// Handing over takes no number but the client's own: with one to give, peers that want memory of this process
// get it, one after the other, and need not wait for what it lacks.
void DescriptorService::reserve_a_number() noexcept try {
  if (!reserve_) reserve_ = Fd(::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
} catch (const std::bad_alloc&) {  // Tried again after the next client.
}

void DescriptorService::pause_accepting() {
  Reactor::serving().at(real_env().now() + kAcceptPauseNanos,
                        [this] { Reactor::serving().modify(listening_, EPOLLIN); });
  Reactor::serving().modify(listening_, 0);
}

void DescriptorService::add_client(Fd socket) {
  if (!check_same_user(socket).ok()) return;
  if (clients_.size() >= kMaxDescriptorClients) drop(clients_.begin()->first);
  const Id id = ++last_id_;
  Client& client = clients_[id];
  client.socket = std::move(socket);
  try {
    client.watch = Reactor::serving().watch(client.socket.get(), EPOLLIN | EPOLLRDHUP,
                                            [this, id](std::uint32_t) { hear(id); });
  } catch (const std::bad_alloc&) {  // It sees the connection end.
    clients_.erase(id);
  }
}

void DescriptorService::drop(Id id) {
  const auto found = clients_.find(id);
  const std::string& key = found->second.parked_for;
  if (!key.empty()) {
    std::lock_guard lock(mutex_);
    if (--parked_[key] == 0) parked_.erase(key);
  }
  Reactor::serving().remove(found->second.watch);
  clients_.erase(found);
  reserve_a_number();
}

// A client sent its request, or hung up. A second packet is no request: a client asks once. Who does not know
// the word is of no job that this process is in, though it may be of the same user.
void DescriptorService::hear(Id id) try {
  Client& client = clients_.at(id);
  std::array<char, 2 + kDescriptorWordBytes + kMaxDescriptorKeyBytes> packet;
  const ssize_t got = ::recv(client.socket.get(), packet.data(), packet.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || !client.parked_for.empty()) return drop(id);
  const auto request = decode_request({packet.data(), static_cast<std::size_t>(got)});
  if (!request.ok() || request.value().word != name_.word || answer_or_park(client, request.value()))
    drop(id);
} catch (const std::bad_alloc&) {  // Its request is lost: it sees the connection end.
  drop(id);
}

// True when the client was answered.
bool DescriptorService::answer_or_park(Client& client, const DescriptorRequest& request) {
  std::lock_guard lock(mutex_);
  const auto offer = offers_.find(request.key);
  const bool is_offered = offer != offers_.end();
  if (!is_offered && request.if_absent == IfAbsent::fail) {
    send_answer(client.socket, {});
    return true;
  }
  if (is_offered && hand_over(client.socket, offer->second)) return true;
  ++parked_[request.key];
  client.parked_for = request.key;
  if (is_offered) serve_later(request.key);
  return false;
}

void DescriptorService::serve_later(const std::string& key) {
  Reactor::serving().at(real_env().now() + kAcceptPauseNanos, [this, key] { serve_parked(key); });
}

void DescriptorService::serve_parked(const std::string& key) {
  std::vector<Id> waiting;
  for (const auto& [id, client] : clients_) {
    if (client.parked_for == key) waiting.push_back(id);
  }
  for (const Id id : waiting) {
    {
      std::lock_guard lock(mutex_);
      const auto offer = offers_.find(key);
      if (offer == offers_.end()) return;
      if (!hand_over(clients_.at(id).socket, offer->second)) return serve_later(key);
    }
    drop(id);
  }
}

Status DescriptorService::offer(const std::string& key, std::vector<Fd> descriptors) {
  assert(!descriptors.empty() && descriptors.size() <= kMaxDescriptorsPerKey);
  assert(!key.empty() && key.size() <= kMaxDescriptorKeyBytes);
  std::lock_guard lock(mutex_);
  if (!offers_.emplace(key, std::move(descriptors)).second) {
    return Status(ErrorCode::internal, "descriptors are offered under \"" + key + "\" already");
  }
  if (parked_.count(key) != 0) Reactor::serving().post([this, key] { serve_parked(key); });
  return Status();
}

Result<Fd> DescriptorService::duplicate(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = offers_.find(key);
  if (found == offers_.end()) return Status(ErrorCode::internal, "\"" + key + "\" is not offered");
  Fd copy(::fcntl(found->second.front().get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error("duplicating a memory descriptor", errno);
  return copy;
}

std::vector<Fd> DescriptorService::withdraw(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto offer = offers_.extract(key);
  return offer ? std::move(offer.mapped()) : std::vector<Fd>();
}

}  // namespace

Result<std::string> descriptor_service_name() { return DescriptorService::instance().name(); }

std::string descriptor_service_or_why() {
  auto name = descriptor_service_name();
  return name.ok() ? std::move(*name) : encode(ServiceName{{}, name.status().message()});
}

Status offer_descriptors(const std::string& key, std::vector<Fd> descriptors) {
  return DescriptorService::instance().offer(key, std::move(descriptors));
}

Result<Fd> duplicate_offered(const std::string& key) { return DescriptorService::instance().duplicate(key); }

std::vector<Fd> withdraw_descriptors(const std::string& key) {
  return DescriptorService::instance().withdraw(key);
}

}  // namespace lockstep::internal
