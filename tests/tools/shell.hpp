// What a command of the shell says and ends with.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace lockstep::testing {

struct ShellOutcome {
  int status;  ///< -1: a signal ended it.
  std::string output;
};

/// Standard error is in the output only where the command says so.
inline ShellOutcome shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> part;
  while (const std::size_t n = fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace lockstep::testing
