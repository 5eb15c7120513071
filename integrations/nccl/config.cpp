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
  int least, most;
};

constexpr Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, 0, INT_MAX},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
};

/// The caller's config in the form of this header: what an older one lacks is unset, what a later one adds is
/// left out.
ncclConfig_t known_part(const ncclConfig_t& config) {
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, &config, std::min(config.size, sizeof known));
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
