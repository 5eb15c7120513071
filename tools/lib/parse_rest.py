#!/usr/bin/env python3
"""parse_rest.py BUILD JOBS: has the compiler read each file of a build that it has not compiled. Prints what it says of them, and
fails where it says anything: what no test runs needs no code."""
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def without_missing_prelude(words):
    """A precompiled header is there only if something that was compiled uses it. Named by four words: -Xclang -include-pch -Xclang
    FILE.pch, and again with -include and FILE."""
    at = 0
    while at < len(words):
        names_it = words[at] == "-Xclang" and words[at + 1] in ("-include-pch", "-include")
        if names_it and not Path(words[at + 3].removesuffix(".pch") + ".pch").exists():
            del words[at:at + 4]
        else:
            at += 1
    return words


def parse(entry):
    """What the compiler says; None: it has compiled the file."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    if Path(entry["directory"], words[at + 1]).exists():
        return None
    del words[at:at + 2]
    said = subprocess.run([*without_missing_prelude(words), "-fsyntax-only"], cwd=entry["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return said.stdout or ("" if said.returncode == 0 else f"the compiler fails on {entry['file']}\n")


def main():
    build, jobs = Path(sys.argv[1]), int(sys.argv[2])
    with ThreadPoolExecutor(jobs) as pool:
        said = list(pool.map(parse, json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))))
    print("".join(filter(None, said)), end="")
    read = [words for words in said if words is not None]
    print(f"{len(read)} files parsed besides, {sum(map(bool, read))} of them with errors", flush=True)
    return any(read)


sys.exit(main())
