"""tools/gpu-check. See --help."""
import json
import signal
import sys
from pathlib import Path

import facts
import goals
import kit
import pack
import report
import schedule
import steps
from options import Problem, make_folder, parse
from runner import Runner


def identity(document):
    return document["commit"], document["device"], (document["gpu"] or {}).get("name")


def passed_before(path, about):
    """{name: result} of an earlier report."""
    if path is None:
        return {}
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        same = identity(earlier) == identity(about)
        results = [steps.Result.from_json(step) for step in earlier["steps"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{path} is no report of gpu-check: {error!r}") from error
    if not same:
        raise Problem(f"{path} is of other programs or of another GPU: run without --after")
    return {result.name: result for result in results if result.status == "passed"}


def document_of(about, runner, planned, results):
    """As far as the run has come: steps that have not ended have no result."""
    entries = [(result or steps.Result(step.name, "unmeasured", "the time was over")).as_json() for step, result in zip(planned, results, strict=True)]
    document = {"schema": "lockstep-gpu-check", **about, "seconds": round(runner.elapsed(), 1), "steps": entries}
    return {**document, "goals": goals.judge(document)}


def check(options):
    make_folder(options.out, "--out")
    parts = kit.find(options)
    runner = Runner(parts, options)
    about = facts.describe(parts, options)
    before = passed_before(options.after, about)
    print(facts.headline(about), flush=True)
    signal.signal(signal.SIGTERM, schedule.interrupt)
    planned = steps.plan(parts, options, about)
    results = [before.get(step.name) for step in planned]
    todo = [(number, step) for number, step in enumerate(planned) if results[number] is None]

    def ended(number, result):
        results[number] = result
        # After each: the machine may be taken away.
        report.write(document_of(about, runner, planned, results), options.out)
    try:
        schedule.run(todo, runner, options.jobs, ended)
    except schedule.Interrupted:
        print("gpu-check: was asked to end", flush=True)
    document = document_of(about, runner, planned, results)
    for path in report.write(document, options.out):
        print(f"written: {path}")
    return tell(document)


def tell(document):
    """The exit status."""
    found = [step["status"] for step in document["steps"]]
    print("gpu-check: " + ", ".join(f"{found.count(status)} {status}" for status in ("passed", "failed", "unmeasured"))
          + f", {document['seconds']:.0f} s" + ("" if document["gpu"] else "; NO GPU WAS HERE: the host backend shows what is right, not what is fast"))
    for goal in document["goals"]:
        if goal["result"] == "missed":
            print(f"gpu-check: goal missed: {goal['what']}: {100 * goal['share']:.0f} % of the copy rate, not {100 * goal['goal']:.0f} %")
    return 1 if "failed" in found else 0


def main():
    options = parse(sys.argv[1:])
    try:
        return pack.write(Path(options.pack), options) if options.pack else check(options)
    except Problem as problem:
        print(f"gpu-check: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
