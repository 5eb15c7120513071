#include "transports/ucx/ucx_region.hpp"

namespace lockstep::internal {

Result<std::shared_ptr<UcxRegion>> UcxRegion::map(std::shared_ptr<UcxContext> context, void* memory,
                                                  std::size_t bytes) {
  const UcxLibrary& ucx = context->ucx;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory;
  params.length = bytes;
  ucp_mem_h handle = nullptr;
  if (const auto status = ucx.mem_map(context->handle, &params, &handle); status != UCS_OK) {
    return ucx_error(ucx, "map " + std::to_string(bytes) + " bytes", status);
  }
  std::shared_ptr<UcxRegion> region(new UcxRegion(std::move(context), handle));
  void* key = nullptr;
  std::size_t length = 0;
  if (const auto status = ucx.rkey_pack(region->context_->handle, handle, &key, &length); status != UCS_OK) {
    return ucx_error(ucx, "make a key to memory", status);
  }
  region->key_.assign(static_cast<const char*>(key), length);
  ucx.rkey_buffer_release(key);
  return region;
}

}  // namespace lockstep::internal
