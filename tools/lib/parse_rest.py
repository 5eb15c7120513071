#!/usr/bin/env python3
"""parse_rest.py BUILD TARGET JOBS: has the compiler read each file of a build that TARGET, which was built, does not need. Prints
what it says of them, and fails where it says anything: what no test runs needs no code."""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def without_other_preludes(words, built):
    """Whatever else lies there may be older than its sources. A precompiled header is named by four words: -Xclang -include-pch
    -Xclang FILE.pch, and again with -include and FILE."""
    at = 0
    while at < len(words):
        names_it = words[at] == "-Xclang" and words[at + 1] in ("-include-pch", "-include")
        if names_it and os.path.realpath(words[at + 3].removesuffix(".pch") + ".pch") not in built:
            del words[at:at + 4]
        else:
            at += 1
    return words


def parse(command, folder, built):
    """What the compiler says, or None where it has compiled the file."""
    words = shlex.split(command)
    at = words.index("-o")
    if os.path.realpath(folder / words[at + 1]) in built:
        return None
    del words[at:at + 2]
    said = subprocess.run([*without_other_preludes(words, built), "-fsyntax-only"], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return said.stdout or ("" if said.returncode == 0 else f"it fails without a word: {command}\n")


def main():
    build, target, jobs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    needed = subprocess.run(["ninja", "-C", build, "-t", "inputs", target], text=True, capture_output=True, check=True).stdout
    built = {os.path.realpath(build / name) for name in needed.splitlines()}
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    with ThreadPoolExecutor(jobs) as pool:
        said = list(pool.map(lambda one: parse(one["command"], Path(one["directory"]), built), commands))
    read = [words for words in said if words is not None]
    print("".join(read) + f"{len(read)} files parsed besides, {sum(map(bool, read))} of them with errors", flush=True)
    return any(read)


sys.exit(main())
