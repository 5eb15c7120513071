// Which RDMA device and which of its addresses is taken, and what of it is used, over a library that stands
// in for libibverbs.
#include "transports/verbs/verbs_device.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <mutex>

#include "tests/support/scoped_variable.hpp"
#include "tests/transports/verbs_ranks.hpp"
#include "transports/verbs/limits.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

using testing::ScopedVariable;

// Known by their addresses alone.
ibv_device devices[3];
ibv_context contexts[3];
ibv_pd domain;
ibv_qp pair{};
ibv_mr region;
ibv_comp_channel events{.context = nullptr, .fd = -1, .refcnt = 0};
ibv_srq receives;

struct Queue {
  ibv_cq handle{};
  std::deque<ibv_wc> completions;
};

struct Machine {
  bool opens[3] = {true, true, true};
  bool answers[3] = {true, true, true};
  bool active[3] = {true, true, true};
  std::uint32_t most_inline = 1024;
  std::uint8_t flags = 0;
  int open = 0;
  bool ethernet = false, registers = true;
  int work_requests = 1 << 20;
  std::vector<ibv_gid_entry> gids{2};
  std::deque<Queue> queues;  // In the order in which they were made.
  int receives_posted = 0;
  std::vector<ibv_qp_attr> changes;  // Of queue pairs.
};
Machine machine;

/// What the header calls directly.
void add_queues(ibv_context_ops& driver) {
  driver.poll_cq = [](ibv_cq* queue, int most, ibv_wc* into) {
    for (Queue& one : machine.queues) {
      if (&one.handle != queue) continue;
      const int count = std::min(most, static_cast<int>(one.completions.size()));
      std::copy_n(one.completions.begin(), count, into);
      one.completions.erase(one.completions.begin(), one.completions.begin() + count);
      return count;
    }
    return 0;
  };
  driver.post_srq_recv = [](ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) {
    ++machine.receives_posted;
    return 0;
  };
  driver.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; };
}

std::ptrdiff_t number_of(const ibv_context* context) { return context - contexts; }

VerbsLibrary library() {
  VerbsLibrary table{};
  table.get_device_list = [](int* count) {
    static ibv_device* list[] = {&devices[0], &devices[1], &devices[2], nullptr};
    *count = 3;
    return list;
  };
  table.free_device_list = [](ibv_device**) {};
  table.get_device_name = [](ibv_device* device) -> const char* {
    static constexpr const char* kNames[] = {"rdma0", "rdma1", "rdma2"};
    return kNames[device - devices];
  };
  table.open_device = [](ibv_device* device) -> ibv_context* {
    const auto number = device - devices;
    errno = EACCES;
    if (!machine.opens[number]) return nullptr;
    ++machine.open;
    return &contexts[number];
  };
  table.close_device = [](ibv_context*) { return --machine.open, 0; };
  table.query_device = [](ibv_context* context, ibv_device_attr* attributes) {
    if (!machine.answers[number_of(context)]) return EIO;
    attributes->phys_port_cnt = 1;
    attributes->max_qp = attributes->max_srq_wr = attributes->max_cqe = 1 << 20;
    attributes->max_qp_wr = machine.work_requests;
    return 0;
  };
  table.query_port = [](ibv_context* context, std::uint8_t, ibv_port_attr* port) {
    port->state = machine.active[number_of(context)] ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    port->gid_tbl_len = static_cast<int>(machine.gids.size());
    port->link_layer = machine.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    port->active_mtu = IBV_MTU_2048;
    port->flags = machine.flags;
    port->max_msg_sz = 1 << 30;
    port->lid = static_cast<std::uint16_t>(number_of(context));
    return 0;
  };
  table.query_gid_ex = [](ibv_context*, std::uint32_t, std::uint32_t number, ibv_gid_entry* entry,
                          std::uint32_t, std::size_t) {
    *entry = machine.gids[number];
    return 0;
  };
  table.alloc_pd = [](ibv_context*) { return &domain; };
  table.dealloc_pd = [](ibv_pd*) { return 0; };
  table.reg_mr = [](ibv_pd*, void*, std::size_t, int) {
    errno = ENOMEM;
    return machine.registers ? &region : nullptr;
  };
  table.dereg_mr = [](ibv_mr*) { return 0; };
  table.create_comp_channel = [](ibv_context*) { return &events; };
  table.destroy_comp_channel = [](ibv_comp_channel*) { return 0; };
  table.create_cq = [](ibv_context* context, int, void*, ibv_comp_channel*, int) {
    static std::mutex mutex;  // Ranks make theirs at once.
    const std::lock_guard lock(mutex);
    Queue& made = machine.queues.emplace_back();
    add_queues(context->ops);
    made.handle.context = receives.context = pair.context = context;
    return &made.handle;
  };
  table.destroy_cq = [](ibv_cq*) { return 0; };
  table.create_srq = [](ibv_pd*, ibv_srq_init_attr*) { return &receives; };
  table.destroy_srq = [](ibv_srq*) { return 0; };
  table.create_qp = [](ibv_pd*, ibv_qp_init_attr* wanted) -> ibv_qp* {
    errno = EINVAL;
    if (wanted->cap.max_inline_data > machine.most_inline) return nullptr;
    wanted->cap.max_inline_data = machine.most_inline;
    return &pair;
  };
  table.modify_qp = [](ibv_qp*, ibv_qp_attr* attributes, int) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    machine.changes.push_back(*attributes);
    return 0;
  };
  table.wc_status_str = [](ibv_wc_status) { return "retries exceeded"; };
  table.destroy_qp = [](ibv_qp*) { return 0; };
  return table;
}

