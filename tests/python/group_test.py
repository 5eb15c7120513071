"""What goes wrong: refusals, errors and ends, of ranks that are threads of this process."""
import functools
import gc
import math
import os
import pickle
import threading
import time
import unittest
import weakref
from array import array
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import lockstep
from lockstep import Error, ErrorCode
from lockstep._library import library


def in_threads(function, n=2):
    """function(communicator) for each rank of a group; what they return, or raise."""
    def outcome(ranks):
        try:
            return function(ranks)
        except Exception as error:  # pylint: disable=broad-except  # the test looks at it
            return error
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(outcome, lockstep.Communicator.local_group(n)))


class Refusals(unittest.TestCase):
    """What one rank gives wrongly ends the others' call, with the reason."""

    def refused(self, call, reason, kind=ValueError):
        def function(ranks):
            if ranks.rank == 0:
                call(ranks)
            else:
                ranks.all_reduce(array("d", [1]))
        first, second = in_threads(function)
        self.assertIsInstance(first, kind)
        self.assertRegex(str(first), reason)
        self.assertIsInstance(second, Error)
        self.assertEqual((second.code, second.culprit), (ErrorCode.REFUSED, 0), second)
        self.assertRegex(str(second), reason)

    def test_of_a_message_is_none_of_the_others(self):
        def function(ranks):
            received = array("d", [0])
            if ranks.rank == 0:
                for wrong in (lambda: ranks.send([7.0], 1), lambda: ranks.send(array("d", [7]), 1, algorith="ring"),
                              lambda: ranks.send(array("d", [7]), 1.5)):
                    self.assertRaises((TypeError, ValueError), wrong)
                ranks.send(array("d", [7]), 1)
            else:
                ranks.recv(received, 0, timeout=60)
            return received[0]
        self.assertEqual(in_threads(function), [0, 7])

    def test_what_is_no_buffer(self):
        self.refused(lambda ranks: ranks.all_reduce([1.0]), "list is no array")

    def test_read_only(self):
        self.refused(lambda ranks: ranks.all_reduce(bytes(8)), "read only")

    def test_an_unknown_type(self):
        self.refused(lambda ranks: ranks.all_reduce(array("h", [1])), "format 'h'")

    def test_not_contiguous(self):
        self.refused(lambda ranks: ranks.all_reduce(memoryview(array("d", [1, 2, 3]))[::2]), "not contiguous")

    def test_an_unknown_operator(self):
        self.refused(lambda ranks: ranks.all_reduce(array("d", [1]), op="plus"), "no reduction is called 'plus'")

    def test_lengths(self):
        self.refused(lambda ranks: ranks.all_reduce(array("d", [1]), array("d", [1, 2])), "must have 1 elements and has 2")
        self.refused(lambda ranks: ranks.all_reduce(array("d", [1, 2]), array("d", [1])),
                     "beside the 2 elements of one the other must have 2 elements and has 1")
        self.refused(lambda ranks: ranks.all_gather(array("d", [1]), array("d", [1])), "must have 2 elements and has 1")
        self.refused(lambda ranks: ranks.reduce_scatter(array("d", [1]), array("d", [1])), "must have 2 elements and has 1")
        self.refused(lambda ranks: ranks.all_to_all(array("d", [1]), array("d", [1])), "cannot be divided among 2 ranks")

    def test_types_that_differ(self):
        self.refused(lambda ranks: ranks.all_reduce(array("d", [1]), array("f", [1])), "differ in type: F64 and F32")
        self.refused(lambda ranks: ranks.gather_v(array("d", [1]), array("f", [1, 2]), [1, 1]), "differ in type: F64 and F32")
        self.refused(lambda ranks: ranks.scatter_v(array("f", [1, 2]), [1, 1], array("d", [1])), "differ in type: F32 and F64")

    def test_counts(self):
        self.refused(lambda ranks: ranks.all_gather_v(array("d", [1]), array("d", [1, 2]), [1, 2]), "sum must be the 2 elements")
        self.refused(lambda ranks: ranks.all_to_all_v(array("d", [1, 2]), [-1, 3], array("d", [1, 2]), [1, 1]),
                     r"sum must be the 2 elements of the buffer: \[-1, 3\]")
        self.refused(lambda ranks: ranks.all_gather_v(array("d", [1]), array("d", [1, 2]), [1, 1, 0]), "2 counts are needed")
        self.refused(lambda ranks: ranks.gather_v(array("d", [1]), array("d", [1, 2])), "counts are None, and must be 2", TypeError)

    def test_options(self):
        self.refused(lambda ranks: ranks.all_reduce(array("d", [1]), timeout=math.inf), "infinity", OverflowError)
        self.refused(lambda ranks: ranks.barrier(algorith="ring"), "unexpected keyword argument 'algorith': the options of a call are", TypeError)

        self.refused(lambda ranks: ranks.barrier(timeout=-0.0001), "timeout is -0.0001, and must not be negative")
        self.refused(lambda ranks: ranks.barrier(timeout=math.nan), "timeout is nan")
        self.refused(lambda ranks: ranks.barrier(timeout="a"), "timeout is 'a', which is no number", TypeError)
        self.refused(lambda ranks: ranks.barrier(scale="a"), "scale is 'a', which is no number", TypeError)
        self.refused(lambda ranks: ranks.barrier(priority=2**32), "priority is 4294967296")
        self.refused(lambda ranks: ranks.barrier(algorithm=5), "algorithm is of type int, and must be a str", TypeError)
        self.refused(lambda ranks: ranks.barrier(algorithm="ring\0"), "algorithm has a zero character")
        self.refused(lambda ranks: ranks.barrier(**{"a\udc80\0": 1}), "unexpected keyword argument", TypeError)

    def test_a_split_without_a_color(self):
        self.refused(lambda ranks: ranks.split(1.5), "color is 1.5, which is no whole number", TypeError)
        self.refused(lambda ranks: ranks.split(2**32), "color is 4294967296, and must be from -2147483648 to 2147483647")
        self.refused(lambda ranks: ranks.split(0, key="a"), "key is 'a'", TypeError)

    def test_a_root_that_is_no_rank(self):
        self.refused(lambda ranks: ranks.broadcast(array("d", [1]), root="x"), "root is 'x', which is no whole number", TypeError)
        self.refused(lambda ranks: ranks.gather(array("d", [1]), root=1.5), "root is 1.5", TypeError)
        self.refused(lambda ranks: ranks.broadcast(array("d", [1]), root=2**32), "root is 4294967296")

    def test_what_the_library_refuses(self):
        self.refused(lambda ranks: ranks.broadcast(array("d", [1]), root=5), "root", Error)


