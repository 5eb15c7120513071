// One rank of tcp_process_test: joins as its environment says, exchanges a message with every other rank over
// TCP, forks an idle child as a data loader would, and then says which peer it lost.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lib/bootstrap/session.hpp"
#include "transports/tcp/switchboard.hpp"
#include "transports/tcp/tcp_transport.hpp"

using namespace lockstep;
using namespace lockstep::internal;

namespace {

constexpr std::size_t kBytes = 1 << 20;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

[[noreturn]] void give_up(const Status& status) {
  say("error " + std::to_string(status.culprit()) + ": " + status.message());
  std::_Exit(1);
}

template <typename T>
T& check(Result<T>& result) {
  if (!result.ok()) give_up(result.status());
  return *result;
}

// What this rank and one peer still owe each other.
struct Exchange {
  int peer;
  std::vector<std::byte> out, in;
  SendCursor cursor;
  bool sent = false;
  bool received = false;
  std::size_t have = 0;
};

void step(Exchange& exchange, Link& link) {
  if (!exchange.sent) {
    FrameHeader header;
    header.bytes = kBytes;
    auto sent = link.send(header, exchange.out, exchange.cursor);
    exchange.sent = check(sent);
  }
  auto head = link.peek();
  if (check(head) == nullptr || exchange.received) return;
  auto got = link.read(std::span(exchange.in).subspan(exchange.have));
  exchange.have += check(got);
  if (exchange.have < kBytes) return;
  link.pop();
  exchange.received = true;
}

void exchange_with_all(Transport& transport, int rank, int size) {
  std::vector<Exchange> all;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    all.push_back({peer, std::vector(kBytes, std::byte(rank)), std::vector<std::byte>(kBytes), {}});
  }
  const auto open = [](const Exchange& e) { return !e.sent || !e.received; };
  while (std::any_of(all.begin(), all.end(), open)) {
    for (Exchange& exchange : all) {
      auto link = transport.link(exchange.peer, Channel::collective);
      if (check(link) != nullptr && open(exchange)) step(exchange, **link);
    }
  }
  for (const Exchange& exchange : all) {
    const bool right = exchange.in == std::vector(kBytes, std::byte(exchange.peer));
    if (!right) say("wrong data from " + std::to_string(exchange.peer));
  }
}

void await_end_of_input() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

// Outlives its parent: had it kept a connection open, nobody would notice the parent's death.
void fork_idle_child() {
  if (fork() != 0) return;
  await_end_of_input();
  std::_Exit(0);
}

Status await_loss(Transport& transport, int rank, int size) {
  for (;;) {
    std::vector<pollfd> entries;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      Link* link = transport.existing_link(peer, Channel::collective);
      auto head = link->peek();
      if (!head.ok()) return head.status();
      entries.push_back(link->poll_entry());
    }
    poll(entries.data(), entries.size(), -1);
  }
}

}  // namespace

int main() {
  auto session = join_session({}, real_env());
  Session& joined = *check(session);
  auto board = Switchboard::make(joined, real_env(), std::chrono::seconds(60));
  std::vector<int> ranks;
  for (int rank = 0; rank < joined.size(); ++rank) ranks.push_back(rank);
  auto transport = make_tcp_transport(1, joined.rank(), ranks, *check(board));
  exchange_with_all(*check(transport), joined.rank(), joined.size());
  fork_idle_child();
  say("exchanged");
  const Status loss = await_loss(**transport, joined.rank(), joined.size());
  say("lost " + std::to_string(loss.culprit()) + ": " + loss.message());
  await_end_of_input();  // Not to be lost itself before the others spoke.
}
