"""The programs that are run: those of a build folder, or of a bundle."""
import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import facts
from options import ROOT, Problem

LABEL = "gpu"  # of tests that run on a GPU
# Folders of a bundle's lib/: libraries that it brings; and those of C++, for a machine whose own are too old.
CARRIED, CXX = "carried", "carried-cxx"


class Kit:
    """bin/ and lib/ below `folder`; `tests`: [{name, command, environment}]."""

    def __init__(self, folder, tests, commit):
        self.folder, self.tests, self.commit = folder, tests, commit

    def program(self, name):
        return self.folder / "bin" / name

    def data(self, name):
        carried = self.folder / "data" / name
        return carried if carried.exists() else ROOT / "examples" / Path(name).stem / name

    def library(self):
        return self.folder / "lib" / "lockstep-nccl" / "liblockstep_nccl.so"

    @functools.cached_property
    def environment(self):
        """Libraries of a bundle are found wherever it lies; cuBLAS, which is too large to carry, where the toolkit or PyTorch has it."""
        own = [self.folder / "lib" / "lockstep-nccl", self.folder / "lib"]
        own += [self.folder / "lib" / name for name in (CARRIED, CXX) if (self.folder / "lib" / name).exists()]
        if own[-1].name == CXX and self.starts(own[:-1]):
            own.pop()
        return {"LD_LIBRARY_PATH": search_path(own + facts.cublas_folders())}

    def starts(self, folders):
        """Whether a program finds all it needs in these folders and on the machine."""
        environment = os.environ | {"LD_LIBRARY_PATH": search_path(folders)}
        asked = subprocess.run([str(self.program("lockstep-bench")), "--list"], env=environment, capture_output=True, check=False)
        return asked.returncode == 0


def search_path(folders):
    before = os.environ.get("LD_LIBRARY_PATH")
    return ":".join([str(folder) for folder in folders] + ([before] if before else []))


def read_bundle(folder):
    text = json.loads((folder / "kit.json").read_text(encoding="utf-8"))
    return Kit(folder, text["tests"], text["commit"])


def commit():
    shown = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=7"], cwd=ROOT, text=True, capture_output=True, check=False)
    return shown.stdout.strip() or "unknown"


def tests_of(folder):
    """As ctest knows them; commands relative to the folder."""
    if not (folder / "CTestTestfile.cmake").exists():
        raise Problem(f"{folder} is neither a bundle nor a build folder with tests")
    listed = subprocess.run(["ctest", "--test-dir", str(folder), "-L", LABEL, "--show-only=json-v1"], text=True, capture_output=True, check=False)
    if listed.returncode != 0:
        raise Problem(f"ctest cannot list the tests of {folder}: {listed.stderr.strip()}")
    tests = []
    for test in json.loads(listed.stdout)["tests"]:
        if "command" not in test:
            raise Problem(f"{test['name']} is not built; build the target gpu_tests")
        properties = {one["name"]: one["value"] for one in test["properties"]}
        tests.append({"name": test["name"], "command": [str(Path(test["command"][0]).relative_to(folder.resolve()))] + test["command"][1:],
                      "environment": dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))})
    return tests


def build(folder):
    if not shutil.which("cmake") or not shutil.which("ninja"):
        raise Problem("there is neither a bundle here nor cmake and ninja to build with: make a bundle elsewhere with --pack")
    for command in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release", "--target", "gpu_tests"]):
        print("+ " + " ".join(command), flush=True)
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise Problem("cannot build; on a machine without the packages of tools/lib/packages.sh use a bundle (--pack)")
    return Kit(folder, tests_of(folder), commit())


def find(options):
    if options.kit:
        folder = Path(options.kit).resolve()
        return read_bundle(folder) if (folder / "kit.json").exists() else Kit(folder, tests_of(folder), commit())
    return read_bundle(ROOT) if options.in_bundle else build(ROOT / "build/release")
