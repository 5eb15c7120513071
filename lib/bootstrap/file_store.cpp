#include "lib/bootstrap/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/file_lock.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/store_table.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {
namespace {

constexpr std::string_view kFileMagic = "lockstep store 1";
constexpr std::uint64_t kHeaderBytes = 24;  // Magic and committed length.
// Which byte of the file stands for which lock.
constexpr std::int64_t kUsersLock = 0;    // Held shared by every open store.
constexpr std::int64_t kContentLock = 1;  // Exclusive to write, shared to read.
constexpr std::int64_t kClosingLock = 2;  // One closes at a time, so that one of them is the last.
// How often a waiting store looks at the file: soon at first, then seldom enough for a network file system.
constexpr std::chrono::microseconds kFirstLook{500};
constexpr std::chrono::microseconds kSlowestLook{20'000};
// How often a store asks for a lock that another holds, which does so for some system calls.
constexpr std::chrono::microseconds kFirstTry{20};
constexpr std::chrono::microseconds kSlowestTry{5'000};
// And how long when it closes.
constexpr std::chrono::milliseconds kLongestClosing{1'000};
// How long another rank may take between two system calls: to make the file and to give it its rights.
constexpr std::chrono::milliseconds kLongestMaking{1'000};

/// Tries to lock the content for one scope.
class ContentLock {
 public:
  ContentLock(const Fd& file, LockKind kind) : file_(file), held_(try_lock_byte(file, kContentLock, kind)) {}
  ContentLock(const ContentLock&) = delete;
  ContentLock& operator=(const ContentLock&) = delete;
  ~ContentLock() {
    if (held_.ok() && *held_) unlock_byte(file_, kContentLock);
  }
  const Result<bool>& held() const { return held_; }

 private:
  const Fd& file_;
  Result<bool> held_;
};

Status locked(const std::string& path) {
  return Status(ErrorCode::timeout, "another process keeps the store in " + path + " locked: is it stopped?");
}

/// Calls `attempt` until it is true, or time is over.
template <typename Attempt>
Status try_until(const Deadline& deadline, const std::string& path, Attempt attempt,
                 const WhileWaiting& while_waiting = {}) {
  for (auto pause = kFirstTry;; pause = std::min(2 * pause, kSlowestTry)) {
    const Result<bool> done = attempt();
    if (!done.ok()) return done.status();
    if (done.value()) return Status();
    if (deadline.passed()) return locked(path);
    if (while_waiting) while_waiting(locked(path));
    sleep_for(std::min<std::chrono::microseconds>(pause, deadline.left()));
  }
}

Status cannot_write(const std::string& path, int error) {
  const Status status = system_error("cannot write the rendezvous file " + path, error);
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  if (!full) return status;
  return Status(status.code(),
                status.message() + "; make room there, or name another place in LOCKSTEP_RENDEZVOUS");
}

Status write_at(const Fd& file, const std::string& path, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_write(path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return Status();
}

/// The bytes that are there of [offset, offset + count).
Result<std::string> read_at(const Fd& file, const std::string& path, std::size_t count,
                            std::uint64_t offset) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got =
        pread(file.get(), bytes.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read the rendezvous file " + path, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::string header(std::uint64_t committed) {
  std::string bytes(kFileMagic);
  WireWriter(bytes).integer(committed);
  return bytes;
}

class FileStore final : public Store {
 public:
  FileStore(Fd file, std::string path, Env& env, WhileWaiting while_waiting)
      : file_(std::move(file)), path_(std::move(path)), env_(env), while_waiting_(std::move(while_waiting)) {}
  ~FileStore() override;

  Status set(std::span<const Entry> entries) override {
    return with_content(LockKind::exclusive, [&]() -> Status {
      LOCKSTEP_RETURN_IF_ERROR(table_.set(entries));
      return append(entries);
    });
  }

  Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                       std::chrono::milliseconds timeout) override {
    auto present = wait(keys, timeout);
    if (!present.ok()) return present.status();
    if (std::find(present->begin(), present->end(), false) != present->end())
      return missing_keys_error(keys, *present);
    std::lock_guard lock(mutex_);
    return table_.values(keys);
  }

  Result<std::vector<bool>> wait(std::span<const std::string> keys,
                                 std::chrono::milliseconds timeout) override {
    LOCKSTEP_RETURN_IF_ERROR(check_keys(keys));
    const Deadline deadline(env_, timeout);
    for (auto pause = kFirstLook;; pause = std::min(2 * pause, kSlowestLook)) {
      std::vector<bool> present;
      LOCKSTEP_RETURN_IF_ERROR(with_content(LockKind::shared, [&] {
        present = table_.which(keys);
        return Status();
      }));
      const bool all = std::find(present.begin(), present.end(), false) == present.end();
      if (all || deadline.passed()) return present;
      sleep_for(std::min<std::chrono::microseconds>(pause, deadline.left()));
    }
  }

  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    std::int64_t sum = 0;
    LOCKSTEP_RETURN_IF_ERROR(with_content(LockKind::exclusive, [&]() -> Status {
      auto added = table_.add(key, delta);
      if (!added.ok()) return added.status();
      sum = *added;
      const Entry entry{std::string(key), std::to_string(sum)};
      return append({&entry, 1});
    }));
    return sum;
  }

 private:
  /// Calls `use` with the table up to date and the file locked. The mutex is not held in between, so that one
  /// thread that waits for the file keeps no other waiting; the reactor's tries once.
  template <typename Use>
  Status with_content(LockKind kind, Use use) {
    // In a forked child the descriptor is closed, and its number may be another file's by now.
    if (owner_ != getpid()) return forked_child_error();
    const auto patience = patience_at(env_.now(), kStorePatience);
    const Deadline deadline(env_, on_reactor_thread() ? std::chrono::milliseconds(0) : patience);
    const auto attempt = [&]() -> Result<bool> {
      std::lock_guard lock(mutex_);
      const ContentLock content(file_, kind);
      if (!content.held().ok() || !content.held().value()) return content.held();
      LOCKSTEP_RETURN_IF_ERROR(catch_up());
      LOCKSTEP_RETURN_IF_ERROR(use());
      return true;
    };
    const Deadline late(env_, kLateAfter);
    return try_until(deadline, path_, attempt, [&](const Status& why) {
      if (while_waiting_ && late.passed() && is_patient(env_.now())) while_waiting_(why);
    });
  }

  /// Reads what others appended. The content lock is held.
  Status catch_up() {
    auto head = read_at(file_, path_, kHeaderBytes, 0);
    if (!head.ok()) return head.status();
    std::uint64_t committed = 0;
    WireReader reader(as_bytes(std::string_view(*head).substr(std::min(kFileMagic.size(), head->size()))));
    if (!reader.integer(committed) || committed < read_) return damaged();
    if (committed == read_) return Status();
    struct stat file {};
    if (fstat(file_.get(), &file) != 0 || static_cast<std::uint64_t>(file.st_size) < committed)
      return damaged();
    auto log = read_at(file_, path_, committed - read_, read_);
    if (!log.ok()) return log.status();
    LOCKSTEP_RETURN_IF_ERROR(replay(*log));
    read_ = committed;
    return Status();
  }

  Status replay(std::string_view log) {
    WireReader reader(as_bytes(log));
    while (reader.left() > 0) {
      std::string_view key, value;
      if (!reader.text(kMaxKeyBytes, key) || !reader.text(kMaxValueBytes, value)) return damaged();
      const Entry entry{std::string(key), std::string(value)};
      LOCKSTEP_RETURN_IF_ERROR(table_.set({&entry, 1}));
    }
    return Status();
  }

  /// Writes entries that are in the table already. The content lock is held exclusively and nothing is
  /// unread.
  Status append(std::span<const Entry> entries) {
    std::string records;
    for (const auto& [key, value] : entries) {
      WireWriter writer(records);
      writer.text(key);
      writer.text(value);
    }
    Status status = write_at(file_, path_, records, read_);
    if (status.ok()) status = write_at(file_, path_, header(read_ + records.size()), 0);
    if (status.ok()) {
      read_ += records.size();
    } else {  // The disk is full: the table has what the file has not, and is read anew.
      table_ = StoreTable();
      read_ = kHeaderBytes;
    }
    return status;
  }

  Status damaged() const {
    return Status(ErrorCode::system,
                  "the store in " + path_ + " is damaged; remove the file and start all ranks again");
  }

  const Fd file_;
  const std::string path_;
  Env& env_;
  const WhileWaiting while_waiting_;
  const pid_t owner_ = getpid();
  std::mutex mutex_;
  StoreTable table_;
  std::uint64_t read_ = kHeaderBytes;
};

bool is_same_file(const Fd& file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(file.get(), &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

Status of_another_user(const std::string& path, uid_t owner) {
  return Status(ErrorCode::configuration,
                "the rendezvous file " + path + " belongs to user " + std::to_string(owner) +
                    ", this process to user " + std::to_string(geteuid()) +
                    ": choose another path, or, for ranks of several users, tcp://host:port and a secret");
}

/// Whoever may read the file reads the secret that rank 0 draws into it, and whoever may write it joins in.
Status check_private(const Fd& file, const std::string& path) {
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return system_error("cannot look at " + path, errno);
  if (facts.st_uid != geteuid()) return of_another_user(path, facts.st_uid);
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0) return Status();
  return Status(ErrorCode::configuration,
                "the rendezvous file " + path +
                    " is open to other users, who could read the job's secret in it; remove it, or make it "
                    "yours alone: chmod 600 " +
                    path);
}

/// Empties a store that nobody uses, and makes an empty file a store.
Status start_anew(const Fd& file, const std::string& path) {
  auto head = read_at(file, path, kFileMagic.size(), 0);
  if (!head.ok()) return head.status();
  if (!head->empty() && *head != kFileMagic) {
    return Status(ErrorCode::configuration,
                  path + " is not a store of lockstep; choose another path for the rendezvous");
  }
  if (ftruncate(file.get(), 0) != 0) return system_error("cannot empty " + path, errno);
  return write_at(file, path, header(kHeaderBytes), 0);
}

constexpr mode_t kOwnersRights = S_IRUSR | S_IWUSR;

/// A umask such as 0777 leaves too few for the next rank to open what this one made.
Status give_owners_rights(const Fd& file, const std::string& path) {
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return system_error("cannot look at " + path, errno);
  if ((facts.st_mode & kOwnersRights) == kOwnersRights) return Status();
  if (fchmod(file.get(), facts.st_mode | kOwnersRights) == 0) return Status();
  return system_error("cannot make " + path + " a file that its user may use", errno);
}

/// Of this user, who may not use it: another rank makes it just now, with a umask that took these rights.
bool lacks_owners_rights(const struct stat& facts) {
  return S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
         (facts.st_mode & kOwnersRights) != kOwnersRights;
}

/// Where the file cannot be made, or not even be seen.
std::string closed_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  struct stat facts {};
  const std::string owner =
      stat(folder.c_str(), &facts) == 0 ? " belongs to user " + std::to_string(facts.st_uid) + " and" : "";
  return "; its folder" + owner + " is closed to user " + std::to_string(geteuid()) +
         ": choose a path where this user may make files";
}

Status explain_refusal(const std::string& path, int error, const struct stat& facts) {
  if (error == EACCES && facts.st_nlink > 0 && facts.st_uid != geteuid())
    return of_another_user(path, facts.st_uid);
  if (error == EACCES && lacks_owners_rights(facts)) {
    return Status(ErrorCode::configuration, "its own user may not use the rendezvous file " + path +
                                                "; remove it, or: chmod 600 " + path);
  }
  const Status status = system_error("cannot open the rendezvous file " + path, error);
  const std::string next = error == ENOENT   ? "; make its folder first"
                           : error == EISDIR ? "; name a file in it"
                           : error == ELOOP  ? "; it may be no link: name the file itself"
                           : error == EACCES ? closed_folder(path)
                                             : "";
  return Status(status.code(), status.message() + next);
}

/// Opens the file, or makes it, for this user alone.
Result<Fd> open_own(const std::string& path, const Deadline& deadline) {
  for (;;) {
    Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnersRights));
    if (file) {
      LOCKSTEP_RETURN_IF_ERROR(check_private(file, path));
      LOCKSTEP_RETURN_IF_ERROR(give_owners_rights(file, path));
      return file;
    }
    const int error = errno;
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0) facts = {};
    if (error != EACCES || !lacks_owners_rights(facts) || deadline.passed())
      return explain_refusal(path, error, facts);
    sleep_for(kSlowestTry);
  }
}

/// Joins the users of the file. False: it was removed meanwhile.
Result<bool> join_users(const Fd& file, const std::string& path, const Deadline& deadline) {
  auto alone = try_lock_byte(file, kUsersLock, LockKind::exclusive);
  if (!alone.ok()) return alone.status().with_context("cannot lock the rendezvous file " + path);
  if (*alone) {
    if (!is_same_file(file, path)) return false;
    LOCKSTEP_RETURN_IF_ERROR(start_anew(file, path));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      try_until(deadline, path, [&] { return try_lock_byte(file, kUsersLock, LockKind::shared); }));
  return is_same_file(file, path);
}

FileStore::~FileStore() {
  if (getpid() != owner_) return;  // A forked child's copy: the file and its locks are the parent's.
  // Who keeps this from being removed leaves it to the next job, which starts it anew.
  const Deadline deadline(env_, kLongestClosing);
  const auto close_next = [this] { return try_lock_byte(file_, kClosingLock, LockKind::exclusive); };
  if (!try_until(deadline, path_, close_next).ok()) return;
  auto alone = try_lock_byte(file_, kUsersLock, LockKind::exclusive);
  if (alone.ok() && *alone && is_same_file(file_, path_)) unlink(path_.c_str());
}

}  // namespace

Result<std::unique_ptr<Store>> open_file_store(const std::string& path, std::chrono::milliseconds timeout,
                                               Env& env, const WhileWaiting& while_waiting) {
  const Deadline deadline(env, timeout);
  for (;;) {
    auto file = open_own(path, Deadline(env, std::min(deadline.left(), kLongestMaking)));
    if (!file.ok()) return file.status();
    auto joined = join_users(*file, path, deadline);
    if (!joined.ok()) return joined.status();
    if (*joined)
      return std::unique_ptr<Store>(std::make_unique<FileStore>(std::move(*file), path, env, while_waiting));
    if (deadline.passed())
      return Status(ErrorCode::timeout, "the rendezvous file " + path +
                                            " was removed whenever this rank had opened it: let nobody else "
                                            "remove it, and give each job a file of its own");
  }
}

}  // namespace lockstep::internal
