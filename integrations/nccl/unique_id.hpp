// ncclUniqueId: 128 bytes that tell the ranks where to meet and how to prove that they belong together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "integrations/nccl/abi.hpp"
#include "lockstep/rendezvous.hpp"

namespace lockstep::nccl {

struct UniqueId {
  std::string address;  ///< As Rendezvous::address().
  std::string job_id;
  std::string secret;
};

/// Random bytes of a job's name and of its secret: as text, twice as many digits.
inline constexpr std::size_t kJobBytes = 8, kSecretBytes = 16;

/// Text of `bytes` random bytes in hexadecimal digits.
std::string random_text(std::size_t bytes);

/// Serves a rendezvous in this process until it is adopted.
ncclUniqueId make_unique_id();
/// Throws Refusal naming what is wrong: an id of another NCCL library, of another version, or damaged.
UniqueId read_unique_id(const ncclUniqueId& id);

/// The rendezvous of an id that this process made: shared by this process's ranks, which keep it while their
/// communicators live. Null when another process serves it.
std::shared_ptr<Rendezvous> adopt_rendezvous(const UniqueId& id);
/// Its ranks have met, or will not any more: nobody will ask for it again.
void forget_rendezvous(const UniqueId& id);

}  // namespace lockstep::nccl
