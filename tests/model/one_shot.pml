/* The one-shot exchange of a domain: every rank copies its input into one of two slots, used alternately, raises its flag, waits for all flags, and
 * reads all slots. Nobody acknowledges: a rank that finished call k has seen everybody's flag k, and who raised flag k has read
 * every slot of call k-1, so the slot of call k-1 is free for call k+1.
 * Mutants, each of which must fail: ONE_SLOT, FLAG_FIRST (the flag before the slot), WAIT_FOR_ONE (for the next rank only).
 */
#define RANKS 3
#define CALLS 4

#ifdef ONE_SLOT
#define SLOT(call) 0
#else
#define SLOT(call) (call % 2)
#endif

byte slot[RANKS * 2];
byte flag[RANKS];

proctype Rank(byte me) {
  byte call, peer;
  for (call : 1 .. CALLS) {
#ifdef FLAG_FIRST
    flag[me] = call;
    slot[me * 2 + SLOT(call)] = call;
#else
    slot[me * 2 + SLOT(call)] = call;
    flag[me] = call;
#endif
#ifdef WAIT_FOR_ONE
    flag[(me + 1) % RANKS] >= call;
#else
    for (peer : 0 .. RANKS - 1) {
      flag[peer] >= call
    }
#endif
    for (peer : 0 .. RANKS - 1) {
      assert(slot[peer * 2 + SLOT(call)] == call)
    }
  }
}

init {
  atomic { run Rank(0); run Rank(1); run Rank(2) }
}
