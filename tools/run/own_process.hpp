// What lockstep-run does to its own process before it starts another (standard streams,
// descriptors, signals), and what it says when it may start none.
#pragma once

#include <sys/resource.h>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"
#include "tools/run/options.hpp"

namespace lockstep::run {

/// What is opened later would get the number of a closed standard stream, and be overwritten by what is put
/// there.
void open_standard_streams();

/// Whether the ranks that `options` asks for can be started; `limit` is how many descriptors this process may
/// have open.
internal::Status check_descriptors(const RunOptions& options, rlim_t limit);

/// Blocks the signals that are passed on and gives a descriptor to read them from. Before any thread starts,
/// so that all threads block them. What is ignored already (nohup, jobs in the background) stays ignored.
internal::Result<internal::Fd> take_signals();

/// Of a fork() that failed.
internal::Status no_process(int error_number);

}  // namespace lockstep::run