class VerbsDevices : public ::testing::Test {
 protected:
  ~VerbsDevices() override { machine = Machine(); }
  /// The number of the one that is taken.
  int taken() {
    const auto device = VerbsDevice::open(library_, 0);
    EXPECT_TRUE(device.ok()) << device.status().message();
    EXPECT_EQ(machine.open, 1) << "all others are closed";
    return device.ok() ? device.value()->address().lid : -1;
  }
  Status refused() {
    const auto device = VerbsDevice::open(library_, 0);
    EXPECT_FALSE(device.ok());
    EXPECT_EQ(machine.open, 0);
    return device.status();
  }
  const VerbsLibrary library_ = library();
};

TEST_F(VerbsDevices, OneThatCannotBeUsedDoesNotHideOthers) {
  EXPECT_EQ(taken(), 0);
  machine.opens[0] = false;
  EXPECT_EQ(taken(), 1);
  machine.answers[1] = false;
  EXPECT_EQ(taken(), 2);
  machine.active[2] = false;
  const Status status = refused();
  EXPECT_EQ(status.message().find("RDMA device rdma0: opening it"), 0u) << status.message();
}

TEST_F(VerbsDevices, TheOneThatIsNamedIsTakenOrNone) {
  const ScopedVariable name("LOCKSTEP_VERBS_DEVICE", "rdma1");
  EXPECT_EQ(taken(), 1);
  machine.answers[1] = false;
  EXPECT_EQ(refused().message().find("RDMA device rdma1: asking what it can do"), 0u);
  machine.answers[1] = true;
  machine.active[1] = false;
  EXPECT_EQ(refused().message().find("RDMA device rdma1 has no active port; this machine has"), 0u)
      << refused().message();
  const ScopedVariable nobody("LOCKSTEP_VERBS_DEVICE", "rdma7");
  EXPECT_EQ(refused().message().find("no RDMA device is called rdma7; this machine has rdma0, rdma1, rdma2"),
            0u)
      << refused().message();
}

TEST_F(VerbsDevices, OneThatTakesFewBytesInARequestIsUsedAllTheSame) {
  auto device = VerbsDevice::open(library_, 0);
  ASSERT_TRUE(device.ok()) << device.status().message();
  for (const std::uint32_t most : {1024u, 96u, 64u, 0u}) {
    machine.most_inline = most;
    auto made = VerbsQueuePair::make(*device, 1, nullptr, nullptr, 0, QueueSizes{});
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ((*made)->inline_bytes(), most == 1024 ? 128u : most == 96 ? 96u : 0u);
  }
}

