/* Buffers that peers use where they lie, and revokes (collectives/engine: domain_run.cpp, domain_revoke.cpp, quiescence.cpp). In each call every rank offers its
 * buffers. Who may be used itself awaits all offers, and all come to the same: where every rank has registered memory they read and write each other's,
 * else through the staging area. Who uses others' memory declares it, then looks at its mark, then uses it, takes the declaration back, and looks
 * again. Any rank may give up at any time: it marks all, waits until nobody declares to use memory, or replaces its output if that takes long, and
 * gives all back to its caller. From then on nobody may write to it, and what is read there is no result. Every offer has a place of its own here; that two will do is shown by offers.pml.
 *
 * Memory is in one order: all of these stores and loads are sequentially consistent.
 * Mutants, each of which must fail: AGREED_ONLY (who has not seen all offers yet gives its memory back at once), NO_MARKS (a rank that leaves tells
 * nobody), LOOK_ONCE (not after the use), LOOK_FIRST (at the mark, before the declaration: what a store buffer makes of one without a fence), KEEP_MEMORY (it is given back
 * though somebody uses it for long).
 */
#define RANKS 3
#define CALLS 2
#define BUFFER(rank, call) (rank * CALLS + call - 1)

byte offered[RANKS];            /* the last call of which each rank published its offer, */
bool registered[RANKS * CALLS]; /* what it said in each, */
byte through[RANKS];            /* and the last call that it is through with */
bool in_use[RANKS];
bool revoked[RANKS];
bool given_back[RANKS * CALLS]; /* the caller's again, and at the place where it was: not replaced */
bool overwritten[RANKS * CALLS]; /* by its caller: inputs are never replaced */

#define ALL(what, call) (what[0] >= call && what[1] >= call && what[2] >= call)
#define ALL_REGISTERED(call) (registered[BUFFER(0, call)] && registered[BUFFER(1, call)] && registered[BUFFER(2, call)])

proctype Rank(byte me) {
  byte call, peer;
  bool exposed, replaced, stale;
  for (call : 1 .. CALLS) {
    if
    :: registered[BUFFER(me, call)] = true
    :: me == 0   /* one rank's private buffer settles it for all */
    fi;
    offered[me] = call;
#ifndef AGREED_ONLY
    exposed = registered[BUFFER(me, call)];
#endif
    if
    :: registered[BUFFER(me, call)] ->
      if
      :: ALL(offered, call) -> skip
      :: goto revoke
      fi
    :: else -> skip
    fi;
    exposed = registered[BUFFER(me, call)] && ALL_REGISTERED(call);
    if
    :: exposed ->
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
        assert(peer == me || !given_back[BUFFER(peer, call)]);
        stale = stale || (peer != me && overwritten[BUFFER(peer, call)])
      }
      in_use[me] = false;
#ifndef LOOK_ONCE
      if
      :: revoked[me] -> goto revoke
      :: else -> skip
      fi;
#endif
      assert(!stale)
    :: else -> skip
    fi;
    through[me] = call;
    if
    :: ALL(through, call) -> skip
    :: goto revoke
    fi;
    exposed = false;
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
  if
  :: exposed ->
    for (peer : 0 .. RANKS - 1) {
      if
      :: !in_use[peer] -> skip
#ifdef KEEP_MEMORY
      :: in_use[peer] -> skip
#else
      :: in_use[peer] -> replaced = true
#endif
      fi
    }
  :: else -> skip
  fi;
  given_back[BUFFER(me, call)] = !replaced;
  overwritten[BUFFER(me, call)] = true;
over:
  skip
}

init {
  atomic { run Rank(0); run Rank(1); run Rank(2) }
}
