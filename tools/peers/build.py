"""Installs and builds what is measured."""
import subprocess
from pathlib import Path

from options import Problem

ROOT = Path(__file__).resolve().parents[2]
OWN = ["peer-lockstep", "peer-floors", "peer-limits"]
CORE = ["board", "call", "data", "driver_socket", "harness", "turn"]
COMPILERS = {"openmpi": ["mpicxx.openmpi"], "mpich": ["mpicxx.mpich"], "gloo": ["g++"]}
LIBRARIES = {"openmpi": [], "mpich": [], "gloo": ["-lgloo", "-pthread"]}
SOURCES = {"openmpi": "mpi", "mpich": "mpi", "gloo": "gloo"}


def shell(script, **kwargs):
    return subprocess.run(["bash", "-c", f"source tools/lib/packages.sh; {script}"], cwd=ROOT, text=True, **kwargs)


def missing(peer):
    return shell(f'missing_packages "${{{peer}_packages[@]}}"', capture_output=True).stdout.split()


def require(script):
    if shell(script).returncode:
        raise Problem("see above")


def build_own(options):
    """Our own programs; gives their folder."""
    if options.bin:
        folder = Path(options.bin).resolve()
        for name in OWN:
            if not (folder / name).exists():
                raise Problem(f"there is no {name} in {folder}: build it, or leave --bin out")
        return folder
    may = "no" if options.no_install else "yes"
    require(f'need_packages {may} "${{build_packages[@]}}" "${{test_packages[@]}}" && need_cmake')
    log = ROOT / "build" / "compare-peers.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        for command in (["cmake", "--preset", "release"],
                        ["cmake", "--build", "--preset", "release", "--parallel", str(options.jobs), "--target", *OWN]):
            if subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode:
                raise Problem(f"cannot build lockstep: see {log}")
    return ROOT / "build" / "release" / "bin"


def build_peers(options, note):
    """The program of each peer that can be had, by name; `note` is told of those that cannot."""
    programs = {}
    for peer in options.peers:
        absent = missing(peer)
        if absent and options.no_install:
            note(f"{peer} is left out: it is not installed (apt-get install {' '.join(absent)})")
            continue
        require(f'need_packages yes "${{{peer}_packages[@]}}"')
        programs[peer] = compile_peer(peer)
    return programs


def compile_peer(peer):
    sources = [ROOT / "bench" / "peers" / f"{name}.cpp" for name in CORE + [SOURCES[peer]]]
    program = ROOT / "build" / "peers" / f"peer-{peer}"
    headers = (ROOT / "bench" / "peers").glob("*.hpp")
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if program.exists() and program.stat().st_mtime > newest:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Gloo's algorithms are templates: they get the instructions of this machine, as ours do at run time.
    command = [*COMPILERS[peer], "-std=c++20", "-O3", "-march=native", f"-I{ROOT}", *map(str, sources), "-o", str(program)]
    done = subprocess.run(command + LIBRARIES[peer], cwd=ROOT, text=True, capture_output=True)
    if done.returncode:
        raise Problem(f"cannot build the program of {peer}: {' '.join(command)}\n{done.stderr}")
    return program


def package_version(package):
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], text=True, capture_output=True)
    return found.stdout if found.returncode == 0 else "unknown"


def commit():
    found = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True, capture_output=True)
    return found.stdout.strip() if found.returncode == 0 else "unknown"
