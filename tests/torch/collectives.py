"""Every call of torch.distributed on lockstep beside the same call on Gloo, in the same processes: the results are equal.

Runs in each rank of a job (lockstep-run, torchrun); tools/test --torch starts it.
"""
import itertools
import unittest

import torch
import torch.distributed as dist

import lockstep
import lockstep_torch
from case import Ours, setUpModule, tearDownModule  # noqa: F401 (unittest looks for these here)

OPERATORS = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8)
SHAPES = ((1,), (7, 3), (0,), (4, 5, 6), (100003,))


class Reductions(Ours):
    def test_all_reduce(self):
        for shape, dtype, op in itertools.product(SHAPES, TYPES, OPERATORS):
            with self.subTest(shape=shape, dtype=dtype, op=op):
                self.same(lambda group, x, op=op: dist.all_reduce(x, op, group), self.numbers(shape, dtype))

    def test_bits(self):
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            self.same(lambda group, x, op=op: dist.all_reduce(x, op, group), self.numbers((100,), torch.int64))

    def test_average(self):
        x = torch.full((5,), float(self.rank))
        dist.all_reduce(x, dist.ReduceOp.AVG)
        self.assertTrue((x == (self.size - 1) / 2).all())

    def test_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
            x = torch.ones(1000).to(dtype)
            dist.all_reduce(x)
            self.assertTrue((x.float() == self.size).all(), dtype)

    @unittest.skipUnless(hasattr(torch, "uint64"), "this torch has no such types")
    def test_unsigned(self):
        for dtype, most in ((torch.uint32, 2**32 - 1), (torch.uint64, 2**64 - 1)):
            least, total = torch.tensor([most - self.rank], dtype=dtype), torch.tensor([2**31], dtype=dtype)
            dist.all_reduce(least, dist.ReduceOp.MIN)
            dist.all_reduce(total)
            self.assertEqual((least.item(), total.item()), (most - self.size + 1, self.size * 2**31 & most))

    def test_a_factor(self):
        x = torch.ones(9)
        dist.all_reduce(x, dist._make_nccl_premul_sum(self.rank + 1.0))
        self.assertTrue((x == self.size * (self.size + 1) / 2).all())

    def test_complex(self):
        self.same(lambda group, x: dist.all_reduce(x, group=group),
                  torch.complex(self.numbers((6,), torch.float32), self.numbers((6,), torch.float32)))

    def test_reduce_to_each_root(self):
        for root in range(self.size):
            x = self.numbers((33,), torch.float32)
            before, total = x.clone(), x.clone()
            dist.all_reduce(total, group=self.peer)
            dist.reduce(x, root)
            self.assertTrue(torch.equal(x, total if self.rank == root else before))

    def test_reduce_scatter(self):  # not every Gloo has it
        whole = self.numbers((5 * self.size, 2), torch.float32)
        total, listed, single = whole.clone(), torch.empty(5, 2), torch.empty(5, 2)
        dist.all_reduce(total, group=self.peer)
        dist.reduce_scatter(listed, list(whole.chunk(self.size)))
        dist.reduce_scatter_tensor(single, whole)
        for result in (listed, single):
            self.assertTrue(torch.equal(result, total[5 * self.rank:5 * self.rank + 5]))

    def test_reduce_scatter_of_unequal_parts(self):
        parts = [torch.full((r + 1,), 1.0) for r in range(self.size)]
        out = torch.empty(self.rank + 1)
        dist.reduce_scatter(out, parts)
        self.assertTrue((out == self.size).all())

    def test_tensors_together(self):
        self.same(lambda group, *list_: dist.all_reduce_coalesced(list(list_), group=group),
                  *(self.numbers(shape, torch.float32) for shape in SHAPES))

    def test_a_tensor_twice(self):
        self.same(lambda group, x: dist.all_reduce_coalesced([x, x], group=group), self.numbers((7,), torch.float32))

    def test_sparse(self):
        indices = torch.tensor([[self.rank, 3, 3]])
        x = torch.sparse_coo_tensor(indices, torch.ones(3, 4), (8, 4))
        dense = x.to_dense()
        dist.all_reduce(x)
        dist.all_reduce(dense, group=self.peer)
        self.assertTrue(torch.equal(x.to_dense(), dense))

    def test_not_contiguous(self):
        x = self.numbers((6, 8), torch.float32)
        self.same(lambda group, x: dist.all_reduce(x.contiguous() if group else x, group=group), x)
        ours, theirs = x.clone(), x.clone().t().contiguous()
        dist.all_reduce(ours.t())
        dist.all_reduce(theirs, group=self.peer)
        self.assertTrue(torch.equal(ours.t(), theirs))

    def test_not_aligned(self):
        x = torch.frombuffer(bytearray(17), dtype=torch.float32, offset=1).fill_(1)
        dist.all_reduce(x)
        self.assertTrue((x == self.size).all())

    def test_another_default_device(self):
        x, sparse = torch.ones(3, 4), torch.ones(4).to_sparse()
        with torch.device("meta"):
            dist.all_reduce(x.t())
            dist.all_reduce(sparse)
            self.assertEqual(lockstep_torch.empty(0).device.type, "cpu")
        for tensor in x, sparse.to_dense():
            self.assertTrue((tensor == self.size).all())

    def test_registered_memory(self):
        x = lockstep_torch.empty(3, 4, dtype=torch.float64).fill_(2)
        dist.all_reduce(x)
        self.assertTrue((x == 2 * self.size).all())
        self.assertEqual((x.shape, x.dtype), ((3, 4), torch.float64))