TEST_F(VerbsDevices, OneWhosePortWantsItIsReachedByItsGid) {
  EXPECT_EQ(VerbsDevice::open(library_, 0).value()->address().routed, 0);
  machine.flags = IBV_QPF_GRH_REQUIRED;
  EXPECT_EQ(VerbsDevice::open(library_, 0).value()->address().routed, 1);
}

TEST_F(VerbsDevices, AnAddressThatIsInNoTableIsNamed) {
  const ScopedVariable index("LOCKSTEP_VERBS_GID_INDEX", "7");
  const Status status = refused();
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_NE(status.message().find("with address number 7 in its table (LOCKSTEP_VERBS_GID_INDEX)"),
            std::string::npos)
      << status.message();
}

TEST_F(VerbsDevices, RanksTakeTheNamedInTurn) {
  const ScopedVariable names("LOCKSTEP_VERBS_DEVICE", "rdma0,rdma2");
  for (const int rank : {0, 1, 2, 3})
    EXPECT_EQ(VerbsDevice::open(library_, rank).value()->address().lid, rank % 2 == 0 ? 0 : 2);
}

ibv_gid_entry gid(std::uint32_t type, bool v4, std::uint8_t last) {
  ibv_gid_entry entry{};
  entry.gid_type = type;
  if (v4) entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
  entry.gid.raw[15] = last;
  return entry;
}

TEST_F(VerbsDevices, OnEthernetAnAddressIsTakenThatRoutersKnow) {
  machine.ethernet = true;
  const auto taken_of = [&](const std::vector<ibv_gid_entry>& gids) {
    machine.gids = gids;
    return int{VerbsDevice::open(library_, 0).value()->address().gid[15]};
  };
  const auto first = gid(IBV_GID_TYPE_ROCE_V1, true, 1), local = gid(IBV_GID_TYPE_ROCE_V2, false, 2),
             routed = gid(IBV_GID_TYPE_ROCE_V2, true, 3);
  EXPECT_EQ(taken_of({first, local, routed}), 3);
  EXPECT_EQ(taken_of({first, routed, local}), 3);
  EXPECT_EQ(taken_of({first, local}), 2);
  EXPECT_EQ(taken_of({first}), 1);
}

TEST_F(VerbsDevices, ARankOffersWhatReachesOthersAndWhatItMayUse) {
  const auto offer = [&] { return verbs_offer(*VerbsDevice::open(library_, 0).value(), 2); };
  machine.gids[0].gid.raw[0] = 0xfe;
  EXPECT_EQ(offer(), "infiniband fe00000000000000");
  machine.ethernet = true;
  EXPECT_EQ(offer(), "roce");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit few{std::min<rlim_t>(before.rlim_max, 64 << 10), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &few), 0);
  EXPECT_EQ(offer(), "roce") << "the limit may not count for it";
  machine.registers = false;
  EXPECT_EQ(offer(), "");
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  machine.registers = true;
  machine.work_requests = 1;
  EXPECT_EQ(offer(), "");
}

TEST_F(VerbsDevices, AConnectionIsMadeAsBothEndsCanHaveIt) {
  auto device = VerbsDevice::open(library_, 0);
  ASSERT_TRUE(device.ok()) << device.status().message();
  auto made = VerbsQueuePair::make(*device, 1, nullptr, nullptr, 0xff000001, QueueSizes{});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->address().first_packet, 1u) << "devices have 24 bits for it";
  QueuePairAddress peer;
  peer.port.mtu = IBV_MTU_1024;
  peer.port.gid[15] = 9;
  for (const bool routed : {false, true}) {
    machine.changes.clear();
    peer.port.routed = routed ? 1 : 0;
    ASSERT_TRUE((*made)->connect(peer).ok());
    ASSERT_EQ(machine.changes.size(), 2u);
    EXPECT_EQ(machine.changes[0].path_mtu, IBV_MTU_1024);
    EXPECT_EQ(machine.changes[0].ah_attr.is_global, routed);
    EXPECT_EQ(machine.changes[0].ah_attr.grh.dgid.raw[15], routed ? 9 : 0);
    EXPECT_EQ(machine.changes[1].sq_psn, 1u);
  }
}

