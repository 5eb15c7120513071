"""What a rank does to the others: each case is a job of its own, of processes that run one of the functions below."""
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import lockstep
from lockstep_torch import leaving


def lost_in_a_call(rank, victim=1):
    dist.all_reduce(torch.ones(8))
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(8))
    except lockstep.Error as error:
        print(error.code.name, error.culprit, error)


def rank_0_lost_in_a_call(rank):
    """In whose process all ranks have met."""
    lost_in_a_call(rank, victim=0)


def lost_in_training(rank, hook=None):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    if hook:
        model.register_comm_hook(None, hook)
    for step in range(5):
        if rank == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(4, 10)).sum().backward()


def lost_in_a_hook(rank):
    lost_in_training(rank, default_hooks.allreduce_hook)


def asleep(rank):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        dist.group.WORLD.monitored_barrier(timedelta(seconds=1))  # dist's function is Gloo's alone in most versions
    except RuntimeError as error:
        print(error)


def absent(rank):
    """Rank 0, where all ranks would meet, has no part in a group."""
    if rank == 0:
        return
    try:
        dist.new_group(backend="lockstep", timeout=timedelta(seconds=1))
    except lockstep.Error as error:
        print(error.code.name, error.culprit, error)


def another_call(rank):
    try:
        if rank == 1:
            dist.broadcast(torch.ones(8), 0)
        else:
            dist.all_reduce(torch.ones(4))
        dist.barrier()
    except lockstep.Error as error:
        print(error.code.name, error)


def thrown(rank):
    if rank == 1:
        raise KeyError("a mistake in the program")
    dist.all_reduce(torch.ones(8))


def thrown_before_the_end(rank):
    """As where destroy_process_group() stands in a `finally`."""
    try:
        thrown(rank)
    finally:
        dist.destroy_process_group()


def handled_by_all(rank):
    """What one has sent, the others still get."""
    leaving._PATIENCE_AFTER_ERROR = 60
    x = torch.full((8,), float(rank))
    try:
        if rank == 0:
            dist.broadcast(x, 0)
        raise StopIteration
    except StopIteration:
        if rank > 0:
            dist.broadcast(x, 0)
        dist.destroy_process_group()
    print(x[0].item())


def after_another(rank):
    """Exceptions that were there before the group, and a program's good end, are no reason."""
    dist.destroy_process_group()
    sys.last_value = KeyError("of a cell that ran before")
    try:
        raise ImportError("what the program does without")
    except ImportError:
        initialize()
        try:
            if rank == 1:
                sys.exit(0)
        finally:
            if rank == 1:
                leaving._PATIENCE_AFTER_ERROR = 0.1
                dist.destroy_process_group()
        time.sleep(1)
        x = torch.full((8,), float(rank))
        if rank == 0:
            dist.send(x, 2)
        else:
            dist.recv(x, 0)
        print(x[0].item())


def in_children(function):
    """`function`, as a child of multiprocessing that each rank has forked, and which is the rank."""
    def parent(rank):
        child = multiprocessing.get_context("fork").Process(target=child_of, args=(function, rank))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    return parent


def child_of(function, rank):
    initialize()
    function(rank)


def last_words(rank):
    """Of rank 0, which has ended before the others look."""
    x = torch.full((8,), float(rank))
    if rank > 0:
        time.sleep(1)
    dist.broadcast(x, 0)
    print(x[0].item(), flush=True)


def spawned(rank):
    """One that torch.multiprocessing.spawn has started: it catches what the function throws."""
    with contextlib.suppress(torch.multiprocessing.ProcessExitedException, torch.multiprocessing.ProcessRaisedException):
        torch.multiprocessing.spawn(spawned_child, (sys.argv[2], rank, int(sys.argv[4])), nprocs=1)


def spawned_child(_index, folder, rank, size):
    take_part(folder, rank, size)
    initialize()
    try:
        thrown(rank)
    except lockstep.Error as error:
        print(error, flush=True)


forked_last_words, forked_thrown = in_children(last_words), in_children(thrown)
STARTS_WITHOUT_A_GROUP = "forked_last_words", "forked_thrown", "spawned"


def twice(_rank):
    """Another group after the first, by the same store."""
    dist.all_reduce(torch.ones(8))
    dist.destroy_process_group()
    initialize()
    forgotten(_rank)


def forgotten(_rank):
    """Nobody destroys the group."""
    dist.all_reduce(torch.ones(8))
    print("done")


def several_forgotten(_rank):
    """Nobody destroys them; the ranks have to leave them in one order."""
    finalize = lockstep.Communicator.finalize

    def told(communicator):
        finalize(communicator)
        print("left")
    lockstep.Communicator.finalize = told
    for group in [dist.new_group(backend="lockstep") for _ in range(8)]:
        dist.barrier(group)


def early(rank):
    """Rank 2 has nothing to do with what the others still have to tell each other."""
    leaving._PATIENCE = 0.1
    if rank == 2:
        dist.group.WORLD.shutdown()
        STORE.set("rank 2 has left", "1")
        return
    STORE.wait(["rank 2 has left"])
    x = torch.tensor([float(rank)])
    for _ in range(1000):
        if rank == 0:
            dist.send(x, 1)
        dist.recv(x, 1 - rank)
        if rank == 1:
            dist.send(x, 0)
    print(x.item())


