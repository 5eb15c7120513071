#!/usr/bin/env python3
"""all_reduce and a DDP step of PyTorch over lockstep and over Gloo, by turns in the same processes.

    PYTHONPATH=build/release/lib/python torchrun --nproc_per_node=2 bench/torch/compare.py

Runs in each rank of a job and prints tables of medians. "registered": the tensor is of lockstep_torch.empty. What DDP adds is the step's
time beside that of the same step without synchronisation; the model has 25 MiB of parameters in 16 layers.
"""
import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep_torch

SIZES = {"8 B": 8, "1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "25 MiB": 25 << 20}
ROUND = 0.02  # seconds: about so long is what is timed at once, and no scheduler's turn decides


def seconds(call, times):
    """Of one call, the mean of so many; the ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def medians(calls, rounds):
    """The calls take turns, so that what disturbs the machine disturbs all of them."""
    times = []
    for call in calls:
        once = torch.tensor(seconds(call, 5))  # warms up, too
        dist.all_reduce(once, dist.ReduceOp.MAX)
        times.append(max(1, int(ROUND / once.item())))
    samples = [[seconds(call, n) for call, n in zip(calls, times)] for _ in range(rounds)]
    return [statistics.median(column) * 1e6 for column in zip(*samples)]


def show(head, rows):
    if dist.get_rank() > 0:
        return
    print(f"| {' | '.join(head)} |\n| --- |{' --: |' * (len(head) - 1)}")
    for name, *values in rows:
        print(f"| {name} | {' | '.join(values)} |")
    print(flush=True)


def number(value):
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def compare_all_reduce(gloo, rounds):
    rows = []
    for name, size in SIZES.items():
        private = torch.zeros(size // 4)
        registered = lockstep_torch.empty(size // 4, dtype=torch.float32)
        ours, shared, theirs = medians([lambda: dist.all_reduce(private), lambda: dist.all_reduce(registered),
                                        lambda: dist.all_reduce(private, group=gloo)], rounds)
        rows.append((name, number(ours), number(shared), number(theirs), f"{theirs / ours:.1f}"))
    show(("all_reduce, us", "lockstep", "registered", "Gloo", "Gloo / lockstep"), rows)


def compare_ddp(gloo, rounds):
    batch = torch.randn(2, 640)

    def step_of(group):
        model = torch.nn.Sequential(*(torch.nn.Linear(640, 640) for _ in range(16)))
        if group is not None:
            model = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)

        def step():
            for parameter in model.parameters():
                parameter.grad = None
            model(batch).sum().backward()
        return step
    alone, ours, theirs = medians([step_of(None), step_of(dist.group.WORLD), step_of(gloo)], rounds)
    show(("DDP, us", "no synchronisation", "lockstep", "Gloo", "added: Gloo / lockstep"),
         [("a step", number(alone), number(ours), number(theirs), f"{(theirs - alone) / (ours - alone):.1f}")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31, help="of which the median is taken")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dist.init_process_group("lockstep")
    gloo = dist.new_group(backend="gloo")
    if dist.get_rank() == 0:
        print(f"PyTorch {torch.__version__}, {dist.get_world_size()} ranks\n")
    compare_all_reduce(gloo, rounds)
    compare_ddp(gloo, rounds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