class Movements(Ours):
    def test_broadcast(self):
        for root, dtype in itertools.product(range(self.size), (*TYPES, torch.bool, torch.int16, torch.bfloat16)):
            x = self.numbers((17,), torch.int64).to(dtype)
            expected = x.clone()
            dist.broadcast(x, root)
            if self.rank == root:
                self.assertTrue(torch.equal(x, expected))
            objects = [x]
            dist.broadcast_object_list(objects, root, group=self.peer)
            self.assertTrue(torch.equal(x, objects[0]), dtype)

    def test_a_root_that_is_only_read(self):
        x = torch.ones(1).expand(4) if self.rank == 0 else torch.empty(4)  # no tensor to write to: four elements at one place
        dist.broadcast(x, 0)
        self.assertTrue((x == 1).all())

    def test_all_gather(self):
        x = self.numbers((3, 2), torch.int16 if self.size > 4 else torch.float32)
        outputs = [torch.empty_like(x) for _ in range(self.size)]
        self.same(lambda group, x, *outputs: dist.all_gather(list(outputs), x, group), x, *outputs)
        whole = torch.empty(3 * self.size, 2)
        dist.all_gather_into_tensor(whole, x)  # which Gloo in PyTorch 2.1 has not
        dist.all_gather(outputs, x, self.peer)
        self.assertTrue(torch.equal(whole, torch.cat(outputs)))
        dist.all_gather(list(whole.chunk(self.size)), x)  # in one piece: nothing is copied
        self.assertTrue(torch.equal(whole[3 * self.rank:3 * self.rank + 3], x))

    def test_all_gather_of_unequal_parts(self):
        outputs = [torch.empty(r + 1, dtype=torch.int64) for r in range(self.size)]
        dist.all_gather(outputs, torch.full((self.rank + 1,), self.rank))
        self.assertEqual([o.tolist() for o in outputs], [[r] * (r + 1) for r in range(self.size)])

    def test_gather_and_scatter(self):
        for root in range(self.size):
            x = self.numbers((4,), torch.float32)
            outputs = [torch.empty(4) for _ in range(self.size)] if self.rank == root else None
            dist.gather(x, outputs, root)
            back = torch.empty(4)
            dist.scatter(back, outputs, root)
            self.assertTrue(torch.equal(back, x))

    def test_all_to_all(self):
        parts = [torch.full((2,), 10 * self.rank + r) for r in range(self.size)]
        outputs = [torch.empty(2, dtype=torch.int64) for _ in range(self.size)]
        dist.all_to_all(outputs, parts)
        self.assertEqual([o[0].item() for o in outputs], [10 * r + self.rank for r in range(self.size)])
        whole = torch.empty(2 * self.size, dtype=torch.int64)
        dist.all_to_all_single(whole, torch.cat(parts))
        self.assertTrue(torch.equal(whole, torch.cat(outputs)))

    def test_all_to_all_with_splits(self):
        sent, received = list(range(1, self.size + 1)), [self.rank + 1] * self.size
        out = torch.empty(sum(received), 2)
        dist.all_to_all_single(out, torch.full((sum(sent), 2), float(self.rank)), received, sent)
        self.assertEqual(out[:, 0].tolist(), [float(r) for r in range(self.size) for _ in range(self.rank + 1)])

    def test_objects(self):
        gathered = [None] * self.size
        dist.all_gather_object(gathered, {"rank": self.rank, "text": "x" * 1000 * self.rank})
        self.assertEqual([g["rank"] for g in gathered], list(range(self.size)))

    def test_a_parameter_of_a_model(self):
        parameter = torch.nn.Parameter(torch.full((3, 3), float(self.rank)))
        dist.broadcast(parameter.data.t(), self.size - 1)
        with torch.no_grad():
            dist.broadcast(parameter, self.size - 1)
        self.assertTrue((parameter == self.size - 1).all())

    def test_inference_mode(self):
        with torch.inference_mode():
            x = torch.full((4, 4), float(self.rank))
            dist.broadcast(x.t(), 0)
        self.assertTrue((x == 0).all())


