#include "transports/verbs/verbs_device.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

#include "lib/base/config.hpp"
#include "lib/memory/mapping.hpp"
#include "transports/verbs/limits.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

/// ::ffff:10.0.0.1, as RoCE writes IPv4 addresses.
bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

std::string locked_memory_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
}

/// Of the names in "rxe0,rxe1" the one for `rank`; empty when there are none.
std::string in_turn(const std::string& names, int rank) {
  const auto count = 1 + std::count(names.begin(), names.end(), ',');
  std::istringstream text(names);
  std::string name;
  for (auto i = rank % count; i >= 0; --i) std::getline(text, name, ',');
  return name;
}

std::optional<std::int64_t> wanted_gid() {
  if (!config_is_set("LOCKSTEP_VERBS_GID_INDEX")) return std::nullopt;
  return config_integer("LOCKSTEP_VERBS_GID_INDEX");
}

std::string with_wanted_gid() {
  const auto wanted = wanted_gid();
  if (!wanted) return {};
  return " with address number " + std::to_string(*wanted) + " in its table (LOCKSTEP_VERBS_GID_INDEX)";
}

}  // namespace

Result<std::shared_ptr<VerbsDevice>> open_verbs(int rank) {
  const auto library = verbs_library();
  if (!library.ok()) return library.status();
  return VerbsDevice::open(*library.value(), rank);
}

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::open(const VerbsLibrary& library, int rank) {
  std::shared_ptr<VerbsDevice> device(new VerbsDevice(library));
  device->timeout_ = acknowledgement_timeout();
  LOCKSTEP_RETURN_IF_ERROR(device->find(in_turn(config_text("LOCKSTEP_VERBS_DEVICE"), rank)));
  LOCKSTEP_RETURN_IF_ERROR(device->read_limits());
  device->domain_ = device->verbs_.alloc_pd(device->context_);
  if (device->domain_ == nullptr) return system_error("allocating an RDMA protection domain", errno);
  return device;
}

VerbsDevice::~VerbsDevice() {
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
  if (context_ != nullptr) verbs_.close_device(context_);
}

// The device called `wanted`, or the first that has an active port. One that cannot be used does not hide
// others.
Status VerbsDevice::find(const std::string& wanted) {
  int count = 0;
  ibv_device** devices = verbs_.get_device_list(&count);
  std::string seen;
  bool called = false;
  Status failure;
  for (int i = 0; i < count && context_ == nullptr; ++i) {
    const std::string name = verbs_.get_device_name(devices[i]);
    seen += (seen.empty() ? "" : ", ") + name;
    if (!wanted.empty() && name != wanted) continue;
    called = true;
    Status unusable = use(devices[i]).with_context("RDMA device " + name);
    if (failure.ok()) failure = std::move(unusable);
  }
  if (devices != nullptr) verbs_.free_device_list(devices);
  if (context_ != nullptr) return {};
  if (!failure.ok()) return failure;
  const std::string what = wanted.empty() ? "no RDMA device has an active port" + with_wanted_gid()
                           : called ? "RDMA device " + wanted + " has no active port" + with_wanted_gid()
                                    : "no RDMA device is called " + wanted;
  return Status(ErrorCode::configuration,
                what + "; this machine has " + (seen.empty() ? std::string("none") : seen) +
                    ": see ibv_devinfo, set LOCKSTEP_VERBS_DEVICE, or use LOCKSTEP_TRANSPORTS=tcp");
}

// Opens the device, and keeps it open when one of its ports is active and has an address.
Status VerbsDevice::use(ibv_device* device) {
  context_ = verbs_.open_device(device);
  if (context_ == nullptr) return system_error("opening it (is /dev/infiniband there, and writable?)", errno);
  ibv_device_attr attributes{};
  const int error = verbs_.query_device(context_, &attributes);
  for (std::uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
    port_state_ = {};
    if (verbs_.query_port(context_, port, &port_state_) != 0 || port_state_.state != IBV_PORT_ACTIVE)
      continue;
    port_ = port;
    if (choose_gid()) return {};
  }
  verbs_.close_device(context_);
  context_ = nullptr;
  return error != 0 ? system_error("asking what it can do", error) : Status();
}

// RoCE: version 2, an IPv4 address before a link-local one, since routers know it. InfiniBand: the port's
// own.
bool VerbsDevice::choose_gid() {
  const auto wanted = wanted_gid();
  int best = -1, best_score = 0;
  ibv_gid chosen{};
  for (int i = 0; i < port_state_.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (verbs_.query_gid_ex(context_, port_, static_cast<std::uint32_t>(i), &entry, 0, sizeof entry) != 0)
      continue;
    int score = 1;
    if (on_ethernet()) score = entry.gid_type != IBV_GID_TYPE_ROCE_V2 ? 1 : is_ipv4(entry.gid) ? 3 : 2;
    if (wanted) score = i == *wanted ? 1 : 0;
    if (score <= best_score) continue;
    best = i;
    best_score = score;
    chosen = entry.gid;
  }
  if (best < 0) return false;
  gid_index_ = static_cast<std::uint8_t>(best);
  std::copy_n(chosen.raw, 16, address_.gid.begin());
  address_.lid = port_state_.lid;
  address_.mtu = static_cast<std::uint8_t>(port_state_.active_mtu);
  address_.routed = on_ethernet() || (port_state_.flags & IBV_QPF_GRH_REQUIRED) != 0;
  return true;
}

Status VerbsDevice::read_limits() {
  ibv_device_attr attributes{};
  if (const int error = verbs_.query_device(context_, &attributes); error != 0) {
    return system_error("asking an RDMA device what it can do", error);
  }
  limits_.work_requests = static_cast<std::uint64_t>(attributes.max_qp_wr);
  limits_.shared_receives = static_cast<std::uint64_t>(attributes.max_srq_wr);
  limits_.completions = static_cast<std::uint64_t>(attributes.max_cqe);
  limits_.queue_pairs = static_cast<std::uint64_t>(attributes.max_qp);
  limits_.message_bytes = port_state_.max_msg_sz;
  return {};
}

// A limit does not count for a process that has CAP_IPC_LOCK; only a try tells.
bool VerbsDevice::may_lock() const {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur >= kEnoughLockedBytes) return true;
  const std::size_t more = limit.rlim_cur + page_size();
  void* memory = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const bool may = register_memory(memory, more, false).ok();
  munmap(memory, more);
  return may;
}

Result<std::shared_ptr<ibv_mr>> VerbsDevice::register_memory(void* memory, std::size_t bytes,
                                                             bool remote) const {
  const int access = IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0);
  ibv_mr* region = verbs_.reg_mr(domain_, memory, bytes, access);
  if (region != nullptr) {
    return std::shared_ptr<ibv_mr>(
        region, [device = shared_from_this()](ibv_mr* ending) { device->verbs_.dereg_mr(ending); });
  }
  const int error = errno;
  std::string what = "registering " + std::to_string(bytes) + " bytes with the RDMA device";
  if (error != ENOMEM && error != EAGAIN) return system_error(what, error);
  return Status(ErrorCode::system,
                what + " failed: " + std::strerror(error) + "; this process may lock " +
                    locked_memory_limit() +
                    " of memory: raise that (ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit "
                    "memlock=-1), or use LOCKSTEP_TRANSPORTS=tcp");
}

}  // namespace lockstep::internal
