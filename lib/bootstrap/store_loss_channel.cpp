// Losses where there is no server: by pidfd and life sign within the host, and by keys of the store.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "lib/bootstrap/loss_channel.hpp"
#include "lib/net/abstract_socket.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

// How often other hosts' news is looked for. Deaths on this host are known at once, by pidfd, or where the
// kernel gives none, as often. As often one looks for processes that live on without the rank.
constexpr milliseconds kLookEvery{500};
// Looks in a row at which a life sign is missing: that of a process that dies goes a moment before it.
constexpr int kMissedLooks = 2;
constexpr const char* kDeath = "its process ended";
// exec takes all descriptors, and leaves the process, by which a pidfd knows it.
constexpr const char* kExec =
    "its process became another program (exec), or closed the library's descriptors";

std::string left_key(int rank) { return "left/" + std::to_string(rank); }
std::string lost_key(int rank) { return "lost/" + std::to_string(rank); }

/// Lives on the reactor's thread.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Store& store, std::shared_ptr<LossBoard> board)
      : reactor_(Reactor::instance()), store_(store), board_(std::move(board)) {}
  ~Watch() {
    for (const auto& [rank, process] : processes_) reactor_.remove(process.watch);
    reactor_.remove(timer_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void start(int own_rank, const std::vector<Member>& members) {
    const Member& own = members[static_cast<std::size_t>(own_rank)];
    for (const Member& member : members) {
      if (member.rank == own_rank) continue;
      keys_.push_back(lost_key(member.rank));
      ranks_.push_back(member.rank);
      if (member.host_id == own.host_id && member.process != own.process) watch_process(member);
    }
    schedule();
  }

  void report(const Loss& loss) {
    lose(loss);
    settle();
  }

 private:
  struct Process {
    Fd pidfd;
    Reactor::Handle watch = 0;
    pid_t looked_for = 0;  // Where there is no pidfd.
    std::string life_sign;
    bool has_shown = false;  // Else it cannot be missed.
    int missed = 0;
    bool over = false;
  };

  void watch_process(const Member& member) {
    Process& process = processes_[member.rank];
    process.life_sign = life_sign_of(member);
    process.has_shown = is_up(process.life_sign);
    process.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(member.pid), 0)));
    if (!process.pidfd && errno == ESRCH) return ended(member.rank, kDeath);
    if (!process.pidfd) {  // Too old a kernel, a container that forbids it, no descriptor left.
      process.looked_for = static_cast<pid_t>(member.pid);
      return;
    }
    process.watch = reactor_.watch(process.pidfd.get(), EPOLLIN,
                                   [weak = weak_from_this(), rank = member.rank](std::uint32_t) {
                                     if (const auto self = weak.lock()) self->ended(rank, kDeath);
                                   });
  }

  void ended(int rank, const char* how) {
    ended_.push_back({rank, how});  // First: without memory for it the process ends once more.
    reactor_.remove(std::exchange(processes_[rank].watch, 0));
    processes_[rank].over = true;
    settle();
  }

  void lose(const Loss& loss) {
    board_->add(loss);
    untold_.push_back(loss);
  }

  /// Asks and tells the store. While another rank keeps it locked the rest is left to the next look, in
  /// order: one end may follow from another. A store that fails otherwise has ended with its job.
  void settle() {
    while (!ended_.empty() && judge(ended_.front())) ended_.erase(ended_.begin());
    std::erase_if(untold_, [this](const Loss& loss) { return tell(loss); });
  }

  static bool is_locked(const Status& status) { return status.code() == ErrorCode::timeout; }

  /// Whether a rank whose process ended had left, or has said why it would. False: not known yet.
  bool judge(const Loss& loss) {
    const int rank = loss.rank;
    const auto said = store_.wait(std::vector<std::string>{left_key(rank), lost_key(rank)}, milliseconds(0));
    if (!said.ok()) return !is_locked(said.status());
    if (said.value()[0]) return true;
    if (said.value()[1]) return hear(rank);
    lose(loss);
    return true;
  }

  /// What the store has of a loss. False: not heard yet.
  bool hear(int rank) {
    const auto evidence = store_.get_one(lost_key(rank), milliseconds(0));
    if (evidence.ok()) board_->add({rank, evidence.value()});
    return !is_locked(evidence.status());
  }

  /// The first evidence counts. False: not told yet.
  bool tell(const Loss& loss) {
    const auto known = store_.wait(std::vector<std::string>{lost_key(loss.rank)}, milliseconds(0));
    if (!known.ok() || known.value().front()) return !is_locked(known.status());
    return !is_locked(store_.set_one(lost_key(loss.rank), loss.evidence));
  }

  void schedule() {
    timer_ = reactor_.at(real_env().now() + to_nanos(kLookEvery), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->look();
    });
  }

  void look_for_processes() {
    for (auto& [rank, process] : processes_) {
      if (process.over) continue;
      if (process.looked_for != 0 && kill(process.looked_for, 0) != 0 && errno == ESRCH) {
        ended(rank, kDeath);
      } else if (is_missed(process)) {
        ended(rank,
              process.looked_for != 0 ? kDeath : kExec);  // Without a pidfd it may have yet to be reaped.
      }
    }
  }

  static bool is_missed(Process& process) {
    process.missed = process.has_shown && is_down(process.life_sign) ? process.missed + 1 : 0;
    return process.missed >= kMissedLooks;
  }

  void look() {
    look_for_processes();
    settle();
    const auto present = store_.wait(keys_, milliseconds(0));
    for (std::size_t i = 0; present.ok() && i < keys_.size(); ++i) {
      if (present.value()[i]) (void)hear(ranks_[i]);
    }
    schedule();
  }

  Reactor& reactor_;
  Store& store_;
  std::shared_ptr<LossBoard> board_;
  std::vector<std::string> keys_;
  std::vector<int> ranks_;
  std::map<int, Process> processes_;
  std::vector<Loss> ended_;   // Processes that ended, and may have left.
  std::vector<Loss> untold_;  // What is not in the store yet.
  Reactor::Handle timer_ = 0;
};

