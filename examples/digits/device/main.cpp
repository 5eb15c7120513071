// digits-device: the training of digits on GPUs, products by cuBLAS. Several ranks may share one.
//
//   lockstep-run -n 4 digits-device                                      four ranks, GPUs in turn
//   LOCKSTEP_DEVICE_BACKEND=host lockstep-run -n 2 digits-device         without a GPU
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "examples/digits/dataset.hpp"
#include "examples/digits/device/device_trainer.hpp"
#include "examples/digits/stopwatch.hpp"
#include "examples/loss_file.hpp"

namespace digits {
namespace {

const std::map<std::string, lockstep::DeviceCompression>& compressions() {
  using lockstep::DeviceCompression;
  static const std::map<std::string, DeviceCompression> all = {
      {"none", DeviceCompression::none},     {"bf16", DeviceCompression::bf16},
      {"f16", DeviceCompression::f16},       {"f8e4m3", DeviceCompression::f8e4m3},
      {"f8e5m2", DeviceCompression::f8e5m2}, {"i8", DeviceCompression::i8}};
  return all;
}

struct Options {
  TrainingOptions training;
  std::string data = DIGITS_DATA;
  std::string loss_file;
  std::string compression = "none";
  int device = -1;
};

void run(const Options& options) {
  const Split data = load_digits(options.data);
  auto communicator = lockstep::Communicator::create();
  const bool shows = communicator.rank() == 0;
  examples::LossFile loss_file(shows ? options.loss_file : "");
  const int number = options.device >= 0 ? options.device : communicator.rank() % lockstep::device::count();
  lockstep::device::select(number);
  lockstep::DeviceCommunicator device(communicator, number);
  std::vector<double> losses;
  double accuracy = 0, seconds = 0;
  {
    DeviceTrainer trainer(communicator, device, data.train, options.training,
                          compressions().at(options.compression));
    if (shows) std::printf("%s\n", device.describe().c_str());
    const Stopwatch watch;
    for (std::size_t epoch = 0; epoch < options.training.epochs; ++epoch) {
      const std::vector<double> steps = trainer.run_epoch(epoch);
      losses.insert(losses.end(), steps.begin(), steps.end());
      if (shows) std::printf("epoch %zu: loss %.4f\n", epoch + 1, steps.back());
    }
    seconds = watch.seconds();
    trainer.check_replicas();
    accuracy = trainer.accuracy(data.test);
    device.finalize();
  }
  loss_file.add_all(losses);
  if (shows) {
    std::printf("%.0f samples/s\n", static_cast<double>(losses.size() * options.training.batch) / seconds);
    std::printf("digits-device: accuracy %.4f, replicas equal, %d rank%s\n", accuracy, communicator.size(),
                communicator.size() == 1 ? "" : "s");
  }
  communicator.finalize();
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) try {
  CLI::App app(
      "Trains a network on handwritten digits on GPUs, data-parallel over the ranks it is started with.");
  digits::Options options;
  digits::TrainingOptions& t = options.training;
  const CLI::Range some(1, 1'000'000);
  app.add_option("--hidden", t.hidden, "width of each hidden layer")->check(some)->capture_default_str();
  app.add_option("--layers", t.layers, "hidden layers")->check(some)->capture_default_str();
  app.add_option("--batch", t.batch, "samples a step, over all ranks together")
      ->check(some)
      ->capture_default_str();
  app.add_option("--epochs", t.epochs, "passes over the data")->check(some)->capture_default_str();
  app.add_option("--compress", options.compression, "how gradients travel")
      ->check(CLI::IsMember({"none", "bf16", "f16", "f8e4m3", "f8e5m2", "i8"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "GPU of this rank; by default the ranks take them in turn");
  app.add_option("--data", options.data, "the digits")->capture_default_str();
  app.add_option("--loss-file", options.loss_file, "write the loss of every step here");
  CLI11_PARSE(app, argc, argv);
  digits::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "digits-device: %s\n", error.what());
  return 1;
}
