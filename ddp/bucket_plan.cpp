#include "ddp/bucket_plan.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "lib/base/hash.hpp"

namespace lockstep {
namespace internal {
namespace {

/// Half the address space: sums of a few sizes below it cannot wrap either.
constexpr std::size_t kMaxBytes = std::numeric_limits<std::size_t>::max() / 2;

/// Gradients start on multiples of kAlignment bytes, so that a view is as good as memory of its own and no
/// two share a cache line.
std::size_t align_up(std::size_t elements, DataType type) {
  const std::size_t step = BucketPlan::kAlignment / size_of(type);
  return (elements + step - 1) / step * step;
}

/// Fills buckets in the order of backward. One bucket per type is open at a time.
class Planner {
 public:
  explicit Planner(const ReducerOptions& options)
      : first_cap_(options.first_bucket_bytes),
        cap_(options.bucket_bytes),
        splits_(options.split_large && !(options.hook && options.hook->wants_whole_gradients())) {
    open_.fill(kNone);
  }

  void add(std::size_t parameter, DataType type, std::size_t elements) {
    // A large one travels alone; the open bucket stays open for the small ones around it.
    if (elements * size_of(type) > cap_of(buckets_.size())) return add_large(parameter, type, elements);
    std::size_t& open = open_[static_cast<std::size_t>(type)];
    if (open == kNone || !fits(open, elements)) open = create(type);
    append(open, parameter, 0, elements);
  }

  /// The buckets by the moment when their last gradient is expected.
  std::vector<BucketPlan::Bucket> finish() {
    std::vector<std::size_t> order(buckets_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [this](auto a, auto b) { return last_[a] < last_[b]; });
    std::vector<BucketPlan::Bucket> sorted;
    for (const std::size_t i : order) sorted.push_back(std::move(buckets_[i]));
    return sorted;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t cap_of(std::size_t bucket) const { return bucket == 0 ? first_cap_ : cap_; }
  bool fits(std::size_t bucket, std::size_t elements) const {
    const BucketPlan::Bucket& b = buckets_[bucket];
    return (align_up(b.count, b.type) + elements) * size_of(b.type) <= cap_of(bucket);
  }
  std::size_t create(DataType type) {
    buckets_.push_back({type, {}, 0});
    last_.push_back(0);
    return buckets_.size() - 1;
  }
  void append(std::size_t bucket, std::size_t parameter, std::size_t first, std::size_t elements) {
    BucketPlan::Bucket& b = buckets_[bucket];
    const std::size_t offset = align_up(b.count, b.type);
    b.parts.push_back({parameter, offset, first, elements});
    b.count = offset + elements;
    last_[bucket] = added_++;
  }
  void add_large(std::size_t parameter, DataType type, std::size_t elements) {
    const std::size_t piece = splits_ ? piece_of(type, elements) : elements;
    for (std::size_t first = 0; first < elements; first += piece) {
      append(create(type), parameter, first, std::min(piece, elements - first));
    }
  }
  /// Elements of each piece of a large gradient, but for the last, which may be smaller: whole pages within
  /// the cap, and one page at least.
  std::size_t piece_of(DataType type, std::size_t elements) const {
    const std::size_t page = kBucketAlignment / size_of(type);
    const std::size_t whole = (elements + page - 1) / page;  // A cap beyond it would wrap below.
    const std::size_t cap = std::clamp(cap_ / kBucketAlignment, std::size_t{1}, whole) * page;
    const std::size_t pieces = (elements + cap - 1) / cap;
    return ((elements + pieces - 1) / pieces + page - 1) / page * page;
  }

  const std::size_t first_cap_, cap_;  // Bytes of the first bucket that is opened, and of the others.
  const bool splits_;
  std::vector<BucketPlan::Bucket> buckets_;
  std::vector<std::size_t> last_;                 // Of each bucket: when its last parameter was added.
  std::array<std::size_t, kDataTypeCount> open_;  // Of each type: the bucket that takes more, or kNone.
  std::size_t added_ = 0;
};

}  // namespace

Result<std::size_t> element_count(const Parameter& parameter) {
  if (size_of(parameter.type) == 0) {
    return Status(ErrorCode::invalid_argument,
                  '"' + parameter.name + "\" has a type that lockstep does not know");
  }
  // A zero anywhere makes the parameter empty, whatever the other dimensions.
  if (std::find(parameter.shape.begin(), parameter.shape.end(), 0u) != parameter.shape.end())
    return std::size_t{0};
  const std::size_t limit = kMaxBytes / size_of(parameter.type);
  std::size_t elements = 1;
  for (const std::size_t dimension : parameter.shape) {
    if (dimension > limit / elements) {
      return Status(ErrorCode::invalid_argument,
                    describe(parameter) + " has more bytes than the address space; check its shape");
    }
    elements *= dimension;
  }
  return elements;
}

std::string describe(const Parameter& parameter) {
  std::string text = '"' + parameter.name + "\" " + std::string(name_of(parameter.type)) + " [";
  for (std::size_t i = 0; i < parameter.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(parameter.shape[i]);
  }
  return text + "]";
}

std::size_t gradient_bytes(const BucketPlan::Bucket& bucket) {
  std::size_t elements = 0;
  for (const GradientPart& part : bucket.parts) elements += part.count;
  return elements * size_of(bucket.type);
}

std::size_t first_urgent(const BucketPlan& plan) {
  std::size_t all = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) all += gradient_bytes(bucket);
  std::size_t before = 0, first = 0;
  while (first + 1 < plan.buckets.size() && 4 * before < all) before += gradient_bytes(plan.buckets[first++]);
  return first;
}

std::uint64_t hash_of(const BucketPlan& plan) {
  std::uint64_t hash = kFnvOffset;
  const auto add = [&](std::uint64_t word) { hash = hash_combine(hash, word); };
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    add(static_cast<std::uint64_t>(bucket.type)), add(bucket.count), add(bucket.parts.size());
    for (const GradientPart& p : bucket.parts) add(p.parameter), add(p.offset), add(p.first), add(p.count);
  }
  return hash;
}

std::vector<std::vector<PartPlace>> places_of(const BucketPlan& plan, std::size_t parameters) {
  std::vector<std::vector<PartPlace>> places(parameters);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const GradientPart& part : plan.buckets[b].parts) places[part.parameter].push_back({b, part});
  }
  return places;
}