/// Two ranks, and a wire from the first to the second.
class VerbsFabrics : public VerbsDevices {
 protected:
  void complete(ibv_wc_opcode opcode, ibv_wc_status status = IBV_WC_SUCCESS,
                Channel channel = Channel::collective) {
    ibv_wc one{};
    one.opcode = opcode;
    one.status = status;
    one.imm_data = htonl(static_cast<std::uint32_t>(channel));
    for (Queue& queue : machine.queues) queue.completions.assign(1, one);
    fabric_.progress();
  }

  const std::shared_ptr<VerbsDevice> device_ = VerbsDevice::open(library_, 0).value();
  testing::VerbsRanks ranks_{device_, 2};
  const std::unique_ptr<Wire> wire_ = ranks_.wire(0, 1);
  VerbsFabric& fabric_ = *ranks_.fabrics[0];
};

// It would count for a landing that is not filled, or that is not there.
TEST_F(VerbsFabrics, AWriteThatFillsNoLandingEndsTheConnection) {
  Landing landing;
  ASSERT_TRUE(wire_->open_landing(*fabric_.bounce_memory(64), false, landing).ok());
  const int posted = machine.receives_posted;
  complete(IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wire_->landed(), 1u);
  EXPECT_TRUE(wire_->failure().ok()) << wire_->failure().message();
  EXPECT_EQ(machine.receives_posted, posted + 1) << "for the next";
  complete(IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wire_->landed(), 1u);
  EXPECT_EQ(wire_->failure().code(), ErrorCode::internal);
  EXPECT_EQ(wire_->failure().culprit(), 1);
  EXPECT_NE(wire_->failure().message().find("rank 1 sent more"), std::string::npos);
}

// The receives are those of all peers.
TEST_F(VerbsFabrics, MoreMessagesThanMayLieUnreadEndTheConnection) {
  for (std::uint32_t i = 0; i < kReceivesOfChannel; ++i) complete(IBV_WC_RECV);
  wire_->release(wire_->next().value());
  complete(IBV_WC_RECV);
  EXPECT_TRUE(wire_->failure().ok()) << wire_->failure().message();
  const int posted = machine.receives_posted;
  complete(IBV_WC_RECV);
  EXPECT_NE(wire_->failure().message().find("rank 1 sent more than it may"), std::string::npos);
  EXPECT_EQ(machine.receives_posted, posted + 1) << "for others";
}

TEST_F(VerbsFabrics, AMessageIsACallWhereThereIsNoWire) {
  complete(IBV_WC_RECV);
  EXPECT_FALSE(fabric_.caller());
  EXPECT_TRUE(wire_->next());
  complete(IBV_WC_RECV, IBV_WC_SUCCESS, Channel::urgent);
  EXPECT_EQ(fabric_.caller(), (std::pair(1, Channel::urgent)));
}

// Whatever it says that it was.
TEST_F(VerbsFabrics, ARequestThatFailedEndsTheConnectionForTheFirstReason) {
  const std::byte text[3] = {};
  ASSERT_TRUE(wire_->send(text, {}).value());
  EXPECT_FALSE(fabric_.flushed());
  complete(IBV_WC_RECV, IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(wire_->next());
  EXPECT_EQ(wire_->failure().code(), ErrorCode::peer_lost);
  EXPECT_NE(wire_->failure().message().find("rank 1 is gone: RDMA says: retries exceeded"), std::string::npos)
      << wire_->failure().message();
  EXPECT_TRUE(fabric_.flushed()) << "nothing is under way any more";
  EXPECT_EQ(machine.changes.back().qp_state, IBV_QPS_ERR);
  wire_->cut(Status(ErrorCode::internal, "a later one"));
  EXPECT_EQ(wire_->failure().code(), ErrorCode::peer_lost);
  EXPECT_FALSE(wire_->send(text, {}).ok());
}

}  // namespace
}  // namespace lockstep::internal
