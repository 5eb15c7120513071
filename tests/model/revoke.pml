/* Buffers that peers use where they lie, and revokes (collectives/engine: domain_run.cpp, domain_agreement.cpp, domain_revoke.cpp, quiescence.cpp). In each
 * call every rank offers its buffers, and says whether it would pull: have its private input read, and read the others'. Who may be used itself awaits all
 * offers, and so does who would only be told what another call took. All come to the same: where every rank has registered memory they read and write each
 * other's, else where every rank would pull they read each other's inputs, else through the staging area. Who uses others' memory declares it, then looks at
 * its mark, then uses it, takes the declaration back, and looks again. Any rank may give up at any time: it marks all, and gives all back to its caller. From
 * then on nobody may write to it, and what is read there is no result. So who may be written to waits before until nobody declares to use memory, or replaces
 * its output if that takes long. Of processes that only read nobody waits; of a thread of the same process everybody does, since memory that is given back may
 * be gone, and a thread ends with its process. Every offer has a place of its own here; that two will do is shown by offers.pml.
 *
 * Memory is in one order: all of these stores and loads are sequentially consistent.
 * Mutants, each of which must fail: AGREED_ONLY (who has not seen all offers yet gives its memory back at once), NO_MARKS (a rank that leaves tells
 * nobody), LOOK_ONCE (not after the use), LOOK_FIRST (at the mark, before the declaration: what a store buffer makes of one without a fence), KEEP_MEMORY (it
 * is given back though somebody uses it for long), PULL_ONCE (as LOOK_ONCE, of inputs that were pulled), PULLED_ONLY (who would pull takes itself for one that
 * is only read, though its memory is registered), LEAVE_THREADS (who is only read waits for no thread either), TOLD_PULLS (who would only be told says that it
 * would pull, and gives its memory back at once).
 */
#define RANKS 3
#define CALLS 2
#define BUFFER(rank, call) (rank * CALLS + call - 1)
#define ARE_THREADS(one, other) (one < 2 && other < 2) /* of one process; the last rank is another */

mtype = { nobody, readers, writers };

byte offered[RANKS];            /* the last call of which each rank published its offer, */
bool registered[RANKS * CALLS]; /* what it said in each, */
bool pulls[RANKS * CALLS];
byte through[RANKS];            /* and the last call that it is through with */
bool in_use[RANKS];
bool revoked[RANKS];
bool given_back[RANKS * CALLS]; /* the caller's again, and at the place where it was: not replaced */
bool overwritten[RANKS * CALLS]; /* by its caller: inputs are never replaced */

#define ALL(what, call) (what[0] >= call && what[1] >= call && what[2] >= call)
#define OF_ALL(what, call) (what[BUFFER(0, call)] && what[BUFFER(1, call)] && what[BUFFER(2, call)])

#ifdef PULLED_ONLY
#define OFFERED_TO (pulls[BUFFER(me, call)] -> readers : (registered[BUFFER(me, call)] -> writers : nobody))
#else
#define OFFERED_TO (registered[BUFFER(me, call)] -> writers : (pulls[BUFFER(me, call)] -> readers : nobody))
#endif
#define AGREED_ON (OF_ALL(registered, call) -> writers : (OF_ALL(pulls, call) -> readers : nobody))

#ifdef LOOK_ONCE
#define LOOKS_AGAIN false
#else
#ifdef PULL_ONCE
#define LOOKS_AGAIN (exposed_to == writers)
#else
#define LOOKS_AGAIN true
#endif
#endif

#ifdef LEAVE_THREADS
#define IS_AWAITED(peer) (exposed_to == writers)
#else
#define IS_AWAITED(peer) (exposed_to == writers || (exposed_to == readers && ARE_THREADS(me, peer)))
#endif

proctype Rank(byte me) {
  byte call, peer;
  mtype exposed_to;
  bool told, replaced, stale;
  for (call : 1 .. CALLS) {
    told = false;
    if
    :: registered[BUFFER(me, call)] = true; pulls[BUFFER(me, call)] = true
    :: me == 0 -> pulls[BUFFER(me, call)] = true /* one rank's private buffer settles it for all */
    :: me == 0 -> told = true
    :: me == 0
    fi;
    exposed_to = OFFERED_TO;
#ifdef AGREED_ONLY
    exposed_to = nobody;
#endif
#ifdef TOLD_PULLS
    pulls[BUFFER(me, call)] = pulls[BUFFER(me, call)] || told;
#endif
    offered[me] = call;
    if
    :: registered[BUFFER(me, call)] || pulls[BUFFER(me, call)] || told ->
      if
      :: ALL(offered, call) -> skip
      :: goto revoke
      fi
    :: else -> skip
    fi;
    exposed_to = AGREED_ON;
    if
    :: exposed_to != nobody ->
#ifdef LOOK_FIRST
      if
      :: revoked[me] -> goto revoke
      :: else -> in_use[me] = true
      fi;
#else
      in_use[me] = true;
      if
      :: revoked[me] -> goto revoke
      :: else -> skip
      fi;
#endif
      stale = false;
      for (peer : 0 .. RANKS - 1) {
        assert(peer == me || !given_back[BUFFER(peer, call)] || (exposed_to == readers && !ARE_THREADS(me, peer)));
        stale = stale || (peer != me && overwritten[BUFFER(peer, call)])
      }
      in_use[me] = false;
      if
      :: LOOKS_AGAIN && revoked[me] -> goto revoke
      :: else -> skip
      fi;
      assert(!stale)
    :: else -> skip
    fi;
    through[me] = call;
    if
    :: ALL(through, call) -> skip
    :: goto revoke
    fi;
    exposed_to = nobody;
    given_back[BUFFER(me, call)] = true;
    overwritten[BUFFER(me, call)] = true
  }
  goto over;

revoke:
  skip;  /* a label on a loop would lead into its middle */
#ifndef NO_MARKS
  for (peer : 0 .. RANKS - 1) {
    revoked[peer] = true
  }
#endif
  in_use[me] = false;
  for (peer : 0 .. RANKS - 1) {
    if
    :: !IS_AWAITED(peer) || !in_use[peer] -> skip
#ifdef KEEP_MEMORY
    :: else -> skip
#else
    :: IS_AWAITED(peer) && in_use[peer] && !ARE_THREADS(me, peer) -> replaced = true
#endif
    fi
  }
  given_back[BUFFER(me, call)] = !replaced;
  overwritten[BUFFER(me, call)] = true;
over:
  skip
}

init {
  atomic { run Rank(0); run Rank(1); run Rank(2) }
}