class Errors(unittest.TestCase):
    def test_a_mismatch_is_named_on_both_sides(self):
        def function(ranks):
            ranks.all_reduce(array("d", [1] * (ranks.rank + 1)))
        for error in in_threads(function):
            self.assertEqual(error.code, ErrorCode.MISMATCH)
            self.assertIn("f64 x 1", str(error))
            self.assertIn("f64 x 2", str(error))

    def test_a_deadline(self):
        ended = threading.Event()

        def function(ranks):
            if ranks.rank == 0:
                try:
                    ranks.barrier(timeout=0.05)
                finally:
                    ended.set()
            ended.wait()
        error = in_threads(function)[0]
        self.assertEqual(error.code, ErrorCode.TIMEOUT)
        self.assertIn("rank 1", str(error))

    def test_a_work_outlives_a_wait(self):
        waited = threading.Event()

        def function(ranks):
            if ranks.rank == 1:
                waited.wait()
            data = array("d", [1])
            work = ranks.all_reduce(data, wait=False)
            if ranks.rank == 0:
                self.assertFalse(work.done())
                with self.assertRaises(TimeoutError):
                    work.wait(timeout=0.01)
                waited.set()
            work.wait()
            work.wait(timeout=0)  # again: it has ended
            return data[0]
        self.assertEqual(in_threads(function), [2, 2])

    def test_a_wait_as_long_as_one_likes(self):
        def function(ranks, timeout):
            if ranks.rank == 0:
                ranks.barrier(wait=False).wait(timeout)
            time.sleep(0.1)  # most likely the other one waits by then
            ranks.abort()
        for timeout in math.inf, 1e13:  # seconds
            error = in_threads(functools.partial(function, timeout=timeout))[0]
            self.assertEqual(getattr(error, "code", None), ErrorCode.ABORTED, error)

    def test_abort_ends_works(self):
        def function(ranks):
            work = ranks.all_reduce(array("d", [1] * (ranks.size - 1)), wait=False) if ranks.rank < 2 else None
            if work is None:
                ranks.abort("it is enough")
            else:
                work.wait()
        for error in in_threads(function, 3)[:2]:
            self.assertEqual(error.code, ErrorCode.ABORTED)
            self.assertIn("it is enough", str(error))

    def test_an_exception_in_a_with_is_told(self):
        def function(ranks):
            with ranks:
                if ranks.rank == 0:
                    raise KeyError("a mistake in the program")
                ranks.barrier()
        first, second = in_threads(function)
        self.assertIsInstance(first, KeyError)
        self.assertIn("a mistake in the program", str(second))

    def test_a_reason_that_is_no_text_is_told(self):
        def function(ranks, reason):
            with ranks:
                if ranks.rank == 0:
                    raise ValueError(reason)
                ranks.barrier()
        second = in_threads(functools.partial(function, reason="cannot read caf\udce9\0!"))[1]
        self.assertIn("cannot read caf\\udce9\\0!", str(second))

    def test_numbers_that_C_would_cut(self):
        ranks = lockstep.Communicator.local_group(1)[0]
        data = array("d", [1])
        for name, call in (("destination", lambda: ranks.send(data, 2**32)), ("tag", lambda: ranks.send(data, 0, tag=2**32)),
                           ("source", lambda: ranks.recv(data, 2**32)), ("tag", lambda: ranks.recv(data, 0, tag=2**32)),
                           ("n", lambda: lockstep.Communicator.local_group(2**32 + 1)),
                           ("rank", lambda: lockstep.Communicator.create(2**32, 1)),
                           ("count", lambda: lockstep.Buffer(None, 2**64, lockstep.DataType.F32, None))):
            with self.assertRaisesRegex(ValueError, f"^{name} is [0-9]+, and must be from"):
                call()
        with self.assertRaisesRegex(TypeError, "address is 1.5, which is no whole number"):
            lockstep.Buffer(1.5, 1, lockstep.DataType.F32, None)

    def test_a_text_that_C_would_cut_is_refused_and_not_shown(self):
        for call in (lambda text: lockstep.Rendezvous("a job", text),
                     lambda text: lockstep.Communicator.create(0, 1, "served://127.0.0.1:1", "a job", text)):
            for secret, kind in (("hidden\0", ValueError), (b"hidden", TypeError)):
                with self.assertRaisesRegex(kind, "^secret (is|has)") as raised:
                    call(secret)
                self.assertNotIn("hidden", str(raised.exception))

    def test_closed(self):
        def function(ranks):
            ranks.finalize()
            self.assertFalse(ranks.usable)
            self.assertIn("closed", repr(ranks))
            ranks.barrier()
        for error in in_threads(function):
            self.assertRegex(str(error), "this communicator is closed")

    def test_a_with_after_an_end_by_hand(self):
        def function(ranks):
            with ranks:
                ranks.finalize()
        self.assertEqual(in_threads(function), [None, None])

    def test_errors_pass_between_processes(self):
        error = pickle.loads(pickle.dumps(Error(ErrorCode.PEER_LOST, "rank 3 is gone", 3)))
        self.assertEqual((error.code, str(error), error.culprit), (ErrorCode.PEER_LOST, "rank 3 is gone", 3))

    def test_rank_and_world_size_belong_together(self):
        with self.assertRaisesRegex(ValueError, "together"):
            lockstep.Communicator.create(rank=0)

    def test_a_start_without_a_limit(self):
        place = lockstep.Rendezvous("a job", "a secret")

        def rank(number):
            time.sleep(0.05 * number)
            with lockstep.Communicator.create(number, 2, place.address, "a job", "a secret", timeout=0) as ranks:
                return ranks.size
        with mock.patch.dict(os.environ, LOCKSTEP_START_TIMEOUT="1ms"), ThreadPoolExecutor(2) as pool:
            self.assertEqual(list(pool.map(rank, range(2))), [2, 2])
        place.close()


