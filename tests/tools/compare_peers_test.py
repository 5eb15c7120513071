#!/usr/bin/env python3
"""compare_peers_test.py ROOT BIN: tools/compare-peers as its users run it, small; peers that are not installed are skipped."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

ROOT, BIN = map(Path, sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "peers"))
import contenders  # noqa: E402
import document  # noqa: E402
import targets  # noqa: E402
from crew import MOST_FAILURES, Crew  # noqa: E402
from job import processes_of  # noqa: E402
from options import parse_size, size_name  # noqa: E402

COLLECTIVES = 9


def compare(*arguments, **how):
    return subprocess.run([ROOT / "tools" / "compare-peers", *map(str, arguments)], text=True, capture_output=True, **how)


def measure(folder, *arguments):
    """The results of a small run of programs that are built already."""
    path = Path(folder) / "results.json"
    done = compare("--no-install", "--bin", BIN, "--rounds", 1, "--json", path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="compare-peers-test-"))
        self.addCleanup(shutil.rmtree, self.folder)


class Options(InFolder):
    def refused(self, words, *arguments):
        done = compare(*arguments)
        self.assertNotEqual(done.returncode, 0, arguments)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_refuses_with_the_next_step(self):
        self.refused("multiple of 4", "--sizes", "7")
        self.refused("write 8, 64K or 25M", "--sizes", "big")
        self.refused("known: all_reduce, broadcast", "--ops", "all_redcue")
        self.refused("2 to 64", "--ranks", "1")
        self.refused("known: openmpi, mpich, gloo", "--peers", "nccl")
        self.refused("unrecognized arguments: --fast", "--fast")
        hosts = subprocess.run([sys.executable, ROOT / "tools" / "peers" / "between_hosts.py", "--hosts", "2,1"], text=True, capture_output=True)
        self.assertIn("'1' hosts have no network between them: 2 or more", hosts.stderr)
        self.refused("leave --bin out", "--bin", self.folder)
        self.refused("No such file or directory", "--json", self.folder / "none" / "results.json")
        self.refused("No such file or directory", "--plots", self.folder / "none" / "plots")
        self.refused("does not hold results", "--from", self.folder / "none.json")

    def test_places_for_results_are_tried_before_anything_is_measured(self):
        file, page = self.folder / "file", self.folder / "page.md"
        file.touch()
        page.write_text("\n".join(document.marks("measured")))
        none = ("--from", self.folder / "none.json")  # Which is missed only later.
        self.refused(f"argument --plots: cannot write {file}: File exists", "--plots", file, *none)
        self.refused("argument --plots: cannot write /proc/plots: No such file or directory", "--plots", "/proc/plots", *none)
        (self.folder / "plots").touch()
        self.refused(f"--document: cannot write {self.folder}/plots: File exists", "--document", page, *none)
        self.refused("does not hold results", "--plots", self.folder / "new", *none)
        self.assertFalse((self.folder / "new").exists())

    def test_files_are_those_of_the_callers_folder(self):
        (self.folder / "results.json").write_text(json.dumps({key: {} for key in ("machine", "limits", "rows")}))
        done = compare("--from", "results.json", cwd=self.folder)
        self.assertIn("does not hold results of compare-peers --json: 'failures'", done.stderr)

    def test_a_damaged_row_is_named(self):
        row = {"op": "all_reduce", "ranks": 2, "bytes": 8, "transport": "shm", "buffers": "private", "algorithm": "inline", "ours_us": "x"}
        (self.folder / "results.json").write_text(json.dumps({"machine": {}, "limits": {}, "failures": [], "rows": [row]}))
        self.refused("row 1: ours_us is 'x'", "--from", self.folder / "results.json")

    def test_sizes(self):
        for name in ("8", "1K", "25M", "1G"):
            self.assertEqual(size_name(parse_size(name)), name)
        self.assertEqual(parse_size("64kib"), 64 << 10)


class OursAlone(InFolder):
    def test_rows_and_limits(self):
        results = measure(self.folder, "--peers", "none", "--ranks", "2", "--sizes", "8,64K", "--ops", "all_reduce")
        kinds = {(row["transport"], row["buffers"], row["bytes"]) for row in results["rows"]}
        self.assertEqual(kinds, {(t, b, s) for t, b in (("shm", "registered"), ("shm", "private"), ("tcp", "private")) for s in (8, 65536)})
        for row in results["rows"]:
            self.assertEqual((row["op"], row["ranks"], row["peers"], row["best_peer"], row["ratio"]), ("all_reduce", 2, {}, None, None))
            self.assertGreater(row["ours_us"], 0)
            self.assertGreater(row["floor_us"], 0)
            self.assertNotIn(row["algorithm"], ("", "-"))
        limits = results["limits"]
        self.assertEqual(set(limits["copy_gbs"]), set(limits["add_gbs"]))
        self.assertTrue({"registered", "staged"} <= {floor["floor"] for floor in limits["floors"]})
        self.assertIsInstance(limits["cma"], bool)
        self.assertTrue(limits["congestion_in_use"]["lockstep"])
        self.assertEqual(results["failures"], [])

    def test_other_types_beside_the_f32_sum(self):
        results = measure(self.folder, "--peers", "none", "--ranks", "2", "--sizes", "8K", "--ops", "all_reduce")
        found = {(row["kind"], row["buffers"]) for row in results["kinds"]}
        self.assertEqual(found, {(k, b) for k in ("f16", "bf16", "i64", "f32-max") for b in ("registered", "private")})
        for row in results["kinds"]:
            self.assertAlmostEqual(row["ratio"], row["us"] / row["f32_sum_us"], delta=0.01)
        goals = [v for v in targets.judge(results) if v["goal"] == "to the f32 sum"]
        self.assertEqual(len(goals), len(found))
        self.assertTrue(all(v["met"] == (v["reached"] <= 1.1) for v in goals))

    def test_nothing_is_left_of_a_crew(self):
        job = contenders.Job("lockstep", "shm", argument="shm")
        with Crew({"lockstep": BIN / "peer-lockstep"}, self.fail) as crew:
            self.assertGreaterEqual(crew.turn(job, 2, "all_reduce 8 private 1000 2 3 100", 60).iterations, 3)
            folder = crew.running[job, 2].folder
            self.assertEqual(len(processes_of(folder)), 2)
        self.assertFalse(folder.parent.exists())
        self.assertEqual(processes_of(folder), [])

    def test_every_collective_is_right(self):
        results = measure(self.folder, "--peers", "none", "--ranks", "3", "--sizes", "1200", "--ops",
                          "all_reduce,broadcast,reduce,all_gather,reduce_scatter,gather,scatter,all_to_all,barrier")
        self.assertEqual(len({row["op"] for row in results["rows"]}), COLLECTIVES)
        self.assertEqual(results["failures"], [])

    def test_shows_plots_and_documents_what_was_measured(self):
        measure(self.folder, "--peers", "none", "--ranks", "2", "--sizes", "8,64K", "--tcp", "--ops", "all_reduce")
        page = self.folder / "page.md"
        begin, end = document.marks("measured")
        page.write_text(f"# before\n{begin}\nold\n{end}\nafter\n")
        short = self.folder / "short.md"
        short.write_text("\n".join(document.marks("summary")))
        texts = []
        for _ in range(2):
            done = compare("--from", self.folder / "results.json", "--document", page, "--document", short, "--target")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("2 ranks, TCP over loopback", done.stdout)
            texts.append(page.read_text())
        self.assertEqual(texts[0], texts[1])
        self.assertTrue(texts[0].startswith("# before\n") and texts[0].endswith("\nafter\n"))
        self.assertNotIn("old", texts[0])
        picture = self.folder / "plots" / "all_reduce-2-tcp.svg"
        self.assertIn("plots/all_reduce-2-tcp.svg", texts[0])
        self.assertIn("svg", xml.etree.ElementTree.parse(picture).getroot().tag)
        self.assertIn("| 64K | - | - | - |", short.read_text())
        page.write_text("no marks")
        done = compare("--from", self.folder / "results.json", "--document", page)
        self.assertIn("needs one line <!-- measured: begin", done.stderr)


class Peers(InFolder):
    def test_every_collective_of_every_installed_peer_is_right(self):
        installed = [peer for peer, program in (("openmpi", "mpirun.openmpi"), ("mpich", "mpirun.mpich")) if shutil.which(program)]
        installed += ["gloo"] if Path("/usr/include/gloo/config.h").exists() else []
        if not installed:
            self.skipTest("no peer is installed")
        results = measure(self.folder, "--peers", ",".join(installed), "--ranks", "2", "--sizes", "1200", "--ops",
                          "all_reduce,broadcast,reduce,all_gather,reduce_scatter,gather,scatter,all_to_all,barrier")
        self.assertEqual(results["failures"], [])
        for row in results["rows"]:
            self.assertEqual(set(row["peers"]), set(installed), row)
            self.assertAlmostEqual(row["ratio"], row["ours_us"] / row["peers"][row["best_peer"]], delta=0.01)


class BrokenContenders(InFolder):
    """Programs that stand for a library that fails: each is named, bounded in time, left out, and gone."""

    def turn(self, script, seconds=60):
        program = self.folder / "broken"
        program.write_text("#!/usr/bin/env python3\nimport os, socket, sys, time\n" + script)
        program.chmod(0o755)
        notes = []
        with Crew({"gloo": program}, notes.append) as crew:
            job = contenders.Job("gloo", "any")
            answers = [crew.turn(job, 1, "all_reduce 8 ring 1 1 1 1", seconds) for _ in range(MOST_FAILURES + 1)]
            folder = crew.folder
        self.assertEqual(answers, [None] * len(answers))
        self.assertEqual(len(notes), MOST_FAILURES)
        self.assertFalse(folder.exists())
        return notes[0]

    GREET = """
