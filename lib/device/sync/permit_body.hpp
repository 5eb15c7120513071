// Permission to write to other ranks' memory, asked for in a kernel just before. A writer tells each owner
// that it writes, and then looks whether that owner has closed its memory; an owner closes, and then looks
// who writes. So either the writer sees that it is closed, or the owner sees the writer and waits for its
// end. Who has closed its own memory has given up, and its waits were let pass: it writes to nobody's.
//
// What lies between the writer's look and its end are kernels that are in the stream already: they run to
// their end however long the writer's process is stopped, but when is up to its device. So the owner waits by
// looking again, and not by a clock.
#pragma once

#include "lib/device/sync/phase_body.hpp"

namespace lockstep::internal::sync {

struct PermitArguments {
  int rank, world;
  std::byte* words[kMaxPhaseRanks];  ///< The members', by owner.
  std::uint32_t stride;              ///< Bytes from one writer's words to the next.
  std::uint32_t writes_at;           ///< Where in these: the writer writes.
  std::uint32_t closed_at;           ///< In the owner's own: nobody may write any more.
  std::uint32_t* permit;             ///< This rank's, in device memory.
  std::uint32_t* writers;            ///< By member, in pinned memory: 1 if close() found that it writes.
};

/// Member `peer` is the part of thread `peer`.
struct PermitBody {
  static LOCKSTEP_BOTH std::uint32_t* writes(const PermitArguments& a, int owner, int writer) {
    return word(a, owner, writer, a.writes_at);
  }
  static LOCKSTEP_BOTH std::uint32_t* closed(const PermitArguments& a, int owner) {
    return word(a, owner, owner, a.closed_at);
  }
  static LOCKSTEP_BOTH bool is_peer(const PermitArguments& a, int peer) {
    return peer < a.world && peer != a.rank;
  }

  // The writer's side. Whether it may write follows from all parts.
  static LOCKSTEP_BOTH bool enter(const PermitArguments& a, int peer) {
    if (peer == a.rank) return load_ordered(closed(a, peer)) == 0;
    return !is_peer(a, peer) || store_then_load(writes(a, peer, a.rank), 1, closed(a, peer)) == 0;
  }
  static LOCKSTEP_BOTH void leave(const PermitArguments& a, int peer) {
    if (is_peer(a, peer)) store_word(writes(a, peer, a.rank), 0);
  }

  // The owner's side: after close() of one thread all look.
  static LOCKSTEP_BOTH void close(const PermitArguments& a) {
    static_cast<void>(store_then_load(closed(a, a.rank), 1, closed(a, a.rank)));
  }
  static LOCKSTEP_BOTH void note_writer(const PermitArguments& a, int peer) {
    if (is_peer(a, peer)) store_word(a.writers + peer, load_ordered(writes(a, a.rank, peer)));
  }

 private:
  static LOCKSTEP_BOTH std::uint32_t* word(const PermitArguments& a, int owner, int writer,
                                           std::uint32_t at) {
    return reinterpret_cast<std::uint32_t*>(a.words[owner] + static_cast<std::uint32_t>(writer) * a.stride +
                                            at);
  }
};

}  // namespace lockstep::internal::sync
