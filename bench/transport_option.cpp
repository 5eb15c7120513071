#include "bench/transport_option.hpp"

#include "collectives/make_transport.hpp"

namespace lockstep::bench {

void add_transport(CLI::App& app, std::string& transport) {
  const auto problem = [](std::string& name) {
    const internal::Status status = internal::check_transports(name);
    return status.ok() ? std::string() : status.message();
  };
  app.add_option("--transport", transport, "what carries the data")
      ->check(CLI::Validator(problem, internal::transport_choices()));
}

}  // namespace lockstep::bench
