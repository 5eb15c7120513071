"""What calls of torch.distributed return on lockstep: works, their futures and callbacks, and groups, from their beginning to their end.

Runs in each rank of a job (lockstep-run, torchrun), as collectives.py.
"""
import gc
import itertools
import threading
import time
import unittest
import unittest.mock
from datetime import timedelta

import torch
import torch.distributed as dist

from case import Ours, setUpModule, tearDownModule  # noqa: F401 (unittest looks for these here)
from lockstep_torch.process_group import ProcessGroupLockstep
from lockstep_torch.work import LockstepWork


class Works(Ours):
    def test_many_at_once(self):
        tensors = [torch.full((100,), float(i)) for i in range(200)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        self.assertTrue(all(work.is_completed() and work.is_success() for work in works))
        self.assertTrue(all((tensor == i * self.size).all() for i, tensor in enumerate(tensors)))

    def test_profiler(self):
        """It shows calls by name, and those that nobody waits for at once until they have ended."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            dist.all_reduce(torch.ones(10))
            work = dist.broadcast(torch.ones(5), 0, async_op=True)
            with torch.profiler.record_function("meanwhile"):
                pass
            work.wait()
            dist.barrier()
        events = {event.name: event.time_range for event in profile.events()}
        for name in ("all_reduce", "broadcast", "barrier"):
            self.assertIn(f"lockstep:{name}", events)
        self.assertLessEqual(events["lockstep:broadcast"].start, events["meanwhile"].start)
        self.assertGreaterEqual(events["lockstep:broadcast"].end, events["meanwhile"].end)

    def test_futures(self):
        futures = [dist.all_reduce(torch.full((1000,), float(i)), async_op=True).get_future().then(lambda f: f.value()[0] + 1)
                   for i in range(20)]
        for i, future in enumerate(futures):
            self.assertTrue((future.wait() == i * self.size + 1).all())

    def test_callbacks_that_start_collectives(self):
        """Some ranks attach them before the operation has ended, some after it; beside the program's own calls."""
        results = []
        for i in range(20):
            work = dist.all_reduce(torch.full((10,), float(i)), async_op=True)
            future = work.get_future()
            if (i + self.rank) % 2:
                work.wait()

            def double_it(future):
                again = future.value()[0] / self.size
                dist.all_reduce(again)
                return again
            results.append(future.then(double_it).then(lambda f: f.wait() + 1))
            dist.all_reduce(torch.ones(3))
        for i, result in enumerate(results):
            self.assertTrue((result.wait() == i * self.size + 1).all())

    def test_done_callbacks_that_start_collectives(self):
        """Rank 0 attaches its own when the operation has ended, the others before."""
        ended, x = threading.Event(), torch.ones(3)

        def add_up(_):
            dist.all_reduce(x)
            ended.set()
        if self.rank == 0:
            for other in range(1, self.size):
                dist.recv(torch.empty(1), other)
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        if self.rank == 0:
            future.wait()
        future.add_done_callback(add_up)
        if self.rank > 0:
            dist.send(torch.ones(1), 0)
        self.assertTrue(ended.wait(60))
        self.assertTrue((x == self.size).all())

    def test_a_callback_that_waits_for_a_later_future(self):
        first, second = (dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2))
        later, known = [], threading.Event()

        def add(future):
            known.wait()
            return future.value()[0] + later[0].wait()
        both = first.get_future().then(add)
        later.append(second.get_future().then(lambda future: future.value()[0]))
        known.set()
        self.assertTrue((both.wait() == 2 * self.size).all())

    def test_a_callback_of_what_was_waited_for_has_run(self):
        def slowly(future):
            time.sleep(0.2)
            y = future.value()[0] / self.size
            dist.all_reduce(y)
            ran.append(y[0].item())
        for waits_for_the_future in False, True:
            ran, work = [], dist.all_reduce(torch.ones(2), async_op=True)
            (work.get_future() if waits_for_the_future else work).wait()
            work.get_future().then(slowly).then(lambda _, ran=ran: ran.append("the next"))
            self.assertEqual(ran, [self.size, "the next"])

    def test_a_callback_after_the_end_of_its_group(self):
        group = dist.new_group(backend="lockstep")
        future = dist.all_reduce(torch.ones(2), async_op=True, group=group).get_future()
        future.wait()
        group.shutdown()
        self.assertTrue((future.then(lambda future: future.value()[0]).wait() == self.size).all())

    def test_a_callback_that_throws(self):
        def throw(_):
            raise KeyError("no such thing")
        with self.assertRaisesRegex(Exception, "no such thing"):
            dist.all_reduce(torch.ones(1), async_op=True).get_future().then(throw).then(lambda f: f.value()).wait()

    def test_a_done_callback_that_throws(self):
        def throw(_):
            raise KeyError("no such thing")
        with self.assertLogs("lockstep_torch.futures") as told:
            future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
            future.add_done_callback(throw)
            future.then(lambda _: None).wait()
        self.assertIn("no such thing", told.output[0])

    def test_a_future_does_not_wait_for_an_older_one(self):
        x = torch.empty(1)
        late = dist.irecv(x, (self.rank + 1) % self.size, tag=9).get_future()
        self.assertTrue((dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0] == self.size).all())
        dist.isend(torch.ones(1), (self.rank - 1) % self.size, tag=9).wait()
        late.wait()
        self.assertEqual(x.item(), 1)

    def test_a_limit_is_for_all_operations_of_a_call(self):
        limits = []

        class Slow:
            @staticmethod
            def wait(limit):
                limits.append(limit)
                time.sleep(0.01)
        work = LockstepWork(dist.group.WORLD, [Slow, Slow], [])
        self.assertTrue(work.wait(timedelta(seconds=100)))
        self.assertLess(limits[1], limits[0])
        self.assertTrue(LockstepWork(dist.group.WORLD, [Slow], []).wait(timedelta.max))

    def test_a_limit_that_has_passed(self):
        x = torch.empty(1)
        late = dist.irecv(x, (self.rank + 1) % self.size, tag=8)
        for kind in TimeoutError, RuntimeError:  # as Gloo's
            with self.assertRaisesRegex(kind, "still runs after 0.001 s, and goes on"):
                late.wait(timedelta(milliseconds=1))
        dist.barrier()
        dist.isend(torch.ones(1), (self.rank - 1) % self.size, tag=8).wait()
        self.assertTrue(late.wait())
        self.assertEqual(x.item(), 1)

    def test_dropped(self):
        x = torch.ones(100000)
        dist.all_reduce(x, async_op=True)
        dist.barrier()  # what was started before has ended
        self.assertTrue((x == self.size).all())

    def test_works_do_not_pile_up(self):
        group = dist.group.WORLD
        x, y = torch.ones(10), torch.ones(10)
        for _ in range(1000):
            dist.all_reduce(x, dist.ReduceOp.MAX)
        self.assertLess(len(group._alive), 100)
        for _ in range(1000):
            dist.isend(x, (self.rank + 1) % self.size, tag=1)  # which nobody waits for
            dist.recv(y, (self.rank - 1) % self.size, tag=1)
        self.assertLess(len(group._alive), 200)

    def test_dropped_barriers(self):
        """Among so many dropped works that the group looks which of them have ended."""
        x = torch.ones(10)
        for _ in range(100):
            dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
            dist.barrier(async_op=True)
        dist.barrier()
        self.assertTrue((x == 1).all())