BucketPlan plan_in_order(std::span<const Parameter> parameters, const ReducerOptions& options,
                         std::span<const std::size_t> order) {
  Planner planner(options);
  std::size_t bytes = 0;
  for (const std::size_t i : order) {
    auto elements = element_count(parameters[i]);
    elements.status().throw_if_error();
    const std::size_t own = *elements * size_of(parameters[i].type);
    if (own > kMaxBytes - bytes) {
      throw Error(ErrorCode::invalid_argument,
                  "the parameters, " + describe(parameters[i]) +
                      " among them, have more bytes than the address space; check their shapes");
    }
    bytes += own;
    planner.add(i, parameters[i].type, *elements);
  }
  return {planner.finish()};
}

BucketPlan numbered_from(std::size_t first, BucketPlan plan) {
  for (BucketPlan::Bucket& bucket : plan.buckets) {
    for (GradientPart& part : bucket.parts) part.parameter += first;
  }
  return plan;
}

BucketPlan without_frozen(const BucketPlan& plan, const std::vector<bool>& frozen) {
  BucketPlan result;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    BucketPlan::Bucket kept{bucket.type, {}, 0};
    std::copy_if(bucket.parts.begin(), bucket.parts.end(), std::back_inserter(kept.parts),
                 [&](const GradientPart& part) { return !frozen[part.parameter]; });
    if (kept.parts.size() == bucket.parts.size()) {
      result.buckets.push_back(bucket);
      continue;
    }
    if (kept.parts.empty()) continue;
    const std::size_t start = kept.parts.front().offset;
    for (GradientPart& part : kept.parts) part.offset -= start;
    kept.count = kept.parts.back().offset + kept.parts.back().count;
    result.buckets.push_back(std::move(kept));
  }
  return result;
}

}  // namespace internal

BucketPlan plan_buckets(std::span<const Parameter> parameters, const ReducerOptions& options) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return internal::plan_in_order(parameters, options, order);
}

}  // namespace lockstep
