// StaticSession: a rank whose job is given, not met, so that a test can give it a wrong secret, another host
// or a dead peer. The store is real; losses come from the test.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/bootstrap/memory_store.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal::testing {

class StaticSession final : public Session {
 public:
  StaticSession(int rank, int size, const std::string& store, std::string secret = "s3cret")
      : StaticSession(rank, size, open_memory_store(store), std::move(secret)) {}
  StaticSession(int rank, int size, std::unique_ptr<Store> store, std::string secret = "s3cret")
      : rank_(rank), secret_(std::move(secret)), store_(std::move(store)) {
    for (int r = 0; r < size; ++r) {
      Member member;
      member.rank = r;
      member.host_id = "host";
      member.host_name = "node" + std::to_string(r);
      member.pid = 1000 + r;
      members_.push_back(member);
    }
  }
  /// From now on `rank` lives on another host.
  void move_away(int rank) { members_[static_cast<std::size_t>(rank)].host_id = "elsewhere"; }
  /// Tells everybody who listens, as the session would.
  void lose(int rank, const std::string& evidence) { report_loss({rank, evidence}); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::vector<Member>& members() const override { return members_; }
  const std::string& job_id() const override { return job_id_; }
  const std::string& secret() const override { return secret_; }
  Store& store() override { return *store_; }
  const std::string& source() const override { return source_; }
  void on_loss(std::uint64_t id, std::function<void(const Loss&)> callback) override {
    std::lock_guard lock(mutex_);
    callbacks_[id] = std::move(callback);
  }
  void remove_loss_callback(std::uint64_t id) override {
    std::lock_guard lock(mutex_);
    callbacks_.erase(id);
  }
  void report_loss(const Loss& loss) override {
    Reactor::instance().run_there([&] {
      std::lock_guard lock(mutex_);
      for (auto& [id, callback] : callbacks_) callback(loss);
    });
  }
  void leave() override {}

 private:
  const int rank_;
  const std::string secret_;
  const std::string job_id_ = "job";
  const std::string source_ = "test";
  std::unique_ptr<Store> store_;
  std::vector<Member> members_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::function<void(const Loss&)>> callbacks_;
};

}  // namespace lockstep::internal::testing
