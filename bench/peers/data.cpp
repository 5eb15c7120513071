#include "bench/peers/data.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace peers {
namespace {

// Small whole numbers: sums of 64 ranks are exact in f32 and f16, of 8 in bf16. They do not repeat: what lies
// a page or a block further on is other data. The leading bits of multiples of the golden ratio, which are
// spread evenly whatever the step from one element to another.
unsigned value(int rank, std::size_t index, unsigned salt) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  constexpr unsigned kBits = 5;
  const std::uint64_t place = index + (static_cast<std::uint64_t>(rank) << 40);
  return (static_cast<unsigned>(place * kGolden >> (64 - kBits)) + salt) & ((1u << kBits) - 1);
}

unsigned reduced(const Call& call, std::size_t index, unsigned salt) {
  unsigned total = 0;
  for (int rank = 0; rank < call.world; ++rank) {
    const unsigned one = value(rank, index, salt);
    total = call.kind.reduction == Reduction::sum ? total + one : std::max(total, one);
  }
  return total;
}

// A whole number below 2048, of which f16 holds the eleven leading bits.
std::uint16_t half_of(unsigned number) {
  if (number == 0) return 0;
  const auto exponent = static_cast<unsigned>(std::bit_width(number)) - 1;
  return static_cast<std::uint16_t>((exponent + 15) << 10 | (number << (10 - exponent) & 0x3ff));
}

// A number as it lies in memory.
template <Element kElement>
auto stored(unsigned number) {
  if constexpr (kElement == Element::f32) return static_cast<float>(number);
  if constexpr (kElement == Element::f16) return half_of(number);
  if constexpr (kElement == Element::bf16)
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(number)) >> 16);
  if constexpr (kElement == Element::i64) return static_cast<std::int64_t>(number);
}

template <Element kElement, typename Number>
void fill_with(const Number& number, std::size_t count, void* memory) {
  auto* const elements = static_cast<decltype(stored<kElement>(0))*>(memory);
  for (std::size_t i = 0; i < count; ++i) elements[i] = stored<kElement>(number(i));
}

template <Element kElement, typename Number>
std::uint64_t count_others(const Number& number, std::size_t count, const void* memory) {
  const auto* const elements = static_cast<const decltype(stored<kElement>(0))*>(memory);
  std::uint64_t others = 0;
  for (std::size_t i = 0; i < count; ++i) others += elements[i] != stored<kElement>(number(i)) ? 1 : 0;
  return others;
}

// What `action`, a template over the element, gives for this one.
template <typename Action>
auto with(Element element, const Action& action) {
  switch (element) {
    case Element::f16:
      return action.template operator()<Element::f16>();
    case Element::bf16:
      return action.template operator()<Element::bf16>();
    case Element::i64:
      return action.template operator()<Element::i64>();
    case Element::f32:
      break;
  }
  return action.template operator()<Element::f32>();
}

template <typename Expected>
std::uint64_t differences(const Call& call, const std::byte* output, const Expected& expected) {
  return with(call.kind.element,
              [&]<Element kElement> { return count_others<kElement>(expected, call.count(), output); });
}

}  // namespace

void fill(const Call& call, void* input, unsigned salt) {
  const auto number = [&](std::size_t i) { return value(call.rank, i, salt); };
  with(call.kind.element, [&]<Element kElement> { fill_with<kElement>(number, call.input_count(), input); });
}

std::uint64_t count_wrong(const Call& call, const void* output, unsigned salt) {
  const std::size_t block = call.count();
  const std::size_t mine = static_cast<std::size_t>(call.rank) * block;
  const auto* const out = static_cast<const std::byte*>(output);
  const bool idle = call.rank != kRoot && (call.op == Op::reduce || call.op == Op::gather);
  if (block == 0 || idle) return 0;
  switch (call.op) {
    case Op::barrier:
      return 0;
    case Op::all_reduce:
    case Op::reduce:
      return differences(call, out, [&](std::size_t i) { return reduced(call, i, salt); });
    case Op::reduce_scatter:
      return differences(call, out, [&](std::size_t i) { return reduced(call, mine + i, salt); });
    case Op::broadcast:
      return differences(call, out, [&](std::size_t i) { return value(kRoot, i, salt); });
    case Op::scatter:
      return differences(call, out, [&](std::size_t i) { return value(kRoot, mine + i, salt); });
    case Op::all_gather:
    case Op::gather:
    case Op::all_to_all: {
      const std::size_t from = call.op == Op::all_to_all ? mine : 0;
      const std::size_t block_bytes = block * size_of(call.kind.element);
      std::uint64_t wrong = 0;
      for (int rank = 0; rank < call.world; ++rank) {
        wrong += differences(call, out + static_cast<std::size_t>(rank) * block_bytes,
                             [&](std::size_t i) { return value(rank, from + i, salt); });
      }
      return wrong;
    }
  }
  return 0;
}

}  // namespace peers
