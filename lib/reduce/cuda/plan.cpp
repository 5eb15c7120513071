#include "lib/reduce/cuda/plan.hpp"

#include <algorithm>
#include <span>

#include "lib/base/element_types.hpp"
#include "lib/reduce/average.hpp"

namespace lockstep::internal::cuda {
namespace {

DataType without_sign(DataType type) {
  switch (type) {
    case DataType::i8:
    case DataType::boolean:
      return DataType::u8;
    case DataType::i32:
      return DataType::u32;
    case DataType::i64:
      return DataType::u64;
    default:
      return type;
  }
}

ReduceOp of_bits(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
      return ReduceOp::bor;
    case ReduceOp::prod:
    case ReduceOp::min:
      return ReduceOp::band;
    default:
      return op;
  }
}

}  // namespace

Work work_of(const ReduceJob& job) {
  Work work{job.type, job.op, job.count, 1, !job.factors.empty()};
  if (job.op == ReduceOp::avg) work.divisor = job.divisor == 0 ? 1 : job.divisor;
  if (job.op == ReduceOp::avg || job.op == ReduceOp::premul_sum) work.op = ReduceOp::sum;
  if (job.sources.size() == 1 && work.divisor == 1 && !work.scaled) {  // A copy of bytes.
    return {DataType::u8, ReduceOp::bor, job.count * size_of(job.type), 1, false};
  }
  if (job.type == DataType::boolean) work.op = of_bits(work.op);
  if (work.op == ReduceOp::sum) {
    const Parts parts = parts_of(job.type);
    work.type = parts.type;
    work.count *= parts.count;
  }
  const bool ordered = work.op == ReduceOp::min || work.op == ReduceOp::max || work.divisor != 1;
  if (!ordered) work.type = without_sign(work.type);
  return work;
}

namespace {

/// Where 16-byte accesses begin, and how many there are.
void place_vectors(PassArguments& pass, std::size_t size) {
  const auto past = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes;
  };
  const std::size_t first = past(pass.destinations[0]);
  const std::size_t before = (kVectorBytes - first) % kVectorBytes;
  const auto alike = [&](const void* pointer) { return past(pointer) == first; };
  pass.head = pass.vectors = 0;
  if (before % size != 0 || !std::all_of(pass.sources, pass.sources + pass.source_count, alike) ||
      !std::all_of(pass.destinations, pass.destinations + pass.destination_count, alike)) {
    return;
  }
  pass.head = std::min(before / size, pass.count);
  pass.vectors = (pass.count - pass.head) / (kVectorBytes / size);
}

PlannedPass pass_of(const Work& work, std::span<const void* const> sources,
                    std::span<void* const> destinations) {
  PlannedPass pass{work.type, work.op, {}};
  PassArguments& arguments = pass.arguments;
  std::copy(sources.begin(), sources.end(), arguments.sources);
  std::copy(destinations.begin(), destinations.end(), arguments.destinations);
  arguments.source_count = static_cast<int>(sources.size());
  arguments.destination_count = static_cast<int>(destinations.size());
  arguments.count = work.count;
  arguments.divisor = work.divisor;
  std::fill(std::begin(arguments.factors), std::end(arguments.factors), 1.0);
  place_vectors(arguments, size_of(work.type));
  return pass;
}

/// Factors of sources [first, ...), from argument `at` on.
void set_factors(PassArguments& pass, const ReduceJob& job, std::size_t first, int at) {
  pass.scaled = true;
  for (std::size_t s = first; at < pass.source_count; ++s, ++at) {
    pass.factors[at] = job.factors[s].value;
    pass.device_factors[at] = job.factors[s].device;
  }
}

/// A destination that holds nothing a later pass reads; null when there is none.
void* free_destination(const ReduceJob& job, std::size_t next_source) {
  const auto later = job.sources.subspan(next_source);
  for (void* destination : job.destinations) {
    if (std::find(later.begin(), later.end(), destination) == later.end()) return destination;
  }
  return nullptr;
}

constexpr std::size_t kMost = kMaxPassBuffers;

/// By what the sources of an average are made smaller, because a sum of some of them is stored between two
/// passes and could leave the type's range; 1: they stay.
double factor_between_passes(const ReduceJob& job) {
  const bool stores_partial_sums = job.sources.size() > kMost;
  if (job.op != ReduceOp::avg || job.divisor <= 1 || !stores_partial_sums || !job.factors.empty()) return 1;
  return average_steps(job.type, static_cast<int>(job.sources.size())).factor;
}

Result<std::vector<PlannedPass>> plan(const ReduceJob& job) {
  const Work work = work_of(job);
  std::vector<PlannedPass> passes;
  std::vector<const void*> sources;  // Of the present pass: first the value so far, if there is one.
  std::size_t next = 0;
  while (next < job.sources.size()) {
    const std::size_t first = next;
    const int held = static_cast<int>(sources.size());
    const std::size_t take = std::min(kMost - sources.size(), job.sources.size() - next);
    sources.insert(sources.end(), job.sources.begin() + static_cast<std::ptrdiff_t>(next),
                   job.sources.begin() + static_cast<std::ptrdiff_t>(next + take));
    next += take;
    const bool last = next == job.sources.size();
    void* const partial = last ? nullptr : free_destination(job, next);
    if (!last && partial == nullptr) {
      return Status(
          ErrorCode::not_supported,
          "a reduction of more than 32 buffers in place on a device needs one destination that is not "
          "among the later sources");
    }
    const auto destinations = last ? job.destinations.first(std::min(kMost, job.destinations.size()))
                                   : std::span<void* const>(&partial, 1);
    passes.push_back(pass_of(work, sources, destinations));
    if (!last) passes.back().arguments.divisor = 1;
    if (work.scaled) set_factors(passes.back().arguments, job, first, held);
    sources.assign(1, partial);
  }
  const Work copy{DataType::u8, ReduceOp::bor, job.count * size_of(job.type), 1, false};
  const void* const result = job.destinations[0];
  for (std::size_t done = kMost; done < job.destinations.size(); done += kMost) {
    const auto rest = job.destinations.subspan(done, std::min(kMost, job.destinations.size() - done));
    passes.push_back(pass_of(copy, {&result, 1}, rest));
  }
  for (PlannedPass& pass : passes) pass.arguments.permit = job.permit;
  return passes;
}

}  // namespace

Result<std::vector<PlannedPass>> plan_passes(const ReduceJob& job) {
  const double factor = factor_between_passes(job);
  if (factor == 1) return plan(job);
  const std::vector<ScaleFactor> factors(job.sources.size(), {factor});
  ReduceJob smaller = job;
  smaller.factors = factors;
  smaller.divisor *= factor;
  return plan(smaller);
}

}  // namespace lockstep::internal::cuda
