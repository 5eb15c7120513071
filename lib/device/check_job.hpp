// What every backend refuses before anything is enqueued.
#pragma once

#include "lib/device/backend.hpp"

namespace lockstep::internal {

Status check_job(const ReduceJob& job);
Status check_job(const ConvertJob& job);
Status check_job(const QuantiseJob& job);
Status check_job(const DequantiseJob& job);

}  // namespace lockstep::internal
