// Registered memory: process-level memfd segments that local peers can map, and the descriptor service that hands them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Where a piece of memory lies in terms that a peer on this host understands. Fixed size: travels through shared memory.
struct SegmentRef {
  std::uint64_t owner = 0;       ///< Process id of the owner (its random 64-bit process token, not the pid); 0 = not registered.
  std::uint64_t segment = 0;     ///< Unique in the owner, never reused.
  std::uint64_t offset = 0;      ///< Bytes from the segment's start.
  std::uint64_t generation = 0;  ///< Rises when the segment is replaced (see replace_segment).
};

/// This process's random token (!= 0).
std::uint64_t process_token();

/// The segment that holds all of [pointer, pointer + bytes), or nothing. Cheap (a short sorted lookup), thread-safe.
std::optional<SegmentRef> find_segment(const void* pointer, std::size_t bytes);

/// Gives a peer's revenant writes nowhere to go: moves the segment that holds `pointer` to a new memfd mapped over the same addresses, contents
/// kept, and raises its generation. Used when a writer neither acknowledged a revoke nor died.
Status replace_segment(const void* pointer);

/// A read-write mapping of another process's memory; unmapped by the destructor. Pages are populated.
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// Maps all of `fd`.
  static Result<Mapping> map(const Fd& fd, std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Creates a sealed-size, populated memfd of `bytes`.
Result<Fd> make_memory_fd(const char* name, std::size_t bytes);

/// Descriptor service of this process: an abstract Unix socket served by the reactor; answers only processes of this user (SO_PEERCRED).
/// The name to give to peers; starts the service on first use.
Result<std::string> descriptor_service_name();
/// Offers `fd` (duplicated) under `key` until withdraw(key). Segments of allocate() are offered under "segment/<id>".
Status offer_descriptor(std::string_view key, const Fd& fd);
void withdraw_descriptor(std::string_view key);
/// Fetches the descriptor `key` from the process whose service is `service`. Blocks (the owner's reactor answers), at most `timeout_ms`.
Result<Fd> fetch_descriptor(const std::string& service, std::string_view key, int timeout_ms);

}  // namespace lockstep::internal
