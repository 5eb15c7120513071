// The descriptor service and processes of another container: its user may have the number of this one.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "lib/memory/descriptor_service.hpp"

namespace lockstep::internal {
namespace {

constexpr const char* kKey = "test/memory";
constexpr int kPatienceMs = 20'000;

/// Offers a descriptor, says its service's name once that can be fetched from here, and lives until `until`
/// is closed.
[[noreturn]] void serve(int say, int until) {
  std::vector<Fd> offered;
  offered.emplace_back(::eventfd(0, EFD_CLOEXEC));
  auto name = descriptor_service_name();
  const bool served = name.ok() && offer_descriptors(kKey, std::move(offered)).ok() &&
                      fetch_descriptors(*name, kKey, IfAbsent::fail, kPatienceMs).ok();
  if (served) (void)!::write(say, name->data(), name->size());
  ::close(say);
  char end = 0;
  (void)!::read(until, &end, 1);
  ::_exit(0);
}

/// Runs serve() in a process namespace of its own, where that may be made.
[[noreturn]] void serve_apart(int say, int until) {
  if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(0);
  const pid_t server = ::fork();  // The first process in there.
  if (server == 0) serve(say, until);
  ::close(say);
  ::waitpid(server, nullptr, 0);
  ::_exit(0);
}

TEST(DescriptorService, AnswersNobodyOutsideItsProcessNamespace) {
  std::array<int, 2> said{}, until{};
  ASSERT_EQ(::pipe(said.data()), 0);
  ASSERT_EQ(::pipe(until.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(until[1]);
    serve_apart(said[1], until[0]);
  }
  ::close(said[1]);
  std::array<char, 128> name{};
  const ssize_t bytes = ::read(said[0], name.data(), name.size());
  Status status;
  if (bytes > 0) {
    const std::string service(name.data(), static_cast<std::size_t>(bytes));
    status = fetch_descriptors(service, kKey, IfAbsent::fail, kPatienceMs).status();
  }
  ::close(until[1]);
  ::waitpid(child, nullptr, 0);
  if (bytes <= 0) GTEST_SKIP() << "no process namespace may be made here";
  EXPECT_EQ(status.code(), ErrorCode::peer_lost) << status.message();
}

}  // namespace
}  // namespace lockstep::internal
