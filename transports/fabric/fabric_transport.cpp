#include "transports/fabric/fabric_transport.hpp"

#include <sched.h>

#include <new>

#include "lib/net/fd.hpp"
#include "transports/fabric/fabric_link.hpp"

namespace lockstep::internal {
namespace {

class FabricTransport final : public Transport {
 public:
  FabricTransport(std::unique_ptr<FabricDriver> driver, int size, Env& env, PayloadMemory payloads)
      : driver_(std::move(driver)),
        env_(env),
        payloads_(payloads),
        links_(static_cast<std::size_t>(size) * kChannels) {}
  ~FabricTransport() override;

  std::string_view name() const override { return driver_->fabric().name(); }
  Result<Link*> link(int peer, Channel channel) override;
  Status service() override;
  Link* existing_link(int peer, Channel channel) override { return slot(peer, channel).get(); }
  void append_poll_entries(std::vector<pollfd>& entries) override { driver_->append_poll_entries(entries); }
  Domain* domain() override { return nullptr; }
  void close() override;
  bool streams() const override { return false; }
  bool withdraw(int peer, bool force) override;
  bool unfinished() override { return driver_->fabric().connecting() || links_unfinished(); }

 private:
  Result<Link*> make_link(int peer, Channel channel);
  Status answer_callers();
  bool links_unfinished();
  std::unique_ptr<FabricLink>& slot(int peer, Channel channel) {
    return links_[static_cast<std::size_t>(peer) * kChannels + static_cast<std::size_t>(channel)];
  }

  const std::unique_ptr<FabricDriver> driver_;
  Env& env_;
  const PayloadMemory payloads_;
  std::vector<std::unique_ptr<FabricLink>> links_;
  bool closed_ = false;
};

FabricTransport::~FabricTransport() {
  if (!in_forked_child()) return;
  // What the fabric shares with the parent must stay as it is.
  for (auto& link : links_) static_cast<void>(link.release());
  driver_->abandon();
}

// The peer hears of a link by which nothing is sent, so that it can say there that it leaves.
Result<Link*> FabricTransport::link(int peer, Channel channel) {
  if (const auto& known = slot(peer, channel)) return known.get();
  auto made = make_link(peer, channel);
  if (made.ok() && *made != nullptr) slot(peer, channel)->greet();
  return made;
}

Result<Link*> FabricTransport::make_link(int peer, Channel channel) {
  auto wire = driver_->fabric().wire(peer, channel);
  if (!wire.ok()) return wire.status();
  if (*wire == nullptr) return nullptr;
  auto& link = slot(peer, channel);
  link = std::make_unique<FabricLink>(*driver_, std::move(*wire), peer, payloads_);
  return link.get();
}

Status FabricTransport::answer_callers() {
  driver_->progress();
  Status first;  // One that cannot be answered keeps nobody else waiting.
  while (const auto caller = driver_->fabric().caller()) {
    auto made = make_link(caller->first, caller->second);
    if (!made.ok() && first.ok()) first = made.status();
    if (made.ok() && *made == nullptr) break;
  }
  return first;
}

// The last look before a sleep: after it the descriptor tells of everything new.
Status FabricTransport::service() {
  driver_->fabric().look_for_leavers();
  const Status first = answer_callers();
  for (auto& link : links_) {
    if (link) link->pump();
  }
  driver_->arm();
  return first;
}

void FabricTransport::close() {
  if (closed_ || in_forked_child()) return;
  closed_ = true;
  try {
    static_cast<void>(answer_callers());
  } catch (const std::bad_alloc&) {  // They hear of it by their deadline.
  }
  for (auto& link : links_) {
    if (link) link->say_farewell();
  }
  const Nanos end = env_.now() + kLinger;
  while ((links_unfinished() || !driver_->fabric().flushed()) && env_.now() < end) {
    if (!driver_->progress()) sched_yield();
  }
  driver_->fabric().close();
}

bool FabricTransport::withdraw(int peer, bool force) {
  bool free = true;
  for (const Channel channel : kEachChannel) {
    if (auto& link = slot(peer, channel)) free &= link->withdraw(force);
  }
  return free;
}

bool FabricTransport::links_unfinished() {
  for (auto& link : links_) {
    if (link && link->unfinished()) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_fabric_transport(std::unique_ptr<Fabric> fabric, int size, Env& env,
                                                         PayloadMemory payloads) {
  auto driver = FabricDriver::make(std::move(fabric));
  if (!driver.ok()) return driver.status();
  return std::unique_ptr<Transport>(
      std::make_unique<FabricTransport>(std::move(*driver), size, env, payloads));
}

}  // namespace lockstep::internal
