/* Offers (collectives/engine: domain_run.cpp, domain_agreement.cpp): what a rank says of its buffers in a call, and what another call took it, lies in one
 * of two places, used in turn, and nobody acknowledges it. Who may be used itself, because its memory is registered or because it would pull, awaits all
 * offers and reads them twice, to choose the program and to find the buffers; who would only be told what others say awaits them, too. Where every rank has
 * registered memory, or would pull, the root's is read, else all goes through the staging area. A rank ends a call only when all have entered it, and so have
 * left the one before: who told its buffers has read nobody's yet, but nobody comes to the call after the next one before that. What is read is
 * always of this call, and all ranks choose alike. A rank that waits for ever is an invalid end state.
 * Mutants, each of which must fail: ONE_OFFER (one place), NUMBER_FIRST (of the call, before what it is for), LEAVE_EARLY (a rank that needs
 * nobody ends the call before all have entered it), PULL_EARLY (who would pull private memory awaits nothing, and stages), TOLD_EARLY (who would only be
 * told awaits nothing).
 */
#define RANKS 3
#define CALLS 3

#ifdef ONE_OFFER
#define PLACE(rank, call) (rank)
#else
#define PLACE(rank, call) ((rank) * 2 + (call) % 2)
#endif
#define ROOT(call) (call % RANKS)

/* What ranks can do in a call: a sum of these. */
#define PULL 1
#define REGISTERED 2

byte offered[RANKS * 2];      /* the call that an offer is for, */
byte content[RANKS * 2];      /* and what it says: four times that number, and what the rank can do */
byte common[CALLS + 1] = PULL + REGISTERED; /* what all must come to: what every rank can do */
byte entered[RANKS];          /* phases: the last call whose staged program a rank has begun, */
byte through[RANKS];          /* and the last one in which it was through with the root's memory */

#define ALL(what, call) (what[0] >= call && what[1] >= call && what[2] >= call)
#define ALL_OFFERED(call) \
  (offered[PLACE(0, call)] >= call && offered[PLACE(1, call)] >= call && offered[PLACE(2, call)] >= call)

#ifdef PULL_EARLY
#define IS_USED (mine & REGISTERED)
#else
#define IS_USED (mine != 0)
#endif

proctype Rank(byte me) {
  byte call, peer, mine, all;
  bool told;
  for (call : 1 .. CALLS) {
    atomic {
      told = false;
      if
      :: mine = PULL + REGISTERED
      :: me != 1 -> mine = PULL   /* enough for all ways, and few states */
      :: me == 1 -> mine = 0
      :: me == 0 -> mine = 0; told = true
      fi;
      common[call] = common[call] & mine
    }
#ifdef NUMBER_FIRST
    offered[PLACE(me, call)] = call;
    content[PLACE(me, call)] = 4 * call + mine;
#else
    content[PLACE(me, call)] = 4 * call + mine;
    offered[PLACE(me, call)] = call;
#endif
    all = 0;
    if
    :: IS_USED || told ->
#ifdef TOLD_EARLY
      told || ALL_OFFERED(call);
#else
      ALL_OFFERED(call);
#endif
      all = PULL + REGISTERED;
      for (peer : 0 .. RANKS - 1) {
        assert(content[PLACE(peer, call)] / 4 == call);
        all = all & content[PLACE(peer, call)]
      }
      assert(all == common[call])
    :: else -> skip
    fi;
    if
    :: all != 0 ->
      for (peer : 0 .. RANKS - 1) {
        assert(content[PLACE(peer, call)] / 4 == call)
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
