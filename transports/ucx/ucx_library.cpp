#include "transports/ucx/ucx_library.hpp"

#include "lib/base/dynamic_library.hpp"

namespace lockstep::internal {
namespace {

constexpr LibraryHelp kHelp{"libucp.so.0", "ucx", "UCX", "UCX 1.10", "libucx0"};

void take_functions(DynamicLibrary& library, UcxLibrary& table) {
  library.get(table.init_version, "ucp_init_version");
  library.get(table.cleanup, "ucp_cleanup");
  library.get(table.context_query, "ucp_context_query");
  library.get(table.config_read, "ucp_config_read");
  library.get(table.config_release, "ucp_config_release");
  library.get(table.worker_create, "ucp_worker_create");
  library.get(table.worker_destroy, "ucp_worker_destroy");
  library.get(table.worker_get_address, "ucp_worker_get_address");
  library.get(table.worker_release_address, "ucp_worker_release_address");
  library.get(table.worker_get_efd, "ucp_worker_get_efd");
  library.get(table.worker_arm, "ucp_worker_arm");
  library.get(table.worker_progress, "ucp_worker_progress");
  library.get(table.worker_flush_nbx, "ucp_worker_flush_nbx");
  library.get(table.ep_create, "ucp_ep_create");
  library.get(table.ep_close_nbx, "ucp_ep_close_nbx");
  library.get(table.ep_flush_nbx, "ucp_ep_flush_nbx");
  library.get(table.ep_print_info, "ucp_ep_print_info");
  library.get(table.mem_map, "ucp_mem_map");
  library.get(table.mem_unmap, "ucp_mem_unmap");
  library.get(table.rkey_pack, "ucp_rkey_pack");
  library.get(table.rkey_buffer_release, "ucp_rkey_buffer_release");
  library.get(table.ep_rkey_unpack, "ucp_ep_rkey_unpack");
  library.get(table.rkey_destroy, "ucp_rkey_destroy");
  library.get(table.put_nbx, "ucp_put_nbx");
  library.get(table.tag_send_nbx, "ucp_tag_send_nbx");
  library.get(table.tag_recv_nbx, "ucp_tag_recv_nbx");
  library.get(table.tag_recv_request_test, "ucp_tag_recv_request_test");
  library.get(table.tag_probe_nb, "ucp_tag_probe_nb");
  library.get(table.request_check_status, "ucp_request_check_status");
  library.get(table.request_cancel, "ucp_request_cancel");
  library.get(table.request_free, "ucp_request_free");
  library.get(table.status_string, "ucs_status_string");
}

}  // namespace

Result<const UcxLibrary*> ucx_library() {
  static const LoadedLibrary<UcxLibrary> loaded = load_library<UcxLibrary>(kHelp, take_functions);
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.table;
}

Status ucx_error(const UcxLibrary& ucx, const std::string& what, ucs_status_t status) {
  return Status(ErrorCode::system, "UCX cannot " + what + ": " + ucx.status_string(status));
}

}  // namespace lockstep::internal
