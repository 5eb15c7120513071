#include "bench/peers/harness.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "bench/peers/driver_socket.hpp"
#include "bench/peers/turn.hpp"

namespace peers {
namespace {

// A turn that takes longer hangs; the kernel ends the rank, whether or not the driver is still there.
constexpr unsigned kTurnSeconds = 180;
constexpr const char* kQuit = "quit";

// The number in the first of these variables that is set.
int number_of(const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  throw std::runtime_error("this program is started by tools/compare-peers");
}

Place place_of(int argc, char** argv) {
  if (argc < 2) throw std::runtime_error("this program is started by tools/compare-peers");
  return {argv[1], number_of({"PEERS_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}),
          number_of({"PEERS_WORLD", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}), argc > 2 ? argv[2] : ""};
}

// Gives the number of cores there were to choose from.
int take_core(int rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    throw std::runtime_error("which cores may this process use?");
  const int cores = CPU_COUNT(&allowed);
  int turn = rank % cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || turn-- > 0) continue;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(core, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    break;
  }
  return cores;
}

std::string greeting(const Contender& contender, const Board& board) {
  std::string line = "ready";
  for (int rank = 0; rank < board.world(); ++rank) line += " " + std::to_string(board.pid(rank));
  return line + " " + contender.version();
}

std::string carry_out(Contender& contender, Board& board, const std::string& line) {
  alarm(kTurnSeconds);
  const std::string answer = run_turn(contender, board, parse_order(line));
  alarm(0);
  return answer;
}

void serve(Contender& contender, Board& board, const Place& place) {
  if (place.rank != 0) {
    for (std::string line = board.next(); line != kQuit; line = board.next())
      carry_out(contender, board, line);
    return;
  }
  DriverSocket driver(place.folder + "/driver");
  driver.write_line(greeting(contender, board));
  while (const auto line = driver.read_line()) {
    if (*line == "congestion") {
      driver.write_line(congestion_in_use());
      continue;
    }
    board.publish(*line);
    driver.write_line(carry_out(contender, board, *line));
  }
  board.publish(kQuit);
}

}  // namespace

int run_harness(int argc, char** argv, Waiting waiting,
                const std::function<std::unique_ptr<Contender>(const Place&, Board&)>& start) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    const Place place = place_of(argc, argv);
    const int cores = take_core(place.rank);
    Board board(place.folder + "/board", place.rank, place.world, cores, waiting);
    const std::unique_ptr<Contender> contender = start(place, board);
    board.set_pid(getpid());
    board.barrier();
    serve(*contender, board, place);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace peers
