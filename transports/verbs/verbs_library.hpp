// libibverbs' functions, loaded when they are first wanted, so that one binary runs without it. What posts
// and polls is not here: the header calls the device's driver directly.
#pragma once

#include <infiniband/verbs.h>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// FUNCTION(what it is called here, what the library calls it).
// clang-format off
#define LOCKSTEP_VERBS_FUNCTIONS(FUNCTION) \
  FUNCTION(get_device_list, ibv_get_device_list) \
  FUNCTION(free_device_list, ibv_free_device_list) \
  FUNCTION(get_device_name, ibv_get_device_name) \
  FUNCTION(open_device, ibv_open_device) \
  FUNCTION(close_device, ibv_close_device) \
  FUNCTION(query_device, ibv_query_device) \
  FUNCTION(query_gid, ibv_query_gid) \
  FUNCTION(query_gid_ex, _ibv_query_gid_ex) \
  FUNCTION(alloc_pd, ibv_alloc_pd) \
  FUNCTION(dealloc_pd, ibv_dealloc_pd) \
  FUNCTION(reg_mr, ibv_reg_mr) \
  FUNCTION(dereg_mr, ibv_dereg_mr) \
  FUNCTION(create_comp_channel, ibv_create_comp_channel) \
  FUNCTION(destroy_comp_channel, ibv_destroy_comp_channel) \
  FUNCTION(create_cq, ibv_create_cq) \
  FUNCTION(destroy_cq, ibv_destroy_cq) \
  FUNCTION(get_cq_event, ibv_get_cq_event) \
  FUNCTION(ack_cq_events, ibv_ack_cq_events) \
  FUNCTION(create_srq, ibv_create_srq) \
  FUNCTION(destroy_srq, ibv_destroy_srq) \
  FUNCTION(create_qp, ibv_create_qp) \
  FUNCTION(modify_qp, ibv_modify_qp) \
  FUNCTION(destroy_qp, ibv_destroy_qp) \
  FUNCTION(wc_status_str, ibv_wc_status_str)
// clang-format on

struct VerbsLibrary {
#define LOCKSTEP_POINTER(function, name) decltype(&name) function;
  LOCKSTEP_VERBS_FUNCTIONS(LOCKSTEP_POINTER)
#undef LOCKSTEP_POINTER
  /// The header hides its type behind a macro of its name.
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
};

/// Loaded once and kept for the life of the process. Error: `configuration`, naming what is missing.
Result<const VerbsLibrary*> verbs_library();

}  // namespace lockstep::internal