class Messages(Ours):
    def test_a_ring(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        out = torch.empty(1000)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((1000,), float(self.rank)), after),
                                            dist.P2POp(dist.irecv, out, before)]):
            work.wait()
        self.assertTrue((out == before).all())

    def test_from_anybody(self):
        if self.rank > 0:
            dist.send(torch.tensor([self.rank]), 0, tag=5)
            return
        senders, x = [], torch.empty(1, dtype=torch.int64)
        for _ in range(self.size - 1):
            senders.append(dist.recv(x, tag=5))
            self.assertEqual(senders[-1], x.item())
        self.assertEqual(sorted(senders), list(range(1, self.size)))

    def test_into_a_column(self):
        if self.rank == 0:
            dist.send(torch.arange(4.0), 1)
        elif self.rank == 1:
            matrix = torch.zeros(4, 2)
            dist.recv(matrix[:, 1], 0)
            self.assertEqual(matrix[:, 1].tolist(), [0.0, 1.0, 2.0, 3.0])
            self.assertEqual(matrix[:, 0].tolist(), [0.0] * 4)

    def test_into_a_part_of_a_column(self):
        if self.rank == 0:
            dist.send(torch.ones(1000), 1)
        elif self.rank == 1:
            matrix = torch.full((5000, 2), 7.0)
            dist.recv(matrix[:, 1], 0)
            self.assertTrue((matrix[:1000, 1] == 1).all())
            self.assertTrue((matrix[1000:, 1] == 7).all())


class GroupsCalledDirectly(Ours):
    """With one tensor in place of a list, and an operator or a root in place of options."""

    def on_group(self, call, *tensors):
        self.same(lambda group, *list_: call(group or dist.group.WORLD, *list_).wait(), *tensors)

    def test_reductions(self):
        x = self.numbers((3, 5), torch.float32)
        self.on_group(lambda group, x: group.allreduce(x), x)
        self.on_group(lambda group, x: group.allreduce(x, dist.ReduceOp.MAX), x)
        self.on_group(lambda group, x: group.allreduce([x], dist.ReduceOp.MIN), x)
        for root, op in itertools.product(range(self.size), (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT)):
            total = x.clone()
            dist.all_reduce(total, op, self.peer)
            ours = x.clone()
            dist.group.WORLD.reduce(ours, root, op).wait()
            self.assertTrue(torch.equal(ours, total if self.rank == root else x))
            ours = x.clone()
            dist.group.WORLD.reduce(ours, root=root, op=op).wait()
            self.assertTrue(torch.equal(ours, total if self.rank == root else x))
        self.on_group(lambda group, x: group.reduce(x, 0) if self.rank == 0 else group.reduce(x.clone(), root=0), x)
        self.on_group(lambda group, x: group.allreduce(x, op=dist.ReduceOp.PRODUCT), x)

    def test_sparse_tensors(self):
        x = torch.ones(4).to_sparse()
        dist.group.WORLD.allreduce(x, dist.ReduceOp.SUM).wait()
        self.assertTrue((x.to_dense() == self.size).all())

    def test_reduce_scatter(self):  # not every Gloo has it
        parts, out = [torch.full((r + 1,), self.rank + 1.0) for r in range(self.size)], torch.empty(self.rank + 1)
        dist.group.WORLD.reduce_scatter(out, parts).wait()
        self.assertTrue((out == self.size * (self.size + 1) / 2).all())
        dist.group.WORLD.reduce_scatter(out, parts, dist.ReduceOp.MAX).wait()
        self.assertTrue((out == self.size).all())
        dist.group.WORLD.reduce_scatter(out, parts, op=dist.ReduceOp.MIN).wait()
        self.assertTrue((out == 1).all())

    def test_movements(self):
        x, parts = self.numbers((4,), torch.int64), [self.numbers((4,), torch.int64) for _ in range(self.size)]
        self.on_group(lambda group, x, *outputs: group.allgather(list(outputs), x), x, *parts)
        for root in range(self.size):
            self.on_group(lambda group, x, root=root: group.broadcast(x, root), x)
            self.on_group(lambda group, x, root=root: group.broadcast(x, root=root), x)
            self.same(lambda group, x, *outputs, root=root: self.gather(group, x, list(outputs), root), x, *parts)
            self.same(lambda group, x, *inputs, root=root: self.scatter(group, x, list(inputs), root), x, *parts)

    # In this form torch gives Gloo a list also where there is none, and it refuses that.

    def gather(self, group, x, outputs, root):
        outputs = outputs if self.rank == root else None
        return dist.gather(x, outputs, root, group) if group else dist.group.WORLD.gather(outputs or [], x, root).wait()

    def scatter(self, group, x, inputs, root):
        inputs = inputs if self.rank == root else None
        return dist.scatter(x, inputs, root, group) if group else dist.group.WORLD.scatter(x, inputs or [], root).wait()


