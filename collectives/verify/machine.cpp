#include "collectives/verify/machine.hpp"

#include <algorithm>

#include "collectives/programs/blocks.hpp"

namespace lockstep::internal {

Machine::Machine(const ProgramSet& set) : set_(set), expressions_(world()), results_(set, expressions_) {
  memory_.reserve(set.programs.size());
  for (int rank = 0; rank < world(); ++rank) {
    const Shape& shape = set.shapes[static_cast<std::size_t>(rank)];
    const std::uint64_t in = input_elements(shape), out = output_elements(shape);
    const InPlace layout = set.in_place ? in_place_layout(shape) : InPlace{};
    const std::uint64_t joined =
        layout.exists ? std::max(layout.input_begin + in, layout.output_begin + out) : in;
    const std::uint64_t half = set.medium == Medium::domain_staged ? shape.staging : 0;
    memory_.push_back(
        {Region(joined), Region(layout.exists ? 0 : out), Region(program(rank).scratch), {}, layout});
    memory_.back().staging.assign(2, Region(half));
  }
}

Machine::Place Machine::place(const Moment& now, const Slice& slice) {
  const int owner = slice.member == kSelf ? now.rank : slice.member;
  RankMemory& memory = memory_[static_cast<std::size_t>(owner)];
  const Range range{slice.offset, slice.count};
  switch (slice.space) {
    case Space::input:
      return {&memory.input, {range.begin + memory.layout.input_begin, range.count}, owner};
    case Space::output:
      if (!memory.layout.exists) return {&memory.output, range, owner};
      return {&memory.input, {range.begin + memory.layout.output_begin, range.count}, owner};
    case Space::scratch:
      return {&memory.scratch, range, owner};
    case Space::staging:
      return {&memory.staging[static_cast<std::size_t>(now.call % 2)], range, owner};
  }
  return {};
}

/// Within one step memory may be read and written at the same place, but not at places that partly overlap.
std::string Machine::overlap(const Place& one, const Place& other) {
  if (one.region != other.region || one.range.begin == other.range.begin) return {};
  const bool apart = one.range.begin + one.range.count <= other.range.begin ||
                     other.range.begin + other.range.count <= one.range.begin;
  return apart ? "" : "reads and writes memory that partly overlaps";
}

std::string Machine::conflict(const Conflict& conflict, const char* attempt, int owner) const {
  return attempt + std::string(" element ") + std::to_string(conflict.offset) + " of memory of rank " +
         std::to_string(owner) + " which " + name(owner, conflict.other) +
         (conflict.other_writes ? " may still write" : " may still read");
}

std::string Machine::read(const Moment& now, const Place& place, Runs& runs) {
  runs.clear();
  const auto found = place.region->read(place.range, now.event, now.clock, runs);
  if (found) return conflict(*found, "reads", place.owner);
  const bool unwritten =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.value == kUnwritten; });
  return unwritten ? "reads elements that nobody wrote" : "";
}

std::string Machine::write(const Moment& now, const Place& place, const Runs& runs) {
  const auto found = place.region->write(place.range, now.event, now.clock, runs);
  return found ? conflict(*found, "writes", place.owner) : "";
}

std::string Machine::combine(std::size_t operands, bool finish) {
  struct Cursor {
    std::size_t run = 0;
    std::uint64_t used = 0;
  };
  std::vector<Cursor> cursors(operands);
  result_.clear();
  while (cursors[0].run < operands_[0].size()) {
    std::uint64_t count = UINT64_MAX, element = 0;
    values_.clear();
    for (std::size_t i = 0; i < operands; ++i) {
      const Run& run = operands_[i][cursors[i].run];
      const std::uint64_t mine = run.element + cursors[i].used;
      if (i == 0) element = mine;
      if (mine != element)
        return "combines element " + std::to_string(element) + " with element " + std::to_string(mine);
      count = std::min(count, run.count - cursors[i].used);
      values_.push_back(run.value);
    }
    std::string error;
    const Expression value = expressions_.combine(values_, finish, error);
    if (!error.empty()) return error;
    append_run(result_, {count, value, element});
    for (std::size_t i = 0; i < operands; ++i) {
      cursors[i].used += count;
      if (cursors[i].used == operands_[i][cursors[i].run].count) cursors[i] = {cursors[i].run + 1, 0};
    }
  }
  return {};
}

bool Machine::copies_onto_itself(const Moment& now, const Step& step) {
  const Place from = place(now, step.src), to = place(now, step.dst);
  return step.kind == StepKind::copy && !step.finish && from.region == to.region &&
         from.range.begin == to.range.begin;
}

