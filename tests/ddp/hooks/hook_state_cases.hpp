// A net that is trained with each hook that keeps something, saved and loaded: for tests of what hooks keep.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hooks/net.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {

inline constexpr std::uint64_t kSaved = 5, kLast = 12;

/// Gone afterwards.
class Directory {
 public:
  std::string checkpoint() const { return directory_.path() + "/last"; }

 private:
  const internal::TemporaryDirectory directory_;
};

struct Case {
  const char* name;
  std::shared_ptr<CommunicationHook> (*make)();
  bool keeps = true;
};
inline constexpr Case kCases[] = {
    {"i8", [] { return make_quantised_hook(); }},
    {"f8e4m3", [] { return make_quantised_hook({.type = DataType::f8e4m3, .block = 64}); }},
    {"f8e5m2", [] { return make_quantised_hook({.type = DataType::f8e5m2}); }},
    {"top_k", [] { return make_top_k_hook({.share = 0.05}); }},
    {"powersgd", [] { return make_power_sgd_hook({.rank = 2, .start_step = 3}); }},
    {"powersgd that starts after the checkpoint",
     [] { return make_power_sgd_hook({.rank = 2, .start_step = 8}); }, false},
    {"bf16", [] { return make_half_hook(); }, false},
    {"f16", [] { return make_half_hook(DataType::f16); }, false},
};

inline ReducerOptions options_of(const Case& hook, bool weighted = false) {
  ReducerOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000};
  options.hook = hook.make();
  options.weighted = weighted;
  return options;
}

/// With `samples` it says how many each step has.
inline void train(Reducer& reducer, Net& net, int rank, std::uint64_t last, std::uint64_t samples = 0) {
  while (reducer.steps() < last) {
    if (samples > 0) reducer.begin_step(samples);
    for (std::size_t i = net.list.size(); i-- > 0;) {
      auto* gradient = static_cast<float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < net.values[i].size(); ++e)
        gradient[e] = net.gradient(i, e, rank, reducer.steps());
      reducer.mark_ready(i);
    }
    reducer.wait();
    for (std::size_t i = 0; i < net.list.size(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < net.values[i].size(); ++e) net.values[i][e] -= 0.1f * gradient[e];
    }
  }
}

inline void append(std::vector<TensorSlice>& list, const std::vector<TensorSlice>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

inline void save(Communicator& communicator, const Reducer& reducer, const Net& net,
                 const std::string& directory) {
  std::vector<TensorSlice> slices = slices_to_save(net.list, communicator);
  append(slices, reducer.slices());
  save_checkpoint(communicator, directory, slices, {.step = reducer.steps()});
}

/// Returns the steps of the checkpoint, which the reducer does not know yet.
inline std::uint64_t read(Communicator& communicator, Reducer& reducer, const Net& net,
                          const std::string& directory) {
  std::vector<TensorSlice> slices = slices_to_load(net.list);
  append(slices, reducer.slices(read_checkpoint_info(directory)));
  return load_checkpoint(communicator, directory, slices).step;
}

inline void load(Communicator& communicator, Reducer& reducer, const Net& net, const std::string& directory) {
  reducer.restored(read(communicator, reducer, net, directory));
}

inline void train_and_save(int ranks, const Case& hook, const std::string& directory) {
  testing::on_ranks(ranks, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, options_of(hook));
    train(reducer, net, communicator.rank(), kSaved);
    save(communicator, reducer, net, directory);
  });
}

/// What all ranks have not sent, by tensor, as it enters the next average.
inline std::map<std::string, std::vector<double>> waiting(Communicator& communicator,
                                                          const Reducer& reducer) {
  std::map<std::string, std::vector<double>> sums;
  for (const TensorSlice& slice : reducer.slices()) {
    if (slice.name.find("#residual") == std::string::npos) continue;
    std::size_t elements = 1;
    for (std::size_t d = 1; d < slice.shape.size(); ++d) elements *= slice.shape[d];
    std::vector<double>& sum = sums[slice.name];
    sum.resize(elements);
    for (std::size_t i = 0; i < slice.count; ++i)
      sum[slice.first % elements + i] = static_cast<const float*>(slice.data)[i];
  }
  for (auto& [name, sum] : sums)
    communicator.all_reduce(sum.data(), sum.data(), sum.size(), DataType::f64, ReduceOp::avg);
  return sums;
}

}  // namespace lockstep
