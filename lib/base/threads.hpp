// Threads as the library starts them.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace lockstep::internal {

/// A thread that takes no signals: the program's handlers run on the program's own threads. Throws Error
/// (ErrorCode::system) where the system has no thread to give; the caller's signal mask stays as it is.
std::thread start_thread(std::function<void()> body);

/// Asks for short turns of the calling thread, which the scheduler grants sooner (EEVDF, from Linux 6.12):
/// between a backward pass that computes on every core, a bucket that could move waits for its turn. Older
/// kernels ignore or refuse it.
void ask_for_short_turns();

/// Runs body(0) to body(n - 1) side by side, a thread each, and returns when all have ended; then throws what
/// the first of them threw. Throws as start_thread() does, and then no body has run: none waits for others
/// that never start.
void on_threads(std::size_t n, const std::function<void(std::size_t)>& body);

}  // namespace lockstep::internal
