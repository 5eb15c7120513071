"""Hosts on one machine: network namespaces around a switch, each with a name of its own, joined by links of a given rate.

    with Hosts(4, rate="1gbit") as hosts:
        subprocess.run(hosts.enter(2) + ["ip", "address"])

Needs root, or unprivileged user namespaces, and iproute2. Nothing of it has a name outside: all of it ends with the
processes that hold the namespaces, and those end with this one."""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
# A bucket must hold the largest packet that segmentation offload hands down, 64 KiB, and the bytes of some scheduler ticks; the
# queue behind it is as deep as a usual switch's.
QUEUE = "burst 256kb latency 50ms"
NETWORK = "10.177.0"


class HostsProblem(Exception):
    """These hosts cannot be had here; says what is missing."""


def end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Hosts:
    """`rate` in the words of tc, or None for as fast as the machine can; each way of each host's link has it for itself."""

    def __init__(self, count, rate=None):
        for program in ("unshare", "nsenter", "ip"):
            if not shutil.which(program):
                raise HostsProblem(f"hosts need the program {program}: install iproute2 and util-linux")
        self.count, self.holders = count, []
        self.folder = Path(tempfile.mkdtemp(prefix="lockstep-hosts-"))
        try:
            self.switch = self._hold()
            self._in(self.switch, "ip link add switch type bridge && ip link set switch up && ip link set lo up")
            for host in range(count):
                self._connect(host, rate)
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def address(host):
        return f"{NETWORK}.{host + 1}"

    @staticmethod
    def name(host):
        return f"node-{host + 1}"

    def add_network(self, rate=None):
        """A second interface of every host, eth1, and a switch of its own: 10.178.0.x."""
        self._in(self.switch, "ip link add second type bridge && ip link set second up")
        for host in range(self.count):
            self._plug(host, self.holders[host + 1], "second", "eth1", f"10.178.0.{host + 1}", rate)

    def enter(self, host):
        """In front of a command: runs it there."""
        return self._enter(self.holders[host + 1])

    def run(self, host, script):
        """A shell script on a host; its output. Raises HostsProblem where it fails."""
        return self._in(self.holders[host + 1], script)

    def write_names(self, host, lines):
        """The host's own /etc/hosts."""
        path = self.folder / f"hosts-{host}"
        path.write_text("127.0.0.1 localhost\n" + "".join(line + "\n" for line in lines), encoding="utf-8")
        self.run(host, f"mount --bind {path} /etc/hosts")

    @staticmethod
    def _enter(holder):
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(holder.pid), "--net", "--uts", "--mount", *user, "--"]

    def _hold(self):
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        # Namespaces below the first need its user namespace, so that links between them can be made.
        before = self._enter(self.holders[0]) if self.holders and user else []
        ready = self.folder / f"ready-{len(self.holders)}"
        inside = ["unshare", "--net", "--uts", "--mount", *([] if before else user), "sh", "-c",
                  f"mount -t sysfs sysfs /sys; echo > {ready} && exec sleep infinity"]  # Interfaces are this network's.
        holder = subprocess.Popen(before + inside, preexec_fn=end_with_parent, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.holders.append(holder)
        while not ready.exists():
            if holder.poll() is not None:
                raise HostsProblem("cannot make a network namespace (root or unprivileged user namespaces are needed): "
                                   + holder.stderr.read().decode().strip())
            time.sleep(0.005)
        return holder

    def _in(self, holder, script):
        done = subprocess.run(self._enter(holder) + ["sh", "-c", script], capture_output=True, text=True)
        if done.returncode:
            raise HostsProblem(f"\"{script}\" failed: {done.stderr.strip()}")
        return done.stdout

    def _connect(self, host, rate):
        holder = self._hold()
        self._in(holder, f"hostname {self.name(host)} && ip link set lo up")
        self._plug(host, holder, "switch", "eth0", self.address(host), rate)

    def _plug(self, host, holder, switch, interface, address, rate):
        port = f"{switch}-{host}"
        self._in(self.switch, f"ip link add {port} type veth peer name {interface} netns {holder.pid} && "
                              f"ip link set {port} master {switch} up")
        self._in(holder, f"ip link set {interface} up && ip address add {address}/24 dev {interface}")
        if rate:
            self._in(holder, f"tc qdisc add dev {interface} root tbf rate {rate} {QUEUE}")
            self._in(self.switch, f"tc qdisc add dev {port} root tbf rate {rate} {QUEUE}")


@contextlib.contextmanager
def processes(commands):
    """Starts (arguments, environment) pairs with their output on pipes; none is left afterwards."""
    started = []
    try:
        for arguments, environment in commands:
            started.append(subprocess.Popen(arguments, env=os.environ | environment, text=True, preexec_fn=end_with_parent,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.communicate()