class Memory(unittest.TestCase):
    def test_buffers_of_a_dropped_work_live_until_it_has_ended(self):
        dropped = threading.Event()

        def function(ranks):
            if ranks.rank == 1:
                dropped.wait()
            data = array("d", [1] * 1000)
            alive = weakref.ref(data)
            ranks.all_reduce(data, wait=False)
            del data
            gc.collect()
            if ranks.rank == 0:
                self.assertIsNotNone(alive())
                dropped.set()
            ranks.barrier()
            ranks.all_reduce(array("d", [1]), wait=False)  # a later drop looks
            gc.collect()
            ended = alive() is None
            ranks.finalize()
            return ended
        self.assertEqual(in_threads(function), [True, True])

    def test_buffers_of_works_that_threads_drop_at_once_live_until_they_have_ended(self):
        def function(ranks):
            buffers = []

            def drop(tag):
                for _ in range(50):
                    data = array("d", [0])
                    buffers.append(weakref.ref(data))
                    ranks.recv(data, 1 - ranks.rank, tag, wait=False)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(drop, range(4)))
            alive = sum(data() is not None for data in buffers)
            ranks.barrier()  # The end of the other would be theirs.
            return alive
        self.assertEqual(in_threads(function), [200, 200])

    def test_a_communicator_lives_as_long_as_a_call_on_it(self):
        call = library.lockstep_broadcast
        own = threading.local()

        def closing(*arguments):
            """Does what another thread may do while a call is under way."""
            own.ranks.close()
            return call(*arguments)

        def function(ranks):
            own.ranks = ranks
            data = array("d", [5 + ranks.rank])
            ranks.broadcast(data)
            return data[0]
        with mock.patch.object(library, "lockstep_broadcast", closing):
            self.assertEqual(in_threads(function), [5, 5])

    def test_a_communicator_ends_though_an_error_is_kept(self):
        errors = []

        def function(ranks):
            if ranks.rank == 0:
                try:
                    ranks.send(array("d", [1]), destination=5)
                except Error as error:  # assertRaises would take its traceback away
                    errors.append(error)
                return ranks.close()
            return ranks.recv(array("d", [0]), 0)
        self.assertEqual(in_threads(function)[1].code, ErrorCode.PEER_LOST)
        self.assertEqual(len(errors), 1)

    def test_none_is_taken_for_a_size_that_is_none(self):
        with mock.patch.object(library, "lockstep_allocate") as taken:
            for size, kind in ((-5, ValueError), (2**64 + 5, ValueError), (2.5, TypeError), (None, TypeError)):
                with self.assertRaisesRegex(kind, "^nbytes is "):
                    lockstep.allocate(size)
            taken.assert_not_called()
        self.assertEqual(len(lockstep.allocate(0)), 0)

    def test_is_freed_with_its_last_view(self):
        memory = lockstep.allocate(64)
        view = memoryview(memory).cast("B")
        alive = weakref.ref(memory)
        del memory
        view[0] = 1
        self.assertIsNotNone(alive())
        del view
        gc.collect()
        self.assertIsNone(alive())


if __name__ == "__main__":
    unittest.main(argv=["group_test"])
