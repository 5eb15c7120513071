#include "bench/ddp/report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/json_file.hpp"

namespace lockstep::bench {
namespace {

/// A step may cost this much more than the wire makes it: the promise that --hosts 2 is held against.
constexpr double kAllowance = 0.02;

/// What is a smaller share of the step disappears in its noise, and so does how much of it is hidden.
constexpr double kWorthHiding = 0.05;

constexpr int kIndent = 2;

/// Milliseconds that the bytes need at the link's measured rate.
double wire_at_rate(const DdpResult& result, double link_gbits) {
  return 8e-6 * static_cast<double>(result.bytes_on_wire) / link_gbits;
}

/// What no overlap can hide, and the allowance.
double exposed_limit(const DdpResult& result, double link_gbits) {
  return std::max(0.0, wire_at_rate(result, link_gbits) - result.backward_ms) + kAllowance * result.step_ms();
}

nlohmann::ordered_json to_json(const DdpOptions& options, const DdpResult& result,
                               std::optional<double> link_gbits) {
  nlohmann::ordered_json json{{"ranks", options.ranks},
                              {"hosts", options.hosts},
                              {"parameters", result.parameters},
                              {"hook", options.hook},
                              {"step_ms", result.step_ms()},
                              {"compute_ms", result.compute_ms},
                              {"exposed_ms", result.exposed_ms},
                              {"wire_ms", result.wire_ms},
                              {"bytes_on_wire", result.bytes_on_wire},
                              {"link_gbits", nullptr},
                              {"buckets", result.buckets},
                              {"backward_after_first_bucket_ms", result.backward_ms}};
  if (link_gbits) {
    json["link_gbits"] = *link_gbits;
    json["wire_at_link_rate_ms"] = wire_at_rate(result, *link_gbits);
    json["exposed_limit_ms"] = exposed_limit(result, *link_gbits);
  }
  return json;
}

void print(const DdpOptions& options, const DdpResult& result, std::optional<double> link_gbits) {
  std::printf("%d ranks on %d host%s, %zu f32 parameters in %d buckets, hook %s\n", options.ranks,
              options.hosts, options.hosts == 1 ? "" : "s", result.parameters, result.buckets,
              options.hook.c_str());
  std::printf("step %.2f ms, without synchronisation %.2f ms: exposed %.2f ms (%.1f %%)\n", result.step_ms(),
              result.compute_ms, result.exposed_ms, 100 * result.exposed_ms / result.compute_ms);
  std::printf("communication alone %.2f ms; backward after the first bucket %.2f ms; %llu bytes a step\n",
              result.wire_ms, result.backward_ms, static_cast<unsigned long long>(result.bytes_on_wire));
  if (link_gbits) {
    std::printf("link %.3f Gbit/s: these bytes need %.2f ms; exposed should be at most %.2f ms\n",
                *link_gbits, wire_at_rate(result, *link_gbits), exposed_limit(result, *link_gbits));
  }
}

nlohmann::ordered_json to_json(const DdpOptions& options, const ZeroResult& result) {
  return {{"ranks", options.ranks},
          {"hosts", options.hosts},
          {"parameters", result.parameters},
          {"zero", options.zero},
          {"step_ms", result.step_ms},
          {"compute_ms", result.compute_ms},
          {"gathered_at_once_ms", result.at_once_ms},
          {"gather_ms", result.gather_ms},
          {"gather_hidden", result.gather_hidden()},
          {"memory",
           {{"values", result.memory.values},
            {"gradients", result.memory.gradients},
            {"undo", result.memory.undo},
            {"in_flight", result.memory.in_flight},
            {"optimizer", result.memory.optimizer},
            {"process", result.resident_bytes}}}};
}

void print(const DdpOptions& options, const ZeroResult& result) {
  const auto mebibytes = [](auto bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const ShardedMemory& m = result.memory;
  std::printf("%d ranks on %d host%s, %zu f32 parameters, AdamW, ZeRO stage %d\n", options.ranks,
              options.hosts, options.hosts == 1 ? "" : "s", result.parameters, options.zero);
  std::printf("step %.2f ms, without communication %.2f ms\n", result.step_ms, result.compute_ms);
  if (options.zero > 0) {
    std::printf(
        "all_gather of the parameters alone %.2f ms; with it before the forward the step takes %.2f ms\n",
        result.gather_ms, result.at_once_ms);
    if (result.gather_ms > kWorthHiding * result.step_ms)
      std::printf("the forward hides %.0f %% of it\n", 100 * result.gather_hidden());
  }
  std::printf(
      "a rank: values %.1f MiB, gradients %.1f, undo %.1f, on their way %.1f, AdamW %.1f; its process gained "
      "%.1f MiB\n",
      mebibytes(m.values), mebibytes(m.gradients), mebibytes(m.undo), mebibytes(m.in_flight),
      mebibytes(m.optimizer), mebibytes(result.resident_bytes));
}

nlohmann::ordered_json to_json(const DdpOptions& options, const OverlapResult& result,
                               std::optional<double> link_gbits) {
  nlohmann::ordered_json json{{"ranks", options.ranks},
                              {"hosts", options.hosts},
                              {"parameters", result.parameters},
                              {"step_ms", result.step_ms},
                              {"overlapped_step_ms", result.overlapped_ms},
                              {"saved_ms", result.saved_ms},
                              {"compute_ms", result.compute_ms},
                              {"forward_ms", result.forward_ms},
                              {"link_gbits", nullptr}};
  if (link_gbits) json["link_gbits"] = *link_gbits;
  return json;
}

void print(const DdpOptions& options, const OverlapResult& result) {
  std::printf("%d ranks on %d host%s, %zu f32 parameters\n", options.ranks, options.hosts,
              options.hosts == 1 ? "" : "s", result.parameters);
  std::printf("step %.2f ms; where the forward waits for gradients layer by layer %.2f ms: saves %.2f ms\n",
              result.step_ms, result.overlapped_ms, result.saved_ms);
  std::printf("without synchronisation %.2f ms, of which optimizer and forward take %.2f ms\n",
              result.compute_ms, result.forward_ms);
}

}  // namespace

void report_ddp(const DdpOptions& options, const DdpResult& result, std::optional<double> link_gbits) {
  if (options.json != "-") print(options, result, link_gbits);
  write_json(options.json, to_json(options, result, link_gbits), kIndent);
}

void report_overlap(const DdpOptions& options, const OverlapResult& result,
                    std::optional<double> link_gbits) {
  if (options.json != "-") print(options, result);
  write_json(options.json, to_json(options, result, link_gbits), kIndent);
}

void report_zero(const DdpOptions& options, const ZeroResult& result) {
  if (options.json != "-") print(options, result);
  write_json(options.json, to_json(options, result), kIndent);
}

}  // namespace lockstep::bench
