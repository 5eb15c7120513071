// The descriptor service: answers, waits, deadlines, and what strangers send.
#include "lib/memory/descriptor_service.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "lib/memory/descriptor_packet.hpp"
#include "lib/memory/limits.hpp"
#include "lib/net/abstract_socket.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {
namespace {

std::vector<Fd> bells(int count) {
  std::vector<Fd> fds;
  for (int i = 0; i < count; ++i) fds.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return fds;
}

std::string service() {
  auto name = descriptor_service_name();
  EXPECT_TRUE(name.ok()) << name.status().message();
  return *name;
}

TEST(DescriptorService, HandsOverAllDescriptorsOfAKey) {
  std::vector<Fd> offered = bells(kMaxDescriptorsPerKey);
  const int last = offered.back().get();
  EXPECT_TRUE(offer_descriptors("test/four", std::move(offered)).ok());
  EXPECT_FALSE(offer_descriptors("test/four", bells(1)).ok());
  auto fetched = fetch_descriptors(service(), "test/four", IfAbsent::fail, 5000);
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  ASSERT_EQ(fetched->size(), kMaxDescriptorsPerKey);
  std::uint64_t rung = 3;
  ASSERT_EQ(::write(fetched->back().get(), &rung, sizeof rung), 8);
  rung = 0;
  ASSERT_EQ(::read(last, &rung, sizeof rung), 8);
  EXPECT_EQ(rung, 3u);
  withdraw_descriptors("test/four");
  EXPECT_FALSE(fetch_descriptors(service(), "test/four", IfAbsent::fail, 5000).ok());
}

/// Descriptors that lie in a socket, until it is read or closed, as many as the kernel lets this user have
/// there.
class DescriptorsOnTheirWay {
 public:
  DescriptorsOnTheirWay() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_.data()), 0);
    const std::vector<Fd> bell = bells(1);
    std::vector<Fd> copies;
    while (copies.size() < kMaxDescriptorsPerKey) copies.emplace_back(dup(bell.front().get()));
    const Fd to(dup(ends_[0]));
    while (send_answer(to, copies)) {
    }
    why_ = errno;
  }
  ~DescriptorsOnTheirWay() {
    for (const int end : ends_) close(end);
  }
  int why_no_more() const { return why_; }

 private:
  std::array<int, 2> ends_{-1, -1};
  int why_ = 0;
};

