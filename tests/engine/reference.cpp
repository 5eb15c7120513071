#include "tests/engine/reference.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/engine/reference_numbers.hpp"
#include "tests/support/mix.hpp"

namespace lockstep::internal {

namespace {

using testing::mix;

bool adds(const CollectiveCase& c) {
  return c.reduces() && (c.op == ReduceOp::sum || c.op == ReduceOp::avg || c.op == ReduceOp::premul_sum);
}

// Values of the input are at most this, so that sums over the ranks stay exact.
std::int64_t largest_value(const CollectiveCase& c) {
  const std::int64_t limit = exact_limit(c.type);
  if (!adds(c)) return limit;
  return std::max<std::int64_t>(1, limit / c.world / (c.op == ReduceOp::premul_sum ? 4 : 1));
}

// The elements of the input of `rank`, worked out as they are asked for: in memory they would take most of a
// test's time.
template <typename Number>
class Input {
 public:
  Input(const CollectiveCase& c, int rank)
      : is_signed_(!is_unsigned(c.type)),
        multiplies_(c.reduces() && c.op == ReduceOp::prod && c.type != DataType::boolean),
        may_be_two_(rank < 6),  // 2^6 is exact in every type
        range_(static_cast<std::uint64_t>(largest_value(c)) + 1),
        stretch_(adds(c) && c.op == ReduceOp::premul_sum ? 2 : 1),  // times one half is an integer
        stream_(mix(c.seed * 1'000'003 + static_cast<std::uint64_t>(rank))) {}

  Number operator[](std::size_t index) const {
    const std::uint64_t random = mix(stream_ + index);
    if constexpr (kIsComplex<Number>) {
      return {static_cast<double>(whole_number(random)), static_cast<double>(whole_number(mix(~random)))};
    } else {
      return static_cast<Number>(whole_number(random));
    }
  }

 private:
  std::int64_t whole_number(std::uint64_t random) const {
    // Of the upper bits; the lowest two decide what is below.
    using Wide = unsigned __int128;
    auto value = static_cast<std::int64_t>((Wide{random} * range_) >> 64) * stretch_;
    if (multiplies_) value = may_be_two_ && (random & 2) == 0 ? 2 : 1;
    return is_signed_ && (random & 1) != 0 ? -value : value;
  }

  bool is_signed_, multiplies_, may_be_two_;
  std::uint64_t range_;
  std::int64_t stretch_;
  std::uint64_t stream_;
};

std::int64_t wrapping(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::int64_t combine(ReduceOp op, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::prod:
      return wrapping(x * y);
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::user:
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    default:
      return wrapping(x + y);
  }
}

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::user:
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

Complex combine(ReduceOp op, Complex a, Complex b) { return op == ReduceOp::prod ? a * b : a + b; }

// Arithmetic on booleans is logic.
ReduceOp meaning(DataType type, ReduceOp op) {
  if (type != DataType::boolean) return op;
  if (op == ReduceOp::sum || op == ReduceOp::max) return ReduceOp::bor;
  return op == ReduceOp::prod || op == ReduceOp::min ? ReduceOp::band : op;
}

// The elements of the reduction over all ranks.
template <typename Number>
class Reduction {
 public:
  explicit Reduction(const CollectiveCase& c) : op_(meaning(c.type, c.op)), averages_(c.op == ReduceOp::avg) {
    for (int rank = 0; rank < c.world; ++rank) {
      inputs_.emplace_back(c, rank);
      scales_.push_back(static_cast<Number>(c.scale(rank)));
    }
  }

  Number operator[](std::size_t index) const {
    Number result = scaled(0, index);
    for (std::size_t rank = 1; rank < inputs_.size(); ++rank) {
      result = combine(op_, result, scaled(rank, index));
    }
    using Divisor = std::conditional_t<kIsComplex<Number>, double, Number>;
    return averages_ ? result / static_cast<Divisor>(inputs_.size()) : result;
  }

 private:
  Number scaled(std::size_t rank, std::size_t index) const {
    return op_ == ReduceOp::premul_sum ? inputs_[rank][index] * scales_[rank] : inputs_[rank][index];
  }

