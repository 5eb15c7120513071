// What programs hand to the NCCL interface as bytes: ids from other ranks, and configs of any version's
// header.
#include <memory>

#include "integrations/nccl/config.hpp"
#include "integrations/nccl/result.hpp"
#include "integrations/nccl/unique_id.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::nccl {
namespace {

using internal::fuzz::Input;
using internal::fuzz::require;

/// FNV-1a of what lies behind it: an id that is damaged before is made.
void seal(ncclUniqueId& id) {
  constexpr std::size_t kCheckAt = 12, kFrom = 16;
  std::uint32_t hash = 2166136261u;
  for (std::size_t i = kFrom; i < sizeof id.internal; ++i)
    hash = (hash ^ static_cast<unsigned char>(id.internal[i])) * 16777619u;
  std::memcpy(id.internal, "lockstep\1\0", 10);
  std::memcpy(id.internal + kCheckAt, &hash, sizeof hash);
}

void read_id(Input& input) {
  const bool sealed = input.flag();
  ncclUniqueId id = input.take<ncclUniqueId>();
  if (sealed) seal(id);
  const UniqueId read = read_unique_id(id);
  require(read.address.size() <= 64 && read.job_id.size() <= 2 * kJobBytes);
}

/// As long as it says, and no longer.
void take_config(Input& input) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = input.flag() ? offsetof(ncclConfig_t, cgaClusterSize) + input.below(200) : input.number();
  if (input.flag()) config.magic = input.take<unsigned int>();
  config.version = input.flag() ? input.take<unsigned int>() : 21000 + input.below(100) * 100;
  const std::size_t there = std::max<std::size_t>(std::min<std::size_t>(config.size, 4096), 16);
  const auto memory = std::make_unique<std::byte[]>(there);
  const auto rest = input.bytes();
  std::memcpy(memory.get(), &config, std::min(sizeof config, there));
  if (there > 16) std::memcpy(memory.get() + 16, rest.data(), std::min(rest.size(), there - 16));
  static_cast<void>(read_config(reinterpret_cast<const ncclConfig_t*>(memory.get())));
}

}  // namespace
}  // namespace lockstep::nccl

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) try {
  lockstep::internal::fuzz::Input input(data, size);
  input.flag() ? lockstep::nccl::read_id(input) : lockstep::nccl::take_config(input);
  return 0;
} catch (const lockstep::nccl::Refusal& refusal) {
  lockstep::internal::fuzz::require(refusal.result() == ncclInvalidArgument);
  return 0;
}
