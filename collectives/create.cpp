// How communicators come to be: from the environment, or all ranks in one process.
#include <new>

#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "collectives/make_transport.hpp"
#include "collectives/network_probe.hpp"
#include "collectives/select/names.hpp"
#include "lib/base/config.hpp"
#include "lib/base/hash.hpp"
#include "lib/base/threads.hpp"
#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/local_session.hpp"
#include "lib/bootstrap/loss_watch.hpp"
#include "lockstep/communicator.hpp"
#include "transports/tcp/switchboard.hpp"

namespace lockstep {
namespace {

using internal::CommunicatorCore;
using internal::Status;
using internal::World;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  return ranks;
}

/// What is thrown for lack of memory or threads is an error like others: the ranks that wait hear of it.
internal::Result<std::shared_ptr<CommunicatorCore>> set_up(const std::shared_ptr<World>& world,
                                                           const internal::Deadline& deadline) try {
  const int size = world->session->size();
  // Drawn, not made of the job's name: a process may be in several groups of one job, at places of their own.
  const std::uint64_t id = world->session->members().front().draw;
  if (size == 1) return CommunicatorCore::make(world, id, "world", all_ranks(1), {});  // Waits for nobody.
  auto left = deadline.left_for("measuring the network");
  if (!left.ok()) return left.status();
  auto network = internal::measure_network(world, internal::fnv1a("network", id), *left);
  if (!network.ok()) return network.status();
  world->model.network = *network;
  left = deadline.left_for("setting up the group");
  if (!left.ok()) return left.status();
  // Ranks that share memory set it up without the store: one that failed and lives on would be waited for.
  const std::vector<int> ranks = all_ranks(size);
  internal::LossWatch watch(*world->session, id, ranks);
  return CommunicatorCore::make(world, id, "world", ranks, *left, [&watch] { return watch.status(); });
} catch (const Error& error) {
  return Status(error.code(), error.what(), error.culprit());
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory,
                internal::words_of([] { return std::string("memory ran out while the group was set up"); }));
}

internal::Result<std::shared_ptr<CommunicatorCore>> make_world(std::unique_ptr<internal::Session> session,
                                                               std::string transports,
                                                               const internal::Deadline& deadline) {
  auto model = internal::adopt_model(session->members().front().notice);
  if (!model.ok()) return model.status();
  auto world = std::make_shared<World>();
  world->model = std::move(*model);
  world->session = std::move(session);
  world->transports = std::move(transports);
  internal::Store& store = world->session->store();
  store.be_patient_until(deadline.when());
  auto core = set_up(world, deadline);
  store.be_patient_until(0);
  // To the others, who wait for it, a rank that failed is lost: it must not leave in good order. Of one that
  // was lost before they hear themselves.
  if (!core.ok() && core.status().code() != ErrorCode::peer_lost) world->end.ended(core.status());
  return core;
}

/// The first failure, but of those that only heard of another's none.
void throw_cause(const std::vector<Status>& failures) {
  for (const Status& failure : failures) {
    if (failure.code() != ErrorCode::peer_lost) failure.throw_if_error();
  }
  for (const Status& failure : failures) failure.throw_if_error();
}

/// Whether this process can have a group at all, its variables can be read, and such transports exist.
void check_process(std::string_view transports) {
  internal::refuse_in_forked_child();
  internal::check_environment().throw_if_error();
  internal::check_algorithm_rules().throw_if_error();
  internal::check_transports(internal::wanted_transports(transports)).throw_if_error();
}

}  // namespace

Communicator Communicator::create(const InitOptions& options) {
  check_process(options.transports);
  const internal::Deadline deadline(internal::real_env(), internal::start_timeout(options));
  auto session = internal::join_session(options, internal::real_env(), [](int rank) {
    return rank == 0 ? internal::announce_model() : std::string();
  });
  session.status().throw_if_error();
  auto core = make_world(std::move(*session), internal::wanted_transports(options.transports), deadline);
  core.status().throw_if_error();
  return Communicator(std::move(*core));
}

std::vector<Communicator> Communicator::local_group(int n, std::string_view transports) {
  if (n < 1 || n > internal::kMaxWorld)
    throw Error(ErrorCode::invalid_argument, "a group has at least one rank and at most " +
                                                 std::to_string(internal::kMaxWorld) + ", not " +
                                                 std::to_string(n));
  check_process(transports);
  auto sessions = internal::make_local_sessions(n, "threads of one process", internal::announce_model());
  std::vector<std::shared_ptr<CommunicatorCore>> cores(static_cast<std::size_t>(n));
  std::vector<Status> failures(static_cast<std::size_t>(n));
  const internal::Deadline deadline(internal::real_env(), internal::start_timeout({}));
  // Set-up waits for all members, so each rank needs a thread for it.
  internal::on_threads(cores.size(), [&](std::size_t r) {
    auto core = make_world(std::move(sessions[r]), internal::wanted_transports(transports), deadline);
    failures[r] = core.status();
    if (core.ok()) cores[r] = std::move(*core);
  });
  throw_cause(failures);
  std::vector<Communicator> group;
  for (auto& core : cores) group.emplace_back(std::move(core));
  return group;
}

}  // namespace lockstep
