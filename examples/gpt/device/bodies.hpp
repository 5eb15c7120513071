// The arithmetic of the GPT beside its matrix products, one thread at a time: what thread i of a kernel does.
// Compiled by nvcc for GPUs and by the host's compiler for lockstep's host backend. Sums run in a fixed
// order, that of the layers in host memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <variant>

#ifdef __CUDACC__
#define GPT_BOTH __host__ __device__
#else
#define GPT_BOTH
#endif

namespace gpt {

/// A thread an element: every row becomes `bias`.
struct SetRows {
  float* rows;
  const float* bias;
  std::size_t columns;
  GPT_BOTH void operator()(std::size_t i) const { rows[i] = bias[i % columns]; }
};

/// A thread a column.
struct SumRows {
  const float* matrix;
  float* sums;
  std::size_t rows, columns;
  GPT_BOTH void operator()(std::size_t i) const {
    float sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += matrix[r * columns + i];
    sums[i] = sum;
  }
};

struct Add {
  const float *a, *b;
  float* sum;
  GPT_BOTH void operator()(std::size_t i) const { sum[i] = a[i] + b[i]; }
};

struct GeluForward {
  const float* input;
  float* output;
  static GPT_BOTH float inner(float x) { return tanhf(0.7978845608f * (x + 0.044715f * x * x * x)); }
  GPT_BOTH void operator()(std::size_t i) const { output[i] = 0.5f * input[i] * (1.0f + inner(input[i])); }
};

struct GeluBackward {
  const float *input, *delta;
  float* by_input;
  GPT_BOTH void operator()(std::size_t i) const {
    const float x = input[i], t = GeluForward::inner(x);
    const float slope = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
    by_input[i] = delta[i] * 0.5f * (1.0f + t + x * (1.0f - t * t) * slope);
  }
};

/// A thread a row.
struct NormForward {
  const float *input, *scale, *shift;
  float *normal, *inverse_deviation, *output;
  std::size_t width;
  GPT_BOTH void operator()(std::size_t r) const {
    const float* const x = input + r * width;
    const float columns = static_cast<float>(width);
    float mean = 0, variance = 0;
    for (std::size_t c = 0; c < width; ++c) mean += x[c] / columns;
    for (std::size_t c = 0; c < width; ++c) variance += (x[c] - mean) * (x[c] - mean) / columns;
    inverse_deviation[r] = 1.0f / sqrtf(variance + 1e-5f);
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t i = r * width + c;
      normal[i] = (x[c] - mean) * inverse_deviation[r];
      output[i] = normal[i] * scale[c] + shift[c];
    }
  }
};

/// A thread a row: by the input, as LayerNorm::backward derives it.
struct NormBackward {
  const float *delta, *scale, *normal, *inverse_deviation;
  float* by_input;
  std::size_t width;
  GPT_BOTH void operator()(std::size_t r) const {
    const float *const d = delta + r * width, *const n = normal + r * width;
    const float columns = static_cast<float>(width);
    float mean = 0, along = 0;
    for (std::size_t c = 0; c < width; ++c) {
      mean += d[c] * scale[c] / columns;
      along += d[c] * scale[c] * n[c] / columns;
    }
    for (std::size_t c = 0; c < width; ++c)
      by_input[r * width + c] = (d[c] * scale[c] - mean - n[c] * along) * inverse_deviation[r];
  }
};

/// A thread a column: by scale and shift.
struct NormGradients {
  const float *delta, *normal;
  float *by_scale, *by_shift;
  std::size_t rows, width;
  GPT_BOTH void operator()(std::size_t c) const {
    float scale = 0, shift = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      scale += delta[r * width + c] * normal[r * width + c];
      shift += delta[r * width + c];
    }
    by_scale[c] = scale;
    by_shift[c] = shift;
  }
};

/// A thread an element.
struct Embed {
  const int* characters;
  const float *of_character, *of_position;
  float* rows;
  std::size_t width, length;
  GPT_BOTH void operator()(std::size_t i) const {
    const std::size_t r = i / width, c = i % width;
    rows[i] = of_character[static_cast<std::size_t>(characters[r]) * width + c] +
              of_position[r % length * width + c];
  }
};

/// A thread an element of the table of characters.
struct CharacterGradients {
  const int* characters;
  const float* delta;
  float* gradient;
  std::size_t rows, width;
  GPT_BOTH void operator()(std::size_t i) const {
    const auto character = static_cast<int>(i / width);
    float sum = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      if (characters[r] == character) sum += delta[r * width + i % width];
    }
    gradient[i] = sum;
  }
};

/// A thread an element of the table of positions.
struct PositionGradients {
  const float* delta;
  float* gradient;
  std::size_t rows, width, length;
  GPT_BOTH void operator()(std::size_t i) const {
    float sum = 0;
    for (std::size_t r = i / width; r < rows; r += length) sum += delta[r * width + i % width];
    gradient[i] = sum;
  }
};

/// Where the parts of a row of [query | key | value] lie. Threads are (sequence, head, position).
struct Heads {
  std::size_t width, heads, length;
  GPT_BOTH std::size_t depth() const { return width / heads; }
  GPT_BOTH std::size_t head(std::size_t i) const { return i / length % heads; }
  GPT_BOTH std::size_t first_row(std::size_t i) const { return i / length / heads * length; }
  /// `part`: 0 query, 1 key, 2 value.
  GPT_BOTH std::size_t place(std::size_t i, std::size_t part, std::size_t position) const {
    return (3 * (first_row(i) + position) + part) * width + head(i) * depth();
  }
  GPT_BOTH std::size_t out(std::size_t i, std::size_t position) const {
    return (first_row(i) + position) * width + head(i) * depth();
  }
};

