// A module's tensors, as the reducer is told of them.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/ddp/parameter.hpp"
#include "lockstep/error.hpp"
#include "lockstep/types.hpp"

namespace lockstep::libtorch {

/// The element type; nothing where lockstep has none (int16, quantised types).
inline std::optional<DataType> data_type_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kHalf:
      return DataType::f16;
    case torch::kBFloat16:
      return DataType::bf16;
    case torch::kFloat:
      return DataType::f32;
    case torch::kDouble:
      return DataType::f64;
    case torch::kChar:
      return DataType::i8;
    case torch::kByte:
      return DataType::u8;
    case torch::kInt:
      return DataType::i32;
    case torch::kLong:
      return DataType::i64;
    case torch::kBool:
      return DataType::boolean;
    case torch::kComplexFloat:
      return DataType::complex64;
    case torch::kComplexDouble:
      return DataType::complex128;
    default:
      return std::nullopt;
  }
}

[[noreturn]] inline void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "\"" + name + "\" " + why);
}

/// " of [3, 4]"
inline std::string shape_of(const torch::Tensor& tensor) {
  std::string text;
  for (const std::int64_t n : tensor.sizes()) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return " of [" + text + "]";
}

/// The dimensions as they lie in memory, the outermost first.
inline std::vector<std::int64_t> memory_order(const torch::Tensor& tensor) {
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(tensor.dim()));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  if (!tensor.is_contiguous())
    std::stable_sort(dimensions.begin(), dimensions.end(),
                     [&tensor](auto a, auto b) { return tensor.stride(a) > tensor.stride(b); });
  return dimensions;
}

/// `tensor` as a Parameter whose value is the tensor's memory. Elements that meet have one place on all
/// ranks, so the shape has the dimensions as they lie in memory, and a name tells of another order than the
/// usual one: "0.weight, laid out 0 2 3 1" (channels_last). Ranks that lay a tensor out differently are told.
/// Throws Error(invalid_argument), which names it, unless it is one block of host memory of a type of ours.
inline Parameter describe(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined()) refuse(name, "is undefined; initialise the module first");
  if (tensor.layout() != torch::kStrided) refuse(name, "is sparse; make it dense");
  if (!tensor.device().is_cpu())
    refuse(name, "is on " + tensor.device().str() + "; lockstep::DeviceReducer averages gradients on GPUs");
  if (!tensor.is_non_overlapping_and_dense())
    refuse(name, "has gaps or overlaps in memory; make it contiguous()");
  const std::optional<DataType> type = data_type_of(tensor);
  if (!type)
    refuse(name, std::string("is of ") + torch::toString(tensor.scalar_type()) + ", which lockstep lacks");

  Parameter described;
  described.name = tensor.is_contiguous() ? name : name + ", laid out";
  described.type = *type;
  described.value = tensor.data_ptr();
  for (const std::int64_t d : memory_order(tensor)) {
    described.shape.push_back(static_cast<std::size_t>(tensor.size(d)));
    if (!tensor.is_contiguous()) described.name += " " + std::to_string(d);
  }
  return described;
}

inline std::vector<Parameter> describe_buffers(const torch::nn::Module& module) {
  std::vector<Parameter> buffers;
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined()) buffers.push_back(describe(buffer.key(), buffer.value()));
  return buffers;
}

struct ModuleTensors {
  explicit ModuleTensors(const torch::nn::Module& module) : others(describe_buffers(module)) {
    std::unordered_set<const void*> seen;
    for (const auto& parameter : module.named_parameters()) {
      const torch::Tensor& tensor = parameter.value();
      if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      if (tensor.requires_grad()) trained.push_back(tensor);
      (tensor.requires_grad() ? parameters : others).push_back(describe(parameter.key(), tensor));
    }
  }

  std::vector<torch::Tensor> trained;
  std::vector<Parameter> parameters;  ///< Those of `trained`.
  std::vector<Parameter> others;      ///< Buffers, and parameters that are not trained.
};

}  // namespace lockstep::libtorch
