"""tools/compare-hosts as its users run it, small and without peers.

usage: compare_hosts_test.py SOURCE_DIR PEER_LOCKSTEP"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BIN = Path(sys.argv[1]), Path(sys.argv[2]).parent
sys.path.insert(0, str(SOURCE / "tools" / "lib"))
from on_hosts import SKIPPED, why_not  # noqa: E402


def main():
    if problem := why_not():
        print(f"skipped: {problem}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [SOURCE / "tools" / "compare-hosts", "--no-install", "--bin", BIN, "--peers", "none", "--hosts", "3", "--each", "1,2",
                   "--ops", "all_reduce,gather", "--sizes", "8K,1M", "--rounds", "1", "--link", "1gbit", "--algorithms", "direct", "--json", path]
        done = subprocess.run([str(part) for part in command], text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads(path.read_text())["rows"]
        found = {(row["op"], row["bytes"], row["hosts"], row["each"]) for row in rows}
        assert found == {(op, size, 3, each) for op in ("all_reduce", "gather") for size in (8 << 10, 1 << 20) for each in (1, 2)}, found
        for row in rows:
            assert row["forced_us"]["direct"] > 0 and row["to_best"] > 0, row
            assert row["ours_us"] > 0 and 10 < row["link_mbytes_s"] < 126, row
            assert ("share_of_link" in row) == (row["op"] == "all_reduce"), row
        assert "of link" in done.stdout, done.stdout
    return 0


sys.exit(main())
