"""tools/startup-growth over a program that stands for lockstep-bench: where its table and its pictures go, and what it says when a run fails.
Arguments: the source folder."""
import contextlib
import importlib.machinery
import importlib.util
import io
import shutil
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(sys.argv[1])
loader = importlib.machinery.SourceFileLoader("startup_growth", str(ROOT / "tools/startup-growth"))
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(tool)

BENCH = """#!/usr/bin/env python3
import json, sys
option = "--threads" if "--threads" in sys.argv else "--ranks"
ranks = int(sys.argv[sys.argv.index(option) + 1])
print(json.dumps({"ranks": ranks, "as": "threads" if option == "--threads" else "processes",
                  "transport": sys.argv[sys.argv.index("--transport") + 1], "start_ms": 1.5 * ranks, "barrier_ms": 1, "all_reduce_ms": 1,
                  "again_ms": 0.1, "memory_kib_per_rank": 5000, "descriptors_per_rank": 16, "threads_per_rank": 3}))
"""


class Growth(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="startup-growth-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "docs/plots").mkdir(parents=True)

    def run_over(self, bench, *arguments):
        program = self.folder / "lockstep-bench"
        program.write_text(bench)
        program.chmod(0o755)
        said = io.StringIO()
        with unittest.mock.patch.multiple(tool, ROOT=self.folder, REPEATS=1), contextlib.redirect_stdout(said), \
                unittest.mock.patch.object(sys, "argv", ["startup-growth", "--bin", str(self.folder), *arguments]):
            tool.main()
        return said.getvalue()

    def test_the_document_has_the_table_and_the_pictures(self):
        page = self.folder / "docs/clusters.md"
        shutil.copy(ROOT / "docs/clusters.md", page)
        self.assertIn("| 512 | threads | TCP | 768 |", self.run_over(BENCH, "--document"))
        self.assertIn("| 512 | threads | TCP | 768 |", page.read_text())
        for picture in ("startup-time.svg", "startup-memory.svg"):
            self.assertIn(f"(plots/{picture})", page.read_text())
            self.assertIn("svg", xml.etree.ElementTree.parse(self.folder / "docs/plots" / picture).getroot().tag)

    def test_a_page_that_cannot_be_written_is_missed_before_the_runs(self):
        with self.assertRaisesRegex(SystemExit, "needs one line"):
            (self.folder / "docs/clusters.md").touch()
            self.run_over("#!/bin/sh\nexit 3\n", "--document")

    def test_a_run_that_fails_is_named(self):
        with self.assertRaisesRegex(SystemExit, "status 3: .*--threads 8 --transport shm"):
            self.run_over("#!/bin/sh\nexit 3\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
