// Tuning files and the manifests of checkpoints: what is accepted is written, and read again, as the same.
#include "collectives/select/cost_model.hpp"
#include "ddp/checkpoint/manifest.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

void read_model(std::string_view text) {
  const auto model = parse_model(text);
  if (!model.ok()) return require(model.status().code() == ErrorCode::configuration);
  const std::string written = to_json(model.value());
  const auto again = parse_model(written);
  require(again.ok() && to_json(again.value()) == written);
}

void read_manifest(std::string_view text) {
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return;
  const auto written = to_json(manifest.value());
  require(written.ok());
  const auto again = parse_manifest(written.value());
  require(again.ok() && to_json(again.value()).value() == written.value());
}

/// Of two ranks, one of which has nothing of the second tensor.
std::string good_manifest() {
  const std::string digest(64, '0');
  Manifest manifest{
      .generation = 3, .info = {.step = 12, .note = "note", .world_size = 2}, .tensors = {}, .files = {}};
  manifest.tensors = {{"w", DataType::f32, {2, 4}, 8}, {"b", DataType::u8, {3}, 3}};
  manifest.files = {{data_file_name(3, 0, 2), 16, {{"w", 0, 4, 0, digest}}},
                    {data_file_name(3, 1, 2), 19, {{"w", 4, 4, 0, digest}, {"b", 0, 3, 16, digest}}}};
  return to_json(manifest).value();
}

void add_contributions(Input& input) {
  Manifest manifest;
  const std::size_t first = input.take<std::uint16_t>();
  if (add_contribution(input.text(first), manifest).ok() && add_contribution(input.text(), manifest).ok())
    static_cast<void>(check_cover(manifest));
}

void read(Input input) {
  static const std::string model = to_json(*builtin_model()), manifest = good_manifest();
  switch (input.below(5)) {
    case 0:
      return read_model(input.text());
    case 1:
      return read_model(changed(model, input));
    case 2:
      return read_manifest(input.text());
    case 3:
      return read_manifest(changed(manifest, input));
    default:
      return add_contributions(input);
  }
}

}  // namespace
}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::read({data, size});
  return 0;
}
