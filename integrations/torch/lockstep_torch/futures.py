"""Futures: completes the torch futures of a process group's calls.

Callbacks of a future run in the thread that completes it, and may start collectives (PowerSGD's do). Ranks have to start these in
one order as well; so the futures of a group's collectives are completed in the order in which their calls were made, by one thread,
and what that thread starts goes to a communicator of its own: it cannot come between the calls of the other threads.
"""
import queue
import threading


class Futures:
    """Of one group. Threads are started when they are needed, and end with the group or the program."""

    def __init__(self):
        self._ordered = queue.SimpleQueue()
        self._thread = None

    def complete(self, work):
        """`work` gets its outcome to its future when it has ended: at once in the thread of the callbacks, else later."""
        if self.is_current_thread() or work.is_completed() and not self._ordered.qsize():
            work.settle()
        elif not work.collective:  # a message may have to wait for others, and nobody for it
            threading.Thread(target=work.settle, name="lockstep-message", daemon=True).start()
        else:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lockstep-futures", daemon=True)
                self._thread.start()
            self._ordered.put(work)

    def is_current_thread(self):
        return threading.current_thread() is self._thread

    def close(self):
        """The thread ends when what is in the queue is done."""
        self._ordered.put(None)

    def _run(self):
        while (work := self._ordered.get()) is not None:
            work.settle()
