"""The rows of collectives.ts through PyTorch, and its all-reduces by symmetric memory: torchrun --nproc-per-node 4 peer_collectives.py"""
import json
import os
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
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


def graph_time(work, calls=20):
    """Microseconds a call on the device alone: replays of a graph of these calls; the median of five."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            work()
    seen = []
    for _ in range(6):
        dist.barrier()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        for _ in range(10):
            graph.replay()
        after.record()
        torch.cuda.synchronize()
        seen.append(before.elapsed_time(after) * 1e3 / calls / 10)
    return sorted(seen[1:])[2]


def show(name, us, host_us, bus=None, device_us=None):
    if rank:
        return
    row = {"name": f"{name}, {world} ranks", "us": round(us, 2), "hostUs": round(host_us, 2)}
    if device_us:
        row["deviceUs"] = round(device_us, 2)
    if bus:
        row["busGBps"] = round(bus, 1)
    print(json.dumps(row), flush=True)


def measure(name, size, factor, work):
    us, host_us = times(work, 20 if size >= 2**24 else 500)
    device_us = graph_time(work) if size <= 2**22 else None
    show(f"{name} {size} B", us, host_us, size / us * factor * (world - 1) / world / 1e3, device_us)


def by_symmetric_memory(size):
    """All-reduces whose operand lies where all GPUs see it; sizes that they refuse are left out."""
    operand = symmetric.empty(size // 2, dtype=torch.bfloat16, device="cuda").fill_(1)
    symmetric.rendezvous(operand, dist.group.WORLD)
    group = dist.group.WORLD.group_name
    for name in ("one_shot_all_reduce", "two_shot_all_reduce_"):
        call = getattr(torch.ops.symm_mem, name)
        measure(f"{name} of symmetric memory", size, 2, lambda: call(operand, "sum", group))


for size in (2**14, 2**16, 2**18, 2**20, 2**22):
    try:
        by_symmetric_memory(size)
    except Exception as error:
        print(f"rank {rank}: symmetric memory, {size} B: {str(error).splitlines()[0]}", flush=True)
        break

for size in (8, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**28, 2**30):
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
