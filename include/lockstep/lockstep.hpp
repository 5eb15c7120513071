// The C++ API. Beside it: ddp/device_reducer.hpp, device_runtime.hpp and rendezvous.hpp.
#pragma once

#include "lockstep/communicator.hpp"
#include "lockstep/ddp.hpp"
#include "lockstep/device.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "lockstep/types.hpp"
#include "lockstep/work.hpp"
