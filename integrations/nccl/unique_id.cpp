#include "integrations/nccl/unique_id.hpp"

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "integrations/nccl/fixed_text.hpp"
#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {
namespace {

constexpr std::array<char, 8> kIdMagic{'l', 'o', 'c', 'k', 's', 't', 'e', 'p'};
constexpr std::uint16_t kVersion = 1;

// The bytes of an id.
struct Layout {
  std::array<char, 8> magic;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint32_t check;  ///< Of all bytes behind it.
  std::array<char, 64> address;
  std::array<char, 2 * kJobBytes> job_id;
  std::array<char, 2 * kSecretBytes> secret;
};
static_assert(sizeof(Layout) == NCCL_UNIQUE_ID_BYTES);

std::uint32_t check_of(const Layout& layout) {
  // FNV-1a: ids are damaged by programs that copy too few bytes, not by enemies.
  std::uint32_t hash = 2166136261u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(layout.address.data());
  for (std::size_t i = 0; i < sizeof(Layout) - offsetof(Layout, address); ++i)
    hash = (hash ^ bytes[i]) * 16777619u;
  return hash;
}

struct Served {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Rendezvous>> by_job;
};
// Never destroyed: an id that nobody used is served until the process ends.
Served& served() {
  static auto& instance = *new Served;
  return instance;
}

}  // namespace

std::string random_text(std::size_t bytes) {
  std::vector<unsigned char> drawn(bytes);
  if (getrandom(drawn.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw Refusal(ncclSystemError, "the operating system gives no random bytes");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : drawn) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

ncclUniqueId make_unique_id() {
  if (std::getenv("NCCL_COMM_ID") != nullptr) {
    throw invalid_usage(
        "NCCL_COMM_ID is set, which liblockstep_nccl.so does not support: unset it, and give the "
        "id of one rank to the others");
  }
  const UniqueId made{"", random_text(kJobBytes), random_text(kSecretBytes)};
  auto place = std::make_shared<Rendezvous>(made.job_id, made.secret);
  Layout layout{};
  layout.magic = kIdMagic;
  layout.version = kVersion;
  put(layout.address, place->address());
  put(layout.job_id, made.job_id);
  put(layout.secret, made.secret);
  layout.check = check_of(layout);
  {
    const std::lock_guard lock(served().mutex);
    served().by_job.emplace(made.job_id, std::move(place));
  }
  ncclUniqueId id;
  std::memcpy(&id, &layout, sizeof id);
  return id;
}

UniqueId read_unique_id(const ncclUniqueId& id) {
  Layout layout;
  std::memcpy(&layout, &id, sizeof layout);
  if (layout.magic != kIdMagic) {
    throw invalid_argument(
        "this ncclUniqueId was not made by liblockstep_nccl.so: either it was never filled in, or the rank "
        "that called ncclGetUniqueId uses another NCCL library; load the same one on all ranks");
  }
  if (layout.version != kVersion) {
    throw invalid_argument("this ncclUniqueId has version " + std::to_string(layout.version) +
                           ", this is version " + std::to_string(kVersion) +
                           ": load the same liblockstep_nccl.so on all ranks");
  }
  if (layout.check != check_of(layout)) {
    throw invalid_argument("this ncclUniqueId is damaged: all of its 128 bytes have to reach every rank");
  }
  return {get(layout.address), get(layout.job_id), get(layout.secret)};
}

std::shared_ptr<Rendezvous> adopt_rendezvous(const UniqueId& id) {
  const std::lock_guard lock(served().mutex);
  const auto found = served().by_job.find(id.job_id);
  return found == served().by_job.end() ? nullptr : found->second;
}

void forget_rendezvous(const UniqueId& id) {
  std::shared_ptr<Rendezvous> forgotten;  // ends outside the lock
  const std::lock_guard lock(served().mutex);
  if (auto node = served().by_job.extract(id.job_id)) forgotten = std::move(node.mapped());
}

}  // namespace lockstep::nccl
