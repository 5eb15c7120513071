// Store in one file: "file:///path", for ranks that share a file system.
//
// The file is a header {magic, committed length} and a log of {key, value} records. A writer appends behind
// the committed length and then raises it, all under a lock, so that one killed half-way leaves bytes that
// nobody reads and the next writer overwrites. Every open store holds a shared lock on the file for its life.
// Who finds nobody else on it starts it anew (it is left over from ranks that died); who closes it last
// removes it. The locks belong to open file descriptions (fcntl(2), F_OFD_SETLK), work over NFS, and vanish
// with their owner.
#pragma once

#include <memory>
#include <string>

#include "lib/base/env.hpp"
#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

/// Opens or creates the store at `path` (mode 0600) within `timeout`. A file that is not a store of lockstep,
/// belongs to another user or is open to others is left as it is, and is an error. On a reactor's thread no
/// call waits: where another has the file locked, it ends with ErrorCode::timeout at once.
Result<std::unique_ptr<Store>> open_file_store(const std::string& path, std::chrono::milliseconds timeout,
                                               Env& env, const WhileWaiting& while_waiting = {});

}  // namespace lockstep::internal
