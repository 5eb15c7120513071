"""What the tests of single calls share: a group of all ranks on lockstep, and one on Gloo beside it."""
import unittest

import torch
import torch.distributed as dist

import lockstep_torch  # noqa: F401 (registers the backend)


def setUpModule():  # pylint: disable=invalid-name
    dist.init_process_group("lockstep")
    Ours.peer = dist.new_group(backend="gloo")


def tearDownModule():  # pylint: disable=invalid-name
    dist.destroy_process_group()


class Ours(unittest.TestCase):
    """What all cases share: random tensors that differ by rank, and the two groups."""
    peer = None

    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.random = torch.Generator().manual_seed(1000 * self.rank + len(self.id()))

    def numbers(self, shape, dtype):
        """Small whole numbers: exact in every type, in any order of summation."""
        return torch.randint(0 if dtype == torch.uint8 else -2, 3, shape, generator=self.random).to(dtype)

    def same(self, call, *tensors):
        """`call(group, *tensors)` on copies, here and on Gloo: what is in the tensors afterwards is the same."""
        ours, theirs = ([tensor.clone() for tensor in tensors] for _ in range(2))
        call(None, *ours)
        call(self.peer, *theirs)
        for our, their in zip(ours, theirs):
            self.assertTrue(torch.equal(our, their), f"\n{our}\nis not\n{their}")
