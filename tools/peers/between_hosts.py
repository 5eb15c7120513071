"""tools/compare-hosts. See --help, and docs/performance.md for the method."""
import argparse
import dataclasses
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

import build
import contenders
import tables
from crew import Crew
from options import (OPS, Problem, comma_list, one_of, parse_size, peer_list, positive, refuse_sizes_of_barriers, refuse_unheeded, size_name,
                     writable)
from placement import HostsProblem, Placement

PEERS = ["openmpi", "gloo"]
OWN = ["peer-lockstep"]
TURN_SECONDS = 120


def host_count(text):
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} hosts have no network between them: 2 or more")
    return int(text)


def parse(arguments):
    p = argparse.ArgumentParser(prog="tools/compare-hosts", allow_abbrev=False, description="Measures lockstep beside Open MPI over TCP and Gloo on hosts that "
                                "are network namespaces of this machine, joined by a switch: one method, one interleaved run.",
                                epilog="example: tools/compare-hosts --hosts 2,4 --each 1,2 --link 1gbit --sizes 25M")
    p.add_argument("--hosts", type=comma_list(host_count), metavar="N,...", default=[2, 4], help="default: 2,4")
    p.add_argument("--each", type=comma_list(positive), metavar="N,...", default=[1, 2], help="ranks on every host; default: 1,2")
    p.add_argument("--link", metavar="RATE", default="1gbit", help="of each way of each host's link, as tc writes it, or none (default: 1gbit)")
    p.add_argument("--sizes", type=comma_list(parse_size), metavar="SIZE,...", help="default: 25M")
    p.add_argument("--ops", type=comma_list(one_of("operation", OPS)), metavar="OP,...", default=["all_reduce"], help="default: all_reduce")
    p.add_argument("--rounds", type=positive, metavar="N", default=5, help="times that every contender takes its turn; default: 5")
    p.add_argument("--peers", metavar="PEER,...", default=",".join(PEERS), help="whom to compare with; none for nobody")
    p.add_argument("--algorithms", metavar="NAME,...", default="", help="measure ours with each of these forced, too: what the choice is worth")
    p.add_argument("--json", type=writable, metavar="FILE", help="write all results there")
    p.add_argument("--no-install", action="store_true", help="do not install missing packages; leave missing peers out")
    p.add_argument("--jobs", type=positive, metavar="N", default=os.cpu_count(), help="compile N files at once")
    p.add_argument("--bin", metavar="DIR", help="build nothing: take our programs from DIR")
    options = p.parse_args(arguments)
    refuse_unheeded(p, arguments, "--bin", ["--jobs"])
    refuse_sizes_of_barriers(p, options)
    options.sizes = options.sizes or [parse_size("25M")]
    options.peers = peer_list(p, options.peers, PEERS)
    options.algorithms = [name for name in options.algorithms.split(",") if name]
    options.link = None if options.link == "none" else options.link
    return options


def jobs_on(placement, options, peers):
    jobs = [contenders.Job("lockstep", "hosts", argument="auto", hosts=placement)]
    for name in options.algorithms:
        forced = {"LOCKSTEP_ALGORITHMS": ";".join(f"{op}:*={name}" for op in options.ops)}
        jobs.append(dataclasses.replace(jobs[0], mode=name, environment=forced))
    if "openmpi" in peers:
        over_tcp = contenders.openmpi("hosts", "default", [("pml", "ob1"), ("btl", "vader,tcp,self")])
        jobs.append(dataclasses.replace(over_tcp, hosts=placement))
    if "gloo" in peers:
        jobs.append(contenders.Job("gloo", "hosts", hosts=placement))
    return jobs


class Cell:
    """One operation of one size on so many hosts with so many ranks each; all contenders, one after the other, in every round."""

    def __init__(self, placement, jobs, op, size):
        self.placement, self.jobs, self.op, self.size, self.answers, self.forced = placement, jobs, op, size, {}, {}
        self.ranks = placement.count * placement.each

    def visit(self, crew):
        for job in self.jobs:
            variants = ["private"] if job.peer == "lockstep" else contenders.variants(job, self.op, self.ranks, self.size, [])
            for variant in variants:
                order = f"{self.op} {self.size} {variant} {300_000 if self.size >= 1 << 20 else 60_000} 2 3 20000"
                answer = crew.turn(job, self.ranks, order, TURN_SECONDS)
                if answer and job.peer == "lockstep" and job.mode != "default":
                    self.forced.setdefault(job.mode, []).append(answer.median)
                elif answer:
                    self.answers.setdefault((job.peer, variant), []).append(answer)

    def row(self, rate):
        times = {}
        for (peer, _), answers in self.answers.items():
            times.setdefault(peer, []).append(statistics.median(answer.median for answer in answers))
        best = {peer: round(min(of), 1) for peer, of in times.items()}
        ours = best.pop("lockstep", None)
        if ours is None:
            return None
        hosts = self.placement.count
        row = {"op": self.op, "hosts": hosts, "each": self.placement.each, "bytes": self.size, "ours_us": ours, "peers": best,
               "ratios": {peer: round(ours / us, 3) for peer, us in best.items()},
               "algorithm": self.answers["lockstep", "private"][-1].algorithm, "link_mbytes_s": round(rate / 1e6, 2)}
        if self.forced:
            row["forced_us"] = {name: round(statistics.median(times), 1) for name, times in self.forced.items()}
            # Of two runs of one algorithm, the one among the others.
            row["to_best"] = round(row["forced_us"].get(row["algorithm"], ours) / min(row["forced_us"].values()), 3)
        if self.op == "all_reduce":
            row["share_of_link"] = round(2 * (hosts - 1) / hosts * self.size / rate * 1e6 / ours, 3)
        return row


