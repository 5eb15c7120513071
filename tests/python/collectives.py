"""Every collective of the Python package, in each rank of a job; runs under lockstep-run, once for each number of ranks."""
import math
import unittest
from array import array

import lockstep

try:
    import numpy
except ImportError:
    numpy = None


def setUpModule():  # pylint: disable=invalid-name
    Case.ranks = lockstep.Communicator.create()


def tearDownModule():  # pylint: disable=invalid-name
    Case.ranks.finalize()


class Case(unittest.TestCase):
    ranks = None

    def setUp(self):
        self.rank, self.size = self.ranks.rank, self.ranks.size

    def mine(self, count=3, rank=None):
        """What a rank contributes: whole numbers, exact in any order of summation."""
        rank = self.rank if rank is None else rank
        return array("d", [100 * rank + i for i in range(count)])

    def total(self, count=3):
        return [sum(100 * r + i for r in range(self.size)) for i in range(count)]

    def everybodys(self, count=3):
        return [x for r in range(self.size) for x in self.mine(count, r)]


class Collectives(Case):
    def test_all_reduce(self):
        data, output = self.mine(), array("d", [0] * 3)
        self.ranks.all_reduce(data, output)
        self.assertEqual((list(output), data), (self.total(), self.mine()))
        self.ranks.all_reduce(data)
        self.assertEqual(list(data), self.total())

    def test_operators(self):
        last = self.size - 1
        for op, expected in (("min", 5), ("max", 5 + last), ("avg", 5 + last / 2), ("prod", math.prod(range(5, 6 + last))),
                             (lockstep.ReduceOp.SUM, sum(range(5, 6 + last)))):
            data = array("d", [5 + self.rank])
            self.ranks.all_reduce(data, op=op)
            self.assertEqual(data[0], expected, op)
        data = array("d", [1])
        self.ranks.all_reduce(data, op="premul_sum", scale=self.rank + 1.0)
        self.assertEqual(data[0], sum(range(1, self.size + 1)))
        for op, expected in (("band", 1 if self.size == 1 else 0), ("bor", (1 << self.size) - 1), ("bxor", (1 << self.size) - 1)):
            data = array("I", [1 << self.rank])
            self.ranks.all_reduce(data, op=op)
            self.assertEqual(data[0], expected, op)

    def test_reduce_and_broadcast(self):
        for root in range(self.size):
            data, output = self.mine(), array("d", [-1] * 3)
            self.ranks.reduce(data, output, root=root)
            self.assertEqual(list(output), self.total() if self.rank == root else [-1] * 3)
            self.ranks.broadcast(output, root)
            self.assertEqual(list(output), self.total())

    def test_gather_and_scatter(self):
        for root in range(self.size):
            whole = array("d", [0] * 3 * self.size) if self.rank == root else None
            self.ranks.gather(self.mine(), whole, root)
            if self.rank == root:
                self.assertEqual(list(whole), self.everybodys())
            back = array("d", [0] * 3)
            self.ranks.scatter(whole, back, root)
            self.assertEqual(back, self.mine())

    def test_all_gather_and_reduce_scatter(self):
        whole, part = array("d", [0] * 3 * self.size), array("d", [0] * 3)
        self.ranks.all_gather(self.mine(), whole)
        self.assertEqual(list(whole), self.everybodys())
        self.ranks.reduce_scatter(whole, part)
        self.assertEqual(list(part), [self.size * x for x in self.mine()])

    def test_all_to_all(self):
        data, output = array("i", [10 * self.rank + r for r in range(self.size)]), array("i", [0] * self.size)
        self.ranks.all_to_all(data, output)
        self.assertEqual(list(output), [10 * r + self.rank for r in range(self.size)])

    def test_counts_that_differ(self):
        counts = [r + 1 for r in range(self.size)]
        expected = [float(r) for r in range(self.size) for _ in range(r + 1)]
        mine, whole = array("d", [self.rank] * (self.rank + 1)), array("d", [0] * sum(counts))
        self.ranks.all_gather_v(mine, whole, counts)
        self.assertEqual(list(whole), expected)
        self.ranks.reduce_scatter_v(whole, mine, counts)
        self.assertEqual(list(mine), [self.size * self.rank] * (self.rank + 1))
        mine, gathered = array("d", [self.rank] * (self.rank + 1)), array("d", [0] * sum(counts))
        self.ranks.gather_v(mine, gathered, counts, root=0)
        if self.rank == 0:
            self.assertEqual(list(gathered), expected)
        back = array("d", [-1] * (self.rank + 1))
        self.ranks.scatter_v(gathered, counts, back, root=0)
        self.assertEqual(back, mine)
        received = array("d", [-1] * (self.rank + 1) * self.size)
        self.ranks.all_to_all_v(whole, counts, received, [self.rank + 1] * self.size)
        self.assertEqual(list(received), [self.rank] * (self.rank + 1) * self.size)

    def test_messages(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        received = array("d", [0] * 5)
        works = [self.ranks.recv(received, before, tag=7, wait=False), self.ranks.send(self.mine(), after, tag=7, wait=False)]
        self.assertEqual(works[0].wait(), lockstep.Received(before, 7, 3))
        self.assertIsNone(works[1].wait())
        self.assertEqual(received[:3], self.mine(rank=before))
        if self.rank == 0:
            sources = {self.ranks.recv(received).source for _ in range(self.size - 1)}
            self.assertEqual(sources, set(range(1, self.size)))
        else:
            self.ranks.send(self.mine(), 0)

    def test_works(self):
        buffers = [self.mine() for _ in range(50)]
        works = [self.ranks.all_reduce(data, wait=False) for data in buffers]
        for work in reversed(works):
            work.wait()
            self.assertTrue(work.done())
        self.assertTrue(all(list(data) == self.total() for data in buffers))

    def test_dropped_works(self):
        kept = self.mine(100000)
        for _ in range(20):
            self.ranks.all_reduce(self.mine(1000), wait=False)  # the communicator alone knows these buffers
        self.ranks.all_reduce(kept, wait=False)
        self.ranks.barrier()
        self.assertEqual(kept[1], self.total(2)[1])

    def test_split(self):
        part = self.ranks.split(self.rank % 2, key=-self.rank)
        data = array("i", [1])
        part.all_reduce(data)
        self.assertEqual(data[0], part.size)
        self.assertEqual(part.size, len(range(self.rank % 2, self.size, 2)))
        part.finalize()
        self.assertIsNone(self.ranks.split(-1))

    def test_registered_memory(self):
        data = memoryview(lockstep.allocate(8 * 1000)).cast("B").cast("d")
        data[:] = self.mine(1000)
        self.ranks.all_reduce(data)
        self.assertEqual(list(data), self.total(1000))

    def test_itself(self):
        self.assertIn(f"rank {self.rank} of {self.size}", repr(self.ranks))
        self.assertTrue(self.ranks.usable)


@unittest.skipIf(numpy is None, "NumPy is not installed")
class Arrays(Case):
    def test_every_type(self):
        for name in ("float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64", "complex64", "complex128"):
            data = numpy.full((2, 3), self.rank + 1, name)
            output = numpy.empty_like(data)
            self.ranks.all_reduce(data, output)
            self.assertTrue((output == self.size * (self.size + 1) // 2).all(), name)
        flags = numpy.array([self.rank == 0, True, False])
        self.ranks.all_reduce(flags, op="max")
        self.assertEqual(flags.tolist(), [True, True, False])

    def test_registered_arrays_have_shapes_of_any_whole_numbers(self):
        for shape, expected in ((4, (4,)), (numpy.int64(4), (4,)), ((2, numpy.int64(3)), (2, 3)), (numpy.array([2, 3]), (2, 3))):
            self.assertEqual(lockstep.empty(shape).shape, expected)

    def test_a_shape_that_is_none_is_refused(self):
        for shape, kind in ((-1, ValueError), ((2, -1), ValueError), (2**62, ValueError), (2.5, TypeError), ((2.0,), TypeError)):
            with self.assertRaises(kind):
                lockstep.empty(shape)

    def test_parts_of_arrays(self):
        whole = numpy.zeros((4, 5))
        whole[1] = self.rank
        self.ranks.all_reduce(whole[1])
        self.assertEqual(whole[1].tolist(), [sum(range(self.size))] * 5)
        self.assertEqual(whole[0].sum() + whole[2:].sum(), 0)

    def test_a_scalar(self):
        output, scalar = numpy.zeros(1), lockstep.Buffer.of(numpy.float64(self.rank + 1), writable=False)
        others = [numpy.array(-1.0) for _ in range(100)]  # where the array was that NumPy makes to show a scalar's memory
        self.ranks.all_reduce(scalar, output)
        self.assertEqual(output[0], sum(range(self.size + 1)))
        del others

    def test_memory(self):
        data = lockstep.empty((3, 4), "int64")
        self.assertEqual(data.tolist(), [[0] * 4] * 3)
        data += self.rank
        self.ranks.all_reduce(data)
        self.assertTrue((data == sum(range(self.size))).all())
        self.assertEqual(lockstep.empty(0).size, 0)


if __name__ == "__main__":
    unittest.main(argv=["collectives"])
