// Member: what a rank tells the others about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/core_set.hpp"
#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Travels through the store as text.
struct Member {
  int rank = -1;
  std::string host_id;  ///< Equal for ranks that can share memory (see this_host_id), never derived from a
                        ///< launcher's word.
  std::string host_name;
  std::int64_t pid = 0;
  std::uint64_t process = 0;       ///< process_token(); equal for ranks that are threads of one process.
  CoreSet cores;                   ///< Where its first thread may run.
  std::string descriptor_service;  ///< descriptor_service_or_why() of its process.
  std::string transports;          ///< What it was told to use: equal on all ranks (check_transports).
  /// A random number. Rank 0's tells its group from all others that a process is in.
  std::uint64_t draw = 0;
  std::string notice;  ///< What all others must hear from this rank (rank 0: the cost model). Mostly empty.
};

/// "rank 3 (node-2, pid 4711)": what messages call it, as `rank` of a group.
std::string who_is(int rank, const Member& member);

/// The LifeSign of its place in the group, where the ranks have no server to miss them.
std::string life_sign_of(const Member& member);

std::string encode(const Member& member);
/// None where it is damaged.
std::optional<Member> decode_member(std::string_view text);

/// Configuration error, the same on all ranks, unless all were told to use one transport.
Status check_transports(std::span<const Member> members);

/// Whether all can share memory.
bool on_one_host(std::span<const Member> members);

/// This process as `rank`.
Member this_member(int rank);

/// Whether the process of `member`, which is on this host, has certainly ended, be it that its parent has yet
/// to hear of it.
bool has_ended(const Member& member);

/// Equal for processes to which ports, abstract sockets and pids mean the same: boot id, network and pid
/// namespace.
std::string this_container();

/// A hash of what must be equal for two processes to pass each other descriptors over abstract sockets and to
/// know each other's pids: the container and the user.
std::string this_host_id();

}  // namespace lockstep::internal