  ReduceOp op_;
  bool averages_;
  std::vector<Input<Number>> inputs_;
  std::vector<Number> scales_;
};

using BlockSize = std::function<std::size_t(int)>;

std::size_t sum_of(int ranks, const BlockSize& size) {
  std::size_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += size(rank);
  return sum;
}

// Where the blocks of an input or output begin; the collective's own order is rank order.
std::size_t sent_before(const CollectiveCase& c, int source, int destination) {
  return sum_of(destination, [&](int d) { return c.block(source, d); });
}
std::size_t received_before(const CollectiveCase& c, int source, int destination) {
  return sum_of(source, [&](int s) { return c.block(s, destination); });
}

bool is_scatter(Collective c) { return c == Collective::scatter || c == Collective::scatter_v; }
bool is_gather(Collective c) { return c == Collective::gather || c == Collective::gather_v; }
bool is_all_gather(Collective c) { return c == Collective::all_gather || c == Collective::all_gather_v; }
bool is_reduce_scatter(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::reduce_scatter_v;
}
bool is_all_to_all(Collective c) { return c == Collective::all_to_all || c == Collective::all_to_all_v; }

// A part of an output, as the part of an input that it must equal.
struct Piece {
  int rank;
  std::size_t first;
  std::size_t count;
};

std::vector<Piece> pieces_of(const CollectiveCase& c, int rank) {
  if (c.output_elements(rank) == 0) return {};
  if (c.collective == Collective::broadcast) return {{c.root, 0, c.count}};
  if (is_scatter(c.collective)) return {{c.root, sent_before(c, c.root, rank), c.block(c.root, rank)}};
  std::vector<Piece> pieces;
  for (int source = 0; source < c.world; ++source) {
    const std::size_t first = is_all_to_all(c.collective) ? sent_before(c, source, rank) : 0;
    pieces.push_back({source, first, c.block(source, rank)});
  }
  return pieces;
}

template <typename Number>
std::vector<std::byte> expected_output(const CollectiveCase& c, int rank) {
  std::vector<std::byte> bytes(c.output_elements(rank) * size_of(c.type));
  if (c.reduces()) {
    const std::size_t first = is_reduce_scatter(c.collective) ? sent_before(c, 0, rank) : 0;
    encode(c.type, Reduction<Number>(c), first, c.output_elements(rank), bytes.data());
    return bytes;
  }
  std::byte* into = bytes.data();
  for (const Piece& piece : pieces_of(c, rank)) {
    into = encode(c.type, Input<Number>(c, piece.rank), piece.first, piece.count, into);
  }
  return bytes;
}

template <typename Number>
void user_maximum(const void* in, void* inout, std::size_t count, void* context) {
  const auto& c = *static_cast<const CollectiveCase*>(context);
  const std::size_t size = size_of(c.type);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* other = static_cast<const std::byte*>(in) + i * size;
    auto* mine = static_cast<std::byte*>(inout) + i * size;
    if (decode<Number>(c.type, other) > decode<Number>(c.type, mine)) std::memcpy(mine, other, size);
  }
}

}  // namespace

bool CollectiveCase::reduces() const {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         is_reduce_scatter(collective);
}

bool CollectiveCase::rooted() const {
  return collective == Collective::reduce || collective == Collective::broadcast || is_scatter(collective) ||
         is_gather(collective);
}

bool CollectiveCase::irregular() const { return collective >= Collective::scatter_v; }

std::string CollectiveCase::describe() const {
  std::string text = std::string(name_of(collective)) + " " + std::string(name_of(type)) + " x " +
                     std::to_string(count) + ", world " + std::to_string(world);
  if (reduces()) text += ", " + std::string(name_of(op));
  if (rooted()) text += ", root " + std::to_string(root);
  return text + ", seed " + std::to_string(seed);
}

std::size_t CollectiveCase::block(int source, int destination) const {
  const auto irregular = [this](int which) {
    return which % 3 == 1 ? std::size_t{0} : count + static_cast<std::size_t>(which % 5);
  };
  switch (collective) {
    case Collective::scatter_v:
    case Collective::reduce_scatter_v:
      return irregular(destination);
    case Collective::gather_v:
    case Collective::all_gather_v:
      return irregular(source);
    case Collective::all_to_all_v:
      return irregular(source * 3 + destination * 2);
    default:
      return count;
  }
}

std::vector<std::size_t> CollectiveCase::counts(int rank) const {
  std::vector<std::size_t> result;
  const bool by_source = collective == Collective::gather_v || collective == Collective::all_gather_v;
  for (int other = 0; other < world; ++other) {
    result.push_back(by_source ? block(other, rank) : block(rank, other));
  }
  return result;
}

