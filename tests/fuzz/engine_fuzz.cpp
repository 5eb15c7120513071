// Frames on TCP links after a good handshake: an engine of three ranks, of which two say anything, in any
// pieces. Calls and messages end, and no memory but theirs is touched.
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/fuzz/hostile_rank.hpp"
#include "transports/tcp/limits.hpp"
#include "transports/tcp/striped_link.hpp"
#include "transports/tcp/tcp_link.hpp"

namespace lockstep::internal::fuzz {
namespace {

constexpr int kRanks = 3;

/// Links of one socket, or of two where `striped`. The peers' ends are this program's.
class HostileLinks final : public Transport {
 public:
  explicit HostileLinks(bool striped) : sockets_(striped ? 2 : 1) {}

  std::string_view name() const override { return "hostile"; }
  Result<Link*> link(int peer, Channel channel) override {
    End& end = ends_[{peer, channel}];
    if (end.link != nullptr) return end.link.get();
    std::vector<std::unique_ptr<TcpLink>> links;
    for (int i = 0; i < sockets_; ++i) {
      int pair[2];
      require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
      end.theirs.emplace_back(pair[1]);
      links.push_back(std::make_unique<TcpLink>(Fd(pair[0]), peer));
    }
    if (sockets_ == 1) {
      end.link = std::move(links.front());
    } else {
      end.link = std::move(*StripedLink::make(std::move(links), peer));
    }
    return end.link.get();
  }
  Status service() override { return {}; }
  Link* existing_link(int peer, Channel channel) override {
    const auto found = ends_.find({peer, channel});
    return found == ends_.end() ? nullptr : found->second.link.get();
  }
  void append_poll_entries(std::vector<pollfd>&) override {}
  Domain* domain() override { return nullptr; }
  void close() override {}

  void say(int peer, Channel channel, std::size_t socket, std::span<const std::byte> bytes) {
    static_cast<void>(link(peer, channel));
    std::byte heard[4096];  // So that this rank's own messages go on.
    Fd& theirs = ends_[{peer, channel}].theirs[socket % static_cast<std::size_t>(sockets_)];
    while (theirs && recv(theirs.get(), heard, sizeof heard, 0) > 0) continue;
    if (theirs) static_cast<void>(send(theirs.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void hang_up(int peer, Channel channel) {
    static_cast<void>(link(peer, channel));
    ends_[{peer, channel}].theirs.front() = Fd();
  }

 private:
  struct End {
    std::vector<Fd> theirs;
    std::unique_ptr<Link> link;
  };
  const int sockets_;
  std::map<std::pair<int, Channel>, End> ends_;
};

class Rank {
 public:
  explicit Rank(Input& input) : input_(input) {
    auto links = std::make_unique<HostileLinks>(input.below(4) == 1);
    links_ = links.get();
    rank_.emplace(kRanks, std::move(links));
  }

  void act() {
    switch (input_.below(8)) {
      case 0:
        return call();
      case 1:
        return message();
      case 2:
        return links_->say(peer(), channel(), input_.below(2), input_.bytes(input_.below(200)));
      case 3:
        return input_.below(16) == 1 ? links_->hang_up(peer(), channel())
                                     : rank_->step(kSecond / 16 * static_cast<Nanos>(input_.below(64)));
      default:
        say_frame();
        return rank_->step(0);
    }
  }

 private:
  int peer() { return 1 + static_cast<int>(input_.below(kRanks - 1)); }
  Channel channel() { return kEachChannel[input_.below(kChannels)]; }
  DataType type() { return static_cast<DataType>(input_.below(kDataTypeCount)); }
  std::byte* memory(std::uint64_t elements, DataType of) { return rank_->memory(elements * size_of(of)); }

  void call() {
    Call call;
    call.facts.collective =
        static_cast<Collective>(input_.below(static_cast<std::size_t>(Collective::barrier) + 1));
    call.facts.type = input_.flag() ? DataType::f32 : DataType::u8;
    call.facts.root = static_cast<std::int32_t>(input_.below(kRanks));
    call.facts.count =
        call.facts.collective == Collective::barrier ? 0 : std::uint64_t{1} << input_.below(17);
    const BufferElements elements = buffer_elements(call.facts, 0, kRanks);
    call.input_elements = elements.input;
    call.output_elements = elements.output;
    call.input = memory(elements.input, call.facts.type);
    call.output = memory(elements.output, call.facts.type);
    call.priority = static_cast<int>(input_.below(2));
    facts_ = call.facts;
    ++calls_;
    rank_->start(call);
  }

  void message() {
    Message message;
    message.is_send = input_.flag();
    message.count = input_.below(8) == 1 ? 100'000 : input_.below(64);
    message.type = type();
    message.buffer = memory(message.count, message.type);
    message.peer = message.is_send || input_.flag() ? peer() : kAnySource;
    message.tag = static_cast<int>(input_.below(3)) - (message.is_send ? 0 : 1);
    facts_.count = message.count;
    facts_.type = message.type;
    rank_->start(message);
  }

  /// One that may be right: of the last call, or with any fields; and as many bytes as it says, or not.
  void say_frame() {
    FrameHeader header;
    header.kind = static_cast<FrameKind>(input_.below(8));
    header.sequence = calls_ > 0 && input_.flag() ? calls_ - 1 : input_.number();
    header.index = static_cast<std::uint32_t>(input_.below(4));
    header.tag = static_cast<std::int32_t>(input_.below(3));
    header.facts = facts_;
    switch (input_.below(8)) {
      case 0:
        header.facts = input_.take<CallFacts>();
        break;
      case 1:
        header.facts.count = input_.number();
        header.facts.type = input_.take<DataType>();
        break;
      case 2:
        header.reserved = input_.number();
        break;
      default:
        break;
    }
    header.bytes = input_.flag() ? header.facts.count * size_of(header.facts.type) : input_.number();
    if (input_.below(4) == 1) header.bytes /= kRanks;
    std::vector<std::byte> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    if (header.kind == FrameKind::revoke && input_.flag()) {
      const auto reason = input_.bytes(input_.below(64));
      bytes.insert(bytes.end(), reason.begin(), reason.end());
    }
    const std::uint64_t payload =
        input_.below(4) == 1 ? input_.below(256) : std::min<std::uint64_t>(header.bytes, 100'000);
    if (header.kind == FrameKind::accept || header.kind == FrameKind::probe) {
      if (input_.flag()) header.bytes = 0;
    } else {
      bytes.resize(bytes.size() + payload, std::byte{7});
    }
    links_->say(peer(), channel(), input_.below(2), bytes);
  }

  Input& input_;
  HostileLinks* links_ = nullptr;
  std::optional<HostileRank> rank_;
  CallFacts facts_;
  std::uint64_t calls_ = 0;
};

}  // namespace

void run(Input input) {
  Rank rank(input);
  for (int actions = 0; !input.empty() && actions < 60; ++actions) rank.act();
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