line = socket.socket(socket.AF_UNIX); line.connect(sys.argv[1] + "/driver")
line.sendall(b"ready %d broken\\n" % os.getpid()); line.recv(100)
"""

    def test_one_that_does_not_start(self):
        self.assertIn("gloo with 1 ranks, does not start: ended with status 3: no such device", self.turn("sys.exit(print('no such device') or 3)"))

    def test_one_that_hangs(self):
        self.assertIn("all_reduce 8 ring: did not answer in time", self.turn(self.GREET + "time.sleep(1000)", 0.5))

    def test_one_that_is_wrong(self):
        self.assertIn("gave 7 wrong elements", self.turn(self.GREET + "line.sendall(b'wrong 7\\n'); time.sleep(1000)"))

    def test_one_that_dies(self):
        self.assertIn("all_reduce 8 ring: ended: out of luck", self.turn(self.GREET + "print('out of luck', flush=True); os._exit(1)"))


class Goals(unittest.TestCase):
    def test_verdicts(self):
        row = {"op": "all_reduce", "ranks": 2, "transport": "shm", "buffers": "registered", "bytes": 8, "ours_us": 0.3,
               "peers": {"openmpi": 0.4}, "best_peer": "openmpi", "ratio": 0.75, "floor_us": 0.15}
        found = {v["goal"]: v["met"] for v in targets.judge({"rows": [row], "kinds": []})}
        self.assertEqual(found, {"all_reduce to best": True, "us above the floor": False})
        other = row | {"op": "broadcast", "ratio": 1.01}
        del other["floor_us"]
        self.assertEqual([v["met"] for v in targets.judge({"rows": [other], "kinds": []})], [False])

    def test_floors_are_goals_from_8_KiB_on_for_registered_buffers_and_at_every_size_for_others(self):
        def limits(transport, buffers, size):
            row = {"op": "all_reduce", "ranks": 2, "transport": transport, "buffers": buffers, "bytes": size, "ours_us": 1.2, "peers": {},
                   "best_peer": None, "ratio": None, "floor_us": 1.0, "ratio_to_floor": 1.2}
            return [(v["limit"], v["met"]) for v in targets.judge({"rows": [row], "kinds": []}) if v["goal"] == "to the floor"]
        self.assertEqual([limits("shm", "registered", size) for size in (8, 1024, 8192)], [[], [], [(1.3, True)]])
        for transport in ("shm", "tcp"):
            self.assertEqual([limits(transport, "private", size) for size in (8, 1024, 8192)], [[(1.15, False)]] * 3)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=sys.argv[:1], verbosity=2)
