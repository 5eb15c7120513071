/* Offers (collectives/engine/domain_run.cpp): what a rank says of its buffers in a call lies in one of two places, used in turn, and nobody
 * acknowledges it. Who may be used itself awaits all offers and reads them twice, to choose the program and to find the buffers; where every rank
 * has registered memory the root's is read, else all goes through the staging area. A rank ends a call only when all have entered it, and so have
 * left the one before: who told its buffers has read nobody's yet, but nobody comes to the call after the next one before that. What is read is
 * always of this call, and all ranks choose alike. A rank that waits for ever is an invalid end state.
 * Mutants, each of which must fail: ONE_OFFER (one place), NUMBER_FIRST (of the call, before what it is for), LEAVE_EARLY (a rank that needs
 * nobody ends the call before all have entered it).
 */
#define RANKS 3
#define CALLS 3

#ifdef ONE_OFFER
#define PLACE(rank, call) (rank)
#else
#define PLACE(rank, call) ((rank) * 2 + (call) % 2)
#endif
#define ROOT(call) (call % RANKS)

byte offered[RANKS * 2];      /* the call that an offer is for, */
byte content[RANKS * 2];      /* and what it says: twice that number, one more where the memory is registered */
bool is_private[CALLS + 1];   /* what all must come to: whether any rank's memory is */
byte entered[RANKS];          /* phases: the last call whose staged program a rank has begun, */
byte through[RANKS];          /* and the last one in which it was through with the root's memory */

#define ALL(what, call) (what[0] >= call && what[1] >= call && what[2] >= call)

proctype Rank(byte me) {
  byte call, peer;
  bool mine, all;
  for (call : 1 .. CALLS) {
    if
    :: mine = true
    :: atomic { mine = false; is_private[call] = true }
    fi;
#ifdef NUMBER_FIRST
    offered[PLACE(me, call)] = call;
    content[PLACE(me, call)] = 2 * call + mine;
#else
    content[PLACE(me, call)] = 2 * call + mine;
    offered[PLACE(me, call)] = call;
#endif
    all = mine;
    if
    :: mine ->
      for (peer : 0 .. RANKS - 1) {
        offered[PLACE(peer, call)] >= call;
        all = all && content[PLACE(peer, call)] % 2
      }
      assert(all == !is_private[call])
    :: else -> skip
    fi;
    if
    :: all ->
      for (peer : 0 .. RANKS - 1) {
        assert(content[PLACE(peer, call)] == 2 * call + 1)
      }
      through[me] = call;
      if
      :: me == ROOT(call) -> ALL(through, call)
      :: else -> skip
      fi
    :: else ->
      entered[me] = call;
#ifndef LEAVE_EARLY
      ALL(entered, call)
#endif
    fi
  }
}

init {
  atomic { run Rank(0); run Rank(1); run Rank(2) }
}
