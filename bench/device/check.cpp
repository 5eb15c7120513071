#include "bench/device/check.hpp"

#include <vector>

#include "bench/device/memory.hpp"

namespace lockstep::bench {

std::uint64_t count_wrong_on_device(const Data& data, const Call& call, std::uint64_t round,
                                    const std::byte* output, Stream stream) {
  std::vector<std::byte> result(call.count * call.operation->output_blocks(call.world) * size_of(call.type));
  download(result, output, stream);
  return data.count_wrong(result.data(), round);
}

}  // namespace lockstep::bench
