// A checkpoint whose files were changed or cut short: it is loaded as it was saved, or not at all.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "lockstep/ddp.hpp"
#include "lockstep/ddp/checkpoint.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::fuzz {
namespace {

using internal::fuzz::Input;
using internal::fuzz::require;

class Saved {
 public:
  Saved() : group_(Communicator::local_group(1, "auto")) {
    std::iota(weights_.begin(), weights_.end(), 1.0f);
    save_checkpoint(group_.front(), path_, slices(weights_, bias_), {.step = 12, .note = "note"});
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files_[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
    }
    files_.erase("save.lock");
  }

  void load_changed(Input& input) {
    const auto file = std::next(files_.begin(), static_cast<std::ptrdiff_t>(input.below(files_.size())));
    const std::string path = path_ + "/" + file->first;
    write(path, internal::fuzz::changed(file->second, input));
    std::vector<float> weights(weights_.size());
    std::vector<std::uint8_t> bias(bias_.size());
    try {
      const CheckpointInfo info = load_checkpoint(group_.front(), path_, slices(weights, bias));
      require(weights == weights_ && bias == bias_ && info.world_size >= 1);
    } catch (const Error& error) {
      require(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::mismatch ||
              error.code() == ErrorCode::system);
    }
    write(path, file->second);
  }

 private:
  static std::vector<TensorSlice> slices(std::vector<float>& weights, std::vector<std::uint8_t>& bias) {
    return {{"weights", DataType::f32, {10, 20}, 0, weights.size(), weights.data()},
            {"bias", DataType::u8, {bias.size()}, 0, bias.size(), bias.data()}};
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  internal::TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/last";
  std::vector<float> weights_ = std::vector<float>(200);
  std::vector<std::uint8_t> bias_ = std::vector<std::uint8_t>(7, 9);
  std::vector<Communicator> group_;
  std::map<std::string, std::string> files_;
};

}  // namespace
}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static lockstep::fuzz::Saved saved;
  lockstep::internal::fuzz::Input input(data, size);
  saved.load_changed(input);
  return 0;
}
