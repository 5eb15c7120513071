#include "bench/data.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::bench {
namespace {

// Prime, so that data shifted by any block or page is wrong data; the table of one period stays in the
// first-level cache.
constexpr std::uint64_t kPeriod = 8191;
// Sampled elements a block.
constexpr std::uint64_t kSamples = 16;
// Ranks whose factor in a product is 2: 2^3 is exact in every type.
constexpr std::uint64_t kProductFactors = 3;
// Values of min, max and plain copies lie within this; more would tell no more.
constexpr std::int64_t kPlainLimit = 100;

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
std::uint64_t hash(std::uint64_t index, std::uint64_t round, std::uint64_t salt) {
  return mix(mix(index + 1) + mix(round * 0x9e3779b97f4a7c15u + salt));
}

bool is_unsigned(DataType type) {
  return type == DataType::u8 || type == DataType::u32 || type == DataType::u64;
}

// Of `world` ranks a few, chosen by the index alone, contribute `odd`; the others `usual`.
std::int64_t few(std::uint64_t common, int rank, int world, std::uint64_t how_many, std::int64_t odd,
                 std::int64_t usual) {
  return (common + static_cast<std::uint64_t>(rank)) % static_cast<std::uint64_t>(world) < how_many ? odd
                                                                                                    : usual;
}

// In a sum of `world` values of this range every partial sum is exact. Where even ones would be too many,
// only some ranks give one.
std::int64_t summand(std::uint64_t own, std::uint64_t common, int rank, int world, std::int64_t limit) {
  const std::int64_t range = limit / world;
  if (range > 0) return static_cast<std::int64_t>(own % static_cast<std::uint64_t>(range + 1));
  return few(common, rank, world, static_cast<std::uint64_t>(limit), 1, 0);
}

// A common value, one more on even ranks and one less on odd ones: the average is the common value exactly.
std::int64_t averaged(std::uint64_t common, int rank, int world, std::int64_t limit, bool with_sign) {
  const std::int64_t range = (limit - world) / world;
  const std::int64_t value =
      range > 0 ? 1 + static_cast<std::int64_t>(common % static_cast<std::uint64_t>(range)) : 0;
  const bool paired = (rank ^ 1) < world && rank < limit && (value > 0 || with_sign);
  return paired ? value + (rank % 2 == 0 ? 1 : -1) : value;
}

// The first period of `buffer` again and again up to its end.
void repeat(std::byte* buffer, std::uint64_t elements, std::size_t size) {
  for (std::uint64_t done = kPeriod; done < elements; done += kPeriod) {
    std::memcpy(buffer + done * size, buffer, std::min(kPeriod, elements - done) * size);
  }
}

}  // namespace

double premul_scale(int rank) { return rank % 2 == 0 ? 2 : 1; }

std::int64_t Data::input_value(int rank, std::uint64_t index, std::uint64_t round) const {
  index %= kPeriod;
  const std::uint64_t common = hash(index, round, 0);
  const std::uint64_t own = hash(index, round, 1 + static_cast<std::uint64_t>(rank));
  const std::int64_t limit = exact_limit(call_.type);
  const int world = call_.world;
  const bool all_ones = call_.op == ReduceOp::prod || call_.op == ReduceOp::min || call_.op == ReduceOp::band;
  if (call_.type == DataType::boolean &&
      call_.operation->reduces()) {  // one rank decides, for half of the elements
    return few(common, rank, 2 * world, 1, !all_ones, all_ones);
  }
  if (call_.operation->reduces()) {
    switch (call_.op) {
      case ReduceOp::sum:
        return summand(own, common, rank, world, limit);
      case ReduceOp::premul_sum:
        return summand(own, common, rank, world, limit / 2);
      case ReduceOp::avg:
        return averaged(common, rank, world, limit, !is_unsigned(call_.type));
      case ReduceOp::prod:
        return few(common, rank, world, kProductFactors, 2, 1);
      default:
        break;
    }
  }
  const std::int64_t range = std::min(limit, kPlainLimit);
  if (is_unsigned(call_.type)) return static_cast<std::int64_t>(own % static_cast<std::uint64_t>(range + 1));
  return static_cast<std::int64_t>(own % static_cast<std::uint64_t>(2 * range + 1)) - range;
}

std::int64_t Data::reduced_value(std::uint64_t index, std::uint64_t round) const {
  std::int64_t result = 0;
  for (int rank = 0; rank < call_.world; ++rank) {
    std::int64_t value = input_value(rank, index, round);
    if (call_.op == ReduceOp::premul_sum) value *= static_cast<std::int64_t>(premul_scale(rank));
    if (rank == 0) {
      result = value;
      continue;
    }
    switch (call_.op) {
      case ReduceOp::prod:
        result *= value;
        break;
      case ReduceOp::min:
        result = std::min(result, value);
        break;
      case ReduceOp::max:
        result = std::max(result, value);
        break;
      case ReduceOp::band:
        result &= value;
        break;
      case ReduceOp::bor:
        result |= value;
        break;
      case ReduceOp::bxor:
        result ^= value;
        break;
      default:
        result += value;
        break;
    }
  }
  return call_.op == ReduceOp::avg ? result / call_.world : result;
}

