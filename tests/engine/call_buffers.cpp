#include "tests/engine/call_buffers.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::internal {

namespace {

constexpr std::size_t kMargin = 64;
constexpr std::byte kCanary{0xa5};

std::size_t round_up(std::size_t bytes) { return (bytes + kMargin - 1) / kMargin * kMargin; }

}  // namespace

std::size_t CallBuffers::bytes_needed(const CollectiveCase& c) {
  std::size_t elements = 0;
  for (int rank = 0; rank < c.world; ++rank) {
    const auto in_place = c.in_place(rank);
    elements = std::max(
        {elements, c.input_elements(rank) + c.output_elements(rank), in_place ? in_place->elements : 0});
  }
  return elements * size_of(c.type) + 8 * kMargin;
}

// [canary and odd start][elements][canary], from the front of `memory`, which shrinks.
std::span<std::byte> CallBuffers::place(std::span<std::byte>& memory, std::size_t elements) {
  const std::size_t size = size_of(case_.type);
  const std::size_t before = kMargin + (case_.seed % 4) * size;
  const std::size_t bytes = elements * size;
  const std::size_t whole = round_up(before + bytes) + kMargin;
  std::fill_n(memory.begin(), whole, kCanary);
  canaries_.push_back(memory.first(before));
  canaries_.push_back(memory.subspan(before + bytes, whole - before - bytes));
  const auto buffer = memory.subspan(before, bytes);
  memory = memory.subspan(whole);
  return buffer;
}

CallBuffers::CallBuffers(const CollectiveCase& c, int rank, bool in_place, std::span<std::byte> memory)
    : case_(c),
      rank_(rank),
      in_place_(in_place || c.collective == Collective::broadcast),
      original_input_(c.input(rank)) {
  const std::size_t size = size_of(c.type);
  const auto shared = c.in_place(rank);
  in_place_ = in_place_ && shared.has_value();
  if (in_place_) {
    const auto buffer = place(memory, shared->elements);
    input_ = buffer.data() + shared->input_at * size;
    output_ = buffer.data() + shared->output_at * size;
  } else {
    if (const std::size_t elements = c.input_elements(rank)) input_ = place(memory, elements).data();
    if (const std::size_t elements = c.output_elements(rank)) output_ = place(memory, elements).data();
  }
  // The buffer of a broadcast holds garbage where it is not the root's.
  const bool garbage = c.collective == Collective::broadcast && rank != c.root;
  if (!original_input_.empty() && !garbage)
    std::memcpy(input_, original_input_.data(), original_input_.size());
}

bool CallBuffers::input_must_survive() const {
  if (case_.collective == Collective::broadcast) return rank_ == case_.root;
  return !in_place_ || case_.output_elements(rank_) == 0;
}

std::string CallBuffers::check_unharmed() const {
  if (input_must_survive()) {
    const std::string difference = first_difference(case_.type, input_, original_input_);
    if (!difference.empty()) return "the input was changed: " + difference;
  }
  for (const auto canary : canaries_) {
    if (std::any_of(canary.begin(), canary.end(), [](std::byte b) { return b != kCanary; })) {
      return "bytes beside the buffers were written";
    }
  }
  return {};
}

std::string CallBuffers::check_result() const {
  const std::string difference = first_difference(case_.type, output_, case_.expected(rank_));
  return difference.empty() ? check_unharmed() : "wrong output: " + difference;
}

}  // namespace lockstep::internal
