"""Writes results into a Markdown file, between two marks; all else in the file stays."""
import os

import plots
import tables
import targets
from options import Problem

BEGIN = "<!-- measured: begin (written by tools/compare-peers --document) -->"
END = "<!-- measured: end -->"


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
    drawn = {title: path for title, path in plots.draw(results, folder / "plots")}
    for title, path in drawn.items():
        yield f"![{title}]({os.path.relpath(path, folder)})"
    for title, header, lines in tables.titled_tables(results):
        yield f"### {title}"
        yield tables.markdown(header, lines)
    share = tables.shares(results, tables.markdown)
    if share:
        yield "### Bytes touched a second"
        yield share
    yield "### Goals"
    yield from misses(verdicts)
    if results["failures"]:
        yield "Left out:\n" + "\n".join(f"- {failure}" for failure in results["failures"])


def parts(path):
    """What stands before and after the part that is written."""
    try:
        before, rest = path.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        return before, after
    except (OSError, ValueError) as error:
        raise Problem(f"{path} has no part to write into: it needs one line {BEGIN} and, below, one line {END}") from error


def write(results, verdicts, path):
    before, after = parts(path)
    body = "\n\n".join(sections(results, verdicts, path.parent))
    path.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")
