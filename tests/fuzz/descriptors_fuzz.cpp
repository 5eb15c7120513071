// Both ends of the descriptor service: clients that say anything, with any descriptors attached, after which
// the next one is served; and a service that answers anything, of which a fetch keeps no more than it was
// promised.
#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "lib/memory/descriptor_packet.hpp"
#include "lib/memory/limits.hpp"
#include "lib/net/abstract_socket.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

constexpr int kSoonMillis = 5'000;
constexpr std::size_t kMostAttached = 8;  ///< More than any answer has.

Fd new_socket() { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }
Fd bell() { return Fd(eventfd(0, EFD_CLOEXEC)); }

int descriptors_in_use() {
  DIR* folder = opendir("/proc/self/fd");
  require(folder != nullptr);
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

/// One packet with `attached` descriptors.
void say(const Fd& socket, std::string_view packet, std::size_t attached) {
  const Fd one = bell();
  std::array<int, kMostAttached> numbers;
  numbers.fill(one.get());
  iovec body{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof numbers)> control{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (attached > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(attached * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(attached * sizeof(int));
    std::memcpy(CMSG_DATA(part), numbers.data(), attached * sizeof(int));
  }
  static_cast<void>(sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

class Served {
 public:
  Served() {
    name_ = descriptor_service_name().value();
    std::vector<Fd> two;
    two.push_back(bell());
    two.push_back(bell());
    require(offer_descriptors("mine", std::move(two)).ok());
  }

  void hear(Input& input) {
    std::vector<Fd> clients;
    while (!input.empty()) {
      if (clients.empty() || input.below(4) == 1) {
        clients.push_back(new_socket());
        require(connect_abstract(clients.back(), decode_service_name(name_).socket));
      }
      const std::string said = input.flag() ? request(input) : std::string(input.text(input.below(200)));
      say(clients[input.below(clients.size())], said, input.below(4) == 1 ? input.below(kMostAttached) : 0);
    }
    clients.clear();
    auto fetched = fetch_descriptors(name_, "mine", IfAbsent::fail, kSoonMillis);
    require(fetched.ok() && fetched->size() == 2);
  }

 private:
  std::string request(Input& input) const {
    const std::string word = decode_service_name(name_).word;
    const std::string text =
        encode_request({input.flag() ? IfAbsent::fail : IfAbsent::wait, word,
                        input.flag() ? "mine" : std::string(input.text(input.below(8)))});
    return input.below(4) == 1 ? changed(text, input) : text;
  }

  std::string name_;
};

/// Another process's service, as far as a fetch can tell. It has answered and ended before
/// the fetch looks.
void answer(Input& input) {
  const std::string name = "lockstep-fuzzed-" + std::to_string(getpid());
  const Fd listener = new_socket();
  require(bind_abstract(listener, name) && listen(listener.get(), 1) == 0);
  const int before = descriptors_in_use();
  {
    DescriptorFetch fetch(name + "/" + std::string(kDescriptorWordBytes, '0'), "key",
                          input.flag() ? IfAbsent::fail : IfAbsent::wait);
    while (fetch.poll_fd() < 0) require(fetch.wait(0).status().code() == ErrorCode::timeout);
    std::size_t first = 0;  // What a good first answer hands over; the kernel drops what is too much.
    {
      const Fd asked(accept(listener.get(), nullptr, nullptr));
      char request[2 * kMaxDescriptorKeyBytes];  // Unread, its end would be a reset that hides the answers.
      require(recv(asked.get(), request, sizeof request, 0) > 0);
      for (bool is_first = true; !input.empty(); is_first = false) {
        const std::size_t attached = input.below(kMostAttached + 1);
        const auto told = static_cast<unsigned char>(input.flag() ? attached : input.number());
        if (is_first && told == std::min(attached, kMaxDescriptorsPerKey)) first = told;
        say(asked, std::string(1, static_cast<char>(told)) + std::string(input.text(input.below(4))),
            attached);
      }
    }
    const auto fetched = fetch.wait(kSoonMillis);
    require(fetched.ok() == (first > 0) && (!fetched.ok() || fetched.value().size() == first));
  }
  require(descriptors_in_use() <= before);  // Fewer: the service has dropped clients of an earlier run.
}

}  // namespace

void run(Input input) {
  static auto& served = *new Served;  // The serving thread may outlive what is static.
  input.flag() ? served.hear(input) : answer(input);
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
