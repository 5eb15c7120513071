// UCX's functions, loaded when they are first wanted: one binary runs with and without UCX, and UCX's own
// start-up (signal handlers, memory hooks) happens only in programs that ask for it.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

struct UcxLibrary {
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_context_query) context_query;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_flush_nbx) worker_flush_nbx;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx;
  decltype(&ucp_ep_print_info) ep_print_info;
  decltype(&ucp_mem_map) mem_map;
  decltype(&ucp_mem_unmap) mem_unmap;
  decltype(&ucp_rkey_pack) rkey_pack;
  decltype(&ucp_rkey_buffer_release) rkey_buffer_release;
  decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack;
  decltype(&ucp_rkey_destroy) rkey_destroy;
  decltype(&ucp_put_nbx) put_nbx;
  decltype(&ucp_tag_send_nbx) tag_send_nbx;
  decltype(&ucp_tag_recv_nbx) tag_recv_nbx;
  decltype(&ucp_tag_recv_request_test) tag_recv_request_test;
  decltype(&ucp_tag_probe_nb) tag_probe_nb;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_cancel) request_cancel;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

/// Loaded once and kept for the life of the process. Error: `configuration`, naming what is missing.
Result<const UcxLibrary*> ucx_library();

/// "UCX cannot create a worker: Input/output error".
Status ucx_error(const UcxLibrary& ucx, const std::string& what, ucs_status_t status);

}  // namespace lockstep::internal
