// Stands in where the library is built without libibverbs' headers.
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

Status absent() {
  return Status(
      ErrorCode::configuration,
      "transport verbs was asked for, but lockstep was built without libibverbs: install its headers "
      "(Debian, Ubuntu: libibverbs-dev), configure and build again");
}

}  // namespace

Result<std::shared_ptr<VerbsDevice>> open_verbs(int) { return absent(); }

std::string verbs_offer(const VerbsDevice&, int) { return {}; }

Result<std::unique_ptr<Transport>> make_verbs_transport(std::uint64_t, int, std::span<const int>,
                                                        Switchboard&, std::shared_ptr<VerbsDevice>, Env&) {
  return absent();
}

}  // namespace lockstep::internal
