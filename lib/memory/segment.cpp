#include "lib/memory/segment.hpp"

#include "lib/memory/heap.hpp"

namespace lockstep::internal {

std::optional<SegmentRef> find_segment(const void* pointer, std::size_t bytes) noexcept {
  static const SegmentTable& table = Heap::instance().table();
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto place = table.find(begin, bytes);
  if (!place) return std::nullopt;
  return SegmentRef{process_token(), place->segment, begin - place->begin, 0};
}

SegmentRef direct_ref(const void* pointer) noexcept {
  return SegmentRef{process_token(), 0, reinterpret_cast<std::uintptr_t>(pointer), 0};
}

std::byte* own_address(const SegmentRef& ref, std::size_t bytes) noexcept {
  if (ref.segment == 0) return reinterpret_cast<std::byte*>(ref.offset);
  auto place = Heap::instance().table().find_segment(ref.segment);
  if (!place) place = Heap::instance().place_of(ref.segment);
  if (!place) return nullptr;
  const std::size_t size = place->end - place->begin;
  if (ref.offset > size || bytes > size - ref.offset) return nullptr;
  return reinterpret_cast<std::byte*>(place->begin + ref.offset);
}

Status make_private(const void* pointer, std::size_t bytes) {
  return Heap::instance().make_private(pointer, bytes);
}

bool has_private_page(const void* pointer, std::size_t bytes) noexcept {
  return bytes > 0 && Heap::instance().is_private(pointer, bytes);
}

std::string segment_key(std::uint64_t segment) { return "segment/" + std::to_string(segment); }

}  // namespace lockstep::internal
