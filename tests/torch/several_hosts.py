#!/usr/bin/env python3
"""PyTorch's process group on several hosts, which are network namespaces: the programs of this folder under a torchrun on each host, and
what a rank, a link or a host that ends does to the ranks of the others. Ends with 77 where such hosts cannot be had.

Started with the name of one of the functions below it is a rank of a job.
"""
import concurrent.futures
import os
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE + "/../../tools/lib", HERE + "/../hosts"]
from hosts import Hosts, processes  # noqa: E402
from on_hosts import main  # noqa: E402

PORT = "29500"  # Free: the hosts are new.


# ---- what a rank does

def told(code):
    """The rest of a rank, which fails; the test reads how."""
    try:
        code()
    except RuntimeError as error:  # lockstep's own, or what torch's C++ makes of it
        print(" ".join(str(error).split()), flush=True)


def calling():
    """Collectives, one after the other, until one fails."""
    x = torch.ones(1000)
    dist.all_reduce(x)
    print("begun", flush=True)

    def forever():
        while True:
            dist.all_reduce(x, dist.ReduceOp.MAX)
    told(forever)


def training():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))

    def step():
        model(torch.ones(4, 100)).sum().backward()

    def forever():
        while True:
            step()
    step()
    print("begun", flush=True)
    told(forever)


def resting():
    """In no call, when something happens."""
    dist.all_reduce(torch.ones(1))
    print("begun", flush=True)
    sys.stdin.readline()
    told(dist.barrier)


def restarted():
    """The last rank of the first round dies; a later round, which has the same store, is a job as any. Of agents that meet by themselves
    each counts its own rounds."""
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == dist.get_world_size() - 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    group = dist.new_group(backend="lockstep")
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    dist.destroy_process_group()
    sys.stdout.write(f"a round ends with {x.tolist()}\n")  # in one piece: the ranks of a host share it


# ---- what is expected

class OnHosts(unittest.TestCase):
    LIMIT = 300  # seconds; the deadline of a call is half an hour

    def hosts(self, count):
        hosts = Hosts(count)
        self.addCleanup(hosts.end)
        for host in range(count):
            hosts.write_names(host, [f"{hosts.address(other)} {hosts.name(other)}" for other in range(count)])
        return hosts

    def outputs(self, running):
        """Of processes, and how they ended."""
        with concurrent.futures.ThreadPoolExecutor(len(running)) as readers:
            read = list(readers.map(lambda process: "".join(process.communicate(timeout=self.LIMIT)), running))
        return read, [process.returncode for process in running]


class Torchrun(OnHosts):
    def job(self, hosts, program, *options, ranks=1, meeting=None):
        """`ranks` on each host; what the agents say."""
        meeting = meeting or [f"--master_addr={hosts.address(0)}", f"--master_port={PORT}"]
        # All that an agent has started ends with it, whatever becomes of this test.
        commands = [hosts.enter(host) + ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, f"{HERE}/torchrun.py",
                                         f"--nnodes={hosts.count}", f"--node_rank={host}", f"--nproc_per_node={ranks}", *meeting, *options,
                                         program] for host in range(hosts.count)]
        with processes([(command, {}) for command in commands]) as agents:
            outputs, codes = self.outputs(agents)
            self.assertEqual(codes, [0] * hosts.count, "\n".join(outputs))
        return outputs

    def test_every_call(self):
        for program, count, ranks in ("collectives", 2, 1), ("collectives", 2, 2), ("collectives", 3, 1), ("works", 2, 2):
            with self.subTest(program=program, hosts=count, ranks=ranks):
                self.job(self.hosts(count), f"{HERE}/{program}.py", ranks=ranks)

    def test_trainings(self):
        self.job(self.hosts(2), f"{HERE}/training.py", ranks=2)

    def test_hosts_whose_names_lead_nowhere(self):
        """As Debian writes them, or not at all; only the address of the first is told."""
        hosts = self.hosts(2)
        hosts.write_names(0, [f"127.0.1.1 {hosts.name(0)}"])
        hosts.write_names(1, [])
        self.job(hosts, f"{HERE}/training.py")

    def test_another_round_after_a_loss(self):
        for meeting in None, "c10d":
            with self.subTest(meeting=meeting):
                hosts = self.hosts(2)
                outputs = self.job(hosts, __file__, "--max_restarts=2", ranks=2, meeting=meeting and c10d(hosts))
                for output in outputs:
                    self.assertEqual(output.count("a round ends with [4.0, 4.0, 4.0]"), 2, "\n".join(outputs))


def c10d(hosts):
    return ["--rdzv_backend=c10d", f"--rdzv_endpoint={hosts.address(0)}:{PORT}", "--rdzv_id=job"]


class Losses(OnHosts):
    """Two hosts of two ranks each, that nothing has started but this test."""

    def setUp(self):
        self.net = self.hosts(2)

    def ranks(self, function):
        environment = {"WORLD_SIZE": "4", "MASTER_ADDR": self.net.address(0), "MASTER_PORT": PORT}
        return processes([(self.net.enter(rank // 2) + [sys.executable, __file__, function.__name__], environment | {"RANK": str(rank)})
                          for rank in range(4)])

    def begun(self, ranks):
        for rank in ranks:
            if rank.stdout.readline() != "begun\n":
                self.fail("".join(rank.communicate(timeout=self.LIMIT)))

    def expect_lost(self, ranks, numbers, culprits):
        """That the ranks of these numbers say, and soon, that one of `culprits` is gone."""
        outputs, _ = self.outputs([ranks[number] for number in numbers])
        for number, output in zip(numbers, outputs):
            self.assertRegex(output, f"cause : rank {culprits} .* is gone", f"rank {number}:\n" + "\n".join(outputs))

    def test_a_killed_rank_is_named_on_all_hosts(self):
        for function, victim in (calling, 3), (training, 0):
            with self.subTest(function=function.__name__, victim=victim), self.ranks(function) as ranks:
                self.begun(ranks)
                ranks[victim].kill()
                self.expect_lost(ranks, [number for number in range(4) if number != victim], f"[{victim}]")
            self.setUp()

    def test_a_link_that_is_cut_ends_the_calls_on_both_sides(self):
        for function in training, resting:
            with self.subTest(function=function.__name__), self.ranks(function) as ranks:
                self.begun(ranks)
                self.net.run(1, "ip link set eth0 down")
                if function is resting:
                    for rank in ranks:
                        rank.stdin.write("\n")
                        rank.stdin.flush()
                self.expect_lost(ranks, [0, 1], "[23]")
                self.expect_lost(ranks, [2, 3], "[01]")
            self.setUp()

    def test_a_host_that_goes_away_is_named(self):
        """With the ranks that it has, of whose end no word comes through; among them that with torch's store."""
        with self.ranks(calling) as ranks:
            self.begun(ranks)
            self.net.run(0, "ip link set eth0 down")
            for number in 0, 1:
                ranks[number].kill()
            self.expect_lost(ranks, [2, 3], "[01]")


if __name__ == "__main__":
    if "RANK" in os.environ:
        import torch
        import torch.distributed as dist
        dist.init_process_group("lockstep")
        globals()[sys.argv[1] if len(sys.argv) > 1 else "restarted"]()
    else:
        sys.exit(main())
