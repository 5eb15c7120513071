// Whether private memory is pulled (CMA) rather than passed on through staging memory, by what both took.
#pragma once

namespace lockstep::internal {

/// Clearly, because to hear that all ranks are there costs a little more before pulling.
constexpr bool pulling_pays(double pulled, double staged) { return pulled < staged * 15 / 16; }

}  // namespace lockstep::internal
