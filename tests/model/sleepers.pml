/* Who sleeps in poll (collectives/engine: sleeper.cpp, engine_wait.cpp; lib/net/reactor.cpp; transports/doorbell.hpp): two threads that wait for a
 * call each, and the progress thread for what nobody waits for, share one doorbell word and one set of watched descriptors: the bell, an eventfd that
 * stays readable until it is drained, and sockets, of which only what is new is told. Without sockets the waiters sleep on the futex instead. Nobody
 * sleeps for ever once peers have published what is waited for; the time limits of sleeps, which would cover a lost wake-up, are left out. A
 * lost wake-up is an invalid end state.
 *
 * Memory is in one order here; what store buffers do to it is shown by doorbell.pml.
 * Mutants, each of which must fail: NO_SECOND_LOOK, LATE_FORGET (past events are forgotten after the last look), DISARM_ALWAYS (the progress
 * thread takes back a declaration that a waiter made), ARM_BESIDE (it declares though somebody waits), LEAVE_SLEEPERS (who leaves wakes no
 * other waiter), LEAVE_CALLS (nor the progress thread).
 */
#define ROUNDS 2      /* the waiters need the first change of memory, what nobody waits for needs all, and everybody the one message */
#define WAITERS 2
#define IN_FUTEX 1    /* the doorbell's word */
#define IN_POLL 2

bool sockets;         /* whether there are any */
byte memory, seen;    /* what peers have published, and what this rank knows of it */
bool sent, got;
byte asleep;
bool bell, edge;      /* the eventfd; a socket has something new */
bool in_futex[WAITERS];
bool locked;          /* the engine's lock guards the following, seen and got */
byte waiters, sleepers, left;
bool requested, reactor_asleep, reactor_bell;

#define HERE(n) (seen >= n && (!sockets || got))
/* Steps that touch only what the lock guards are one with those before. */
#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false
#define FORGET edge = false
#define STEP(moved) atomic { moved = seen != memory; seen = memory } atomic { moved = moved || got != sent; got = sent }
#define WAKE_FUTEX atomic { in_futex[0] = false; in_futex[1] = false }

inline undeclare() {
  asleep = 0;
  bell = false
}
inline notify() {
  requested = true;
  if
  :: atomic { reactor_asleep -> reactor_asleep = false; reactor_bell = true }
  :: atomic { else -> skip }
  fi
}

proctype Memory() {
  byte round, before;
  for (round : 1 .. ROUNDS) {
    memory = round;
    if
    :: asleep != 0 ->
      atomic { before = asleep; asleep = 0 }
      if
      :: before == IN_FUTEX -> WAKE_FUTEX
      :: before == IN_POLL -> bell = true
      :: else -> skip
      fi
    :: else -> skip
    fi
  }
}
proctype Socket() {
  atomic { sent = true; edge = true }
}

proctype Waiter(byte me) {
  bool moved;
  atomic { !locked -> locked = true; waiters++ }
  do
  :: HERE(1) -> break
  :: else ->
    STEP(moved);
    if
    :: moved || HERE(1) -> skip
    :: else ->
      asleep = (sockets -> IN_POLL : IN_FUTEX);
#ifndef LATE_FORGET
      FORGET;
#endif
#ifndef NO_SECOND_LOOK
      STEP(moved);
#endif
#ifdef LATE_FORGET
      FORGET;
#endif
      if
      :: moved || HERE(1) -> skip
      :: else ->
        atomic { sleepers++; UNLOCK }
        if
        :: sockets ->
          if
          :: atomic { edge -> FORGET }   /* one event is taken at a time */
          :: bell -> skip
          fi
        :: else ->
          atomic { in_futex[me] = (asleep == IN_FUTEX) }
          !in_futex[me]
        fi;
        atomic { !locked -> locked = true; sleepers-- }
      fi;
      undeclare()
    fi;
    UNLOCK;   /* to whoever wants it */
    LOCK
  od;
  waiters--;
#ifndef LEAVE_SLEEPERS
  if
  :: sleepers > 0 -> asleep = 0; WAKE_FUTEX; bell = true
  :: else -> skip
  fi;
#endif
#ifndef LEAVE_CALLS
  if
  :: waiters == 0 && !HERE(ROUNDS) -> notify()
  :: else -> skip
  fi;
#endif
  atomic { left++; UNLOCK }
}

#define IDLE 0
#define MOVED 1
#define STUCK 2

inline progress(outcome) {
  if
  :: LOCK;
    outcome = IDLE;
    if
    :: waiters > 0 || HERE(ROUNDS) -> skip
    :: else ->
      STEP(moved);
      if
      :: HERE(ROUNDS) -> skip
      :: else -> outcome = (moved -> MOVED : STUCK)
      fi
    fi;
    UNLOCK
  :: locked -> outcome = (waiters > 0 -> IDLE : MOVED)
  fi
}

proctype Reactor() {
  bool moved, armed, idle, go_on;
  byte outcome;
  do
  :: if
    :: atomic { requested -> requested = false; idle = false }
    :: atomic { else -> skip }
    fi;
    outcome = IDLE;
    if
    :: !idle -> progress(outcome); idle = (outcome == IDLE)
    :: else -> skip
    fi;
    if
    :: outcome == MOVED -> skip
    :: else ->
      atomic { reactor_asleep = true; armed = false; go_on = false }   /* go_on: a sleep without a descriptor is short */
      if
      :: !idle ->
        if
        :: LOCK;
          if
#ifndef ARM_BESIDE
          :: waiters > 0 -> go_on = true
#endif
          :: else -> asleep = IN_POLL; FORGET; armed = true
          fi;
          UNLOCK
        :: locked -> go_on = true
        fi;
#ifndef NO_SECOND_LOOK
        progress(outcome);
        go_on = go_on || outcome == MOVED
#endif
      :: else -> skip
      fi;
      go_on = go_on || requested;
      if
      :: go_on -> skip
      :: !go_on && (reactor_bell || (armed && (bell || edge))) -> skip
      :: !go_on && left == WAITERS && HERE(ROUNDS) -> break
      fi;
      atomic { reactor_asleep = false; reactor_bell = false }   /* a stale bell only wakes for nothing */
      if
      :: armed ->
        LOCK;
        if
#ifndef DISARM_ALWAYS
        :: waiters > 0 -> skip
#endif
        :: else -> undeclare()
        fi;
        UNLOCK
      :: else -> skip
      fi
    fi
  od
}

init {
  atomic {
    if
    :: sockets = true; run Socket()
    :: sockets = false
    fi;
    run Memory(); run Waiter(0); run Waiter(1); run Reactor()
  }
}
