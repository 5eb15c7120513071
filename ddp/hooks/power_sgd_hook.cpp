// PowerSGD. Two all_reduces a bucket: the first takes the vectors, as they are, and the left factors P = M Q;
// the second the right factors Q = transposed(M) P. The first one blocks, since Q needs the orthonormal P of
// all ranks.
#include <algorithm>
#include <cmath>
#include <utility>

#include "ddp/exact.hpp"
#include "ddp/hooks/compressing_hook.hpp"
#include "ddp/hooks/low_rank.hpp"
#include "ddp/hooks/residual.hpp"
#include "ddp/registered_block.hpp"
#include "lib/base/hash.hpp"
#include "lockstep/ddp/hooks.hpp"

namespace lockstep {
namespace {

using internal::floats;
using internal::MatrixShape;

constexpr std::size_t kMaxRank = 256;

class PowerSgdHook final : public internal::CompressingHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options) : options_(options) {}
  std::string name() const override;
  bool wants_whole_gradients() const override { return true; }

 private:
  /// A gradient that travels as factors. Offsets are in floats.
  struct Matrix {
    std::size_t offset = 0;  // In the bucket.
    MatrixShape shape;
    std::size_t rank = 0;  // The hook's, or less for a small matrix.
    std::size_t p = 0;     // In the first message.
    std::size_t q = 0;     // In the second.
    std::size_t parameter = 0;
  };
  /// One that travels as it is, at `packed` of the first message.
  struct Vector {
    std::size_t offset = 0, count = 0, packed = 0;
  };
  struct State {
    std::vector<Matrix> matrices;
    std::vector<Vector> vectors;
    std::size_t first_count = 0, second_count = 0;
    internal::Residual input;    // Of the matrices, at their places in the bucket.
    std::size_t kept = 0;        // Which of the two messages has the factors of the last good step;
    bool other_is_next = false;  // the other one those of this step.
    bool as_is = false;          // In this step.
  };

  void prepare(const BucketPlan& plan, std::span<const Parameter> parameters) override;
  Work compress(Communicator& communicator, const GradientBucket& bucket) override;
  void decompress(const GradientBucket& bucket) override;
  void add_state(std::vector<HookTensor>& list, std::size_t bucket, const GradientPart& part,
                 const Parameter& parameter) override;
  void settle(bool good) override;

  void place(State& state, const GradientPart& part, const Parameter& parameter);
  void take_input(State& state, const GradientBucket& bucket);
  void keep_error(State& state, const Matrix& matrix, const float* approximation);
  float* first(std::size_t bucket) const { return reinterpret_cast<float*>(memory_.part(3 * bucket)); }
  float* second(std::size_t bucket, std::size_t which) const {
    return reinterpret_cast<float*>(memory_.part(3 * bucket + 1 + which));
  }
  float* kept_factors(std::size_t bucket) const { return second(bucket, states_[bucket].kept); }
  float* next_factors(std::size_t bucket) const { return second(bucket, 1 - states_[bucket].kept); }

  const PowerSgdOptions options_;
  std::vector<State> states_;
  internal::RegisteredBlock memory_;
};

std::string PowerSgdHook::name() const {
  return "powersgd rank " + std::to_string(options_.rank) + " from step " +
         std::to_string(options_.start_step) + ", compression " + internal::exact(options_.min_compression) +
         (options_.warm_start ? ", warm start" : "") + (options_.error_feedback ? ", error feedback" : "") +
         ", seed " + std::to_string(options_.seed);
}

/// A gradient becomes a matrix when its factors save enough.
void PowerSgdHook::place(State& state, const GradientPart& part, const Parameter& parameter) {
  MatrixShape shape{0, 0};
  if (parameter.shape.size() >= 2 && part.count > 0) {
    shape = {parameter.shape[0], part.count / parameter.shape[0]};
  }
  const std::size_t rank = std::min({options_.rank, shape.rows, shape.columns});
  const double sent = static_cast<double>(rank) * static_cast<double>(shape.rows + shape.columns);
  if (rank == 0 || static_cast<double>(part.count) < options_.min_compression * sent) {
    state.vectors.push_back({part.offset, part.count, state.first_count});
    state.first_count += part.count;
    return;
  }
  state.matrices.push_back({part.offset, shape, rank, state.first_count, state.second_count, part.parameter});
  state.first_count += rank * shape.rows;
  state.second_count += rank * shape.columns;
}

void PowerSgdHook::prepare(const BucketPlan& plan, std::span<const Parameter> parameters) {
  states_.assign(plan.buckets.size(), {});
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < states_.size(); ++b) {
    State& state = states_[b];
    if (compresses(plan.buckets[b])) {
      for (const GradientPart& part : plan.buckets[b].parts) place(state, part, parameters[part.parameter]);
      if (!alone()) state.input.resize(plan.buckets[b].count, options_.error_feedback);
    }
    bytes.push_back(state.first_count * sizeof(float));
    bytes.insert(bytes.end(), 2, state.second_count * sizeof(float));
  }
  if (!alone()) memory_ = internal::RegisteredBlock(bytes);
}