class Refusals(Ours):
    """What is wrong on one rank ends the others' call with the reason; each case has a group of its own."""

    def refuses(self, call, reason, kind):
        group = dist.new_group(backend="lockstep")
        if self.rank == 0:
            with self.assertRaisesRegex(kind, reason):
                call(group)
        else:
            with self.assertRaisesRegex(lockstep.Error, reason):
                dist.all_reduce(torch.ones(4), group=group)
        dist.destroy_process_group(group)

    def test_a_type_that_cannot_be_reduced(self):
        self.refuses(lambda group: dist.all_reduce(torch.ones(4, dtype=torch.int16), group=group), "int16", TypeError)

    def test_memory_elsewhere(self):
        self.refuses(lambda group: group.allreduce([torch.ones(4, device="meta")]), "on meta", ValueError)

    def test_sparse_tensors_that_are_not_summed(self):
        self.refuses(lambda group: dist.all_reduce(torch.ones(4).to_sparse(), dist.ReduceOp.MAX, group), "can be summed", ValueError)

    def test_what_is_no_operator(self):
        self.refuses(lambda group: group.allreduce(torch.ones(4), 3), "3 is no operator", TypeError)

    def test_no_tensors(self):
        for call in ("allreduce", "allreduce_coalesced"):
            self.refuses(lambda group, call=call: getattr(group, call)([]), "no tensor", ValueError)
        self.refuses(lambda group: group.allgather([], []), "out of range", IndexError)
        self.refuses(lambda group: group.allgather([[]], [torch.ones(4)]), "shorter", ValueError)

    def test_lists_that_do_not_fit(self):
        x = torch.ones(4)
        for call in ("allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"):
            self.refuses(lambda group, call=call: getattr(group, call)([x], []), "longer|shorter", ValueError)

    def test_outputs_of_another_type(self):
        x, others = torch.ones(4), [torch.ones(4, dtype=torch.float64) for _ in range(self.size)]
        self.refuses(lambda group: group.gather([others], [x], root=0), "differ in type", ValueError)
        self.refuses(lambda group: group.scatter([x], [others], root=0), "differ in type", ValueError)

    def test_no_root(self):
        self.refuses(lambda group: group.broadcast(torch.ones(4)), "root", TypeError)

    def test_another_call(self):
        self.refuses(lambda group: dist.broadcast(torch.ones(4), 0, group=group) or dist.barrier(group), "broadcast",
                     lockstep.Error)

    def test_another_type(self):
        self.refuses(lambda group: dist.all_reduce(torch.ones(4, dtype=torch.float64), group=group), "f64", lockstep.Error)


if __name__ == "__main__":
    unittest.main(argv=["collectives"])
