#include "collectives/verify/results.hpp"

#include <algorithm>

#include "collectives/programs/blocks.hpp"

namespace lockstep::internal {

InPlace in_place_layout(const Shape& shape) {
  const bool at_root = shape.rank == shape.root;
  switch (shape.collective) {
    case Collective::all_reduce:
      return {true, 0, 0};
    case Collective::reduce:
      return {at_root, 0, 0};
    case Collective::scatter:
    case Collective::scatter_v:
      if (!at_root) return {};
      return {true, 0, Blocks::of(shape)[shape.rank].begin};
    case Collective::gather:
    case Collective::gather_v:
      if (!at_root) return {};
      return {true, Blocks::of(shape)[shape.rank].begin, 0};
    case Collective::all_gather:
    case Collective::all_gather_v:
      return {true, Blocks::of(shape)[shape.rank].begin, 0};
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return {true, 0, Blocks::of(shape)[shape.rank].begin};
    case Collective::broadcast:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::barrier:
      return {};
  }
  return {};
}

std::vector<ResultCheck::Origin> ResultCheck::expected(int rank) const {
  const Shape& shape = set_.shapes[static_cast<std::size_t>(rank)];
  const std::uint64_t count = output_elements(shape);
  const auto block_at_root = [&] {
    return Blocks::of(set_.shapes[static_cast<std::size_t>(shape.root)])[rank];
  };
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return {{count, kSum, 0}};
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return {{count, kSum, Blocks::of(shape)[rank].begin}};
    case Collective::broadcast:
      return {{count, shape.root, 0}};
    case Collective::scatter:
    case Collective::scatter_v:
      return {{count, shape.root, block_at_root().begin}};
    case Collective::barrier:
      return {};
    default:
      break;
  }
  if (count == 0) return {};
  std::vector<Origin> blocks;
  for (int source = 0; source < shape.world; ++source) {
    const Shape& theirs = set_.shapes[static_cast<std::size_t>(source)];
    const bool to_all =
        shape.collective == Collective::all_to_all || shape.collective == Collective::all_to_all_v;
    if (to_all) {
      const Range block = Blocks::of(theirs)[rank];
      blocks.push_back({block.count, source, block.begin});
    } else {
      blocks.push_back({input_elements(theirs), source, 0});
    }
  }
  return blocks;
}

std::string ResultCheck::check(int rank, int call, const Runs& output) {
  std::size_t next = 0;
  std::uint64_t used = 0;  // of output[next]
  for (Origin origin : expected(rank)) {
    while (origin.count > 0) {
      if (next == output.size()) return "output is shorter than promised";
      const std::uint64_t count = std::min(origin.count, output[next].count - used);
      const Run run{count, output[next].value, output[next].element + used};
      if (std::string finding = check_run(rank, call, run, origin); !finding.empty()) return finding;
      origin.count -= count;
      origin.element += count;
      used += count;
      if (used == output[next].count) {
        ++next;
        used = 0;
      }
    }
  }
  return {};
}

std::string ResultCheck::check_run(int rank, int call, const Run& run, const Origin& origin) {
  // Words only where they are needed: this is asked of every run of every rank.
  const auto where = [&] {
    return "rank " + std::to_string(rank) + " ends call " + std::to_string(call) + " with ";
  };
  const auto wrong = [&](const std::string& should) {
    return where() + expressions_.describe(run.value) + ", element " + std::to_string(run.element) +
           ", for element " + std::to_string(origin.element) + " of " + should;
  };
  if (run.value == kUnwritten) return where() + "an output element that nobody wrote";
  if (run.element != origin.element || expressions_.call(run.value) != call) return wrong("this call");
  if (origin.source != kSum) {
    const bool right = expressions_.leaf_rank(run.value) == origin.source;
    return right ? "" : wrong("rank " + std::to_string(origin.source));
  }
  if (!expressions_.complete(run.value)) return wrong("the sum of all ranks");
  if (!expressions_.finished(run.value)) return wrong("the finished sum");
  return set_.shapes[0].collective == Collective::all_reduce ? same_tree(call, run) : "";
}

std::string ResultCheck::same_tree(int call, const Run& run) {
  if (trees_.size() <= static_cast<std::size_t>(call)) trees_.resize(static_cast<std::size_t>(call) + 1);
  Runs& first = trees_[static_cast<std::size_t>(call)];
  const std::uint64_t known = first.empty() ? 0 : first.back().element + first.back().count;
  if (run.element == known) {  // the first rank to end; it brings its runs in order of elements
    append_run(first, run);
    return {};
  }
  std::uint64_t element = run.element;
  auto there = std::upper_bound(first.begin(), first.end(), element,
                                [](std::uint64_t at, const Run& r) { return at < r.element; });
  for (--there; element < run.element + run.count; ++there) {
    if (there->value != run.value) {
      return "element " + std::to_string(element) + " of call " + std::to_string(call) +
             " is summed in different orders on two ranks";
    }
    element = there->element + there->count;
  }
  return {};
}

}  // namespace lockstep::internal
