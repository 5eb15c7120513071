#include "lib/bootstrap/local_session.hpp"

#include "lib/bootstrap/loss_board.hpp"
#include "lib/bootstrap/member.hpp"
#include "lib/bootstrap/memory_store.hpp"

namespace lockstep::internal {
namespace {

/// What all sessions of one group have in common.
struct Shared {
  std::vector<Member> members;
  std::string job_id;
  std::string secret;
  std::string source;
  std::unique_ptr<Store> store;
  std::vector<std::shared_ptr<LossBoard>> boards;  ///< By rank; none of a rank that is alone.
};

class LocalSession final : public Session {
 public:
  LocalSession(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->members.size()); }
  const std::vector<Member>& members() const override { return shared_->members; }
  const std::string& job_id() const override { return shared_->job_id; }
  const std::string& secret() const override { return shared_->secret; }
  Store& store() override { return *shared_->store; }
  const std::string& source() const override { return shared_->source; }
  void on_loss(std::uint64_t id, std::function<void(const Loss&)> callback) override {
    if (size() > 1) board().listen(id, std::move(callback));
  }
  void remove_loss_callback(std::uint64_t id) override {
    if (size() > 1) board().remove(id);
  }
  void report_loss(const Loss& loss) override {
    for (const auto& board : shared_->boards) board->add(loss);
  }
  void leave() override {}

 private:
  LossBoard& board() { return *shared_->boards[static_cast<std::size_t>(rank_)]; }

  std::shared_ptr<Shared> shared_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Session>> make_local_sessions(int n, std::string source, std::string notice) {
  auto shared = std::make_shared<Shared>();
  shared->source = std::move(source);
  const std::string token = std::to_string(real_env().random());
  shared->job_id = "local-" + token;
  shared->secret = std::to_string(real_env().random()) + std::to_string(real_env().random());
  shared->store = open_memory_store(shared->job_id);
  for (int rank = 0; rank < n; ++rank) {
    shared->members.push_back(this_member(rank));
    if (n > 1) shared->boards.push_back(LossBoard::make(rank, n));
  }
  shared->members.front().notice = std::move(notice);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int rank = 0; rank < n; ++rank) sessions.push_back(std::make_unique<LocalSession>(shared, rank));
  return sessions;
}

}  // namespace lockstep::internal
