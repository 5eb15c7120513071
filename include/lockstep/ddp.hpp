// Gradient synchronisation for data-parallel training.
#pragma once

#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/checkpoint.hpp"
#include "lockstep/ddp/communication_hook.hpp"
#include "lockstep/ddp/gradient_norm.hpp"
#include "lockstep/ddp/hooks.hpp"
#include "lockstep/ddp/local_sgd.hpp"
#include "lockstep/ddp/optimizer.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer.hpp"
#include "lockstep/ddp/reducer_options.hpp"
#include "lockstep/ddp/sampler.hpp"
#include "lockstep/ddp/sharded_optimizer.hpp"
#include "lockstep/ddp/statistics.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
