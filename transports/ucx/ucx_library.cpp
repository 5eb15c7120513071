#include "transports/ucx/ucx_library.hpp"

#include "lib/base/dynamic_library.hpp"

namespace lockstep::internal {
namespace {

constexpr LibraryHelp kHelp{"libucp.so.0", "ucx", "UCX", "UCX 1.10", "libucx0"};

void take_functions(DynamicLibrary& library, UcxLibrary& table) {
#define LOCKSTEP_TAKE(function, name) library.get(table.function, #name);
  LOCKSTEP_UCX_FUNCTIONS(LOCKSTEP_TAKE)
#undef LOCKSTEP_TAKE
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
