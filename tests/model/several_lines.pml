/* The one-shot exchange whose payload takes several lines with a flag each, a different number in each call: every rank writes its lines in order, each
 * one's flag behind its payload, waits for the flags of everybody's lines, and reads them. Two sets of lines, used alternately, and no
 * acknowledgement: a peer raises the first flag of call k+1 only after it has read all lines of call k. Flags of a call that took more lines stay behind.
 * Mutants, each of which must fail: ONE_SET, FLAG_FIRST (a flag before its payload), FIRST_FLAG_ONLY (the others' are not waited for).
 */
#define RANKS 3
#define CALLS 4
#define LINES 2
#define LINES_OF(call) (1 + (call / 2) % 2)

#ifdef ONE_SET
#define PLACE(rank, call, l) ((rank) * LINES + (l))
#else
#define PLACE(rank, call, l) (((rank) * 2 + (call) % 2) * LINES + (l))
#endif

byte payload[RANKS * 2 * LINES];
byte flag[RANKS * 2 * LINES];

proctype Rank(byte me) {
  byte call, peer, l;
  for (call : 1 .. CALLS) {
    for (l : 0 .. LINES_OF(call) - 1) {
#ifdef FLAG_FIRST
      flag[PLACE(me, call, l)] = call;
      payload[PLACE(me, call, l)] = call;
#else
      payload[PLACE(me, call, l)] = call;
      flag[PLACE(me, call, l)] = call;
#endif
    }
    for (peer : 0 .. RANKS - 1) {
      for (l : 0 .. LINES_OF(call) - 1) {
#ifdef FIRST_FLAG_ONLY
        l > 0 || flag[PLACE(peer, call, l)] >= call;
#else
        flag[PLACE(peer, call, l)] >= call;
#endif
      }
    }
    for (peer : 0 .. RANKS - 1) {
      for (l : 0 .. LINES_OF(call) - 1) {
        assert(payload[PLACE(peer, call, l)] == call)
      }
    }
  }
}

init {
  atomic { run Rank(0); run Rank(1); run Rank(2) }
}
