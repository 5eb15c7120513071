#!/usr/bin/env python3
"""lockstep-ddp-bench and the same training step in PyTorch (DDP on Gloo), turn by turn.

    bench/ddp/compare_torch.py --bench build/release/bin/lockstep-ddp-bench --hosts 2 --link 1gbit

Needs PyTorch (any version with Gloo) in the interpreter that --python names. The two take turns, so that a change in the
machine's load meets both; PyTorch's batch is chosen so that its step without synchronisation takes as long as lockstep's.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

TORCH_STEP = pathlib.Path(__file__).with_name("torch_ddp.py")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare_torch: {' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def check_torch(python):
    found = subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                           capture_output=True, check=False)
    if found.returncode != 0:
        sys.exit(f"compare_torch: {python} has no PyTorch with Gloo; install it there (pip install torch) or name another --python")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="lockstep-ddp-bench", help="the program lockstep-ddp-bench")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="rounds in a turn")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--hook", choices=["none", "bf16"], default="none")
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="print every turn as one line of JSON")
    arguments = parser.parse_args()
    check_torch(arguments.python)

    place = ["--ranks", arguments.ranks, "--hosts", arguments.hosts]
    if arguments.hosts > 1:
        place += ["--link", arguments.link]
    model = ["--parameters", arguments.parameters, "--batch", arguments.batch, "--rounds", arguments.rounds,
             "--hook", arguments.hook]
    turns = []
    for _ in range(arguments.turns):
        ours = run(list(map(str, [arguments.bench, *place, *model, "--json", "-"])))
        theirs = run(list(map(str, [arguments.bench, *place, "--", arguments.python, TORCH_STEP, *model, "--compute-ms",
                                    ours["compute_ms"]])))
        turns.append((ours, theirs))
        if arguments.json:
            print(json.dumps({"lockstep": ours, "torch": theirs}), flush=True)
    if arguments.json:
        return
    print(f"{'median of %d turns' % len(turns):20} {'step ms':>9} {'compute ms':>11} {'exposed ms':>11}")
    for side, name in enumerate(("lockstep", "PyTorch on Gloo")):
        values = [statistics.median(turn[side][key] for turn in turns) for key in ("step_ms", "compute_ms", "exposed_ms")]
        print(f"{name:20} {values[0]:9.1f} {values[1]:11.1f} {values[2]:11.1f}")
    ratio = statistics.median(ours["step_ms"] / theirs["step_ms"] for ours, theirs in turns)
    print(f"a step of lockstep takes {ratio:.2f} of PyTorch's ({turns[0][1]['torch']})")


if __name__ == "__main__":
    main()
