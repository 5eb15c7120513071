/* The byte ring of a shared-memory link (transports/shm/shm_ring.hpp): one producer, one consumer, cells reused. The consumer gets every value once, in
 * order, no cell is overwritten before it was read, and neither side sleeps for ever: each rings the other after it published or freed cells.
 *
 * A cell stands for a 64-byte granule. The doorbell's own soundness is shown by doorbell.pml; here declaring, looking and sleeping
 * are single steps.
 * Mutants, each of which must fail: PUBLISH_FIRST (the counter before the cell), FREE_FIRST (room announced before the cell was
 * read), NO_ROOM_CHECK, NO_RING_AFTER_FREE.
 */
#define CELLS 3
#define VALUES 7

byte cell[CELLS];
byte written, consumed;        /* monotonic, as in the ring */
bool asleep[2];                /* doorbells: 0 = producer's, 1 = consumer's */

#define RING(id) asleep[id] = false
#define SLEEP_UNLESS(id, condition) \
  asleep[id] = true; \
  if \
  :: condition -> asleep[id] = false \
  :: else -> !asleep[id] \
  fi

proctype Producer() {
  byte value, room_until = CELLS;   /* the producer's last look at the consumer's counter, plus the size */
  for (value : 1 .. VALUES) {
#ifndef NO_ROOM_CHECK
    do
    :: written < room_until -> break
    :: else ->
      room_until = consumed + CELLS;
      if
      :: written < room_until -> break
      :: else -> SLEEP_UNLESS(0, written < consumed + CELLS)
      fi
    od;
#endif
#ifdef PUBLISH_FIRST
    written = value;
    cell[(value - 1) % CELLS] = value;
#else
    cell[(value - 1) % CELLS] = value;
    written = value;
#endif
    RING(1)
  }
}

proctype Consumer() {
  byte value, got;
  for (value : 1 .. VALUES) {
    do
    :: written >= value -> break
    :: else -> SLEEP_UNLESS(1, written >= value)
    od;
#ifdef FREE_FIRST
    consumed = value;
    got = cell[(value - 1) % CELLS];
#else
    got = cell[(value - 1) % CELLS];
    consumed = value;
#endif
    assert(got == value);
#ifndef NO_RING_AFTER_FREE
    RING(0)
#endif
  }
}

init {
  atomic { run Producer(); run Consumer() }
}
