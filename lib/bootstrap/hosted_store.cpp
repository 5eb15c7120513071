#include "lib/bootstrap/hosted_store.hpp"

#include <map>
#include <mutex>

#include "lib/base/env.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {
namespace {

// How often a server without a group here looks whether somebody is still connected.
constexpr std::chrono::milliseconds kLookForClients{50};

struct Hosted {
  std::shared_ptr<StoreServer> server;
  Digest key{};
  int shares = 0;
};

/// All servers of this process, by place. Servers are started outside the lock and ended on the reactor's
/// thread, which alone may hold it there.
class Registry {
 public:
  // Never destroyed: communicators may be static.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  /// Null when none runs there for `key`.
  std::shared_ptr<StoreServer> share(const std::string& place, const Digest& key) {
    std::lock_guard lock(mutex_);
    const auto found = hosted_.find(place);
    if (found == hosted_.end() || found->second.key != key) return nullptr;
    ++found->second.shares;
    return found->second.server;
  }

  void add(const std::string& place, Hosted hosted) {
    std::lock_guard lock(mutex_);
    hosted_[place] = std::move(hosted);
  }

  void give_back(const std::string& place) {
    std::lock_guard lock(mutex_);
    if (--hosted_[place].shares == 0) Reactor::instance().post([this, place] { end_if_idle(place); });
  }

  /// Ends a server of another job whose groups have all gone, though some rank may still be connected.
  void make_room(const std::string& place) {
    Reactor::instance().run_there([&] { end(place, true); });
  }

 private:
  void end_if_idle(const std::string& place) {
    if (end(place, false)) return;
    Reactor::instance().at(real_env().now() + to_nanos(kLookForClients),
                           [this, place] { end_if_idle(place); });
  }

  /// On the reactor's thread, so nobody connects meanwhile. False: ask again.
  bool end(const std::string& place, bool at_once) {
    std::lock_guard lock(mutex_);
    const auto found = hosted_.find(place);
    if (found == hosted_.end() || found->second.shares > 0) return true;
    if (!at_once && !found->second.server->is_idle()) return false;
    hosted_.erase(found);
    return true;
  }

  std::mutex mutex_;
  std::map<std::string, Hosted> hosted_;
};

}  // namespace

Result<std::unique_ptr<HostedStore>> HostedStore::open(const std::string& place, const HandshakeKey& key,
                                                       std::uint64_t group, const Start& start) {
  auto server = Registry::instance().share(place, key.key);
  if (!server) {
    Registry::instance().make_room(place);
    auto started = start();
    if (!started.ok()) return started.status();
    server = std::move(*started);
    Registry::instance().add(place, {server, key.key, 1});
  }
  return std::unique_ptr<HostedStore>(new HostedStore(place, std::move(server), group));
}

HostedStore::~HostedStore() {
  server_->say_goodbye(group_);
  server_.reset();
  Registry::instance().give_back(place_);
}

}  // namespace lockstep::internal
