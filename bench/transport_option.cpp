#include "bench/transport_option.hpp"

#include "collectives/make_transport.hpp"
#include "lib/base/config.hpp"

namespace lockstep::bench {

void add_transport(CLI::App& app, std::string& transport) {
  const auto problem = [](std::string& name) {
    const internal::Status status = internal::check_transports(name);
    return status.ok() ? std::string() : status.message();
  };
  app.add_option("--transport", transport, "what carries the data")
      ->check(CLI::Validator(problem, internal::transport_choices()));
}

void heed_transport_variable(const CLI::App& app, std::string& transport) {
  constexpr const char* kVariable = "LOCKSTEP_TRANSPORTS";
  if (app.count("--transport") == 0 && internal::config_is_set(kVariable))
    transport = internal::config_text(kVariable);
}

}  // namespace lockstep::bench
