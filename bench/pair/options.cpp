#include "bench/pair/options.hpp"

#include <CLI/CLI.hpp>

#include "bench/command_line.hpp"
#include "bench/size_option.hpp"
#include "bench/transport_option.hpp"

namespace lockstep::bench {

std::optional<int> parse_options(int argc, char** argv, PairOptions& options) {
  CLI::App app("What a message between two processes takes.", "pair-bench");
  app.option_defaults()->always_capture_default();
  add_transport(app, options.transport);
  app.add_option("-s,--size", options.bytes, "bytes of the message")->transform(as_size());
  app.add_option("-n,--iters", options.iterations)->check(CLI::Range(1, 10'000'000));
  app.add_option("-w,--warmup_iters", options.warmup)->check(CLI::Range(0, 1'000'000));
  app.add_flag("--stream", options.stream, "one after another; without it there and back, halved");
  app.add_option("--window", options.window, "messages of a stream that are under way at once")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--registered", options.registered, "buffers from lockstep::allocate");
  app.add_flag("--unwritten", options.unwritten, "send from memory that was never written");
  app.add_flag("--pin", options.pinned, "each process to a core");
  return parse_command_line(app, argc, argv);
}

}  // namespace lockstep::bench
