// ncclConfig_t as this library reads it.
#pragma once

#include "integrations/nccl/abi.hpp"

namespace lockstep::nccl {

struct Config {
  bool blocking = true;
};

/// Checks size and magic; a NULL config gives `inherited`. Of fields the version tells which the caller's
/// header had. Those that only tune NCCL's own kernels (CTAs, channels, SHARP) are checked for their
/// documented range and have no effect (docs/nccl.md). Throws Refusal. A config of a later header is read as
/// far as this one knows it.
Config read_config(const ncclConfig_t* config, const Config& inherited = {});

}  // namespace lockstep::nccl
