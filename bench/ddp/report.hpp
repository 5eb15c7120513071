// What lockstep-ddp-bench says.
#pragma once

#include <optional>

#include "bench/ddp/measure.hpp"
#include "bench/ddp/overlap.hpp"
#include "bench/ddp/zero.hpp"

namespace lockstep::bench {

/// `link_gbits` is the measured rate between two hosts. Throws when the file cannot be written.
void report_ddp(const DdpOptions& options, const DdpResult& result, std::optional<double> link_gbits);
void report_overlap(const DdpOptions& options, const OverlapResult& result, std::optional<double> link_gbits);
void report_zero(const DdpOptions& options, const ZeroResult& result);

}  // namespace lockstep::bench