std::vector<std::size_t> CollectiveCase::receive_counts(int rank) const {
  std::vector<std::size_t> result;
  for (int other = 0; other < world; ++other) result.push_back(block(other, rank));
  return result;
}

std::size_t CollectiveCase::input_elements(int rank) const {
  if (collective == Collective::barrier) return 0;
  if (is_scatter(collective)) return rank == root ? sent_before(*this, rank, world) : 0;
  if (is_gather(collective) || is_all_gather(collective)) return block(rank, rank);
  if (is_reduce_scatter(collective) || is_all_to_all(collective)) return sent_before(*this, rank, world);
  return count;
}

std::size_t CollectiveCase::output_elements(int rank) const {
  if (collective == Collective::barrier) return 0;
  if (collective == Collective::reduce) return rank == root ? count : 0;
  if (is_scatter(collective)) return block(root, rank);
  if (is_gather(collective)) return rank == root ? received_before(*this, world, rank) : 0;
  if (is_all_gather(collective) || is_all_to_all(collective)) return received_before(*this, world, rank);
  if (is_reduce_scatter(collective)) return block(rank, rank);
  return count;
}

std::optional<CollectiveCase::InPlace> CollectiveCase::in_place(int rank) const {
  const std::size_t in = input_elements(rank), out = output_elements(rank);
  if (is_all_to_all(collective) || collective == Collective::barrier) return std::nullopt;
  const bool mine_in_output = is_all_gather(collective) || (is_gather(collective) && rank == root);
  const bool mine_in_input = is_reduce_scatter(collective) || (is_scatter(collective) && rank == root);
  if (mine_in_output) return InPlace{out, received_before(*this, rank, rank), 0};
  if (mine_in_input) return InPlace{in, 0, sent_before(*this, rank, rank)};
  return InPlace{std::max(in, out), 0, 0};
}

double CollectiveCase::scale(int rank) const {
  constexpr double kFactors[] = {0.5, 1.0, 2.0}, kWhole[] = {3.0, 1.0, 2.0};
  if (op != ReduceOp::premul_sum) return 1.0;
  return is_float(type) ? kFactors[rank % 3] : kWhole[rank % 3];
}

UserOp CollectiveCase::user_op() const {
  if (op != ReduceOp::user) return {};
  return {is_float(type) ? user_maximum<double> : user_maximum<std::int64_t>,
          const_cast<CollectiveCase*>(this)};
}

std::vector<std::byte> CollectiveCase::input(int rank) const {
  std::vector<std::byte> bytes(input_elements(rank) * size_of(type));
  with_number(type, [&](auto number) {
    encode(type, Input<decltype(number)>(*this, rank), 0, input_elements(rank), bytes.data());
  });
  return bytes;
}

std::vector<std::byte> CollectiveCase::expected(int rank) const {
  const auto work_out = [this](int who) {
    return with_number(type, [&](auto number) { return expected_output<decltype(number)>(*this, who); });
  };
  if (collective != Collective::all_reduce) return work_out(rank);
  // The same on every rank: a world of a thousand simulated ranks works it out once, not a thousand times.
  thread_local std::pair<CollectiveCase, std::vector<std::byte>> last;
  if (last.second.empty() || last.first != *this) last = {*this, work_out(0)};
  return last.second;
}

std::string first_difference(DataType type, const std::byte* actual, const std::vector<std::byte>& expected) {
  if (expected.empty() || std::memcmp(actual, expected.data(), expected.size()) == 0) return {};
  const auto differs = std::mismatch(expected.begin(), expected.end(), actual);
  const std::size_t size = size_of(type);
  const auto index = static_cast<std::size_t>(differs.first - expected.begin()) / size;
  const auto show = [&](const std::byte* element) {
    return with_number(type, [&](auto number) {
      const auto value = decode<decltype(number)>(type, element);
      if constexpr (kIsComplex<decltype(number)>) {
        return std::to_string(value.real()) + " + " + std::to_string(value.imag()) + " i";
      } else {
        return std::to_string(value);
      }
    });
  };
  return "element " + std::to_string(index) + " of " + std::to_string(expected.size() / size) + " is " +
         show(actual + index * size) + ", expected " + show(expected.data() + index * size);
}

}  // namespace lockstep::internal