/// In a process of a user without privileges, who has few.
void expect_a_fetch_to_wait_for_room() {
  if (geteuid() == 0 && setuid(65534) != 0) std::_Exit(2);
  const rlimit few{64, 64};
  setrlimit(RLIMIT_NOFILE, &few);
  EXPECT_TRUE(offer_descriptors("test/full", bells(1)).ok());
  DescriptorFetch fetch(service(), "test/full", IfAbsent::fail);
  {
    const DescriptorsOnTheirWay many;
    if (many.why_no_more() != ETOOMANYREFS) std::_Exit(0);  // Not on this kernel.
    const auto early = fetch.wait(200);
    EXPECT_EQ(early.status().code(), ErrorCode::timeout) << early.status().message();
  }
  const auto fetched = fetch.wait(20'000);
  EXPECT_TRUE(fetched.ok()) << fetched.status().message();
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(DescriptorServiceDeathTest, WaitsWhereTooManyDescriptorsAreOnTheirWay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // A process of its own.
  EXPECT_EXIT(expect_a_fetch_to_wait_for_room(), ::testing::ExitedWithCode(0), "");
}

TEST(DescriptorService, WaitsForAnOffer) {
  std::thread offerer([] {
    // Asked for already or not yet: either way the fetch ends with the offer.
    EXPECT_EQ(fetch_descriptors(service(), "test/never", IfAbsent::wait, 50).status().code(),
              ErrorCode::timeout);
    EXPECT_TRUE(offer_descriptors("test/late", bells(1)).ok());
  });
  auto fetched = fetch_descriptors(service(), "test/late", IfAbsent::wait, 20'000);
  EXPECT_TRUE(fetched.ok()) << fetched.status().message();
  offerer.join();
  withdraw_descriptors("test/late");
}

TEST(DescriptorService, OneThatGivesUpLeavesTheOthersWaiting) {
  DescriptorFetch stays(service(), "test/two", IfAbsent::wait);
  {
    DescriptorFetch gives_up(service(), "test/two", IfAbsent::wait);
    for (DescriptorFetch* fetch : {&stays, &gives_up})
      EXPECT_EQ(fetch->wait(1).status().code(), ErrorCode::timeout);
  }
  // The service has heard of it when it answers who comes later.
  EXPECT_FALSE(fetch_descriptors(service(), "test/absent", IfAbsent::fail, 20'000).ok());
  EXPECT_TRUE(offer_descriptors("test/two", bells(1)).ok());
  EXPECT_TRUE(stays.wait(20'000).ok());
  withdraw_descriptors("test/two");
}

/// Two processes whose operations are stepped by their reactors fetch each other's memory there.
TEST(DescriptorService, AnswersWhileItsProcesssReactorWaits) {
  EXPECT_TRUE(offer_descriptors("test/busy", bells(1)).ok());
  const std::string name = service();
  Reactor::instance().run_there([&] {
    auto fetched = fetch_descriptors(name, "test/busy", IfAbsent::fail, 5000);
    EXPECT_TRUE(fetched.ok()) << fetched.status().message();
  });
  withdraw_descriptors("test/busy");
}

TEST(DescriptorService, ErrorsNameWhatIsMissing) {
  const Status absent = fetch_descriptors(service(), "test/absent", IfAbsent::fail, 5000).status();
  EXPECT_NE(absent.message().find("does not offer \"test/absent\""), std::string::npos) << absent.message();
  const Status nobody = fetch_descriptors("lockstep-nobody", "key", IfAbsent::wait, 5000).status();
  EXPECT_EQ(nobody.code(), ErrorCode::peer_lost);
  EXPECT_NE(nobody.message().find("lockstep-nobody is gone"), std::string::npos) << nobody.message();
  const Status without = fetch_descriptors("", "key", IfAbsent::wait, 5000).status();
  EXPECT_EQ(without.code(), ErrorCode::system);
  EXPECT_NE(without.message().find("LOCKSTEP_TRANSPORTS=tcp"), std::string::npos) << without.message();
}

/// A connection of a client that does not keep to the protocol.
Fd stranger(const std::string& service) {
  const std::string name = decode_service_name(service).socket;
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(connect_abstract(socket, name));
  return socket;
}

// The name of its socket is in /proc/net/unix, and a container's user may be this one.
TEST(DescriptorService, AnswersWhomItsNameWasTold) {
  EXPECT_TRUE(offer_descriptors("test/told", bells(1)).ok());
  const ServiceName name = decode_service_name(service());
  for (const std::string& word : {std::string(), std::string(kDescriptorWordBytes, '0')}) {
    for (const IfAbsent if_absent : {IfAbsent::fail, IfAbsent::wait})
      EXPECT_FALSE(
          fetch_descriptors(encode(ServiceName{name.socket, word}), "test/told", if_absent, 20'000).ok());
  }
  const Status absent = fetch_descriptors(service(), "test/absent", IfAbsent::fail, 20'000).status();
  EXPECT_EQ(absent.message().find(name.word), std::string::npos) << "errors are shown to others";
  EXPECT_TRUE(fetch_descriptors(service(), "test/told", IfAbsent::fail, 20'000).ok());
  withdraw_descriptors("test/told");
}

TEST(DescriptorService, DropsWhoDoesNotKeepToTheProtocol) {
  const std::string word = decode_service_name(service()).word, too_long(1 + kMaxDescriptorKeyBytes, 'k');
  for (const std::string& packet : {"\7" + word + "key", "\1" + word, "\1" + word + too_long}) {
    const Fd socket = stranger(service());
    ASSERT_EQ(::send(socket.get(), packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    char answer = 0;
    EXPECT_EQ(::recv(socket.get(), &answer, 1, 0), 0);
  }
  {
    const Fd asks_twice = stranger(service());
    const std::string packet = encode_request({IfAbsent::wait, word, "key"});
    for (int time = 0; time < 2; ++time)
      ASSERT_EQ(::send(asks_twice.get(), packet.data(), packet.size(), 0), std::ssize(packet));
    pollfd entry{asks_twice.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 20'000), 1);
    char answer = 0;
    EXPECT_EQ(::recv(asks_twice.get(), &answer, 1, 0), 0);
  }
  { const Fd hangs_up = stranger(service()); }
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < kMaxDescriptorClients + 8; ++i) silent.push_back(stranger(service()));
  char answer = 0;
  EXPECT_EQ(::recv(silent.front().get(), &answer, 1, 0), 0);  // The oldest had to make room.
  EXPECT_TRUE(offer_descriptors("test/still", bells(1)).ok());
  EXPECT_TRUE(fetch_descriptors(service(), "test/still", IfAbsent::fail, 5000).ok());
  withdraw_descriptors("test/still");
}

}  // namespace
}  // namespace lockstep::internal
