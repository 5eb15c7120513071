"""lockstep-bench --device over two hosts of two ranks: every operation right in every element, and as many bytes between the hosts as
the ranks of a host have to tell those of the other. Devices are those of the host backend.

usage: device_hosts_bench_test.py SOURCE_DIR LOCKSTEP_BENCH"""
import json
import sys
import unittest

SOURCE, BENCH = sys.argv[1:3]
sys.path.insert(0, SOURCE + "/tools/lib")
from hosts import Hosts, processes  # noqa: E402
from on_hosts import main  # noqa: E402

LAYOUT = [0, 0, 1, 1]  # the host of each rank
MIB = 1 << 20


def run(hosts, *arguments):
    """What rank 0 prints; every rank must end well."""
    commands = []
    for rank, host in enumerate(LAYOUT):
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(LAYOUT)), "LOCKSTEP_SECRET": "s3cret", "LOCKSTEP_TIMEOUT": "200s",
               "LOCKSTEP_RENDEZVOUS": f"tcp://{hosts.address(0)}:29713"}
        commands.append((hosts.enter(host) + [BENCH, "--device", "host", "--json", "-", *arguments], own))
    with processes(commands) as ranks:
        outputs = [process.communicate() for process in ranks]
        for process, (_, errors) in zip(ranks, outputs):
            if process.returncode:
                raise AssertionError(errors)
    return json.loads(outputs[0][0])


class DevicesOnHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(2)

    @classmethod
    def tearDownClass(cls):
        cls.hosts.end()

    def test_every_operation_is_right(self):
        result = run(self.hosts, "all", "-b", "1K", "-e", "1M", "-f", "1024", "-n", "2", "-w", "1")
        self.assertIn("2 hosts, 2 ranks on each, data pass through pinned memory", result["notes"][0])
        self.assertGreaterEqual(len({row["op"] for row in result["rows"]}), 9)
        for row in result["rows"]:
            self.assertEqual(row["wrong"] or 0, 0, row)

    def test_an_all_reduce_crosses_once_each_way(self):
        def sent():
            return int(self.hosts.run(0, "cat /sys/class/net/eth0/statistics/tx_bytes"))
        before = sent()
        run(self.hosts, "all_reduce", "-b", "4M", "-e", "4M", "-n", "10", "-w", "1", "--check", "0")
        calls = 2 * (10 + 1)  # Out of place and in place.
        self.assertGreater(sent() - before, calls * 4 * MIB)
        self.assertLess(sent() - before, 1.1 * calls * 4 * MIB)


sys.exit(main())
