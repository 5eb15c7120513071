"""A host that vanishes without a word, and one that is only late.

usage: vanished_host_test.py SOURCE_DIR LOCKSTEP_BENCH"""
import signal
import sys
import time
import unittest

SOURCE, BENCH = sys.argv[1:3]
sys.path.insert(0, SOURCE + "/tools/lib")
from hosts import Hosts, processes  # noqa: E402
from on_hosts import main  # noqa: E402

LATE_SECONDS = 8  # More than twice what a silent host is given.


def job(hosts, layout, arguments, **environment):
    """Commands of lockstep-bench's ranks, each on its host of `layout`."""
    for rank, host in enumerate(layout):
        yield (hosts.enter(host) + [BENCH, *arguments],
               {"RANK": str(rank), "WORLD_SIZE": str(len(layout)), "LOCKSTEP_SECRET": "s3cret", "LOCKSTEP_TIMEOUT": "200s",
                "LOCKSTEP_RENDEZVOUS": f"tcp://{hosts.address(0)}:29713", **environment})


def ranks(hosts, turns):
    """Two ranks on two hosts, of which the first sends much more than a connection holds."""
    return job(hosts, [0, 1], ["broadcast", "-b", "128M", "-e", "128M", "-n", str(turns)])


def ring(hosts, layout):
    """Ranks that know only their neighbours, over UCX."""
    return job(hosts, layout, ["all_reduce", "-b", "4M", "-e", "4M", "-n", "20000"], LOCKSTEP_TRANSPORTS="ucx", UCX_TLS="tcp",
               LOCKSTEP_ALGORITHMS="all_reduce:*=ring")


def traffic(hosts, host):
    return int(hosts.run(host, "cat /sys/class/net/eth0/statistics/tx_bytes"))


def wait_for_traffic(hosts, process):
    """Until gigabytes have left the first host, where `process` runs: both ranks are at it."""
    while traffic(hosts, 0) < 2 << 30:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        time.sleep(0.01)


class VanishedHost(unittest.TestCase):
    def test_a_host_that_vanishes_is_named(self):
        with Hosts(2) as hosts, processes(ranks(hosts, 20_000)) as (first, second):
            wait_for_traffic(hosts, first)
            hosts.run(1, "ip link set eth0 down")
            _, errors = first.communicate(timeout=60)
            self.assertNotEqual(first.returncode, 0)
            # By the link or by the session, whichever comes first.
            self.assertRegex(errors, r"rank 1 (at [0-9.:]+|\(node-2, pid \d+\)) is gone: its host has not answered")
            _, errors = second.communicate(timeout=60)
            self.assertNotEqual(second.returncode, 0)
            self.assertRegex(errors, r"rank 0 (at [0-9.:]+|\(.*\)) is gone: ")

    def test_ucx_does_not_wait_to_call_it(self):
        """Two ranks on the second host first call those of the first when that has vanished, to tell them of the end."""
        layout = [0, 0, 0, 1, 1]
        with Hosts(2) as hosts, processes(ring(hosts, layout)) as started:
            try:
                wait_for_traffic(hosts, started[0])
            except AssertionError as problem:
                if "built without UCX" in str(problem) or "UCX cannot be loaded" in str(problem):
                    self.skipTest(str(problem))
                raise
            hosts.run(0, "ip link set eth0 down")
            for process, host in zip(started, layout):
                _, errors = process.communicate(timeout=40)
                self.assertNotEqual(process.returncode, 0)
                self.assertRegex(errors, rf"rank \d \(node-{2 - host}, pid \d+\) is gone: its host has not answered")

    def test_a_rank_that_is_late_is_waited_for(self):
        with Hosts(2) as hosts, processes(ranks(hosts, 50)) as (first, second):
            wait_for_traffic(hosts, first)
            second.send_signal(signal.SIGSTOP)
            time.sleep(LATE_SECONDS)
            second.send_signal(signal.SIGCONT)
            for process in (first, second):
                _, errors = process.communicate(timeout=200)
                self.assertEqual(process.returncode, 0, errors)


sys.exit(main())
