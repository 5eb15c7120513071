"""A bundle: programs, what they are linked with, and gpu-check itself, for a machine that has a driver and Python."""
import json
import lzma
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import kit
from options import HERE, ROOT, Problem, make_folder

# The C library and the loader belong to the machine. It must be as new as what the programs and their libraries
# ask for (2.34, on Debian 12), not as new as this one's.
OF_THE_SYSTEM = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|linux-vdso)")
PROGRAMS = ["lockstep-bench", "lockstep-run", "lockstep-device-floors"]
TRAINING = ["digits-device", "gpt-device"]  # where cuBLAS was found
TOO_LARGE = re.compile(r"^libcublas")  # of the toolkit, or of PyTorch
OF_CXX = re.compile(r"^lib(stdc\+\+|gcc_s)\.")  # ask for a newer C library than all others
DATA = ["digits.csv"]


def needed_libraries(program, found):
    """{file name: path} of what `program` loads and this machine must not be expected to have."""
    listed = subprocess.run(["ldd", str(program)], text=True, capture_output=True, check=False,
                            env={"LD_LIBRARY_PATH": str(ROOT / "build/release/lib")})
    for name, path in re.findall(r"^\s*(\S+) => (\S+) ", listed.stdout, re.MULTILINE):
        own = any(word in name for word in ("lockstep", "nccl", "host_cudart"))
        if not OF_THE_SYSTEM.match(name) and not TOO_LARGE.match(name) and not own:
            found[name] = path


def copy_program(source, folder):
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    shutil.copy2(source, target)
    subprocess.run(["strip", str(target)], check=False, capture_output=True)


def check_place(path, is_archive):
    """Before the programs are built and packed."""
    make_folder(path.parent, "--pack", path)
    if path.exists() and path.is_dir() == is_archive:
        raise Problem(f"--pack: {path} is a {'folder' if is_archive else 'file'} already: name another")


def write(path, options):
    """A folder, or an archive of it: the tests hold the same kernels over and over, so it is a ninth as large."""
    is_archive = path.name.endswith(".tar.xz")
    check_place(path, is_archive)
    if not is_archive:
        return write_folder(path, options)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / path.name.removesuffix(".tar.xz")
        write_folder(folder, options)
        wide = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 96 << 20}]  # wider than a program
        with lzma.open(path, "wb", filters=wide) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            archive.add(folder, folder.name)
    print(f"gpu-check: {path}: {path.stat().st_size / 2**20:.1f} MiB; there: tar -xJf {path.name} && {folder.name}/tools/gpu-check")
    return 0


def write_folder(folder, options):
    built = kit.build(ROOT / "build/release")
    if folder.exists():
        shutil.rmtree(folder)
    carried = {}
    training = {built.program(name) for name in TRAINING if built.program(name).exists()}
    programs = {built.folder / test["command"][0] for test in built.tests} | {built.program(name) for name in PROGRAMS} | training
    libraries = [built.folder / "lib" / name for name in ("liblockstep.so.0.1", "libhost_cudart.so", "lockstep-nccl/liblockstep_nccl.so")]
    if options.nccl_tests:
        for program in sorted(Path(options.nccl_tests).glob("*_perf")):
            needed_libraries(program, carried)
            copy_program(program, folder / "nccl-tests")
        for launcher in ("mpiexec.hydra", "hydra_pmi_proxy"):  # of MPICH, with which they are built here
            if shutil.which(launcher):
                needed_libraries(shutil.which(launcher), carried)
                copy_program(Path(shutil.which(launcher)), folder / "nccl-tests")
    for source in sorted(programs):
        needed_libraries(source, carried)
        copy_program(source, folder / "bin")
    for source in libraries:
        needed_libraries(source, carried)
        copy_program(source, folder / source.parent.relative_to(built.folder))
    for name in ("libnccl.so.2", "libnccl.so"):
        (folder / "lib" / "lockstep-nccl" / name).symlink_to("liblockstep_nccl.so")
    for name, path in sorted(carried.items()):
        place = folder / "lib" / (kit.CXX if OF_CXX.match(name) else kit.CARRIED)
        place.mkdir(exist_ok=True)
        shutil.copy2(path, place / name)
    (folder / "data").mkdir()
    for name in DATA:
        shutil.copy2(built.data(name), folder / "data" / name)
    (folder / "kit.json").write_text(json.dumps({"commit": built.commit, "tests": built.tests}, indent=1) + "\n", encoding="utf-8")
    shutil.copytree(HERE, folder / "tools" / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "tools" / "gpu-check", folder / "tools" / "gpu-check")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    print(f"gpu-check: {folder}: {len(built.tests)} tests, {len(carried)} carried libraries, {size / 2**20:.1f} MiB; run {folder}/tools/gpu-check there")
    return 0
