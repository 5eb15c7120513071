#define _GNU_SOURCE
#include "crew.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct order {
  void (*be_rank)(int rank, int ranks, rank_body body);
  rank_body body;
  int rank, ranks;
};

static struct {
  pid_t process;
  int orders;
} crew[MOST_PROCESSES];
static int crew_size;
static pid_t owner; /* what is made ready for its exit runs in processes that it forks, too */

static void obey(int orders) {
  struct order order;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (recv(orders, &order, sizeof order, 0) == sizeof order) {
    order.be_rank(order.rank, order.ranks, order.body);
    send(orders, &order.rank, sizeof order.rank, MSG_NOSIGNAL);
  }
  exit(0);
}

static void add_to_crew(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no socket pair");
  const pid_t child = fork();
  if (child == 0) {
    for (int other = 0; other < crew_size; ++other) close(crew[other].orders);
    close(ends[0]);
    obey(ends[1]);
  }
  close(ends[1]);
  crew[crew_size].process = child;
  crew[crew_size++].orders = ends[0];
}

static void dismiss_crew(int signal) {
  for (int member = 0; member < crew_size; ++member) close(crew[member].orders);
  for (int member = 0; member < crew_size; ++member) {
    if (signal != 0) kill(crew[member].process, signal);
    waitpid(crew[member].process, NULL, 0);
  }
  crew_size = 0;
}

static void dismiss_at_exit(void) {
  if (getpid() == owner) dismiss_crew(0);
}

int crew_is_wanted(void) {
  const char* wanted = getenv("TEST_CREW");
  return wanted != NULL && strcmp(wanted, "1") == 0;
}

/* Their alarms end those that hang. */
static int await_answers(const char* name, int ranks) {
  struct pollfd awaited[MOST_PROCESSES];
  for (int rank = 0; rank < ranks; ++rank) awaited[rank] = (struct pollfd){crew[rank].orders, POLLIN, 0};
  for (int left = ranks; left > 0;) {
    poll(awaited, (nfds_t)ranks, -1);
    for (int rank = 0; rank < ranks; ++rank) {
      int answer;
      if (awaited[rank].fd < 0 || awaited[rank].revents == 0) continue;
      if (recv(awaited[rank].fd, &answer, sizeof answer, 0) != sizeof answer) {
        fprintf(stderr, "%s: rank %d ended\n", name, rank);
        return 1;
      }
      awaited[rank].fd = -1;
      --left;
    }
  }
  return 0;
}

int run_on_crew(const char* name, int ranks, void (*be_rank)(int rank, int ranks, rank_body body),
                rank_body body) {
  if (owner == 0) atexit(dismiss_at_exit);
  owner = getpid();
  while (crew_size < ranks) add_to_crew();
  for (int rank = 0; rank < ranks; ++rank) {
    const struct order order = {be_rank, body, rank, ranks};
    send(crew[rank].orders, &order, sizeof order, MSG_NOSIGNAL);
  }
  const int failures = await_answers(name, ranks);
  if (failures != 0) dismiss_crew(SIGKILL);
  return failures;
}
