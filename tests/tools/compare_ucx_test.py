"""tools/compare-ucx over programs that stand for ucx_perftest and pair-bench. Arguments: the source folder."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(sys.argv[1])
loader = importlib.machinery.SourceFileLoader("compare_ucx", str(ROOT / "tools/compare-ucx"))
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(tool)

# A server has no address, and here waits for ever: it is the tool that ends it where its client fails.
SERVER = 'case " $* " in *" 127.0.0.1 "*) ;; *) %s ;; esac\n'
WAITS = SERVER % "exec sleep 1000"


class Comparison(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="compare-ucx-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def compare(self, perftest, pair=None, seconds=60):
        """(status, output)"""
        for name, script in (("ucx_perftest", perftest), ("pair-bench", pair)):
            if script is not None:
                (self.folder / name).write_text("#!/bin/sh\n" + script)
                (self.folder / name).chmod(0o755)
        said = io.StringIO()
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        with unittest.mock.patch.object(tool, "MOST_SECONDS", seconds), unittest.mock.patch.dict(os.environ, path), \
                unittest.mock.patch.object(sys, "argv", ["compare-ucx", "--rounds", "1", "--bin", str(self.folder)]), \
                contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                return tool.main(), said.getvalue()
            except SystemExit as end:
                return end.code, said.getvalue()

    def test_the_ratio_is_of_what_both_say(self):
        perftest = SERVER % "exit 0" + "echo 1000,20.0,21.0,40.0,0,0,0,0\n"
        status, said = self.compare(perftest, "echo median 22.00 us, mean 60.00 us\n")
        self.assertIn("| TCP | there and back | 20.0 | 22.0 | 1.10 |", said)
        self.assertIn("| TCP | one after another | 40.0 | 60.0 | 1.50 |", said)
        self.assertEqual(status, 1)

    def test_a_missing_program_of_ours_is_named(self):
        status, said = self.compare("exit 0\n")
        self.assertEqual(status, 2)
        self.assertIn("there is no pair-bench", said)

    def test_a_client_that_hangs_or_fails_ends_it_all(self):
        self.assertIn("took more than", self.compare(WAITS + "exec sleep 1000\n", "exit 0\n", seconds=0.2)[0])
        self.assertIn("ucx_perftest failed: no device", self.compare(WAITS + "echo no device; exit 3\n", "exit 0\n")[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
