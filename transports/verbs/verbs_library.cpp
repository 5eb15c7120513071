#include "transports/verbs/verbs_library.hpp"

#include "lib/base/dynamic_library.hpp"

namespace lockstep::internal {
namespace {

constexpr LibraryHelp kHelp{"libibverbs.so.1", "verbs", "libibverbs", "rdma-core 32",
                            "libibverbs1 ibverbs-providers"};

void take_functions(DynamicLibrary& library, VerbsLibrary& table) {
#define LOCKSTEP_TAKE(function, name) library.get(table.function, #name);
  LOCKSTEP_VERBS_FUNCTIONS(LOCKSTEP_TAKE)
#undef LOCKSTEP_TAKE
  library.get(table.query_port, "ibv_query_port");
}

}  // namespace

Result<const VerbsLibrary*> verbs_library() {
  static const LoadedLibrary<VerbsLibrary> loaded = load_library<VerbsLibrary>(kHelp, take_functions);
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.table;
}

}  // namespace lockstep::internal
