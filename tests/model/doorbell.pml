/* Doorbell and flag publication (transports/doorbell.hpp): a sleeper that waits for the flags of two wakers never stays asleep once both are
 * raised. A lost wake-up is an invalid end state. Sleepers in poll, and several that share one doorbell: sleepers.pml.
 *
 * Memory: plain stores wait in a store buffer and reach memory at any later time; a fence waits until the own buffer is empty.
 * Read-modify-writes act on memory at once, as they do on every machine we run on.
 * Mutants, each of which must fail: NO_SECOND_LOOK, NO_WAKER_FENCE, PLAIN_DECLARE (a store instead of an exchange, and no fence),
 * BLIND_SLEEP (a sleep that does not compare the word).
 */
#define ROUNDS 2

byte flag[2];           /* what is in memory: the last round that each waker published */
byte buffered[2];       /* what waits in the wakers' store buffers; 0 = nothing */
bool asleep;            /* the doorbell's word */
bool asleep_buffered;   /* PLAIN_DECLARE: a declaration in the sleeper's store buffer */
bool in_futex;          /* the sleeper is in the kernel */

inline drain(id) {
  if
  :: atomic { buffered[id] != 0 -> flag[id] = buffered[id]; buffered[id] = 0 }
  :: buffered[id] == 0 -> skip
  fi
}

proctype Waker(byte id) {
  byte round;
  bool was_asleep;
  for (round : 1 .. ROUNDS) {
    /* A later store of the same waker keeps its place behind the earlier one. */
    drain(id);
    buffered[id] = round;
#ifndef NO_WAKER_FENCE
    drain(id);
#endif
    if
    :: !asleep -> skip
    :: else ->
      atomic { was_asleep = asleep; asleep = false }
      if
      :: was_asleep -> in_futex = false   /* futex_wake */
      :: else -> skip
      fi
    fi
  }
}

/* The buffers reach memory some time, fence or not. */
proctype Buffer(byte id) {
end:
  do
  :: atomic { buffered[id] != 0 -> flag[id] = buffered[id]; buffered[id] = 0 }
  od
}
proctype SleeperBuffer() {
end:
  do
  :: atomic { asleep_buffered -> asleep = true; asleep_buffered = false }
  od
}

#define HERE(round) (flag[0] >= round && flag[1] >= round)

proctype Sleeper() {
  byte round;
  for (round : 1 .. ROUNDS) {
    do
    :: HERE(round) -> break
    :: else ->
#ifdef PLAIN_DECLARE
      asleep_buffered = true;
#else
      asleep = true;
#endif
#ifndef NO_SECOND_LOOK
      if
      :: HERE(round) -> atomic { asleep = false; asleep_buffered = false } break
      :: else -> skip
      fi;
#endif
#ifdef PLAIN_DECLARE
      !asleep_buffered;   /* the system call drains the buffer, but the second look came before it */
#endif
#ifdef BLIND_SLEEP
      in_futex = true;
#else
      atomic { in_futex = asleep }   /* futex_wait compares and sleeps in one step */
#endif
      !in_futex;
      asleep = false
    od
  }
}

init {
  atomic { run Waker(0); run Waker(1); run Buffer(0); run Buffer(1); run SleeperBuffer(); run Sleeper() }
}
