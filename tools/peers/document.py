"""Writes results into Markdown files, between two marks: all of them, or a summary. All else in the files stays."""
import os

import marked_page
import outputs
import plots
import tables
import targets
from options import Problem, size_name

PICTURES = "plots"  # A folder beside the document.


def marks(kind):
    return f"<!-- {kind}: begin (written by tools/compare-peers --document) -->", f"<!-- {kind}: end -->"


def misses(verdicts):
    lines = [line[:-1] for line in targets.lines([v for v in verdicts if not v["met"]])]
    met = sum(v["met"] for v in verdicts)
    yield f"{met} of the project's {len(verdicts)} goals that this run can tell of are met" + (":" if not lines else "; these are not:")
    if lines:
        yield tables.markdown(targets.HEADER[:-1], lines)


def sections(results, verdicts, folder):
    """The paragraphs of the measured part; pictures are drawn beside the document."""
    yield "\n".join(f"- {fact}" for fact in tables.facts(results))
    yield tables.rates(results, tables.markdown)
    drawn = {title: path for title, path in plots.draw(results, folder / PICTURES)}
    for title, path in drawn.items():
        yield f"![{title}]({os.path.relpath(path, folder)})"
    for title, header, lines in tables.titled_tables(results):
        yield f"### {title}"
        yield tables.markdown(header, lines)
    share = tables.shares(results, tables.markdown)
    if share:
        yield "### Bytes touched a second"
        yield share
    kinds = tables.kinds(results, tables.markdown)
    if kinds:
        yield "### Other types and operators"
        yield "Microseconds; in brackets the rate of bytes touched as a share of the f32 sum's. Sums, where nothing else is said."
        yield kinds
    yield "### Goals"
    yield from misses(verdicts)
    if results["failures"]:
        yield "Left out:\n" + "\n".join(f"- {failure}" for failure in results["failures"])


def summary(results):
    """all_reduce alone: ours, and the best peer."""
    rows = results["rows"]
    yield next(tables.facts(results)) + " All_reduce, f32 sum in place, medians in microseconds:"
    for ranks in dict.fromkeys(row["ranks"] for row in rows):
        cells = {}
        for row in rows:
            if (row["op"], row["ranks"]) == ("all_reduce", ranks):
                cells.setdefault(row["bytes"], {})[row["transport"], row["buffers"]] = row
        yield tables.markdown([f"{ranks} ranks, bytes", "registered", "private", "best peer", "TCP", "best peer over TCP"],
                              [summary_line(size_name(size), cell) for size, cell in sorted(cells.items())])


def summary_line(label, cell):
    line = [label]
    for kinds in ([("shm", "registered"), ("shm", "private")], [("tcp", "private")]):
        found = [cell[kind] for kind in kinds if kind in cell]
        line += [tables.number(cell[kind]["ours_us"] if kind in cell else None) for kind in kinds]
        best = found and found[0]["best_peer"]
        line.append(f"{tables.number(found[0]['peers'][best])} ({tables.TITLES[best]})" if best else "-")
    return line


KINDS = {"measured": sections, "summary": lambda results, _, __: summary(results)}


def parts(path):
    """(the kind of what is written there, what stands before it, and after)"""
    try:
        whole = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Problem(f"cannot read {path}: {error}") from error
    for kind in KINDS:
        found = marked_page.parts(whole, *marks(kind))
        if found is not None:
            return kind, *found
    raise Problem(f"{path} has no part to write into: it needs one line {marks('measured')[0]} and, below, one line {marks('measured')[1]}")


def check(path):
    """Before anything is measured, not after."""
    kind, *_ = parts(path)
    try:
        outputs.check_file(path)
        if kind == "measured":
            outputs.check_folder(path.parent / PICTURES)
    except OSError as error:
        raise Problem(f"--document: cannot write {error.filename}: {error.strerror}") from error


def write(results, verdicts, path):
    kind, before, after = parts(path)
    begin, end = marks(kind)
    body = "\n\n".join(KINDS[kind](results, verdicts, path.parent))
    path.write_text(f"{before}{begin}\n\n{body}\n\n{end}{after}", encoding="utf-8")
