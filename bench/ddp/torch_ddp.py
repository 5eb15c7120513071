#!/usr/bin/env python3
"""The step of lockstep-ddp-bench with PyTorch's DistributedDataParallel on Gloo, for comparison.

Run it on every rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set:
    lockstep-ddp-bench --ranks 2 --hosts 2 -- python3 bench/ddp/torch_ddp.py --compute-ms 300

PyTorch multiplies matrices faster than the plain loops of lockstep-ddp-bench. So that both synchronise beside the same
amount of compute, --compute-ms chooses the batch with which a step without synchronisation takes that long.
"""
import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # One thread a rank, as in lockstep-ddp-bench.

import torch  # noqa: E402  (after the number of threads)
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

LAYERS = 24
WIDTH_STEP = 16


def build(parameters):
    """The layers of bench/ddp/model.cpp: equal, square, without bias, rectifiers between them."""
    width = max(1, round((parameters / LAYERS) ** 0.5 / WIDTH_STEP)) * WIDTH_STEP
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(width, width, bias=False), torch.nn.ReLU()]
        torch.nn.init.kaiming_uniform_(layers[-2].weight)
    return torch.nn.Sequential(*layers), width


class Trainer:
    def __init__(self, arguments):
        model, self.width = build(arguments.parameters)
        self.parameters = sum(p.numel() for p in model.parameters())
        # gradient_as_bucket_view saves a copy: PyTorch's best case.
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if arguments.hook == "bf16":
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
            self.model.register_comm_hook(None, bf16_compress_hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0)
        self.set_batch(arguments.batch)
        if arguments.compute_ms:
            self.fit_batch(arguments.compute_ms)

    def set_batch(self, batch):
        self.batch = batch
        self.input = torch.rand(batch, self.width) * 2 - 1

    def step(self):
        loss = self.model(self.input).square().sum() / 2
        loss.backward()
        self.optimizer.step()
        # In place: views of the buckets stay views, and no memory is asked for anew.
        self.optimizer.zero_grad(set_to_none=False)

    def step_alone(self):
        with self.model.no_sync():
            self.step()

    def fit_batch(self, target_ms):
        for _ in range(4):
            took = torch.tensor(statistics.median(timed(self.step_alone) for _ in range(3)))
            dist.all_reduce(took, dist.ReduceOp.MAX)
            # Part of a step does not depend on the batch; a few rounds come near enough.
            self.set_batch(max(1, round(self.batch * min(4.0, max(0.25, target_ms / took.item())))))


def timed(call):
    dist.barrier()
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def measure(trainer, rounds):
    times = []
    for _ in range(2 + rounds):  # Two to warm up; after the first DDP rebuilds its buckets.
        times.append([timed(trainer.step), timed(trainer.step_alone)])
    slowest = torch.tensor(times[2:])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.median(dim=0).values.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compute-ms", type=float, help="choose the batch for this step without synchronisation")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--hook", choices=["none", "bf16"], default="none")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer(arguments)
    step, compute = measure(trainer, arguments.rounds)
    if dist.get_rank() == 0:
        print(json.dumps({"ranks": dist.get_world_size(), "parameters": trainer.parameters, "hook": arguments.hook,
                          "batch": trainer.batch, "step_ms": step, "compute_ms": compute, "exposed_ms": step - compute,
                          "torch": torch.__version__}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
