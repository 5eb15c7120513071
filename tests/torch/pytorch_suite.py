#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed (they come with torch) over the backend lockstep.

    PYTHONPATH=build/release/lib/python WORLD_SIZE=2 tests/torch/pytorch_suite.py [unittest's arguments]

Tests that PyTorch keeps for Gloo run as well: the name of the backend says "lockstep" and equals "gloo".
"""
import inspect
import os
import sys
import tempfile
import unittest

os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["BACKEND"] = "lockstep"
if "TEMP_DIR" not in os.environ:
    FOLDER = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
    os.environ["TEMP_DIR"] = FOLDER.name
    os.mkdir(os.path.join(os.environ["TEMP_DIR"], "barrier"))
    os.mkdir(os.path.join(os.environ["TEMP_DIR"], "test_dir"))


class _Name(str):
    """"lockstep", where a test asks for a name; equal to "gloo", where it asks whether it may run."""

    def __eq__(self, other):
        return other in ("lockstep", "gloo")

    def __hash__(self):
        return hash("gloo")


class _Environment(os.environ.__class__):
    def __getitem__(self, key):
        value = super().__getitem__(key)
        return _Name(value) if key == "BACKEND" else value


os.environ.__class__ = _Environment

import torch.distributed as dist  # noqa: E402
import lockstep_torch  # noqa: E402,F401
from torch.testing._internal import common_distributed  # noqa: E402

for backends in common_distributed.DistTestCases.backend_feature.values():
    backends.add("lockstep")

from torch.testing._internal.distributed import distributed_test  # noqa: E402


# What no backend but Gloo can pass, or none at all.
SKIPPED = {"test_ddp_logging_data_cpu": "torch calls the backends of others \"custom\""}
if int(os.environ["WORLD_SIZE"]) > 2:
    SKIPPED["test_monitored_barrier_gloo"] = "expects that rank 0 alone learns who is missing"
if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
    SKIPPED |= dict.fromkeys(("test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup",
                              "test_monitored_barrier_failure_order", "test_monitored_barrier_wait_all_ranks"),
                             "this torch lets Gloo alone do it")
if sys.version_info >= (3, 13) and "Can't pickle local object" in inspect.getsource(distributed_test):
    SKIPPED |= dict.fromkeys(("test_gather_object", "test_gather_object_subgroup"), "expects the words of an older Python")


class TestLockstep(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        if self._testMethodName in SKIPPED:
            self.skipTest(SKIPPED[self._testMethodName])
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    unittest.main()
