// Two hosts on one machine: network namespaces joined by a veth pair of limited rate.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// Constructed before any thread starts. The constructing process becomes part of host 0; it, and those that
/// it forks, can enter either. Nothing has a name outside of them, so all of it ends with the last process
/// inside.
class TwoHosts {
 public:
  /// `rate` in the words of tc. Throws std::runtime_error with cause and remedy.
  explicit TwoHosts(const std::string& rate);
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// The calling thread's network becomes that of the host, 0 or 1.
  void enter(int host) const;
  static std::string address(int host);
  static std::string interface(int host);
  /// Bytes that the calling thread's host has sent over the link so far, as its interface counts them.
  static std::uint64_t bytes_sent(int host);
  /// Gbit/s of payload in each direction, of two TCP streams at once.
  double measure_link() const;

 private:
  int network_[2] = {-1, -1};  // Descriptors of the namespaces.
};

}  // namespace lockstep::bench
