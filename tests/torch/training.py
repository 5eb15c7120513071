"""What PyTorch builds on a process group, over lockstep: DDP with its options, FSDP, sharded optimizers, DTensor, checkpoints.

Runs in each rank of a job; a training on several ranks ends where one on the whole batch does.
"""
import shutil
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import lockstep_torch  # noqa: F401  # pylint: disable=unused-import

ROWS, STEPS = 8, 4  # of each rank


def setUpModule():  # pylint: disable=invalid-name
    dist.init_process_group("lockstep")


def tearDownModule():  # pylint: disable=invalid-name
    dist.destroy_process_group()


class Network(torch.nn.Module):
    """Two layers, of which the second has a part that only some inputs reach."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.rare = torch.nn.Linear(20, 50), torch.nn.Linear(50, 3), torch.nn.Linear(50, 3)

    def forward(self, x, rarely=False):
        hidden = torch.relu(self.first(x))
        return self.second(hidden) + (self.rare(hidden) if rarely else 0)


class Case(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        self.model = Network()
        self.batches = torch.randn(STEPS, ROWS * self.size, 20)

    def mine(self, batch):
        return batch[ROWS * self.rank:ROWS * (self.rank + 1)]

    def train(self, model, loss, optimizer=None):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in self.batches:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()

    def alone(self, rarely=False, optimizer=None):
        """The parameters after a training of one rank on all rows."""
        torch.manual_seed(7)
        model = Network()
        self.train(model, lambda model, batch: model(batch, rarely).square().mean(), optimizer and optimizer(model))
        return [parameter.detach() for parameter in model.parameters()]

    def expect(self, model, expected, tolerance=1e-5):
        """Near what is expected; and equal on all ranks, to the last bit."""
        for parameter, value in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.detach(), value, atol=tolerance, rtol=tolerance)
            others = [torch.empty_like(parameter) for _ in range(self.size)]
            dist.all_gather(others, parameter.detach())
            self.assertTrue(all(torch.equal(other, parameter) for other in others))


class Ddp(Case):
    def test_options(self):
        expected = self.alone(rarely=True)
        for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"bucket_cap_mb": 0.001},
                        {"find_unused_parameters": True}, {"broadcast_buffers": False}):
            with self.subTest(**options):
                self.setUp()
                model = DistributedDataParallel(self.model, **options)
                self.train(model, lambda model, batch: model(self.mine(batch), True).square().mean())
                self.expect(model, expected)

    def test_parameters_that_nothing_reaches(self):
        model = DistributedDataParallel(self.model, find_unused_parameters=True)
        self.train(model, lambda model, batch: model(self.mine(batch)).square().mean())
        self.expect(model, self.alone())

    def test_a_model_that_begins_as_that_of_rank_0(self):
        torch.manual_seed(self.rank)
        model = DistributedDataParallel(Network())
        torch.manual_seed(0)
        self.expect(model, list(Network().parameters()), tolerance=0)

    def test_no_sync(self):
        model = DistributedDataParallel(self.model)

        def in_two_parts(model, batch):
            first, second = self.mine(batch).chunk(2)
            with model.no_sync():
                (model(first, True).square().mean() / 2).backward()
            return model(second, True).square().mean() / 2
        self.train(model, in_two_parts)
        self.expect(model, self.alone(rarely=True))

    def test_hooks(self):
        for hook, state in ((default_hooks.allreduce_hook, None), (default_hooks.fp16_compress_hook, None),
                            (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2))):
            with self.subTest(hook=hook.__name__):
                self.setUp()
                model = DistributedDataParallel(self.model)
                model.register_comm_hook(state, hook)
                self.train(model, lambda model, batch: model(self.mine(batch), True).square().mean())
                self.expect(model, self.alone(rarely=True), tolerance=0.1)

    def test_the_hook_in_cxx(self):
        model = DistributedDataParallel(self.model)
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        self.train(model, lambda model, batch: model(self.mine(batch), True).square().mean())
        self.expect(model, self.alone(rarely=True))

    def test_unequal_numbers_of_batches(self):
        """The gradients of a step are divided by the number of all ranks, or of those that still have one."""
        for of_all in True, False:
            with self.subTest(of_all=of_all):
                self.setUp()
                model = DistributedDataParallel(self.model)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                with model.join(divide_by_initial_world_size=of_all):
                    for batch in self.batches[:STEPS - self.rank]:
                        optimizer.zero_grad()
                        model(self.mine(batch), True).square().mean().backward()
                        optimizer.step()
                self.expect(model, self.joined(of_all))

    def joined(self, of_all):
        """The parameters of one rank that adds up what the others would have done."""
        torch.manual_seed(7)
        model = Network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, batch in enumerate(self.batches):
            ranks = min(self.size, STEPS - step)  # that have as many batches
            optimizer.zero_grad()
            total = sum(model(rows, True).square().mean() for rows in batch.split(ROWS)[:ranks])
            (total / (self.size if of_all else ranks)).backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    def test_compiled(self):
        """With a buffer, which DDP broadcasts from within what is compiled."""
        if not torch._dynamo.is_dynamo_supported():
            self.skipTest("this torch compiles nothing with this Python")
        self.model.register_buffer("steps", torch.full((1,), float(self.rank)))
        model = torch.compile(DistributedDataParallel(self.model), backend="aot_eager")
        self.train(model, lambda model, batch: model(self.mine(batch), True).square().mean())
        self.expect(self.model, self.alone(rarely=True))
        self.assertEqual(self.model.steps.item(), 0)

    def test_sparse_gradients(self):
        torch.manual_seed(7)
        model = DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = model.module.weight.detach().clone()
        model(torch.tensor([self.rank, 9])).sum().backward()
        optimizer.step()
        expected = before.clone()
        expected[:self.size] -= 1 / self.size
        expected[9] -= 1
        self.expect(model, [expected])


class Sharded(Case):
    def test_zero_redundancy_optimizer(self):
        model = DistributedDataParallel(self.model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        self.train(model, lambda model, batch: model(self.mine(batch), True).square().mean(), optimizer)
        self.expect(model, self.alone(True, lambda model: torch.optim.Adam(model.parameters(), lr=0.01)), 1e-4)

    def sharder(self):
        try:
            from torch.distributed.fsdp import fully_shard  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("this torch has no fully_shard")
        if not hasattr(torch.cpu.Stream, "record_event"):
            self.skipTest("this torch cannot shard on the CPU, over any backend")
        return fully_shard

    def test_fully_sharded(self):
        fully_shard = self.sharder()
        for module in (self.model.first, self.model.second, self.model.rare, self.model):
            fully_shard(module, mesh=dist.init_device_mesh("cpu", (self.size,)))
        self.train(self.model, lambda model, batch: model(self.mine(batch), True).square().mean())
        for parameter, value in zip(self.model.parameters(), self.alone(rarely=True)):
            torch.testing.assert_close(parameter.full_tensor().detach(), value, atol=1e-5, rtol=1e-5)

    def test_sharded_within_groups_and_alike_across_them(self):
        fully_shard = self.sharder()
        if self.size % 2:
            self.skipTest("for an even number of ranks")
        fully_shard(self.model, mesh=dist.init_device_mesh("cpu", (2, self.size // 2), mesh_dim_names=("alike", "sharded")))
        self.train(self.model, lambda model, batch: model(self.mine(batch), True).square().mean())
        for parameter, value in zip(self.model.parameters(), self.alone(rarely=True)):
            torch.testing.assert_close(parameter.full_tensor().detach(), value, atol=1e-5, rtol=1e-5)

    def test_dtensor(self):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # pylint: disable=import-outside-toplevel
        mesh = dist.init_device_mesh("cpu", (self.size,))
        torch.manual_seed(1)
        a, b = torch.randn(6 * self.size, 5), torch.randn(5, 4 * self.size)
        product = distribute_tensor(a, mesh, [Shard(0)]) @ distribute_tensor(b, mesh, [Shard(1)])
        torch.testing.assert_close(product.redistribute(mesh, [Replicate()]).to_local(), a @ b)
        turned = product.redistribute(mesh, [Shard(1)]).to_local()  # an all_to_all
        torch.testing.assert_close(turned, (a @ b).chunk(self.size, 1)[self.rank])

    def test_checkpoints(self):
        import torch.distributed.checkpoint as checkpoint  # pylint: disable=import-outside-toplevel
        folder = [None]
        if self.rank == 0:
            folder[0] = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, folder[0])
        dist.broadcast_object_list(folder)
        expected = {name: value.clone() for name, value in self.model.state_dict().items()}
        checkpoint.save(self.model.state_dict(), checkpoint_id=folder[0])
        for parameter in self.model.parameters():
            torch.nn.init.zeros_(parameter)
        loaded = self.model.state_dict()
        checkpoint.load(loaded, checkpoint_id=folder[0])
        self.assertTrue(all(torch.equal(loaded[name], expected[name]) for name in expected))
        dist.barrier()  # before the folder goes


class Functional(Case):
    def test_collectives(self):
        import torch.distributed._functional_collectives as functional  # pylint: disable=import-outside-toplevel
        group = dist.group.WORLD
        x = torch.full((4,), self.rank + 1.0)
        total = functional.all_reduce(x, "sum", group)
        self.assertTrue((total + 0 == self.size * (self.size + 1) / 2).all())
        gathered = functional.all_gather_tensor(x, 0, group) + 0
        self.assertEqual(gathered[::4].tolist(), [r + 1.0 for r in range(self.size)])
        part = functional.reduce_scatter_tensor(torch.ones(2 * self.size), "sum", 0, group) + 0
        self.assertEqual(part.tolist(), [float(self.size)] * 2)
        turned = functional.all_to_all_single(torch.full((self.size,), float(self.rank)), None, None, group) + 0
        self.assertEqual(turned.tolist(), [float(r) for r in range(self.size)])

    def test_several_tensors(self):
        """Of one call, which are waited for one after the other."""
        import torch.distributed._functional_collectives as functional  # pylint: disable=import-outside-toplevel
        tensors = [torch.full((n,), self.rank + 1.0) for n in (4, 2, 3)]
        for total in functional.all_reduce_coalesced(tensors, "sum", dist.group.WORLD):
            self.assertTrue((functional.wait_tensor(total) == self.size * (self.size + 1) / 2).all())


if __name__ == "__main__":
    unittest.main(argv=["training"])
