"""The rows of collectives.ts through PyTorch: torchrun --nproc-per-node 4 peer_collectives.py"""
import json
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))


def times(work, calls, warm_up=200):
    """Microseconds a call on the device, and on the host; the median of five."""
    for _ in range(warm_up):
        work()
    seen = []
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        host = time.perf_counter() - start
        after.record()
        torch.cuda.synchronize()
        seen.append((before.elapsed_time(after) * 1e3 / calls, host * 1e6 / calls))
    return sorted(seen)[2]


def show(name, device_us, host_us, bus=None):
    if rank:
        return
    row = {"name": f"{name}, {world} ranks", "us": round(device_us, 2), "hostUs": round(host_us, 2)}
    if bus:
        row["busGBps"] = round(bus, 1)
    print(json.dumps(row), flush=True)


def measure(name, size, factor, work):
    device_us, host_us = times(work, 20 if size >= 2**24 else 500)
    show(f"{name} {size} B", device_us, host_us, size / device_us * factor * (world - 1) / world / 1e3)


for size in (8, 2**16, 2**20, 2**24, 2**28, 2**30):
    whole = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")
    measure("all-reduce", size, 2, lambda: dist.all_reduce(whole))
    if size < 2**16:
        continue
    part = torch.ones(size // 2 // world, dtype=torch.bfloat16, device="cuda")
    measure("all-gather", size, 1, lambda: dist.all_gather_into_tensor(whole, part))
    measure("reduce-scatter", size, 1, lambda: dist.reduce_scatter_tensor(part, whole))

mesh = init_device_mesh("cuda", (world,))
a = DTensor.from_local(torch.ones(8, 8, device="cuda"), mesh, [Shard(0)])
w = DTensor.from_local(torch.ones(8, 8, device="cuda"), mesh, [Replicate()])
with torch.no_grad():
    show("DTensor add, Shard(0) + Shard(0)", *times(lambda: a + a, 500, 5000))
    show("DTensor matmul, Shard(0) by Replicate", *times(lambda: a @ w, 500, 5000))
    show("redistribute Shard(0) to Replicate, 8x8", *times(lambda: a.redistribute(mesh, [Replicate()]), 500, 5000))
dist.destroy_process_group()
