"""tools/gpu-check. See --help."""
import sys
from pathlib import Path

import facts
import goals
import kit
import pack
import report
import steps
from options import Problem, parse
from runner import Runner


def check(options):
    parts = kit.find(options)
    runner = Runner(parts, options)
    about = facts.describe(parts, options)
    print(facts.headline(about))
    results = [step.run(runner) for step in steps.plan(parts, options, about)]
    document = {"schema": "lockstep-gpu-check", **about, "seconds": round(runner.elapsed(), 1),
                "steps": [result.as_json() for result in results]}
    document["goals"] = goals.judge(document)
    for path in report.write(document, options.out):
        print(f"written: {path}")
    failed = [result.name for result in results if result.status == "failed"]
    counts = {status: sum(result.status == status for result in results) for status in ("passed", "failed", "unmeasured")}
    print("gpu-check: " + ", ".join(f"{count} {status}" for status, count in counts.items())
          + f", {runner.elapsed():.0f} s" + ("" if about["gpu"] else "; NO GPU WAS HERE: the host backend shows what is right, not what is fast"))
    for goal in document["goals"]:
        if goal["result"] == "missed":
            print(f"gpu-check: goal missed: {goal['what']}: {100 * goal['share']:.0f} % of the copy rate, not {100 * goal['goal']:.0f} %")
    return 1 if failed else 0


def main():
    options = parse(sys.argv[1:])
    try:
        return pack.write(Path(options.pack), options) if options.pack else check(options)
    except Problem as problem:
        print(f"gpu-check: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
