"""Two processes on one GPU train with PyTorch's DDP over the NCCL interface that is loaded. Prints "trained" when the replicas are equal
and the loss has fallen."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, STEPS = 2, 20


def network():
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def step(model, optimizer):
    inputs = torch.randn(256, 64, device="cuda")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True) / 8)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(rank, address):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=address, RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.cuda.set_device(0)
    step(*network())  # What is started for the first time is loaded, and must not be beside a collective (docs/gpu.md).
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    model, optimizer = network()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    torch.manual_seed(2 + rank)
    losses = [step(model, optimizer) for _ in range(STEPS)]
    own = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    both = [torch.empty_like(own) for _ in range(RANKS)]
    dist.all_gather(both, own)
    equal = all(torch.equal(own, other) for other in both)
    dist.destroy_process_group()
    if not equal or not losses[-1] < losses[0]:
        sys.exit(f"rank {rank}: replicas equal {equal}, loss {losses[0]:.4f} to {losses[-1]:.4f}")
    if rank == 0:
        print(f"trained: loss {losses[0]:.4f} to {losses[-1]:.4f}, NCCL interface {torch.cuda.nccl.version()}")


if __name__ == "__main__":
    mp.spawn(train, args=(str(29000 + os.getpid() % 1000),), nprocs=RANKS)
