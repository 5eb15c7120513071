"""Futures: completes the torch futures of a process group's calls, and runs their callbacks.

A callback may start collectives (PowerSGD's do), and the ranks have to start these in one order. Where a callback runs would else
depend on who was first, its operation or the program that attaches it. So callbacks run in one thread, in the order in which the
program attached them, and the collectives that they start go to a communicator of their own: they cannot come between those of
the other threads.

torch runs a callback at once where it is attached to a future that is complete, and programs rely on it (torchft). So who attaches one
after having waited for the operation finds it run, unless there are others before it.
"""
import contextlib
import functools
import logging
import queue
import threading
import weakref

import torch


class _Failure:
    """What the future of a failed call holds. torch's C++ takes it for a result, as it does every exception that Python gave to a
    future: it looks for tensors in it by pickling it, and crashes where there are none, or says that it cannot be cast."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error

    def __str__(self):
        return str(self.error)


def _value(held):
    if isinstance(held, _Failure):
        raise held.error
    return held


def _call_alone(callback, future):
    """Of a callback whose result nobody gets somebody has to be told that it failed."""
    try:
        callback(future)
    except Exception:  # pylint: disable=broad-except
        logging.getLogger(__name__).exception("a callback of a future failed")


class Future(torch.futures.Future):
    """Its callbacks, and those of what then() returns, run as the module says; without `futures` where torch runs them."""

    def __init__(self, futures=None, job=None, awaited=False):
        """job(future) completes it, once it is this future's turn. awaited: the program has waited for what it tells of."""
        super().__init__()
        self._futures = futures
        self._job = job
        self.awaited = awaited

    def set_exception(self, result):
        self._set_unwrap_func(_value)
        self.set_result(_Failure(result))

    def then(self, callback):
        if self._futures is None:
            return super().then(callback)
        result = Future(self._futures, lambda result: self._call(callback, result), self.awaited)
        self._futures.run(result, at_once=self.awaited)
        return result

    def add_done_callback(self, callback):
        if self._futures is None:
            super().add_done_callback(callback)
        else:
            self.then(functools.partial(_call_alone, callback))

    def wait(self):
        # A callback that waits for a future whose turn comes after it would wait for itself.
        in_callback = self._futures is not None and self._futures.is_current_thread()
        if in_callback:
            self.complete()
        try:
            return super().wait()
        finally:
            self.awaited = self.awaited or not in_callback

    def complete(self):
        job, self._job = self._job, None
        if job is not None:
            job(self)

    def _call(self, callback, result):
        with contextlib.suppress(Exception):  # the callback asks for the value, or the error
            self.wait()
        try:
            result.set_result(callback(self))
        except Exception as error:  # pylint: disable=broad-except  # whoever waits for the future gets it
            result.set_exception(error)


class Futures:
    """Of one group. Threads are started when they are needed, and end with the group or the program."""

    def __init__(self):
        self._ordered = queue.SimpleQueue()
        self._thread = None
        self._last = None  # of those that were put there, weakly
        self._closed = False
        self._change = threading.Lock()

    def __del__(self):
        self.close()

    def future_of(self, work):
        """A future that gets the outcome of `work` when that has ended."""
        if not work.collective:  # a message may have to wait for others, and nobody for it
            future = Future()
            threading.Thread(target=work.settle, args=(future,), name="lockstep-message", daemon=True).start()
            return future
        future = Future(self, work.settle, work.awaited)
        if work.is_completed():
            future.complete()
        else:
            self.run(future)
        return future

    def run(self, future, at_once=False):
        """Completes it in the thread of the callbacks, after what was given before; here where that is this thread, or has no more to do.
        at_once: returns after that, unless it comes after others, which may wait for what the caller does next."""
        is_first = None if self.is_current_thread() else self._put(future)
        if is_first is None:
            future.complete()
        elif at_once and is_first:
            with contextlib.suppress(Exception):  # who asks for the value gets it
                torch.futures.Future.wait(future)

    def _put(self, future):
        """Whether nothing is before it; None: it was not put."""
        with self._change:
            if self._closed:
                return None
            if self._thread is None:
                # Not of this object, which would live as long as the thread.
                self._thread = threading.Thread(target=_run, args=(self._ordered,), name="lockstep-futures", daemon=True)
                self._thread.start()
            last = self._last and self._last()
            self._last = weakref.ref(future)
            self._ordered.put(future)
            return last is None or last.done()

    def is_current_thread(self):
        return self._thread is not None and threading.current_thread() is self._thread

    def close(self):
        """The thread ends when what is in the queue is done."""
        with self._change:
            self._closed = True
            self._ordered.put(None)


def _run(ordered):
    while (future := ordered.get()) is not None:
        future.complete()
        del future  # It may be what keeps the group.
