"""What goes wrong where ranks are processes: one is killed, forks, or ends without a word."""
import signal
import subprocess
import sys
import unittest

import lockstep


class Processes(unittest.TestCase):
    LIMIT = 60  # seconds; the deadline of a call is half an hour

    def job(self, code, size=2):
        """The ranks' exit codes and outputs; they meet where this process serves."""
        place = lockstep.Rendezvous("a job", "a secret")
        prefix = "import os, signal, sys, lockstep\nfrom array import array\n" \
                 "ranks = lockstep.Communicator.create(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], 'a job', 'a secret')\n"
        # Python 3.12 and later warn of a fork beside threads, which the library has.
        processes = [subprocess.Popen([sys.executable, "-Wignore::DeprecationWarning", "-c", prefix + code, str(rank), str(size), place.address],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(size)]
        try:
            outputs = [process.communicate(timeout=self.LIMIT)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
            place.close()
        return [process.returncode for process in processes], outputs

    def test_a_killed_rank_is_named(self):
        codes, outputs = self.job("""
ranks.barrier()
if ranks.rank == 1: os.kill(os.getpid(), signal.SIGKILL)
try: ranks.all_reduce(array("d", [1]))
except lockstep.Error as error: print(error.code.name, error.culprit)
""", 3)
        self.assertEqual(codes, [0, -signal.SIGKILL, 0], outputs)
        self.assertEqual([output.strip() for output in outputs], ["PEER_LOST 1", "", "PEER_LOST 1"])

    def test_a_forked_child_is_told_and_the_ranks_go_on(self):
        codes, outputs = self.job("""
child = os.fork()
if child == 0:
    try: ranks.barrier()
    except lockstep.Error as error: print("child:", error.code.name, flush=True)
    os._exit(0)
os.waitpid(child, 0)
data = array("d", [1])
ranks.all_reduce(data)
ranks.finalize()
print("sum:", data[0])
""")
        self.assertEqual(codes, [0, 0], outputs)
        for output in outputs:
            self.assertRegex(output, "^child: [A-Z_]+\nsum: 2.0\n$")

    def test_a_program_that_finalizes_nothing_ends(self):
        codes, outputs = self.job("""
work = ranks.all_reduce(array("d", [1] * 100000), wait=False)
data = array("d", [1])
ranks.all_reduce(data)
print(data[0])
""")
        self.assertEqual((codes, outputs), ([0, 0], ["2.0\n"] * 2))


if __name__ == "__main__":
    unittest.main(argv=["processes_test"])
