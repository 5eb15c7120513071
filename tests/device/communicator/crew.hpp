// Processes that stay from case to case, for real GPUs: there a process takes about a second to make its
// context, and those of all processes are made one after the other (an H100 in a virtual machine).
#pragma once

#include <string>

namespace lockstep::testing {

/// What a process of the crew does. `store`: where the ranks meet.
using CrewTask = void (*)(int rank, int world, const std::string& store);

/// Whether TEST_CREW asks for one, as tools/gpu-check does. Without, every case has processes of its own,
/// which keeps cases apart.
bool crew_is_wanted();

/// As run_forked (tests/support/forked.hpp): `processes` of the crew run task(rank, world, store), with the
/// LOCKSTEP_ variables that are set here. Whatever has failed, the next case gets a new crew. What calls
/// this must not have used the library.
void run_on_crew(int processes, CrewTask task, int world, const std::string& store);

}  // namespace lockstep::testing
