// The whole C++ API.
#pragma once

#include "lockstep/communicator.hpp"
#include "lockstep/ddp.hpp"
#include "lockstep/device.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "lockstep/types.hpp"
#include "lockstep/work.hpp"
