#include "transports/verbs/verbs_library.hpp"

#include "lib/base/dynamic_library.hpp"

namespace lockstep::internal {
namespace {

constexpr LibraryHelp kHelp{"libibverbs.so.1", "verbs", "libibverbs", "rdma-core 32",
                            "libibverbs1 ibverbs-providers"};

void take_functions(DynamicLibrary& library, VerbsLibrary& table) {
  library.get(table.get_device_list, "ibv_get_device_list");
  library.get(table.free_device_list, "ibv_free_device_list");
  library.get(table.get_device_name, "ibv_get_device_name");
  library.get(table.open_device, "ibv_open_device");
  library.get(table.close_device, "ibv_close_device");
  library.get(table.query_device, "ibv_query_device");
  library.get(table.query_port, "ibv_query_port");
  library.get(table.query_gid, "ibv_query_gid");
  library.get(table.query_gid_ex, "_ibv_query_gid_ex");
  library.get(table.alloc_pd, "ibv_alloc_pd");
  library.get(table.dealloc_pd, "ibv_dealloc_pd");
  library.get(table.reg_mr, "ibv_reg_mr");
  library.get(table.dereg_mr, "ibv_dereg_mr");
  library.get(table.create_comp_channel, "ibv_create_comp_channel");
  library.get(table.destroy_comp_channel, "ibv_destroy_comp_channel");
  library.get(table.create_cq, "ibv_create_cq");
  library.get(table.destroy_cq, "ibv_destroy_cq");
  library.get(table.get_cq_event, "ibv_get_cq_event");
  library.get(table.ack_cq_events, "ibv_ack_cq_events");
  library.get(table.create_srq, "ibv_create_srq");
  library.get(table.destroy_srq, "ibv_destroy_srq");
  library.get(table.create_qp, "ibv_create_qp");
  library.get(table.modify_qp, "ibv_modify_qp");
  library.get(table.destroy_qp, "ibv_destroy_qp");
  library.get(table.wc_status_str, "ibv_wc_status_str");
}

}  // namespace

Result<const VerbsLibrary*> verbs_library() {
  static const LoadedLibrary<VerbsLibrary> loaded = load_library<VerbsLibrary>(kHelp, take_functions);
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.table;
}

}  // namespace lockstep::internal
