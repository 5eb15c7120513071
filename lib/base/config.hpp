// One registry of LOCKSTEP_ environment variables. Each is declared once, with its type, default and one line
// of help; the docs (docs/variables.md, `lockstep-run --variables`) are written from it, and an unknown
// LOCKSTEP_ name in the environment is an error that names the nearest known one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"

namespace lockstep::internal {

enum class VariableKind : std::uint8_t { text, integer, flag, bytes, duration };

struct Variable {
  std::string_view name;  ///< "LOCKSTEP_TIMEOUT"
  VariableKind kind;
  std::string_view default_value;  ///< As it would be written in the environment; may be empty.
  std::string_view help;           ///< One sentence.
  /// The allowed values: of text "off|warn|info", of the other kinds from one to another, "4K..1G". Empty
  /// allows any.
  std::string_view choices = {};
};

/// Every known variable, sorted by name. The table is in config.cpp.
std::span<const Variable> variables() noexcept;

/// Fails on the first LOCKSTEP_ name in the environment that is not in the table, naming the nearest one
/// ("did you mean ..."), and on the first value that is not allowed. What Kubernetes sets for a service
/// called "lockstep" is ignored, with one warning. Called by whatever creates communicators, each time,
/// before the first use of a device, and by the tools.
Status check_environment();

/// The value of a variable of the table, or its default. Names must be in the table (asserted). Values that
/// are not allowed give the default here: check_environment has already refused them. bytes: 64K, 1M, 2G.
/// duration: 500ms, 30s, 5m; only 0 needs no unit.
std::string config_text(std::string_view name);
std::int64_t config_integer(std::string_view name);
bool config_flag(std::string_view name);
std::uint64_t config_bytes(std::string_view name);
std::int64_t config_milliseconds(std::string_view name);
/// Whether the environment sets it (to anything but the empty string).
bool config_is_set(std::string_view name);

/// The table as Markdown, for docs/variables.md.
std::string variables_markdown();

}  // namespace lockstep::internal
