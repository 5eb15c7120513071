// Stands in where the library is built without UCX's headers.
#include "transports/ucx/ucx_transport.hpp"

namespace lockstep::internal {
namespace {

Status absent() {
  return Status(
      ErrorCode::configuration,
      "transport ucx was asked for, but lockstep was built without UCX: install its headers (Debian, "
      "Ubuntu: libucx-dev), configure and build again");
}

}  // namespace

Result<std::shared_ptr<UcxContext>> open_ucx(int) { return absent(); }

bool ucx_moves(const UcxContext&, PayloadMemory) { return false; }

Result<std::unique_ptr<Transport>> make_ucx_transport(std::uint64_t, int, std::span<const int>, Session&,
                                                      std::shared_ptr<UcxContext>, std::chrono::milliseconds,
                                                      Env&, PayloadMemory, const StillWanted&,
                                                      std::span<const int>) {
  return absent();
}

}  // namespace lockstep::internal