void PowerSgdHook::add_state(std::vector<HookTensor>& list, std::size_t bucket, const GradientPart& part,
                             const Parameter& parameter) {
  const std::vector<Matrix>& matrices = states_[bucket].matrices;
  const auto matrix = std::find_if(matrices.begin(), matrices.end(),
                                   [&](const Matrix& m) { return m.parameter == part.parameter; });
  if (matrix == matrices.end()) return;  // Travels as it is.
  if (options_.error_feedback) list.push_back(residual_of(part, parameter, states_[bucket].input.kept()));
  if (!options_.warm_start) return;
  const std::size_t count = matrix->rank * matrix->shape.columns;
  float* factor = alone() ? nullptr : kept_factors(bucket) + matrix->q;
  list.push_back(
      {{parameter.name + "#factor", DataType::f32, {matrix->rank, matrix->shape.columns}, 0, count, factor},
       false});
}

void PowerSgdHook::settle(bool good) {
  for (State& state : states_) {
    state.input.end_step(good);
    if (std::exchange(state.other_is_next, false) && good) state.kept = 1 - state.kept;
  }
}

/// Packs the vectors, and adds the gradients of matrices to what was not sent of them.
void PowerSgdHook::take_input(State& state, const GradientBucket& bucket) {
  for (const Vector& vector : state.vectors) {
    std::copy_n(floats(bucket) + vector.offset, vector.count, first(bucket.index) + vector.packed);
  }
  for (const Matrix& matrix : state.matrices) {
    state.input.add(floats(bucket), matrix.offset, matrix.shape.count());
  }
}

Work PowerSgdHook::compress(Communicator& communicator, const GradientBucket& bucket) {
  State& state = states_[bucket.index];
  state.as_is = bucket.step < options_.start_step || state.matrices.empty();
  if (state.as_is) return send_as_is(communicator, bucket);
  take_input(state, bucket);
  float* p = first(bucket.index);
  float* q = next_factors(bucket.index);
  state.other_is_next = true;
  const float* input = state.input.next().data();
  // Cold, each step has other factors: what is orthogonal to one's is sent by the next. Of its number alone,
  // so that a step that is repeated, or comes after a checkpoint, has the same.
  const std::uint64_t seed =
      options_.warm_start ? options_.seed : internal::hash_combine(options_.seed, bucket.step);
  for (const Matrix& matrix : state.matrices) {
    const std::size_t count = matrix.rank * matrix.shape.columns;
    if (options_.warm_start) {
      std::copy_n(kept_factors(bucket.index) + matrix.q, count, q + matrix.q);
    } else {
      std::fill_n(q + matrix.q, count, 0.0f);
    }
    internal::refill_empty(q + matrix.q, matrix.shape.columns, matrix.rank, seed + matrix.parameter);
    // They are as large as the last gradient: products of two such overflow, or vanish.
    internal::scale_columns(q + matrix.q, matrix.shape.columns, matrix.rank);
    internal::multiply(input + matrix.offset, matrix.shape, matrix.rank, q + matrix.q, p + matrix.p);
  }
  communicator.all_reduce(p, p, state.first_count, DataType::f32, ReduceOp::avg);
  for (const Matrix& matrix : state.matrices) {
    internal::orthonormalise(p + matrix.p, matrix.shape.rows, matrix.rank);
    internal::multiply_transposed(input + matrix.offset, matrix.shape, matrix.rank, p + matrix.p,
                                  q + matrix.q);
  }
  count_bytes((state.first_count + state.second_count) * sizeof(float));
  return communicator.all_reduce_async(q, q, state.second_count, DataType::f32, ReduceOp::avg);
}

/// What the average's approximation lacks of this rank's input is left for the next step; but a NaN is not.
void PowerSgdHook::keep_error(State& state, const Matrix& matrix, const float* approximation) {
  float* input = state.input.next().data() + matrix.offset;
  for (std::size_t i = 0; i < matrix.shape.count(); ++i) {
    const float error = input[i] - approximation[i];
    input[i] = std::isfinite(error) ? error : 0.0f;
  }
}

void PowerSgdHook::decompress(const GradientBucket& bucket) {
  State& state = states_[bucket.index];
  if (state.as_is) return;
  const float factor = bucket.average ? 1.0f : static_cast<float>(ranks());
  const float* p = first(bucket.index);
  const float* q = next_factors(bucket.index);
  for (const Vector& vector : state.vectors) {
    float* to = floats(bucket) + vector.offset;
    for (std::size_t i = 0; i < vector.count; ++i) to[i] = p[vector.packed + i] * factor;
  }
  for (const Matrix& matrix : state.matrices) {
    float* to = floats(bucket) + matrix.offset;
    internal::expand(p + matrix.p, q + matrix.q, matrix.shape, matrix.rank, 1.0f, to);
    if (options_.error_feedback) keep_error(state, matrix, to);
    for (std::size_t i = 0; i < matrix.shape.count(); ++i) to[i] *= factor;
  }
}

}  // namespace

std::shared_ptr<CommunicationHook> make_power_sgd_hook(const PowerSgdOptions& options) {
  if (options.rank < 1 || options.rank > kMaxRank) {
    throw Error(ErrorCode::invalid_argument, "make_power_sgd_hook: rank " + std::to_string(options.rank) +
                                                 "; choose 1 to " + std::to_string(kMaxRank));
  }
  if (!(options.min_compression >= 1)) {
    throw Error(ErrorCode::invalid_argument, "make_power_sgd_hook: min_compression " +
                                                 std::to_string(options.min_compression) +
                                                 "; below 1 the factors are larger than the matrix");
  }
  return std::make_shared<PowerSgdHook>(options);
}

}  // namespace lockstep
