"""Where the ranks of a contender run, when they run on several hosts (tools/lib/hosts.py), and how fast the way between those is."""
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from hosts import Hosts, HostsProblem  # noqa: E402,F401

RATE_BYTES = 32 << 20
RATE_SECONDS = 60


class Placement:
    """As many ranks on every host, those of a host one after the other."""

    def __init__(self, count, each, rate):
        self.hosts, self.count, self.each = Hosts(count, rate), count, each

    def end(self):
        self.hosts.end()

    def host_of(self, rank):
        return rank // self.each

    def command(self, job, program, ranks, folder, environment):
        """As contenders.command."""
        if job.peer == "openmpi":
            return [self._mpirun(job, program, ranks, folder, environment)]
        commands = []
        for rank in range(ranks):
            host = self.host_of(rank)
            own = {"PEERS_RANK": str(rank), "PEERS_WORLD": str(ranks), "PEERS_ADDRESS": self.hosts.address(host)}
            commands.append((self.hosts.enter(host) + [str(program), str(folder), job.argument], environment | own))
        return commands

    def _mpirun(self, job, program, ranks, folder, environment):
        """mpirun on the first host; it reaches the others through a command in the place of ssh."""
        agent = folder / "agent"
        cases = "".join(f"{self.hosts.address(i)}) enter='{' '.join(self.hosts.enter(i))}';;\n" for i in range(self.count))
        agent.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}esac\nexec $enter sh -c "$*"\n', encoding="utf-8")
        agent.chmod(0o700)
        where = ",".join(f"{self.hosts.address(i)}:{self.each}" for i in range(self.count))
        start = [*job.launcher, "--host", where, "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "eth0",
                 "--mca", "btl_tcp_if_include", "eth0", "-n", str(ranks), str(program), str(folder)]
        if ranks > 2:
            start.insert(1, "--oversubscribe")
        return self.hosts.enter(0) + start, environment | {"TMPDIR": str(folder)}

    def link_rate(self):
        """Bytes a second of payload that TCP carries from every host to the next, all of them at once."""
        script = str(Path(__file__).resolve().parent / "link_rate.py")
        runs = []
        for host in range(self.count):
            arguments = [self.hosts.address(host), self.hosts.address((host + 1) % self.count), str(RATE_BYTES)]
            runs.append(subprocess.Popen(self.hosts.enter(host) + [sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True))
        try:
            return RATE_BYTES / statistics.median(float(run.communicate(timeout=RATE_SECONDS)[0]) for run in runs)
        finally:
            for run in runs:
                run.kill()
                run.wait()