std::int64_t Data::output_value(std::uint64_t block, std::uint64_t index, std::uint64_t round) const {
  // Where the input has a block for every rank, this rank gets its own.
  const bool from_own_block = call_.operation->blocks_in;
  const std::uint64_t from =
      (from_own_block ? static_cast<std::uint64_t>(call_.rank) * call_.count : 0) + index;
  switch (call_.operation->source) {
    case Source::reduction:
      return reduced_value(from, round);
    case Source::root:
      return input_value(call_.root, from, round);
    case Source::block:
      return input_value(static_cast<int>(block), from, round);
    case Source::predecessor:
      return input_value((call_.rank + call_.world - 1) % call_.world, from, round);
    case Source::none:
      break;
  }
  return 0;
}

void Data::fill_neutral(std::byte* buffer, std::uint64_t elements) const {
  const std::size_t size = size_of(call_.type);
  const bool ones = call_.operation->reduces() && call_.op == ReduceOp::prod;
  const std::uint64_t first = std::min(elements, kPeriod);
  for (std::uint64_t i = 0; i < first; ++i) encode(call_.type, ones ? 1 : 0, buffer + i * size);
  repeat(buffer, elements, size);
}

std::vector<std::byte> Data::input_period(std::uint64_t round) const {
  const std::size_t size = size_of(call_.type);
  const std::uint64_t elements = call_.count * call_.operation->input_blocks(call_.world);
  std::vector<std::byte> period(std::min(elements, kPeriod) * size);
  for (std::uint64_t i = 0; i < period.size() / size; ++i)
    encode(call_.type, input_value(call_.rank, i, round), period.data() + i * size);
  return period;
}

std::vector<std::byte> Data::output_period(std::uint64_t block, std::uint64_t round) const {
  const std::size_t size = size_of(call_.type);
  std::vector<std::byte> period(std::min(call_.count, kPeriod) * size);
  for (std::uint64_t i = 0; i < period.size() / size; ++i)
    encode(call_.type, output_value(block, i, round), period.data() + i * size);
  return period;
}

void Data::fill(std::byte* input, std::uint64_t round) const {
  const std::uint64_t elements = call_.count * call_.operation->input_blocks(call_.world);
  const std::vector<std::byte> period = input_period(round);
  if (!period.empty()) std::memcpy(input, period.data(), period.size());
  repeat(input, elements, size_of(call_.type));
}

std::uint64_t Data::compare_block(const std::byte* block, const std::vector<std::byte>& period) const {
  const std::size_t size = size_of(call_.type);
  std::uint64_t wrong = 0;
  for (std::uint64_t done = 0; done < call_.count; done += kPeriod) {
    const std::uint64_t elements = std::min(kPeriod, call_.count - done);
    const std::byte* part = block + done * size;
    if (std::memcmp(part, period.data(), elements * size) == 0) continue;
    for (std::uint64_t i = 0; i < elements; ++i) {
      wrong += std::memcmp(part + i * size, period.data() + i * size, size) != 0;
    }
  }
  return wrong;
}

std::uint64_t Data::count_wrong(const std::byte* output, std::uint64_t round) const {
  const std::size_t block_bytes = call_.count * size_of(call_.type);
  std::uint64_t wrong = 0;
  for (std::uint64_t block = 0; block < call_.operation->output_blocks(call_.world); ++block)
    wrong += compare_block(output + block * block_bytes, output_period(block, round));
  return wrong;
}

void Data::fill_samples(std::byte* input, std::uint64_t round) const {
  const std::size_t size = size_of(call_.type);
  for (std::uint64_t block = 0; block < call_.operation->input_blocks(call_.world); ++block) {
    for (std::uint64_t k = 0; k < kSamples; ++k) {
      const std::uint64_t index = block * call_.count + (call_.count - 1) * k / (kSamples - 1);
      encode(call_.type, input_value(call_.rank, index, round), input + index * size);
    }
  }
}

std::uint64_t Data::count_wrong_samples(const std::byte* output, std::uint64_t round) const {
  const std::size_t size = size_of(call_.type);
  std::byte expected[16];
  std::uint64_t wrong = 0;
  for (std::uint64_t block = 0; block < call_.operation->output_blocks(call_.world); ++block) {
    for (std::uint64_t k = 0; k < kSamples; ++k) {
      const std::uint64_t index = (call_.count - 1) * k / (kSamples - 1);
      encode(call_.type, output_value(block, index, round), expected);
      wrong += std::memcmp(output + (block * call_.count + index) * size, expected, size) != 0;
    }
  }
  return wrong;
}

}  // namespace lockstep::bench
