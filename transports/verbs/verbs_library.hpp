// libibverbs' functions, loaded when they are first wanted, so that one binary runs without it. What posts
// and polls is not here: the header calls the device's driver directly.
#pragma once

#include <infiniband/verbs.h>

#include "lib/base/status.hpp"

namespace lockstep::internal {

struct VerbsLibrary {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  decltype(&ibv_query_device) query_device;
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
  decltype(&ibv_query_gid) query_gid;
  decltype(&_ibv_query_gid_ex) query_gid_ex;
  decltype(&ibv_alloc_pd) alloc_pd;
  decltype(&ibv_dealloc_pd) dealloc_pd;
  decltype(&ibv_reg_mr) reg_mr;
  decltype(&ibv_dereg_mr) dereg_mr;
  decltype(&ibv_create_comp_channel) create_comp_channel;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&ibv_create_cq) create_cq;
  decltype(&ibv_destroy_cq) destroy_cq;
  decltype(&ibv_get_cq_event) get_cq_event;
  decltype(&ibv_ack_cq_events) ack_cq_events;
  decltype(&ibv_create_srq) create_srq;
  decltype(&ibv_destroy_srq) destroy_srq;
  decltype(&ibv_create_qp) create_qp;
  decltype(&ibv_modify_qp) modify_qp;
  decltype(&ibv_destroy_qp) destroy_qp;
  decltype(&ibv_wc_status_str) wc_status_str;
};

/// Loaded once and kept for the life of the process. Error: `configuration`, naming what is missing.
Result<const VerbsLibrary*> verbs_library();

}  // namespace lockstep::internal
