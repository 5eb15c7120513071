"""The command line."""
import argparse
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent  # of the sources, or of a bundle


class Problem(Exception):
    """What the user has to be told in one line."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="gpu-check",
        description="Runs all GPU tests, sanitizer checks and benchmarks beside NCCL, and writes one JSON and one Markdown report. "
                    "What cannot be measured here is reported as unmeasured.")
    parser.add_argument("--device", choices=["cuda", "host"], default="cuda",
                        help="host: run everything to its end without a GPU (default: %(default)s)")
    parser.add_argument("--kit", metavar="DIR", help="programs to run: a bundle, or a build folder "
                        "(default: the bundle this was called from, else build/release, which is built first)")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the reports go (default: bench/results, in a bundle: results)")
    parser.add_argument("--ranks", metavar="N,...", default="2,4,8", help="processes on one GPU (default: %(default)s)")
    parser.add_argument("--limit", metavar="SECONDS", type=int, default=520, help="what has not ended by then is unmeasured (default: %(default)s)")
    parser.add_argument("--nccl", metavar="PATH", help="the libnccl.so.2 to measure beside (default: that of PyTorch, of the toolkit, or of the system)")
    parser.add_argument("--nccl-tests", metavar="DIR", help="with --pack: built programs of nccl-tests to carry along")
    parser.add_argument("--pack", metavar="PATH", help="write a bundle that needs nothing but a driver and Python, and end: a folder, or NAME.tar.xz")
    options = parser.parse_args(arguments)
    options.ranks = [int(number) for number in options.ranks.split(",")]
    options.in_bundle = (ROOT / "kit.json").exists()
    if options.out is None:
        options.out = ROOT / ("results" if options.in_bundle else "bench/results")
    return options