class StoreLossChannel final : public LossChannel {
 public:
  StoreLossChannel(Store& store, int own_rank, const std::vector<Member>& members,
                   std::shared_ptr<LossBoard> board)
      : reactor_(Reactor::instance()),
        store_(store),
        own_rank_(own_rank),
        watch_(std::make_shared<Watch>(store, std::move(board))) {
    reactor_.run_there([&] { watch_->start(own_rank, members); });
  }
  ~StoreLossChannel() override {
    reactor_.run_there([this] { watch_.reset(); });
  }

  void report(const Loss& loss) override {
    if (loss.rank == own_rank_) return report_own(loss);
    reactor_.post([weak = std::weak_ptr<Watch>(watch_), loss] {
      if (const auto watch = weak.lock()) watch->report(loss);
    });
  }

  // When the file can no longer be written there is nobody left to tell.
  void leave() override { (void)store_.set_one(left_key(own_rank_), "1"); }

 private:
  /// As leave(), and no more to be left to a later look: there is none.
  void report_own(const Loss& loss) {
    const auto known = store_.wait(std::vector<std::string>{lost_key(loss.rank)}, milliseconds(0));
    if (known.ok() && !known.value().front()) (void)store_.set_one(lost_key(loss.rank), loss.evidence);
  }

  Reactor& reactor_;
  Store& store_;
  const int own_rank_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace

std::unique_ptr<LossChannel> make_store_loss_channel(Store& store, int own_rank,
                                                     const std::vector<Member>& members,
                                                     std::shared_ptr<LossBoard> board) {
  return std::make_unique<StoreLossChannel>(store, own_rank, members, std::move(board));
}

}  // namespace lockstep::internal
