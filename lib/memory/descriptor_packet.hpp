// The packets of the descriptor service: a request is one byte (IfAbsent), the service's word and the key, an
// answer one byte, the number of descriptors, with these attached.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// A service's name, as its process tells it to peers: that of its socket, which every process of the host's
/// network can read, and a word of kDescriptorWordBytes, which only those know who were told.
struct ServiceName {
  std::string socket, word;  ///< Without a socket there is none, and the word says why.
};
std::string encode(const ServiceName& name);
ServiceName decode_service_name(std::string_view text);

struct DescriptorRequest {
  IfAbsent if_absent = IfAbsent::fail;
  std::string word, key;
};

std::string encode_request(const DescriptorRequest& request);
/// Refuses (internal) whatever is not a request: the bytes come from another process.
Result<DescriptorRequest> decode_request(std::string_view packet);

/// Sends an answer without blocking; no descriptors = "no such key". False, with the reason in
/// errno, when the peer is gone or descriptors cannot be sent now.
bool send_answer(const Fd& socket, std::span<const Fd> descriptors);

struct DescriptorAnswer {
  /// errno of a failed receive; the rest is void then. EMFILE: this process has no numbers left for what
  /// came.
  int error_number = 0;
  bool closed = false;  ///< The peer closed instead of answering.
  std::vector<Fd> descriptors;
};
/// Receives an answer; waits as the socket's SO_RCVTIMEO says.
DescriptorAnswer receive_answer(const Fd& socket);

/// Ok when the process at the other end of a connected Unix socket runs as this user, and can be seen in this
/// process namespace.
Status check_same_user(const Fd& socket);

}  // namespace lockstep::internal
