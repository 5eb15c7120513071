// Descriptor service: how processes of one user on one host hand each other memory.
//
// Each process answers on an abstract Unix socket (SOCK_SEQPACKET) with a random name, on a thread of its
// own: two processes may ask each other, each on the thread that makes progress or with an engine's lock
// held. A request is one packet, the key; the answer is one packet, with the descriptors attached. Both ends
// check that the other runs as the same user (SO_PEERCRED), since an abstract name can be connected to, or
// taken, by anybody. Nor is the same user enough, which may run containers: a request brings a word that the
// service's name holds beside the socket's, and the name is told to the job's ranks only. An abstract socket
// leaves nothing in the file system, and a process that died refuses connections at once, which is how a
// fetch learns of a death.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// The name to give to peers; starts the service on first use. Thread-safe, like all functions here.
Result<std::string> descriptor_service_name();
/// The same; where it cannot be started, a name that nobody answers to, and that tells who fetches why.
std::string descriptor_service_or_why();

/// Offers `descriptors` (1 to kMaxDescriptorsPerKey) under `key` (at most kMaxDescriptorKeyBytes) until
/// withdraw_descriptors(key). Fails (internal) when the key is offered already. Does not start the service.
Status offer_descriptors(const std::string& key, std::vector<Fd> descriptors);
/// Returns what was offered.
std::vector<Fd> withdraw_descriptors(const std::string& key);
/// A duplicate of the first that is offered under `key`.
Result<Fd> duplicate_offered(const std::string& key);

enum class IfAbsent {
  fail,  ///< An unknown key is an error (internal).
  wait,  ///< Wait until it is offered.
};

/// One request to the process whose service is `service`. Single-threaded; what is under way ends with it.
class DescriptorFetch {
 public:
  DescriptorFetch(std::string_view service, std::string key, IfAbsent if_absent);
  const std::string& key() const { return key_; }
  /// Becomes readable with the answer; -1 until the request is out.
  int poll_fd() const { return asked_ ? socket_.get() : -1; }
  /// At most `timeout_ms`; 0: has it come? After a timeout it may be called again: the request goes on.
  Result<std::vector<Fd>> wait(int timeout_ms);

 private:
  Status connect();
  Status request();
  Result<std::vector<Fd>> receive();
  bool limit_connect();
  Status timed_out() const;

  std::string service_, word_, key_;  // The name that the service's socket has, and what else was told of it.
  IfAbsent if_absent_;
  Nanos deadline_ = 0;  // Of the wait under way.
  Fd socket_;
  bool asked_ = false;
};

/// Fetches the descriptors of `key` from the process whose service is `service`, at most `timeout_ms`. Blocks
/// until it answered, which waits for no operation of its owner. All that were offered, or an error:
/// peer_lost when the process is gone, timeout, unauthorized when it runs as another user, system when this
/// process has no numbers left for them, or that one no service (an empty name).
Result<std::vector<Fd>> fetch_descriptors(const std::string& service, std::string_view key,
                                          IfAbsent if_absent, int timeout_ms);

}  // namespace lockstep::internal
