"""The command line of tools/compare-peers."""
import argparse
import os
import re

import outputs

OPS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier"]
PEERS = ["openmpi", "mpich", "gloo"]
SIZES = ["8", "1K", "8K", "64K", "512K", "1M", "4M", "25M", "64M"]
QUICK_SIZES = SIZES[:7]
OTHER_SIZES = ["1K", "1M", "25M"]
OF_MEASURING = ["--ranks", "--sizes", "--ops", "--tcp", "--quick", "--rounds", "--peers", "--jobs", "--bin"]
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

EPILOG = f"""
Without --ranks, --sizes or --ops everything is measured, with 2 and 4 ranks, through shared memory and over TCP:
all_reduce at {", ".join(SIZES)}, every other collective at {", ".join(OTHER_SIZES)}. That takes a
quarter of an hour. The method is described in docs/performance.md.

examples:
  tools/compare-peers --quick
  tools/compare-peers --json all.json --target
  tools/compare-peers --ranks 4 --sizes 1M --ops broadcast,all_gather --tcp
"""


class Problem(Exception):
    """Ends the program with one line that says what is wrong and what to do."""


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B?)", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 8, 64K or 25M")
    size = int(match[1]) * UNITS[match[2].upper()]
    if size == 0 or size % 4 or size > 1 << 30:
        raise argparse.ArgumentTypeError(f"size {text} must be a multiple of 4 bytes (f32), at most 1G")
    return size


def size_name(size):
    for unit in "GMK":
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


def comma_list(parse):
    return lambda text: [parse(part) for part in text.split(",")]


def one_of(kind, names):
    def parse(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind}; known: {', '.join(names)}")
        return text
    return parse


def peer_list(p, text, known):
    """--peers, whose default is no list yet: "none", or names of `known`."""
    try:
        return [] if text == "none" else comma_list(one_of("peer", known))(text)
    except argparse.ArgumentTypeError as error:
        p.error(f"argument --peers: {error}")


def written_to(check):
    """A file or folder for results."""
    def parse(text):
        try:
            check(text)
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot write {text}: {error.strerror}") from error
        return text
    return parse


writable = written_to(outputs.check_file)


def rank_count(text):
    if not text.isdigit() or not 2 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} ranks cannot be compared: 2 to 64")
    return int(text)


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def refuse_unheeded(p, arguments, beside, options):
    """An option that would have no effect is a mistake."""
    given = {argument.partition("=")[0] for argument in arguments}
    for option in options:
        if beside in given and option in given:
            p.error(f"argument {option}: it means nothing beside {beside}: leave one of them out")


def refuse_sizes_of_barriers(p, options):
    if options.sizes and set(options.ops or []) == {"barrier"}:
        p.error("argument --sizes: a barrier has no size: leave it out, or name other operations")


def parser():
    p = argparse.ArgumentParser(prog="tools/compare-peers", allow_abbrev=False, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                                description="Measures lockstep beside Open MPI, MPICH and Gloo: one method, one interleaved run.")
    p.add_argument("--ranks", type=comma_list(rank_count), metavar="N,...", default=[2, 4], help="default: 2,4")
    p.add_argument("--sizes", type=comma_list(parse_size), metavar="SIZE,...", help="bytes, such as 8,1K,25M")
    p.add_argument("--ops", type=comma_list(one_of("operation", OPS)), metavar="OP,...", help=", ".join(OPS))
    p.add_argument("--tcp", action="store_true", help="only TCP: no shared memory for anyone")
    p.add_argument("--quick", action="store_true", help=f"all_reduce up to {QUICK_SIZES[-1]} in less than 50 s")
    p.add_argument("--rounds", type=positive, metavar="N", help="times that every contender takes its turn (default: 5, with --quick as many as its time allows, to 7)")
    p.add_argument("--peers", metavar="PEER,...", default=",".join(PEERS), help="whom to compare with; none for nobody")
    p.add_argument("--target", action="store_true", help="say of each goal of the project whether this run meets it")
    p.add_argument("--json", type=writable, metavar="FILE", help="write all results there")
    p.add_argument("--plots", type=written_to(outputs.check_folder), metavar="DIR", help="draw time over size there, one SVG for each number of ranks and transport")
    p.add_argument("--from", dest="source", metavar="FILE", help="measure nothing: show the results of a --json FILE")
    p.add_argument("--document", metavar="FILE", action="append", default=[],
                   help="write tables and plots, or a summary, into this Markdown file, between its marks; may be repeated")
    p.add_argument("--no-install", action="store_true", help="do not install missing packages; leave missing peers out")
    p.add_argument("--jobs", type=positive, metavar="N", default=os.cpu_count(), help="compile N files at once")
    p.add_argument("--bin", metavar="DIR", help="build nothing: take our programs from DIR")
    return p


def parse(arguments):
    p = parser()
    options = p.parse_args(arguments)
    refuse_unheeded(p, arguments, "--from", OF_MEASURING)
    refuse_unheeded(p, arguments, "--bin", ["--jobs"])
    refuse_sizes_of_barriers(p, options)
    options.peers = peer_list(p, options.peers, PEERS)
    options.ops = options.ops or (OPS[:1] if options.quick else OPS)
    options.transports = ["tcp"] if options.tcp else ["shm", "tcp"]
    return options


def sizes_of(options, op):
    if op == "barrier":
        return [0]
    if options.sizes:
        return options.sizes
    names = OTHER_SIZES if op != "all_reduce" else QUICK_SIZES if options.quick else SIZES
    return [parse_size(name) for name in names]
