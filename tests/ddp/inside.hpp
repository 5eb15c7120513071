// The way to a reducer's inside.
#pragma once

#include "ddp/device/device_reducer_state.hpp"
#include "ddp/reducer_state.hpp"

namespace lockstep {
namespace {

auto& inside(Reducer& reducer);
auto& inside(DeviceReducer& reducer);

/// An explicit instantiation may name what is private.
template <typename Owner, auto kState>
struct Inside {
  friend auto& inside(Owner& reducer) { return *(reducer.*kState); }
};
template struct Inside<Reducer, &Reducer::state_>;
template struct Inside<DeviceReducer, &DeviceReducer::state_>;

}  // namespace
}  // namespace lockstep