struct Attend {
  Heads h;
  const float* input;
  float *weights, *output;  ///< A row of `length` weights for each thread.
  float scale;
  GPT_BOTH void operator()(std::size_t i) const {
    const std::size_t at = i % h.length, depth = h.depth();
    const float* const q = input + h.place(i, 0, at);
    float* const w = weights + i * h.length;
    float largest = -INFINITY, sum = 0;
    for (std::size_t to = 0; to <= at; ++to) {
      const float* const k = input + h.place(i, 1, to);
      float dot = 0;
      for (std::size_t c = 0; c < depth; ++c) dot += q[c] * k[c];
      w[to] = scale * dot;
      largest = fmaxf(largest, w[to]);
    }
    for (std::size_t to = 0; to <= at; ++to) sum += w[to] = expf(w[to] - largest);
    float* const mean = output + h.out(i, at);
    for (std::size_t c = 0; c < depth; ++c) mean[c] = 0;
    for (std::size_t to = 0; to <= at; ++to) {
      w[to] /= sum;
      const float* const v = input + h.place(i, 2, to);
      for (std::size_t c = 0; c < depth; ++c) mean[c] += w[to] * v[c];
    }
  }
};

/// By the scores, kept for AttendBackwardKeys, and by the query.
struct AttendBackwardQueries {
  Heads h;
  const float *input, *weights, *delta;
  float *by_scores, *by_input;
  float scale;
  GPT_BOTH void operator()(std::size_t i) const {
    const std::size_t at = i % h.length, depth = h.depth();
    const float *const d = delta + h.out(i, at), *const w = weights + i * h.length;
    float* const by_score = by_scores + i * h.length;
    float mean = 0;  // Weights sum to 1: raising one score lowers the others by this much.
    for (std::size_t to = 0; to <= at; ++to) {
      const float* const v = input + h.place(i, 2, to);
      float dot = 0;
      for (std::size_t c = 0; c < depth; ++c) dot += d[c] * v[c];
      by_score[to] = dot;
      mean += w[to] * dot;
    }
    float* const by_query = by_input + h.place(i, 0, at);
    for (std::size_t c = 0; c < depth; ++c) by_query[c] = 0;
    for (std::size_t to = 0; to <= at; ++to) {
      by_score[to] = scale * w[to] * (by_score[to] - mean);
      const float* const k = input + h.place(i, 1, to);
      for (std::size_t c = 0; c < depth; ++c) by_query[c] += by_score[to] * k[c];
    }
  }
};

/// By the key and the value of a position, from all that look at it.
struct AttendBackwardKeys {
  Heads h;
  const float *input, *weights, *by_scores, *delta;
  float* by_input;
  GPT_BOTH void operator()(std::size_t i) const {
    const std::size_t to = i % h.length, depth = h.depth(), first = i - to;
    float *const by_key = by_input + h.place(i, 1, to), *const by_value = by_input + h.place(i, 2, to);
    for (std::size_t c = 0; c < depth; ++c) by_key[c] = by_value[c] = 0;
    for (std::size_t at = to; at < h.length; ++at) {
      const float score = by_scores[(first + at) * h.length + to];
      const float weight = weights[(first + at) * h.length + to];
      const float *const q = input + h.place(i, 0, at), *const d = delta + h.out(i, at);
      for (std::size_t c = 0; c < depth; ++c) {
        by_key[c] += score * q[c];
        by_value[c] += weight * d[c];
      }
    }
  }
};

/// A thread a row: its loss, and the gradient of the mean of all by its logits.
struct CrossEntropy {
  const float* logits;
  const int* targets;
  float *gradient, *losses;
  std::size_t rows, classes;
  GPT_BOTH void operator()(std::size_t r) const {
    const float* const row = logits + r * classes;
    float* const out = gradient + r * classes;
    const float share = 1.0f / static_cast<float>(rows);
    float largest = row[0], sum = 0;
    for (std::size_t c = 1; c < classes; ++c) largest = fmaxf(largest, row[c]);
    for (std::size_t c = 0; c < classes; ++c) sum += out[c] = expf(row[c] - largest);
    for (std::size_t c = 0; c < classes; ++c) out[c] *= share / sum;
    const int target = targets[r];
    out[target] -= share;
    losses[r] = logf(sum) - (row[target] - largest);
  }
};

/// One thread.
struct Mean {
  const float* values;
  float* mean;
  std::size_t count;
  GPT_BOTH void operator()(std::size_t) const {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
    *mean = static_cast<float>(sum / static_cast<double>(count));
  }
};

/// A thread an element: AdamW::step of one tensor.
struct AdamStep {
  float* value;
  const float* gradient;
  float *mean, *square;
  float rate, beta1, beta2, epsilon, keep;
  float mean_correction, square_correction;
  GPT_BOTH void operator()(std::size_t i) const {
    const float g = gradient[i];
    mean[i] = beta1 * mean[i] + (1.0f - beta1) * g;
    square[i] = beta2 * square[i] + (1.0f - beta2) * g * g;
    value[i] = keep * value[i] -
               rate * (mean[i] / mean_correction / (sqrtf(square[i] / square_correction) + epsilon));
  }
};

using Body = std::variant<SetRows, SumRows, Add, GeluForward, GeluBackward, NormForward, NormBackward,
                          NormGradients, Embed, CharacterGradients, PositionGradients, Attend,
                          AttendBackwardQueries, AttendBackwardKeys, CrossEntropy, Mean, AdamStep>;

}  // namespace gpt
