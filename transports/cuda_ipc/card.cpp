#include "transports/cuda_ipc/card.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <string>
#include <utility>

namespace lockstep::internal {
namespace {

struct CardPage {
  static constexpr std::uint64_t kMagic = 0x6c732d6361726431;  // "ls-card1"
  std::uint64_t magic;
  std::atomic<std::uint32_t> withdrawn;
  std::uint32_t has_legacy;
  std::uint64_t bytes;
  std::array<std::uint8_t, 16> device;  ///< Its uuid: numbers of devices differ between processes.
  LegacyHandle legacy;
};

CardPage& page_of(const Mapping& mapping) { return *reinterpret_cast<CardPage*>(mapping.data()); }

/// A lock of an open file, which its copies share; so each holder opens the card anew.
struct flock lock_of(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

/// For systems without these locks (gVisor): also of an open file.
bool is_flocked(const Fd& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return true;
  ::flock(file.get(), LOCK_UN);
  return false;
}

Result<Fd> open_anew(const Fd& descriptor) {
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor.get());
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return system_error("opening " + path, errno);
  return fd;
}

}  // namespace

Result<OwnedCard> OwnedCard::make(const MemoryExport& memory, const DeviceIdentity& device) {
  Result<Fd> descriptor = make_memory_fd("lockstep-card", round_up_to_pages(sizeof(CardPage)));
  if (!descriptor.ok()) return descriptor.status();
  Result<Mapping> mapping = Mapping::map(*descriptor, Mapping::kAll);
  if (!mapping.ok()) return mapping.status();
  CardPage& page = page_of(*mapping);
  page.magic = CardPage::kMagic;
  page.has_legacy = memory.has_legacy ? 1 : 0;
  page.bytes = memory.bytes;
  page.device = device.uuid;
  page.legacy = memory.legacy;
  OwnedCard card;
  card.descriptor_ = std::move(*descriptor);
  card.page_ = std::move(*mapping);
  return card;
}

Result<Fd> OwnedCard::descriptor() const { return open_anew(descriptor_); }

void OwnedCard::withdraw() { page_of(page_).withdrawn.store(1); }

bool OwnedCard::held() const {
  struct flock lock = lock_of(F_WRLCK);
  if (::fcntl(descriptor_.get(), F_OFD_GETLK, &lock) == 0) return lock.l_type != F_UNLCK;
  return errno != EINVAL || is_flocked(descriptor_);
}

Result<PeersCard> PeersCard::open(const Fd& descriptor) {
  Result<Mapping> mapping = Mapping::map(descriptor, Mapping::kAll);
  if (!mapping.ok()) return mapping.status();
  if (mapping->size() < sizeof(CardPage) || page_of(*mapping).magic != CardPage::kMagic) {
    return Status(ErrorCode::internal, "a peer shows something that is no card of device memory");
  }
  Result<Fd> own = open_anew(descriptor);
  if (!own.ok()) return own.status();
  PeersCard card;
  card.page_ = std::move(*mapping);
  card.lock_ = std::move(*own);
  return card;
}

void PeersCard::describe(MemoryExport& memory) const {
  const CardPage& page = page_of(page_);
  memory.bytes = page.bytes;
  memory.has_legacy = page.has_legacy != 0;
  memory.legacy = page.legacy;
}

const std::array<std::uint8_t, 16>& PeersCard::device() const { return page_of(page_).device; }

bool PeersCard::withdrawn() const { return page_of(page_).withdrawn.load() != 0; }

Status PeersCard::hold() {
  struct flock lock = lock_of(F_RDLCK);
  if (::fcntl(lock_.get(), F_OFD_SETLK, &lock) == 0) return Status();
  if (errno == EINVAL && ::flock(lock_.get(), LOCK_SH) == 0) return Status();
  return system_error("locking a card of device memory", errno);
}

}  // namespace lockstep::internal