class Groups(Ours):
    def test_some_ranks(self):
        ranks = list(range(0, self.size, 2))
        group = dist.new_group(ranks, backend="lockstep")
        if self.rank in ranks:
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            self.assertTrue((x == len(ranks)).all())
            self.assertEqual(dist.get_backend(group), "lockstep")
            dist.destroy_process_group(group)

    def test_every_pair(self):
        """The ranks of which may be on one host or on two, rank 0 of the job among them or not."""
        for pair in itertools.combinations(range(self.size), 2):
            group = dist.new_group(pair, backend="lockstep")
            if self.rank in pair:
                x = torch.full((3,), float(self.rank))
                dist.all_reduce(x, group=group)
                self.assertTrue((x == sum(pair)).all())
                y = torch.empty(2)
                dist.all_gather_into_tensor(y, x[:1], group)
                dist.broadcast(x.fill_(self.rank), pair[1], group)
                self.assertTrue((x == pair[1]).all())
                dist.destroy_process_group(group)

    def test_many_groups(self):
        for _ in range(10):
            group = dist.new_group(backend="lockstep")
            dist.barrier(group)
            dist.destroy_process_group(group)

    @unittest.mock.patch.dict("os.environ", TORCH_FR_BUFFER_SIZE="0")  # torch 2.15 would put a recorder on it, and fails at that
    def test_beside_nccl(self):
        """As programs write it that run with GPUs and without."""
        group = dist.new_group(backend="cpu:lockstep,cuda:nccl")
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        self.assertTrue((x == self.size).all())
        dist.destroy_process_group(group)

    @unittest.skipUnless(ProcessGroupLockstep.supports_splitting, "this torch splits no groups on CPUs")
    def test_split(self):
        """In another order of ranks, and again, into groups that not all ranks are in."""
        odd, even = (list(range(first, self.size, 2)) for first in (1, 0))
        half = dist.split_group(split_ranks=[odd[::-1], even], timeout=timedelta(seconds=50), group_desc="half")
        mine = odd[::-1] if self.rank in odd else even
        self.assertEqual((dist.get_process_group_ranks(half), dist.get_rank(half)), (mine, mine.index(self.rank)))
        self.assertEqual((half.group_desc, half.options._timeout), ("half", timedelta(seconds=50)))
        x = torch.full((3,), float(self.rank))
        dist.all_reduce(x, group=half)
        self.assertTrue((x == sum(mine)).all())
        first = dist.split_group(half, [[0]])
        self.assertEqual(first is dist.GroupMember.NON_GROUP_MEMBER, self.rank != mine[0])
        for group in (first, half):
            dist.destroy_process_group(group)

    @unittest.skipUnless(ProcessGroupLockstep.supports_splitting, "this torch takes a device for all groups alone")
    def test_a_device(self):
        group = dist.new_group(backend="lockstep", device_id=torch.device("cpu:0"))
        dist.barrier(group)
        dist.destroy_process_group(group)

    def test_a_thread_ends_with_its_group(self):
        group = dist.new_group(backend="lockstep")
        dist.all_reduce(torch.ones(2), async_op=True, group=group).get_future().then(lambda future: None).wait()
        thread = group.futures._thread
        dist.destroy_process_group(group)
        del group
        gc.collect()  # older versions of torch shut nothing down
        thread.join(60)
        self.assertFalse(thread.is_alive())


if __name__ == "__main__":
    unittest.main(argv=["works"])