def measure(options):
    build.OWN[:] = OWN
    folder = build.build_own(options)

    def note(text):
        print(("\r\033[K" if sys.stderr.isatty() else "") + "compare-hosts: " + text, file=sys.stderr)

    peers = build.build_peers(options, note)
    programs = peers | {"lockstep": folder / "peer-lockstep"}
    rows = []
    for hosts in options.hosts:
        groups = []
        try:
            # Every number of ranks on hosts of the same kind and in the same rounds, so that their ratio is of one run.
            for each in options.each:
                groups.append(Placement(hosts, each, options.link))
            rows += measure_on(groups, options, peers, programs, note)
        finally:
            for placement in groups:
                placement.end()
    return rows


def measure_on(groups, options, peers, programs, note):
    rates = []
    with Crew(programs, note) as crew:
        cells = [Cell(placement, jobs, op, size) for placement in groups for jobs in [jobs_on(placement, options, peers)]
                 for op in options.ops for size in ([0] if op == "barrier" else options.sizes)]
        for number in range(options.rounds):
            rates.append(groups[0].link_rate())
            for cell in sorted(cells, key=lambda c: (c.op, c.size)):
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {number + 1}: {cell.op} {size_name(cell.size)}, {cell.placement.count} hosts with "
                          f"{cell.placement.each}", end="", file=sys.stderr, flush=True)
                cell.visit(crew)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return [row for cell in cells for row in [cell.row(statistics.median(rates))] if row]


def against_one_each(row, rows):
    alone = [r for r in rows if (r["op"], r["hosts"], r["bytes"], r["each"]) == (row["op"], row["hosts"], row["bytes"], 1)]
    return f"{row['ours_us'] / alone[0]['ours_us']:.3f}" if alone and row["each"] > 1 else "-"


def lines(rows):
    for row in sorted(rows, key=lambda r: (r["op"], r["hosts"], r["bytes"], r["each"])):
        yield [f"{row['op']} {size_name(row['bytes'])}", f"{row['hosts']} x {row['each']}", tables.number(row["ours_us"]), row["algorithm"],
               f"{row['share_of_link']:.1%}" if "share_of_link" in row else "-", against_one_each(row, rows),
               *(cell for peer in PEERS for cell in (tables.number(row["peers"].get(peer)), str(row["ratios"].get(peer, "-"))))]


def choices(rows):
    for row in rows:
        if "to_best" in row:
            others = ", ".join(f"{name} {tables.number(us)}" for name, us in sorted(row["forced_us"].items(), key=lambda item: item[1]))
            yield [f"{row['op']} {size_name(row['bytes'])}", f"{row['hosts']} x {row['each']}", row["algorithm"], tables.number(row["ours_us"]),
                   f"{row['to_best']:.2f}", others]


CHOICES = ["call", "hosts x ranks", "chosen", "us", "to the best", "each forced, us"]
HEADER = ["call", "hosts x ranks", "lockstep us", "algorithm", "of link", "to 1 each", "Open MPI us", "ratio", "Gloo us", "ratio"]


def run(options):
    began = time.monotonic()
    rows = measure(options)
    print(tables.plain(HEADER, list(lines(rows))))
    if options.algorithms:
        print(tables.plain(CHOICES, list(choices(rows))))
    rates = sorted({(row["hosts"], row["link_mbytes_s"]) for row in rows})
    print(f"link: {options.link or 'unlimited'}; measured beside, MB/s each way, by hosts: {', '.join(f'{h}: {r}' for h, r in rates)}; "
          f"{time.monotonic() - began:.0f} s")
    if options.json:
        Path(options.json).write_text(json.dumps({"link": options.link, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0 if rows else 1


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        return run(parse(sys.argv[1:]))
    except (Problem, HostsProblem) as error:
        print(f"compare-hosts: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


sys.exit(main())
