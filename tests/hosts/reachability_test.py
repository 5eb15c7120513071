"""Which addresses ranks of several hosts use, and what they say when there is no way. Hosts are network namespaces.

usage: reachability_test.py SOURCE_DIR TCP_RANK"""
import sys
import time
import unittest

SOURCE, TCP_RANK = sys.argv[1:3]
sys.path.insert(0, SOURCE + "/tools/lib")
from hosts import Hosts, processes  # noqa: E402
from on_hosts import main  # noqa: E402

PORT = 29711
# Every host has the same one: who takes it for a way to the others talks to itself.
DOCKER = "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && ip link set docker0 up"


def rank(hosts, number, world, host, rendezvous=None, **more):
    environment = {"RANK": str(number), "WORLD_SIZE": str(world), "LOCKSTEP_SECRET": "s3cret", "LOCKSTEP_LOG": "off",
                   "LOCKSTEP_RENDEZVOUS": rendezvous or f"tcp://{hosts.address(0)}:{PORT}"} | more
    return hosts.enter(host) + [TCP_RANK], environment


class Reachability(unittest.TestCase):
    def exchange(self, hosts, commands):
        """All ranks exchange with all others; then rank 1 is killed. What the others say of it."""
        with processes(commands) as ranks:
            for process in ranks:
                self.assertEqual(process.stdout.readline(), "exchanged\n")
            ranks[1].kill()
            return [process.stdout.readline() for i, process in enumerate(ranks) if i != 1]

    def refused(self, commands):
        with processes(commands) as ranks:
            return [process.stdout.read() for process in ranks]

    def test_bridges_of_containers_are_not_taken_by_accident(self):
        with Hosts(2) as hosts:
            for host in range(2):
                hosts.run(host, DOCKER)
            for line in self.exchange(hosts, [rank(hosts, i, 2, i) for i in range(2)]):
                self.assertIn(f"lost 1: rank 1 at {hosts.address(1)}:", line)

    def test_an_address_that_leads_nowhere_is_not_in_the_way(self):
        with Hosts(3) as hosts:
            for host in range(3):  # Looks like the better network: it comes before eth0 in the kernel's list.
                hosts.run(host, f"ip link add ib0 type bridge && ip address add 10.178.0.{host + 1}/24 dev ib0 && ip link set ib0 up")
            began = time.monotonic()
            for line in self.exchange(hosts, [rank(hosts, i, 3, i) for i in range(3)]):
                self.assertIn(f"lost 1: rank 1 at {hosts.address(1)}:", line)
            self.assertLess(time.monotonic() - began, 60)

    def test_a_closed_way_is_an_error_with_the_matrix_on_all_ranks(self):
        with Hosts(3) as hosts:
            hosts.run(1, f"ip route add unreachable {hosts.address(2)}/32")
            said = self.refused([rank(hosts, i, 4, min(i, 2)) for i in range(4)])
            for text in said:
                self.assertEqual(text, said[0])
            self.assertTrue(said[0].startswith("error 2: hosts of this job cannot reach each other"), said[0])
            lines = [line.split() for line in said[0].splitlines()]
            address = hosts.address
            self.assertIn("from \\ to node-1 (rank 0) node-2 (rank 1) node-3 (rank 2)".split(), lines)
            self.assertIn(f"node-1 (rank 0) - {address(1)} {address(2)}".split(), lines)
            self.assertIn(f"node-2 (rank 1) {address(0)} - NO".split(), lines)
            self.assertRegex(said[0], f"node-2 \\(rank 1\\) to node-3 \\(rank 2\\):\n *rank 2 .*: cannot connect to {address(2)}:")
            self.assertIn("LOCKSTEP_IFNAME", said[0])

    def test_a_name_that_leads_to_127_0_1_1_on_the_first_host(self):
        with Hosts(2) as hosts:
            hosts.write_names(0, ["127.0.1.1 node-1"])
            hosts.write_names(1, [f"{hosts.address(0)} node-1"])
            meet = f"tcp://node-1:{PORT}"
            self.exchange(hosts, [rank(hosts, i, 2, i, meet) for i in range(2)])
            open_to_none = {"LOCKSTEP_SECRET": "", "LOCKSTEP_START_TIMEOUT": "2s"}
            text = self.refused([rank(hosts, 0, 2, 0, meet, **open_to_none)])[0]
            self.assertIn("node-1 leads to a loopback address here (see /etc/hosts)", text)
            self.assertIn("LOCKSTEP_SECRET_FILE", text)


sys.exit(main())
