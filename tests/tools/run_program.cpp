#include "tests/tools/run_program.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "tests/support/eventually.hpp"

namespace lockstep::internal {

ChildProcess start(std::vector<std::string> arguments, const Environment& environment) {
  arguments.insert(arguments.begin(), LOCKSTEP_RUN);
  return ChildProcess(std::move(arguments), environment);
}

Outcome outcome_of(ChildProcess process) {
  process.close_input();
  Outcome outcome;
  outcome.output = process.read_output();
  outcome.error = process.read_error();
  outcome.code = exit_code(process.wait());
  return outcome;
}

Outcome run(std::vector<std::string> arguments, const Environment& environment) {
  return outcome_of(start(std::move(arguments), environment));
}

Outcome run_shell(int ranks, const std::string& script, std::vector<std::string> options) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"/bin/sh", "-c", script});
  return run(std::move(options));
}

Outcome run_in_shell(const std::string& script) {
  Environment environment = kEnvironment;
  environment["RUN"] = LOCKSTEP_RUN;
  // What ctest leaves open counts, too.
  const std::string alone = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ";
  return outcome_of(ChildProcess({"/bin/sh", "-c", alone + script}, environment));
}

std::string sorted(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void wait_for_state(pid_t pid, char state) {
  const auto is_there = [&] {
    const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name_end = text.rfind(") ");
    return name_end != std::string::npos && text[name_end + 2] == state;
  };
  EXPECT_TRUE(lockstep::testing::eventually(is_there)) << pid << " did not come to state " << state;
}

EndWatch::EndWatch(pid_t pid) : pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}

bool EndWatch::ended(int patience_ms) const {
  if (!pidfd_) return true;
  pollfd entry{pidfd_.get(), POLLIN, 0};
  return poll(&entry, 1, patience_ms) == 1;
}

}  // namespace lockstep::internal
