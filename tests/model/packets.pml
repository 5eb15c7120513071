/* The packet kernel (lib/device/sync/packet_call.hpp) in collectives of which one rank sends and the others receive, so that the sender learns of the
 * receivers by their tokens alone: nobody overwrites a packet before it is read, and no old one is taken for a new one. A rank that waits for ever is an
 * invalid end state.
 *
 * A process is one block of a rank's kernels, which has one thread; the next kernel of a rank begins when all blocks of the last have ended. Grids
 * have one block and two in turn. A block takes its epoch from its own place, and leaves the next in all places that are its number modulo the grid.
 * A packet's word and flag are one access.
 * Mutants, each of which must fail: ONE_SET (of inboxes), NO_TOKENS (is not waited for), OWN_PLACE (the epoch is left in the block's own place
 * only), FLAG_FIRST (flag and word are two accesses).
 */
#define RANKS 3
#define PACKETS 2
#define BLOCKS 2
#define CALLS 4

#define GRID(call) (1 + call % 2)
#define ROOT(call) (call / 3)   /* the same for some calls, then another */
#ifdef ONE_SET
#define SET(epoch) 0
#else
#define SET(epoch) (epoch % 2)
#endif

typedef Inbox { byte word[PACKETS]; byte flag[PACKETS]; byte token[RANKS] };
Inbox inbox[RANKS * 2];          /* by rank and set */
byte place[RANKS * BLOCKS];      /* epochs of calls that ended */
byte kernel[RANKS], left[RANKS]; /* the call that a rank runs, and its blocks that have not ended */

#define MINE(epoch) inbox[me * 2 + SET(epoch)]
#define AT(peer, epoch) inbox[peer * 2 + SET(epoch)]

proctype Block(byte me, block) {
  byte call, peer, u, epoch;
  for (call : 1 .. CALLS) {
    if
    :: block >= GRID(call) -> goto next
    :: else -> kernel[me] == call
    fi;
    epoch = place[me * BLOCKS + block] + 1;
    for (peer : 0 .. RANKS - 1) {
      if
      :: peer != me && (me + peer) % GRID(call) == block -> AT(peer, epoch).token[me] = epoch
      :: else -> skip
      fi
    }
    if
    :: me == ROOT(call) ->
      for (peer : 0 .. RANKS - 1) {
        for (u : 0 .. PACKETS - 1) {
          if
          :: peer != me && u % GRID(call) == block ->
#ifdef FLAG_FIRST
            AT(peer, epoch).flag[u] = epoch;
            AT(peer, epoch).word[u] = call
#else
            atomic { AT(peer, epoch).word[u] = call; AT(peer, epoch).flag[u] = epoch }
#endif
          :: else -> skip
          fi
        }
      }
    :: else ->
      for (u : 0 .. PACKETS - 1) {
        if
        :: u % GRID(call) == block ->
          atomic { MINE(epoch).flag[u] == epoch -> assert(MINE(epoch).word[u] == call) }
        :: else -> skip
        fi
      }
    fi;
#ifndef NO_TOKENS
    for (peer : 0 .. RANKS - 1) {
      if
      :: peer != me && (me + peer) % GRID(call) == block -> MINE(epoch).token[peer] == epoch
      :: else -> skip
      fi
    }
#endif
    atomic {
#ifdef OWN_PLACE
      place[me * BLOCKS + block] = epoch;
#else
      for (u : block .. BLOCKS - 1) {
        if
        :: u % GRID(call) == block -> place[me * BLOCKS + u] = epoch
        :: else -> skip
        fi
      }
#endif
      left[me]--;
      if
      :: left[me] == 0 -> kernel[me]++; left[me] = GRID(kernel[me])
      :: else -> skip
      fi
    }
next:
    skip
  }
}

init {
  byte me;
  atomic {
    for (me : 0 .. RANKS - 1) {
      kernel[me] = 1;
      left[me] = GRID(1);
      run Block(me, 0);
      run Block(me, 1)
    }
  }
}
