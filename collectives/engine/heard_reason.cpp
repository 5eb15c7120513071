#include "collectives/engine/heard_reason.hpp"

#include <algorithm>

#include "collectives/engine/reason.hpp"

namespace lockstep::internal {

Result<bool> HeardReason::read(const FrameHeader& header, Link& link) {
  std::string& text = partial_[&link];
  std::byte piece[512];
  while (text.size() < header.bytes) {
    auto got = link.read({piece, std::min<std::size_t>(sizeof piece, header.bytes - text.size())});
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
    text.append(reinterpret_cast<const char*>(piece), *got);
  }
  link.pop();
  if (reason_.ok()) reason_ = decode_reason(text, size_);
  return true;
}

}  // namespace lockstep::internal
