#include "ddp/parameter_check.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp/parameter_list.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// The lists of all ranks, whose lengths in bytes are known.
Result<std::vector<ParameterList>> gather_lists(Communicator& communicator, const std::string& mine,
                                                std::span<const std::size_t> lengths) {
  std::size_t total = 0;
  for (const std::size_t length : lengths) total += length;
  std::string all(total, '\0');
  communicator.all_gather_v(mine.data(), all.data(), lengths, DataType::u8);
  std::vector<ParameterList> lists;
  std::string_view rest = all;
  for (const std::size_t length : lengths) {
    auto list = parse(rest.substr(0, length));
    if (!list.ok()) return list.status();
    lists.push_back(std::move(*list));
    rest.remove_prefix(length);
  }
  return lists;
}

/// `mine` is the list as bytes. Returns whether all ranks' gradients may move, or throws the verdict on their
/// lists.
bool compare_with_peers(Communicator& communicator, const ParameterList& list, const std::string& mine,
                        bool may_move, const std::string& owner) {
  const auto ranks = static_cast<std::size_t>(communicator.size());

  struct Fingerprint {
    std::uint64_t hash;
    std::uint64_t bytes;
    std::uint64_t may_move;  // May differ.
  };
  const Fingerprint own{fnv1a(mine), mine.size(), may_move};
  std::vector<Fingerprint> fingerprints(ranks);
  communicator.all_gather(&own, fingerprints.data(), sizeof own / sizeof own.hash, DataType::u64);

  const bool equal = std::all_of(fingerprints.begin(), fingerprints.end(), [&](const Fingerprint& f) {
    return f.hash == own.hash && f.bytes == own.bytes;
  });
  if (equal && list.problem.empty()) {
    return std::all_of(fingerprints.begin(), fingerprints.end(),
                       [](const Fingerprint& f) { return f.may_move != 0; });
  }
  std::vector<std::size_t> lengths;
  for (const Fingerprint& f : fingerprints) lengths.push_back(f.bytes);
  auto lists = gather_lists(communicator, mine, lengths);
  lists.status().throw_if_error();
  compare(*lists, communicator.rank()).with_context(owner).throw_if_error();
  return false;
}

}  // namespace

bool check_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                      const ReducerOptions& options, const ParameterOwner& owner) {
  const bool may_move =
      options.rebuild && (!options.gradients_as_views || options.gradients_moved != nullptr);
  ParameterList list;
  std::string mine;
  telling_peers(communicator, owner.name, [&] {
    list = make_list(parameters, options);
    if (!owner.problem.empty()) list.problem = owner.problem;
    mine = serialise(list);
  });
  return compare_with_peers(communicator, list, mine, may_move, owner.name);
}

bool check_joining(Communicator& communicator, std::span<const Parameter> parameters,
                   std::span<const Parameter> added, const ReducerOptions& options,
                   const ParameterOwner& owner) {
  std::vector<Parameter> all;
  telling_peers(communicator, "add_parameters", [&] {
    all.assign(parameters.begin(), parameters.end());
    all.insert(all.end(), added.begin(), added.end());
  });
  return check_parameters(communicator, all, options, owner);
}

void refuse_parameters(Communicator& communicator, const ParameterOwner& owner) {
  ParameterList list;
  list.problem = owner.problem;
  compare_with_peers(communicator, list, serialise(list), false, owner.name);
  // Not reached: a problem throws.
  throw Error(ErrorCode::invalid_argument, owner.problem, communicator.rank());
}

}  // namespace lockstep::internal
