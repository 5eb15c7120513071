#include "lockstep/memory.hpp"

#include <string>

#include "lib/memory/heap.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep {

using internal::Heap;

void* allocate(std::size_t bytes) {
  auto data = Heap::instance().allocate(bytes);
  data.status().with_context("allocate(" + std::to_string(bytes) + " bytes)").throw_if_error();
  return *data;
}

void free(void* pointer) noexcept { Heap::instance().free(pointer); }

bool is_registered(const void* pointer, std::size_t bytes) noexcept {
  return internal::find_segment(pointer, bytes).has_value();
}

void register_buffer(void* pointer, std::size_t bytes) {
  Heap::instance()
      .adopt(pointer, bytes)
      .with_context("register_buffer(" + std::to_string(bytes) + " bytes)")
      .throw_if_error();
}

void deregister_buffer(void* pointer) {
  Heap::instance().give_back(pointer).with_context("deregister_buffer").throw_if_error();
}

}  // namespace lockstep