std::string Machine::run_local(const Moment& now, const Step& step) {
  if (copies_onto_itself(now, step)) return {};
  const std::vector<Slice>& slices = program(now.rank).slices;
  const bool reduce = step.kind == StepKind::reduce;
  const std::span<const Slice> operands =
      reduce ? std::span(slices).subspan(step.operands, step.operand_count) : std::span(&step.src, 1);
  const std::span<const Slice> destinations =
      reduce ? std::span(slices).subspan(step.destinations, step.destination_count) : std::span(&step.dst, 1);

  if (operands_.size() < operands.size()) operands_.resize(operands.size());
  sources_.clear();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    sources_.push_back(place(now, operands[i]));
    if (std::string finding = read(now, sources_[i], operands_[i]); !finding.empty()) return finding;
  }
  if (std::string finding = combine(operands.size(), step.finish); !finding.empty()) return finding;
  for (const Slice& slice : destinations) {
    const Place destination = place(now, slice);
    for (const Place& source : sources_) {
      if (std::string finding = overlap(source, destination); !finding.empty()) return finding;
    }
    if (std::string finding = write(now, destination, result_); !finding.empty()) return finding;
  }
  return {};
}

std::string Machine::run_transfer(const Moment& from, const Step& send, const Moment& to, const Step& recv) {
  if (operands_.size() < 2) operands_.resize(2);
  if (send.src.count != recv.dst.count) {
    return "receives " + std::to_string(recv.dst.count) + " elements where " +
           std::to_string(send.src.count) + " are sent";
  }
  const bool reduces = recv.kind == StepKind::recv_reduce;
  const std::size_t received = reduces && !recv.received_first ? 1 : 0;
  if (std::string finding = read(from, place(from, send.src), operands_[received]); !finding.empty()) {
    return "is sent by a step that " + finding;
  }
  const Place destination = place(to, recv.dst);
  if (!reduces) return write(to, destination, operands_[received]);

  const Place own = place(to, recv.src);
  if (std::string finding = overlap(own, destination); !finding.empty()) return finding;
  if (std::string finding = read(to, own, operands_[1 - received]); !finding.empty()) return finding;
  if (std::string finding = combine(2, recv.finish); !finding.empty()) return finding;
  return write(to, destination, result_);
}

std::string Machine::enter(const Moment& now) {
  RankMemory& memory = memory_[static_cast<std::size_t>(now.rank)];
  const std::uint64_t count = input_elements(set_.shapes[static_cast<std::size_t>(now.rank)]);
  const std::uint64_t begin = memory.layout.input_begin;
  const auto fill = [&](Region& region, const Runs& runs) {
    return write(now, {&region, {0, region.size()}, now.rank}, runs);
  };

  result_.clear();
  append_run(result_, {begin, kUnwritten, 0});
  append_run(result_, {count, expressions_.leaf(now.rank, now.call), 0});
  append_run(result_, {memory.input.size() - begin - count, kUnwritten, 0});
  if (std::string finding = fill(memory.input, result_); !finding.empty()) return finding;
  for (Region* region : {&memory.output, &memory.scratch}) {
    result_.clear();
    append_run(result_, {region->size(), kUnwritten, 0});
    if (std::string finding = fill(*region, result_); !finding.empty()) return finding;
  }
  return {};
}

std::string Machine::leave(const Moment& now) {
  const Shape& shape = set_.shapes[static_cast<std::size_t>(now.rank)];
  const RankMemory& memory = memory_[static_cast<std::size_t>(now.rank)];
  const std::uint64_t in = input_elements(shape), out = output_elements(shape);
  if (operands_.empty()) operands_.resize(1);
  Runs& runs = operands_[0];
  if (std::string finding = read(now, place(now, {Space::output, kSelf, 0, out}), runs); !finding.empty())
    return "output: " + finding;
  if (std::string finding = results_.check(now.rank, now.call, runs); !finding.empty()) return finding;

  // The input, but for what the output covers in place, is as it was.
  const Expression leaf = expressions_.leaf(now.rank, now.call);
  if (std::string finding = read(now, place(now, {Space::input, kSelf, 0, in}), runs); !finding.empty())
    return "input: " + finding;
  std::uint64_t offset = memory.layout.input_begin;
  for (const Run& run : runs) {
    const bool original = run.value == leaf && run.element == offset - memory.layout.input_begin;
    const bool in_output = memory.layout.exists && offset >= memory.layout.output_begin &&
                           offset + run.count <= memory.layout.output_begin + out;
    if (!original && !in_output) return "input element " + std::to_string(offset) + " has changed";
    offset += run.count;
  }
  return {};
}

}  // namespace lockstep::internal
