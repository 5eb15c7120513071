// C API: the reducer.
#include "collectives/c_api.hpp"

#include <optional>

#include "collectives/communicator_core.hpp"
#include "ddp/parameter_check.hpp"

using lockstep::internal::guarded;
using lockstep::internal::required;

struct lockstep_reducer {
  lockstep::Communicator group;
  lockstep::Reducer reducer;
  std::size_t parameters;
  std::optional<lockstep::Reducer::NoSync> pause;
  std::string report;
};

namespace lockstep::internal {
namespace {

/// `before` parameters are there already.
std::vector<Parameter> to_parameters(const lockstep_parameter_t* parameters, std::size_t count,
                                     std::size_t before) {
  std::vector<Parameter> list;
  if (count > 0) required(parameters, "parameters");
  for (std::size_t i = 0; i < count; ++i) {
    const lockstep_parameter_t& p = parameters[i];
    const std::string number = "parameter " + std::to_string(before + i);
    const std::string name = p.name != nullptr ? p.name : number;
    if (p.dimensions > 0 && p.shape == nullptr)
      throw Error(ErrorCode::invalid_argument, number + ", \"" + name + "\", has a null shape");
    list.push_back({name, to_type(p.type), std::vector<std::size_t>(p.shape, p.shape + p.dimensions), p.value,
                    p.gradient});
  }
  return list;
}

ReducerOptions to_reducer_options(const lockstep_reducer_options_t* given) {
  ReducerOptions options;
  if (given == nullptr) return options;
  if (given->bucket_bytes > 0) options.bucket_bytes = given->bucket_bytes;
  if (given->first_bucket_bytes > 0) options.first_bucket_bytes = given->first_bucket_bytes;
  options.gradients_as_views = given->own_gradients == 0;
  options.average = given->sum == 0;
  options.weighted = given->weighted != 0;
  options.find_unused = given->find_unused != 0;
  options.static_graph = given->static_graph != 0;
  options.undo = given->no_undo == 0;
  if (given->check_first != 0) options.check_first = given->check_first > 0;
  options.check_finite = given->check_finite != 0;
  options.check_replicas_every = given->check_replicas_every;
  options.overlap_forward = given->overlap_forward != 0;
  if (given->hook != nullptr) options.hook = hook_by_name(given->hook);
  return options;
}

/// What `read` makes of a collective call's arguments. Where it cannot, the peers are told, which compare
/// theirs and would wait.
template <typename Read>
auto read_or_tell(Communicator& group, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    refuse_parameters(group, {"Reducer", error.what()});
  }
}

Reducer& of(lockstep_reducer_t reducer) { return required(reducer, "reducer").reducer; }

}  // namespace
}  // namespace lockstep::internal

using lockstep::internal::of;
using lockstep::internal::read_or_tell;
using lockstep::internal::to_parameters;
using lockstep::internal::to_reducer_options;

extern "C" {

lockstep_error_t lockstep_reducer_create(lockstep_comm_t comm, const lockstep_parameter_t* parameters,
                                         size_t count, const lockstep_reducer_options_t* options,
                                         lockstep_reducer_t* reducer) {
  return guarded([&] {
    lockstep::Communicator& communicator = required(comm, "comm").communicator;
    lockstep_reducer_t& result = required(reducer, "reducer");
    const auto [list, chosen] = read_or_tell(communicator, [&] {
      return std::pair(to_parameters(parameters, count, 0), to_reducer_options(options));
    });
    lockstep::Communicator group(communicator.core().shared_from_this());
    lockstep::Reducer made(communicator, list, chosen);
    result = new lockstep_reducer{std::move(group), std::move(made), count, std::nullopt, {}};
  });
}

void lockstep_reducer_free(lockstep_reducer_t reducer) { delete reducer; }

lockstep_error_t lockstep_reducer_gradient(lockstep_reducer_t reducer, size_t parameter, void** gradient) {
  return guarded([&] { required(gradient, "gradient") = of(reducer).gradient(parameter); });
}

lockstep_error_t lockstep_reducer_mark_ready(lockstep_reducer_t reducer, size_t parameter) {
  return guarded([&] { of(reducer).mark_ready(parameter); });
}

lockstep_error_t lockstep_reducer_mark_unused(lockstep_reducer_t reducer, size_t parameter) {
  return guarded([&] { of(reducer).mark_unused(parameter); });
}

lockstep_error_t lockstep_reducer_wait(lockstep_reducer_t reducer) {
  return guarded([&] { of(reducer).wait(); });
}

lockstep_error_t lockstep_reducer_wait_gradients(lockstep_reducer_t reducer, size_t parameter) {
  return guarded([&] {
    if (parameter == LOCKSTEP_ALL_GRADIENTS) return of(reducer).wait_gradients();
    of(reducer).wait_gradients(parameter);
  });
}

lockstep_error_t lockstep_reducer_add_parameters(lockstep_reducer_t reducer,
                                                 const lockstep_parameter_t* parameters, size_t count) {
  return guarded([&] {
    lockstep_reducer& handle = required(reducer, "reducer");
    handle.reducer.add_parameters(
        read_or_tell(handle.group, [&] { return to_parameters(parameters, count, handle.parameters); }));
    handle.parameters += count;
  });
}

lockstep_error_t lockstep_reducer_no_sync(lockstep_reducer_t reducer, int on) {
  return guarded([&] {
    lockstep_reducer& handle = required(reducer, "reducer");
    handle.pause.reset();
    if (on != 0) handle.pause.emplace(handle.reducer);
  });
}

lockstep_error_t lockstep_reducer_begin_step(lockstep_reducer_t reducer, uint64_t samples, int* goes_on) {
  return guarded([&] {
    int& result = required(goes_on, "goes_on");
    result = of(reducer).begin_step(samples) ? 1 : 0;
  });
}

lockstep_error_t lockstep_reducer_clip(lockstep_reducer_t reducer, double max_norm, double* norm) {
  return guarded([&] {
    const double before = of(reducer).clip_gradients(max_norm);
    if (norm != nullptr) *norm = before;
  });
}

const char* lockstep_reducer_report(lockstep_reducer_t reducer) {
  if (reducer == nullptr) return nullptr;
  const lockstep_error_t error = guarded([&] { reducer->report = reducer->reducer.report(); });
  return error == LOCKSTEP_OK ? reducer->report.c_str() : "";
}

}  // extern "C"
