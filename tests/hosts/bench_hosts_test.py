"""lockstep-bench over hosts with 2, 1 and 3 ranks: every collective right, and what its rows and --topology say of the ways taken.

usage: bench_hosts_test.py SOURCE_DIR LOCKSTEP_BENCH"""
import json
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BENCH = sys.argv[1:3]
sys.path.insert(0, SOURCE + "/tools/lib")
from hosts import Hosts, processes  # noqa: E402
from on_hosts import main  # noqa: E402

LAYOUT = [0, 0, 1, 2, 2, 2]  # the host of each rank
BYTES = 1 << 20


def run(hosts, *arguments, environment=None):
    """What rank 0 prints; every rank must end well."""
    commands = []
    for rank, host in enumerate(LAYOUT):
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(LAYOUT)), "LOCKSTEP_SECRET": "s3cret", "LOCKSTEP_TIMEOUT": "200s",
               "LOCKSTEP_RENDEZVOUS": f"tcp://{hosts.address(0)}:29712"}
        commands.append((hosts.enter(host) + [BENCH, *arguments], own | (environment or {})))
    with processes(commands) as ranks:
        outputs = [process.communicate() for process in ranks]
        for process, (_, errors) in zip(ranks, outputs):
            if process.returncode:
                raise AssertionError(errors)
    return outputs[0][0]


class BenchOnHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(3)

    @classmethod
    def tearDownClass(cls):
        cls.hosts.end()

    def test_every_collective_is_right_and_its_rows_name_the_ways(self):
        sizes = ["-b", "1K", "-e", str(BYTES), "-f", "1024", "-n", "3", "-w", "1"]
        with tempfile.TemporaryDirectory() as folder:
            network = Path(folder) / "tuning.json"  # The ranks share few cores; the choice shall be that of hosts with their own.
            network.write_text(json.dumps({"schema": "lockstep-tuning", "version": 1, "network": {
                "latency": 20_000, "byte": 8, "busy_latency": 0, "busy_byte": 0}}), encoding="utf-8")
            rows = json.loads(run(self.hosts, "all", *sizes, "--json", "-", environment={"LOCKSTEP_TUNING": str(network)}))["rows"]
        self.assertGreaterEqual(len({row["op"] for row in rows}), 10)
        for row in rows:
            self.assertEqual((row["hosts"], row["transport"], row["wrong"] or 0), (3, "shm+tcp", 0), row)
            self.assertGreater(row["sent_bytes"]["tcp"], 0, row)
            self.assertEqual(set(row["sent_bytes"]) - {"shm", "tcp"}, set(), row)
        large = [row for row in rows if row["op"] == "all_reduce" and row["bytes"] == BYTES]
        self.assertEqual({row["algorithm"] for row in large}, {"hierarchical"})
        for row in large:  # 2 (hosts - 1) / hosts of the message leave each host, whatever its ranks.
            self.assertLess(row["sent_bytes"]["tcp"], 2 * (3 - 1) * BYTES * 1.02, row)

    def test_two_sockets_take_two_networks(self):
        with Hosts(3) as hosts:
            hosts.add_network()
            run(hosts, "all_reduce", "-b", "8M", "-e", "8M", "-n", "5", environment={"LOCKSTEP_TCP_SOCKETS": "2"})
            for host in range(3):
                sent = [int(hosts.run(host, f"cat /sys/class/net/{name}/statistics/tx_bytes")) for name in ("eth0", "eth1")]
                self.assertGreater(min(sent), 0.3 * sum(sent), sent)  # Short messages take the first.

    def test_explain_tells_the_network_that_was_measured(self):
        text = run(self.hosts, "all_reduce", "--explain", "-b", "1K", "-e", "1K")
        self.assertRegex(text, r"# between hosts: [0-9.e+]+ us a message, [0-9.e+-]+ ns a byte; where all send at once ")
        self.assertEqual(text.count("<- chosen"), 1, text)

    def test_topology_lists_hosts_and_links(self):
        text = run(self.hosts, "--topology")
        self.assertIn("hosts: 3, ranks: 6", text)
        self.assertIn("ranks 0-1 on node-1", text)
        self.assertIn("ranks 3-5 on node-3", text)
        self.assertRegex(text, rf"\* eth0 {self.hosts.address(1)}, ")
        links = [line.split() for line in text.splitlines()]
        self.assertIn("0 - shm tcp tcp tcp tcp".split(), links)
        self.assertIn("2 tcp tcp - tcp tcp tcp".split(), links)
        self.assertIn("4 tcp tcp tcp shm - shm".split(), links)


sys.exit(main())
