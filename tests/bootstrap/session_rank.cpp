// One rank of the session tests: joins as its environment says, prints the outcome, then says whom it lost
// until its standard input ends. Arguments: the milliseconds that it waits for the others; "stay" to stay
// until it is killed, "leave-nothing" to end at once as if it had been used up.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "lib/bootstrap/session.hpp"

using namespace lockstep;
using namespace lockstep::internal;

namespace {

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

/// Commands: "report R evidence", "leave", "crash" (out of the blue, without any goodbye), "exec" (becomes
/// another program, which lives on).
void obey(Session& session, const std::string& command) {
  if (command == "leave") session.leave();
  if (command == "crash") std::_Exit(7);
  if (command == "exec") execl("/bin/sh", "sh", "-c", "read until_its_end", nullptr);
  if (command.rfind("report ", 0) == 0) session.report_loss({command[7] - '0', command.substr(9)});
  say("done");
}

}  // namespace

int main(int argc, char** argv) {
  InitOptions options;
  if (argc > 1) options.timeout = std::chrono::milliseconds(std::atoi(argv[1]));
  auto session = join_session(options, real_env());
  if (!session.ok()) {
    say("error " + std::to_string(static_cast<int>(session.status().code())) + " culprit " +
        std::to_string(session.status().culprit()) + ": " + session.status().message());
    return 1;
  }
  Session& joined = **session;
  std::string pids;
  for (const Member& member : joined.members()) pids += " " + std::to_string(member.pid);
  say("joined " + std::to_string(joined.rank()) + " of " + std::to_string(joined.size()) + pids);
  joined.on_loss(1,
                 [](const Loss& loss) { say("lost " + std::to_string(loss.rank) + ": " + loss.evidence); });
  const std::string role = argc > 2 ? argv[2] : "";
  if (role == "stay") pause();
  if (role == "leave-nothing") std::_Exit(0);
  for (std::string command; std::getline(std::cin, command);) obey(joined, command);
  joined.leave();
  joined.remove_loss_callback(1);
  return 0;
}
