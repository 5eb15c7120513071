"""Who takes part: the jobs (processes that stay up for the whole run) and how each is started."""
import os
from dataclasses import dataclass, field

# From here on a call's temporary memory comes from fresh pages unless the C library is told to keep it.
KEPT_FROM = 8 << 20
KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:glibc.malloc.top_pad=1048576"
# Beside the f32 sum: what else our all_reduce through shared memory is measured with, and at which sizes. bf16 adds up the numbers
# of the checks without rounding to 8 ranks.
KINDS = ["f16", "bf16", "i64", "f32-max"]
BF16_RANKS = 8
KIND_SIZES = [8 << 10, 1 << 20, 25 << 20]
# A call of ours that hangs says who is missing before its turn is over.
DEADLINE = {"LOCKSTEP_TIMEOUT": "60s"}


@dataclass(frozen=True)
class Job:
    """`mode` is what sets this job of a peer apart: default, kept (memory kept in the process), no-cma."""
    peer: str
    transport: str  # shm, tcp, or any: one that has nothing but TCP, and is compared with in both
    mode: str = "default"
    launcher: tuple = ()
    environment: dict = field(default_factory=dict, hash=False)
    argument: str = ""
    hosts: object = field(default=None, hash=False, compare=False)  # Placement: where its ranks run, None for here

    @property
    def name(self):
        return ".".join([self.peer] + [part for part in (self.transport, self.mode) if part not in ("any", "default")])

    def takes_part(self, size):
        return self.mode != "kept" or size >= KEPT_FROM


def openmpi(transport, mode, parameters=(), environment=None):
    launcher = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--quiet"]
    for name, value in parameters:
        launcher += ["--mca", name, value]
    return Job("openmpi", transport, mode, tuple(launcher), environment or {})


def mpich(transport, mode, environment=None):
    return Job("mpich", transport, mode, ("mpirun.mpich",), environment or {})


def peer_jobs():
    keep = {"GLIBC_TUNABLES": KEEP_MEMORY}
    over_tcp = [("pml", "ob1"), ("btl", "tcp,self"), ("btl_tcp_if_include", "lo")]
    ucx_tcp = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    return [
        openmpi("shm", "default"),
        openmpi("shm", "no-cma", [("btl_vader_single_copy_mechanism", "none")]),
        openmpi("shm", "kept", environment=keep),
        mpich("shm", "default"),
        mpich("shm", "no-cma", {"UCX_TLS": "sysv,posix,self"}),  # Debian's runs on UCX, within a host too.
        mpich("shm", "kept", keep),
        openmpi("tcp", "default", over_tcp),
        openmpi("tcp", "kept", over_tcp, keep),
        mpich("tcp", "default", ucx_tcp),
        Job("gloo", "any"),
    ]


def jobs(options, peers):
    """All jobs of this run, ours first."""
    ours = [Job("lockstep", transport, environment=DEADLINE, argument=transport) for transport in options.transports]
    wanted = set(options.transports) | {"any"}
    sizes = options.sizes or [0 if options.quick else KEPT_FROM]
    theirs = [job for job in peer_jobs()
              if job.peer in peers and job.transport in wanted and any(job.takes_part(size) for size in sizes)]
    return ours + theirs + [Job("floors", "any")]


def command(job, program, ranks, folder, cores):
    """What to start: one launcher, or one process a rank. As (arguments, additional environment) pairs."""
    environment = dict(job.environment)
    if job.hosts:
        return job.hosts.command(job, program, ranks, folder, environment)
    if not job.launcher:
        return [([str(program), str(folder), job.argument], environment | {"PEERS_RANK": str(rank), "PEERS_WORLD": str(ranks)})
                for rank in range(ranks)]
    start = list(job.launcher)
    if job.peer == "openmpi":
        environment["TMPDIR"] = str(folder)
        start += ["--mca", "btl_vader_backing_directory", str(folder)]
        if ranks > cores:
            start.append("--oversubscribe")
    return [(start + ["-n", str(ranks), str(program), str(folder)], environment)]


def clean_environment():
    """Without the marks of a launcher around us, which a library could take for its own."""
    marks = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "MPIR_", "UCX_", "PEERS_", "LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE")
    single = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {k: v for k, v in os.environ.items() if not k.startswith(marks) and k not in single}


def variants(job, op, ranks, size, congestions):
    """The turns that a job takes in a cell."""
    if job.peer == "lockstep":
        buffers = ["registered", "private"] if job.transport == "shm" else ["private"]
        if op != "all_reduce" or job.transport != "shm" or size not in KIND_SIZES:
            return buffers
        return buffers + [f"{one}/{kind}" for kind in KINDS if kind != "bf16" or ranks <= BF16_RANKS for one in buffers]
    if job.peer == "gloo" and op == "all_reduce":
        return ["ring", "halving_doubling"] + (["bcube"] if ranks == 4 else [])
    if job.peer == "floors":
        tcp = [f"tcp-{name}" for name in congestions] if ranks == 2 else []
        return ["registered", "staged"] + tcp if op == "all_reduce" and ranks in (2, 4) else []
    return ["default"]
