"""tools/compare-peers. See --help, and docs/performance.md for the method."""
import json
import signal
import sys
import time
from pathlib import Path

import build
import contenders
import document
import machine
import plots
import rows
import tables
import targets
from crew import Crew
from options import Problem, parse, size_name, sizes_of
from schedule import Schedule

QUICK_SECONDS = 36  # of measuring, when all is built already


def progress(number, cell):
    if sys.stderr.isatty():
        size = size_name(cell.bytes) if cell.bytes else ""
        print(f"\r\033[Kround {number + 1}: {cell.op} {size}, {cell.ranks} ranks", end="", file=sys.stderr, flush=True)


def congestion_in_use(crew, schedule, ranks):
    used = {}
    for job in schedule.jobs:
        if job.peer != "floors" and job.transport != "shm":
            answer = crew.ask(job, ranks, "congestion")
            if answer and answer != "-":
                used[job.peer] = answer
    return used


def measure(options):
    failures = []

    def note(text):
        failures.append(text)
        print(("\r\033[K" if sys.stderr.isatty() else "") + "compare-peers: " + text, file=sys.stderr)

    folder = build.build_own(options)
    peers = build.build_peers(options, note)
    began = time.monotonic()
    programs = peers | {"lockstep": folder / "peer-lockstep", "floors": folder / "peer-floors"}
    default, allowed = machine.congestion()
    congestions = list(dict.fromkeys([default] + [name for name in ("reno",) if name in allowed]))
    schedule = Schedule(options, contenders.jobs(options, peers), congestions)
    largest = max(size for op in options.ops for size in sizes_of(options, op))
    limits = machine.Limits(folder / "peer-limits", options.quick, largest)
    with Crew(programs, note) as crew:
        deadline = began + QUICK_SECONDS if options.quick else None
        schedule.run(crew, deadline, progress, limits.measure)
        used = congestion_in_use(crew, schedule, options.ranks[0])
        about = machine.describe(crew)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    floors = limits.median() | {"congestion_control": default, "congestion_allowed": allowed, "congestion_in_use": used,
                                "floors": rows.floor_rows(schedule)}
    kinds = rows.kind_rows(schedule)
    found = rows.make_rows(schedule, floors)
    about["seconds"] = round(time.monotonic() - began)
    return {"machine": about, "limits": floors, "rows": found, "kinds": kinds, "failures": failures}


# What every row has.
COLUMNS = {"op": str, "ranks": int, "bytes": int, "transport": str, "buffers": str, "algorithm": str, "ours_us": (int, float), "peers": dict}


def check_row(number, row):
    for column, kind in COLUMNS.items():
        if not isinstance(row[column], kind):
            raise ValueError(f"row {number}: {column} is {row[column]!r}")


def read_results(path):
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {key: results[key] for key in ("machine", "limits", "rows")}
        for number, row in enumerate(found["rows"], 1):
            check_row(number, row)
        return found | {"kinds": results.get("kinds", []), "failures": results["failures"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} does not hold results of compare-peers --json: {error}") from error


def write_json(results, path):
    """Rows a line, so that two runs can be compared line by line."""
    def value(part):
        if isinstance(part, list) and part:
            return "[\n  " + ",\n  ".join(map(json.dumps, part)) + "\n ]"
        return json.dumps(part)
    lines = ",\n".join(f" {json.dumps(key)}: {value(part)}" for key, part in results.items())
    path.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def run(options):
    for path in options.document:
        document.check(Path(path))
    results = read_results(options.source) if options.source else measure(options)
    tables.show(results)
    verdicts = targets.judge(results)
    if options.target:
        print("\ngoals\n" + tables.plain(targets.HEADER, list(targets.lines(verdicts))))
    missed = sum(not v["met"] for v in verdicts)
    print(f"\ncompare-peers: {len(results['rows'])} rows, {len(verdicts) - missed} goals met, {missed} missed")
    if options.json:
        write_json(results | {"targets": verdicts}, Path(options.json))
    if options.plots:
        plots.draw(results, Path(options.plots))
    for path in options.document:
        document.write(results, verdicts, Path(path))
    ours_failed = any(failure.startswith(("lockstep", "floors")) for failure in results["failures"])
    return 1 if ours_failed or not results["rows"] else 0


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        return run(parse(sys.argv[1:]))
    except Problem as error:
        print(f"compare-peers: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


sys.exit(main())