class Failures(unittest.TestCase):
    LIMIT = 60  # seconds; the deadline of a call is half an hour

    def job(self, function, ranks=3, **environment):
        """The exit codes and outputs of the ranks. None of them is left."""
        with tempfile.TemporaryDirectory() as folder:
            processes = [subprocess.Popen([sys.executable, "-Wignore", __file__, function if isinstance(function, str) else function.__name__,
                                           folder, str(rank), str(ranks)],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment)
                         for rank in range(ranks)]
            try:
                outputs = [process.communicate(timeout=self.LIMIT)[0] if self.ends(function, rank) else ""
                           for rank, process in enumerate(processes)]
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()
            return [process.returncode for process in processes], outputs

    @staticmethod
    def ends(function, rank):
        return function is not asleep or rank != 1

    def test_a_killed_rank_is_named(self):
        codes, outputs = self.job(lost_in_a_call)
        self.assertEqual(codes, [0, -signal.SIGKILL, 0], outputs)
        for output in outputs[0], outputs[2]:
            self.assertRegex(output, "PEER_LOST 1 .*all_reduce(.|\n)*cause : rank 1 ")
        codes, outputs = self.job(rank_0_lost_in_a_call)
        self.assertEqual(codes, [-signal.SIGKILL, 0, 0], outputs)
        for output in outputs[1:]:
            self.assertRegex(output, "PEER_LOST 0 .*all_reduce(.|\n)*cause : rank 0 ")

    def test_a_killed_rank_ends_a_training(self):
        for function in lost_in_training, lost_in_a_hook:
            codes, outputs = self.job(function)
            self.assertEqual(codes, [1, -signal.SIGKILL, 1], outputs)
            for output in outputs[0], outputs[2]:
                self.assertRegex(output, "cause : rank 1 .* is gone")

    def test_a_rank_that_does_not_come_is_named(self):
        for transports in "auto", "tcp":  # over TCP rank 0 waits for rank 2, which waits for rank 1
            _, outputs = self.job(asleep, 4, LOCKSTEP_TRANSPORTS=transports)
            for output in outputs[:1] + outputs[2:]:
                self.assertIn("Rank 1 failed to pass monitoredBarrier in 1000 ms", output)
                self.assertIn("rank 1", output.split("\n", 1)[1])

    def test_a_rank_0_that_does_not_come_is_named(self):
        codes, outputs = self.job(absent)
        self.assertEqual((codes, outputs[0]), ([0, 0, 0], ""), outputs)
        for output in outputs[1:]:
            self.assertRegex(output, "^TIMEOUT 0 .* rank 0 .* has not said where the ranks meet")

    def test_two_calls_are_named_on_both_sides(self):
        codes, outputs = self.job(another_call)
        self.assertEqual(codes, [0, 0, 0], outputs)
        for output in outputs:
            self.assertRegex(output, "^MISMATCH")
            self.assertIn("all_reduce", output)
            self.assertIn("broadcast", output)

    def test_a_rank_that_leaves_early_disturbs_nobody(self):
        codes, outputs = self.job(early)
        self.assertEqual((codes, outputs), ([0] * 3, ["0.0\n", "0.0\n", ""]))

    def test_an_exception_is_told(self):
        codes, outputs = self.job(thrown)
        self.assertEqual(codes, [1, 1, 1], outputs)
        for output in outputs:
            self.assertIn("a mistake in the program", output)

    def test_an_exception_is_told_where_the_group_is_destroyed_on_its_way(self):
        codes, outputs = self.job(thrown_before_the_end)
        self.assertEqual(codes, [1, 1, 1], outputs)
        for output in outputs:
            self.assertIn("a mistake in the program", output)

    def test_an_exception_that_all_handle_disturbs_nobody(self):
        codes, outputs = self.job(handled_by_all)
        self.assertEqual((codes, outputs), ([0] * 3, ["0.0\n"] * 3))

    def test_other_exceptions_are_not_told(self):
        codes, outputs = self.job(after_another)
        self.assertEqual((codes, outputs), ([0] * 3, ["0.0\n", "", "0.0\n"]))

    def test_children_of_multiprocessing_leave_in_order(self):
        codes, outputs = self.job("forked_last_words")
        self.assertEqual((codes, outputs), ([0] * 3, ["0.0\n"] * 3))

    @unittest.skipIf(sys.version_info >= (3, 13), "Python does not tell of it")
    def test_an_exception_in_a_child_of_multiprocessing_is_told(self):
        for function in "forked_thrown", "spawned":
            _, outputs = self.job(function)
            for output in outputs[0], outputs[2]:
                self.assertIn("a mistake in the program", output, function)

    def test_groups_that_nobody_destroys_end(self):
        for function in forgotten, twice:
            codes, outputs = self.job(function)
            self.assertEqual((codes, [output.strip() for output in outputs]), ([0] * 3, ["done"] * 3))
        codes, outputs = self.job(several_forgotten)
        self.assertEqual((codes, [output.split() for output in outputs]), ([0] * 3, [["left"] * 9] * 3))


def initialize():
    dist.init_process_group("lockstep", store=STORE, rank=RANK, world_size=SIZE)


def take_part(folder, rank, size):
    global RANK, SIZE, STORE  # pylint: disable=global-statement
    RANK, SIZE, STORE = rank, size, dist.FileStore(f"{folder}/store", size)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        take_part(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        if sys.argv[1] not in STARTS_WITHOUT_A_GROUP:
            initialize()
        globals()[sys.argv[1]](RANK)
    else:
        unittest.main()
