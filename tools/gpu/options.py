"""The command line."""
import argparse
import os
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent  # of the sources, or of a bundle


class Problem(Exception):
    """What the user has to be told in one line."""


def rank_counts(text):
    numbers = text.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} are no numbers of processes: write 2,4,8")
    return [int(number) for number in numbers]


def count_of(what, example):
    def parse_count(text):
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of {what}: write {example}")
        return int(text)
    return parse_count


def library(text):
    """Without a slash the loader looks for it."""
    if "/" in text and not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return text


OF_A_RUN = ["--device", "--kit", "--out", "--ranks", "--jobs", "--limit", "--after", "--nccl"]


def refuse_unheeded(parser, arguments, options):
    """An option that would have no effect is a mistake."""
    given = {argument.partition("=")[0] for argument in arguments}
    ignored = sorted(given.intersection(OF_A_RUN)) if options.pack else []
    if ignored:
        parser.error(f"{ignored[0]} means nothing beside --pack, which runs nothing: leave one of them out")
    if options.nccl_tests and not options.pack:
        parser.error("--nccl-tests is what --pack carries along: add that, or leave it out")
    if options.nccl and options.device == "host":
        parser.error("--nccl is measured on a GPU: leave it out beside --device host")


def folder_of_nccl_tests(text):
    if not any(Path(text).glob("*_perf")):
        raise argparse.ArgumentTypeError(f"there are no programs of nccl-tests (*_perf) in {text}: build them first")
    return text


def make_folder(folder, option, written=None):
    """Before anything is run or built for what `option` asks to be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Problem(f"{option}: cannot write {written or f'into {folder}'}: {error.strerror}") from error


def usual_jobs():
    """Tests wait most of their time; but those of all ranks that wait in turns need cores."""
    cores = len(os.sched_getaffinity(0))
    return min(8, cores // 2) if cores >= 8 else 1


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="gpu-check", allow_abbrev=False,
        description="Runs all GPU tests, sanitizer checks and benchmarks beside NCCL, and writes one JSON and one Markdown report. "
                    "What cannot be measured here is reported as unmeasured.",
        epilog="example: tools/gpu-check --pack kit.tar.xz, and there: tar -xJf kit.tar.xz && kit/tools/gpu-check")
    parser.add_argument("--device", choices=["cuda", "host"], default="cuda",
                        help="host: run everything to its end without a GPU (default: %(default)s)")
    parser.add_argument("--kit", metavar="DIR", help="programs to run: a bundle, or a build folder "
                        "(default: the bundle this was called from, else build/release, which is built first)")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the reports go (default: bench/results, in a bundle: results)")
    parser.add_argument("--ranks", metavar="N,...", type=rank_counts, default="2,4,8", help="processes on one GPU (default: %(default)s)")
    parser.add_argument("--jobs", metavar="N", type=count_of("tests", 4), default=usual_jobs(),
                        help="tests and the like that run at a time; what is measured runs alone (default: %(default)s: half the cores, at most 8; one below 8 cores)")
    parser.add_argument("--limit", metavar="SECONDS", type=count_of("seconds", 520), default=520, help="what has not ended by then is unmeasured (default: %(default)s)")
    parser.add_argument("--after", metavar="REPORT.json", type=Path, help="an earlier report of the same programs and GPU: what passed there is taken over, the rest is run")
    parser.add_argument("--nccl", metavar="PATH", type=library, help="the libnccl.so.2 to measure beside (default: that of PyTorch, of the toolkit, or of the system)")
    parser.add_argument("--nccl-tests", metavar="DIR", type=folder_of_nccl_tests, help="with --pack: built programs of nccl-tests to carry along")
    parser.add_argument("--pack", metavar="PATH", help="write a bundle that needs nothing but a driver and Python, and end: a folder, or NAME.tar.xz")
    options = parser.parse_args(arguments)
    refuse_unheeded(parser, arguments, options)
    options.in_bundle = (ROOT / "kit.json").exists()
    if options.out is None:
        options.out = ROOT / ("results" if options.in_bundle else "bench/results")
    return options
