// The model of model.hpp in device memory: the same weights at the start, the same arithmetic, enqueued.
#pragma once

#include <vector>

#include "examples/gpt/adamw.hpp"
#include "examples/gpt/device/device_layer.hpp"
#include "examples/gpt/model.hpp"

namespace gpt {

/// Not thread-safe. Works on one stream.
class DeviceModel {
 public:
  /// Batches have bench.rows rows. Copies the weights of `start`: waits until the stream has passed.
  DeviceModel(Model& start, const Config& config, const Bench& bench);

  /// As the start's, in its order. Gradients are to be set before backward().
  std::vector<DeviceTensor>& tensors() { return tensors_; }
  /// `mean`, in device memory, gets the mean loss of the batch.
  void loss(const int* characters, const int* targets, float* mean);
  /// Gradients of the last loss().
  void backward(const Ready& ready);

 private:
  DeviceTensor& next() { return tensors_[taken_++]; }
  void add_block(const Config& config);

  const Config config_;
  const Bench bench_;
  std::vector<DeviceTensor> tensors_;
  std::size_t taken_ = 2;  // By layers; the embeddings come first.
  Layers layers_;
  DeviceFloats embedded_, by_logits_, losses_;
  const int* characters_ = nullptr;
};

/// AdamW on device memory.
class DeviceAdamW {
 public:
  /// All outlive it.
  DeviceAdamW(std::vector<DeviceTensor>& tensors, const Bench& bench, const AdamWOptions& options);
  void step();

 private:
  struct Moments {
    DeviceFloats mean, square;
  };
  std::vector<DeviceTensor>& tensors_;
  const Bench bench_;
  const AdamWOptions options_;
  std::vector<Moments> moments_;
  int steps_ = 0;
};

}  // namespace gpt
