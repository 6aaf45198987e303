"""A worker under torchrun: DDP over gloo, a checkpoint every so many steps, all start again from it.

    torchrun --standalone --nproc-per-node 3 --max-restarts 100 elastic.py MODEL STEPS EVERY FOLDER [--losses]
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import Job, say


def main():
    name, steps, every, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    losses = "--losses" in sys.argv
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    say("pid", rank, os.getpid())
    job = Job(name)
    path, first = os.path.join(folder, "last.pt"), 0
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        job.load(saved["state"])
        first = saved["step"]
    module = DistributedDataParallel(job.model)
    for step in range(first, steps):
        job.optimizer.zero_grad()
        loss = job.loss(module, step, rank, world)
        loss.backward()
        job.clipped()
        job.optimizer.step()
        if losses:
            total = loss.detach() / world
            dist.all_reduce(total)
            if rank == 0:
                say("loss", step, total.item())
        if rank == 0:
            if (step + 1) % every == 0:
                torch.save({"state": job.state(), "step": step + 1}, path + ".tmp")
                os.replace(path + ".tmp", path)
            say("step", step, time.monotonic())
    if rank == 0:
        say("hash", job.hash())
    dist.destroy_process_group()


main()
