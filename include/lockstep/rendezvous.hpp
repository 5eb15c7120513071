// Rendezvous: a place where the ranks of one group meet, served by a process that need not be one of them.
#pragma once

#include <memory>
#include <string>

#include "lockstep/export.hpp"

namespace lockstep {

namespace internal {
class StoreServer;
}  // namespace internal

/// Serves on a port of its own from its construction to its destruction; the ranks have to be gone, or
/// finalized, before that. Each serves the ranks of one job, which may form one group after another
/// there. Movable. Not thread-safe.
class LOCKSTEP_API Rendezvous {
 public:
  /// `job_id` and `secret` are those of the ranks' InitOptions; the secret may not be empty. It is
  /// served at the best addresses that peers may connect to (LOCKSTEP_IFNAME chooses), at loopback where
  /// there is no other. Throws Error.
  Rendezvous(const std::string& job_id, const std::string& secret);
  Rendezvous(Rendezvous&&) noexcept;
  Rendezvous& operator=(Rendezvous&&) noexcept;
  ~Rendezvous();

  /// For InitOptions::rendezvous of every rank, which tries the addresses in turn: "served://10.0.0.1:4711",
  /// "served://[10.0.0.1,fd00::1]:4711". At most 63 characters.
  const std::string& address() const noexcept { return address_; }

 private:
  std::unique_ptr<internal::StoreServer> server_;
  std::string address_;
};

}  // namespace lockstep
