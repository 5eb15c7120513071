#include "integrations/nccl/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {
namespace {

constexpr unsigned int kMagic = 0xcafebeef;
// ncclConfig_t of NCCL 2.14, which began it: up to and with `blocking`.
constexpr std::size_t kFirstBytes = offsetof(ncclConfig_t, cgaClusterSize);

struct Field {
  const char* name;
  int ncclConfig_t::*value;
  unsigned int since;  ///< The first version whose header has it, as its NCCL_VERSION.
  int least, most;
};

// Not trafficClass: NCCL leaves its range to the network.
constexpr Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, NCCL_VERSION(2, 14, 0), 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, NCCL_VERSION(2, 17, 0), 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, NCCL_VERSION(2, 18, 0), 0, 1},
    {"collnetEnable", &ncclConfig_t::collnetEnable, NCCL_VERSION(2, 27, 0), 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, NCCL_VERSION(2, 27, 0), 0,
     NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    {"shrinkShare", &ncclConfig_t::shrinkShare, NCCL_VERSION(2, 27, 0), 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, NCCL_VERSION(2, 27, 0), 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, NCCL_VERSION(2, 28, 0), 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, NCCL_VERSION(2, 28, 0), 0, 1},
};

/// The caller's config in the form of this header: what an older one lacks is unset, what a later one adds is
/// left out. The size alone does not tell: an older config may end with padding, of any value, where a later
/// one has a field.
ncclConfig_t known_part(const ncclConfig_t& config) {
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, &config, std::min(config.size, sizeof known));
  for (const Field& field : kFields) {
    if (config.version < field.since) known.*field.value = NCCL_CONFIG_UNDEF_INT;
  }
  return known;
}

}  // namespace

Config read_config(const ncclConfig_t* config, const Config& inherited) {
  if (config == nullptr) return inherited;
  if (config->magic != kMagic || config->size < kFirstBytes) {
    throw invalid_argument("the ncclConfig_t was not made with NCCL_CONFIG_INITIALIZER");
  }
  const ncclConfig_t known = known_part(*config);
  for (const Field& field : kFields) {
    const int value = known.*field.value;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= field.least && value <= field.most)) continue;
    throw invalid_argument(std::string(field.name) + " of the ncclConfig_t is " + std::to_string(value) +
                           ", not one of " + std::to_string(field.least) + " to " +
                           std::to_string(field.most));
  }
  const bool both = known.minCTAs != NCCL_CONFIG_UNDEF_INT && known.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (both && known.minCTAs > known.maxCTAs)
    throw invalid_argument("minCTAs of the ncclConfig_t is larger than its maxCTAs");
  Config read;
  read.blocking = known.blocking != 0;  // unset is not 0: communicators block
  return read;
}

}  // namespace lockstep::nccl
