"""One replica of torchft: DDP over its gloo group. Whoever watches starts it again.

    ft.py MODEL STEPS REPLICA TIMEOUT_S HEARTBEAT_MS [--losses]    (TORCHFT_LIGHTHOUSE is set)
"""

import logging
import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from model import Job, say


def main():
    name, steps, replica = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    timeout, heartbeat = timedelta(seconds=float(sys.argv[4])), timedelta(milliseconds=float(sys.argv[5]))
    losses = "--losses" in sys.argv
    logging.disable(logging.WARNING)
    say("pid", replica, os.getpid())
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    job = Job(name)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        min_replica_size=1,
        load_state_dict=job.load,
        state_dict=job.state,
        replica_id=f"replica_{replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=timeout,
        heartbeat_interval=heartbeat,
        # All begin with the same weights.
        init_sync=False,
    )
    module = DistributedDataParallel(manager, job.model)
    optimizer = Optimizer(manager, job.optimizer)
    while manager.current_step() < steps:
        optimizer.zero_grad()
        # Waits for the quorum, with which one that was away also learns the step.
        world, rank = manager.num_participants(), manager.participating_rank()
        step = manager.current_step()
        # One that is catching up contributes nothing.
        mine = (rank, world) if rank is not None else (0, world)
        loss = job.loss(module, step, *mine)
        loss.backward()
        job.clipped()
        optimizer.step()
        if manager.current_step() == step:
            continue
        if losses and rank is not None:
            say("part", step, loss.item() / world)
        if rank == 0:
            say("step", manager.current_step() - 1, time.monotonic(), world)
    say("hash", job.hash())
    sys.stdout.flush()
    # Its threads wait for those of others.
    os._exit(0)


main()
