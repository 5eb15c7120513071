// gpt-device: the training of gpt on GPUs, products by cuBLAS. Several ranks may share one.
//
//   lockstep-run -n 2 gpt-device                                      two ranks, GPUs in turn
//   LOCKSTEP_DEVICE_BACKEND=host lockstep-run -n 2 gpt-device         without a GPU
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "examples/device/own_stream.hpp"
#include "examples/gpt/device/device_model.hpp"
#include "examples/gpt/text.hpp"
#include "examples/gpt/training_options.hpp"
#include "examples/loss_file.hpp"
#include "lockstep/ddp/device_reducer.hpp"
#include "lockstep/device_runtime.hpp"
#include "lockstep/lockstep.hpp"

namespace gpt {
namespace {

struct Options : TrainingOptions {
  double clip = 0;
  int device = -1;
};

/// The share of this rank of all batches, in device memory: characters of every step, then their targets.
class Batches {
 public:
  Batches(const Options& options, const Text& text, std::size_t length, std::size_t first, std::size_t share,
          lockstep::Stream stream)
      : rows_(share * length), all_(options.steps * rows_) {
    std::vector<int> characters, targets;
    Random random(options.seed);
    for (std::size_t step = 0; step < options.steps; ++step) {
      const auto starts = draw_starts(options.batch, text.size(), length, random);
      const Batch batch = text.cut(std::span(starts).subspan(first, share), length);
      characters.insert(characters.end(), batch.characters.begin(), batch.characters.end());
      targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
    }
    static_assert(sizeof(int) == sizeof(float));
    data_ = device_floats(2 * all_);
    lockstep::device::copy(data_.get(), characters.data(), all_ * sizeof(int), stream);
    lockstep::device::copy(data_.get() + all_, targets.data(), all_ * sizeof(int), stream);
    lockstep::device::synchronize(stream);
  }
  const int* characters(std::size_t step) const {
    return reinterpret_cast<const int*>(data_.get()) + step * rows_;
  }
  const int* targets(std::size_t step) const { return characters(step) + all_; }

 private:
  const std::size_t rows_, all_;
  DeviceFloats data_;
};

std::vector<lockstep::Parameter> parameters_of(DeviceModel& model) {
  std::vector<lockstep::Parameter> parameters;
  for (DeviceTensor& tensor : model.tensors())
    parameters.push_back({tensor.name, lockstep::DataType::f32, tensor.shape, tensor.value.get(), nullptr});
  return parameters;
}

/// Losses of steps [first, end), averaged over the ranks.
std::vector<float> losses_of(lockstep::Communicator& communicator, const float* history, std::size_t first,
                             std::size_t end, lockstep::Stream stream) {
  std::vector<float> losses(end - first);
  lockstep::device::copy(losses.data(), history + first, losses.size() * sizeof(float), stream);
  lockstep::device::synchronize(stream);
  communicator.all_reduce(losses.data(), losses.data(), losses.size(), lockstep::DataType::f32,
                          lockstep::ReduceOp::avg);
  return losses;
}

void train(const Options& options, lockstep::Communicator& communicator, lockstep::DeviceCommunicator& device,
           examples::LossFile& file) {
  const Text text(write_counting(kRepeats));
  const Config config{.vocabulary = text.vocabulary()};
  Model start(config, options.seed);
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::size_t share = options.batch / ranks;
  if (share * ranks != options.batch) throw std::invalid_argument("--batch is no multiple of the ranks");

  const examples::OwnStream own;
  const lockstep::Stream stream = own.stream;
  const bool on_host = lockstep::device::properties(device.device()).backend == "host";
  const auto compute = on_host ? make_host_compute(stream) : make_cuda_compute(stream);
  const Bench bench{*compute, stream, share * config.length};
  const Batches batches(options, text, config.length, rank * share, share, stream);
  DeviceModel model(start, config, bench);
  lockstep::DeviceReducer reducer(communicator, device, parameters_of(model));
  for (DeviceTensor& tensor : model.tensors())
    tensor.gradient = static_cast<float*>(reducer.gradient(tensor.index));
  DeviceAdamW optimizer(model.tensors(), bench, {.rate = options.rate});
  const DeviceFloats history = device_floats(options.steps);

  const std::size_t lines = std::max<std::size_t>(1, options.steps / kLinesInAll);
  for (std::size_t step = 0; step < options.steps; ++step) {
    model.loss(batches.characters(step), batches.targets(step), history.get() + step);
    model.backward([&](const DeviceTensor& tensor) { reducer.mark_ready(tensor.index, stream); });
    reducer.wait(stream);
    if (options.clip > 0) reducer.clip_gradients(options.clip, stream);
    optimizer.step();
    if ((step + 1) % lines != 0 && step + 1 != options.steps) continue;
    const std::size_t first = step / lines * lines;
    const std::vector<float> losses = losses_of(communicator, history.get(), first, step + 1, stream);
    for (std::size_t s = 0; s < losses.size(); ++s) file.add(first + s, losses[s]);
    if (rank == 0) std::printf("step %4zu of %zu  loss %.4f\n", step + 1, options.steps, losses.back());
  }
  file.finish();
}

void run(const Options& options) {
  examples::LossFile file(options.loss_file);
  auto communicator = lockstep::Communicator::create();
  const int number = options.device >= 0 ? options.device : communicator.rank() % lockstep::device::count();
  lockstep::device::select(number);
  lockstep::DeviceCommunicator device(communicator, number);
  if (communicator.rank() == 0) std::printf("%s\n", device.describe().c_str());
  train(options, communicator, device, file);
  device.finalize();
  communicator.finalize();
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) try {
  CLI::App app("Trains a small GPT to count in words, on GPUs.");
  gpt::Options options;
  gpt::add_options(app, options);
  app.add_option("--clip", options.clip, "largest norm of all gradients; 0: any")->capture_default_str();
  app.add_option("--device", options.device, "GPU of this rank; by default the ranks take them in turn");
  CLI11_PARSE(app, argc, argv);
  gpt::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpt-device: %s\n", error.what());
  return 1;
}
