// UCX's functions, loaded when they are first wanted: one binary runs with and without UCX, and UCX's own
// start-up (signal handlers, memory hooks) happens only in programs that ask for it.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// FUNCTION(what it is called here, what the library calls it).
// clang-format off
#define LOCKSTEP_UCX_FUNCTIONS(FUNCTION) \
  FUNCTION(get_version, ucp_get_version) \
  FUNCTION(init_version, ucp_init_version) \
  FUNCTION(cleanup, ucp_cleanup) \
  FUNCTION(context_query, ucp_context_query) \
  FUNCTION(config_read, ucp_config_read) \
  FUNCTION(config_modify, ucp_config_modify) \
  FUNCTION(config_release, ucp_config_release) \
  FUNCTION(worker_create, ucp_worker_create) \
  FUNCTION(worker_destroy, ucp_worker_destroy) \
  FUNCTION(worker_get_address, ucp_worker_get_address) \
  FUNCTION(worker_release_address, ucp_worker_release_address) \
  FUNCTION(worker_get_efd, ucp_worker_get_efd) \
  FUNCTION(worker_arm, ucp_worker_arm) \
  FUNCTION(worker_progress, ucp_worker_progress) \
  FUNCTION(worker_flush_nbx, ucp_worker_flush_nbx) \
  FUNCTION(ep_create, ucp_ep_create) \
  FUNCTION(ep_close_nbx, ucp_ep_close_nbx) \
  FUNCTION(ep_flush_nbx, ucp_ep_flush_nbx) \
  FUNCTION(ep_print_info, ucp_ep_print_info) \
  FUNCTION(mem_map, ucp_mem_map) \
  FUNCTION(mem_unmap, ucp_mem_unmap) \
  FUNCTION(rkey_pack, ucp_rkey_pack) \
  FUNCTION(rkey_buffer_release, ucp_rkey_buffer_release) \
  FUNCTION(ep_rkey_unpack, ucp_ep_rkey_unpack) \
  FUNCTION(rkey_destroy, ucp_rkey_destroy) \
  FUNCTION(put_nbx, ucp_put_nbx) \
  FUNCTION(tag_send_nbx, ucp_tag_send_nbx) \
  FUNCTION(tag_recv_nbx, ucp_tag_recv_nbx) \
  FUNCTION(tag_recv_request_test, ucp_tag_recv_request_test) \
  FUNCTION(tag_probe_nb, ucp_tag_probe_nb) \
  FUNCTION(request_check_status, ucp_request_check_status) \
  FUNCTION(request_cancel, ucp_request_cancel) \
  FUNCTION(request_free, ucp_request_free) \
  FUNCTION(status_string, ucs_status_string)
// clang-format on

struct UcxLibrary {
#define LOCKSTEP_POINTER(function, name) decltype(&name) function;
  LOCKSTEP_UCX_FUNCTIONS(LOCKSTEP_POINTER)
#undef LOCKSTEP_POINTER
};

/// Loaded once and kept for the life of the process. Error: `configuration`, naming what is missing.
Result<const UcxLibrary*> ucx_library();

/// "UCX cannot create a worker: Input/output error".
Status ucx_error(const UcxLibrary& ucx, const std::string& what, ucs_status_t status);

}  // namespace lockstep::internal
