"""The rows of overlap.ts through PyTorch, and its fused ones: torchrun --nproc-per-node 4 peer_overlap.py [product]"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
group = dist.group.WORLD.group_name
ROUNDS = 9
SIDE = 4096


def random(*size):
    return torch.randn(size, dtype=torch.bfloat16, device="cuda")


def time_of(timed, calls=1):
    """Microseconds a call, by the device's clock; `timed` is told where to begin and to end."""
    seen = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        dist.barrier()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        timed(before.record, after.record)
        torch.cuda.synchronize()
        seen.append(before.elapsed_time(after) * 1e3 / calls)
    return sorted(seen[2:])[(ROUNDS - 2) // 2]


def batch_of(work):
    def timed(begin, end):
        work()
        begin()
        for _ in range(10):
            work()
        end()

    return time_of(timed, 10)


def show(name, us):
    if rank == 0:
        print(json.dumps({"name": f"{name}, {world} ranks", "us": round(us, 1)}), flush=True)


def gathered_and_scattered(rows):
    x, whole, w = random(rows, SIDE), random(rows * world, SIDE), random(SIDE, SIDE)
    shape = f"{rows} x {SIDE} x {SIDE} a rank"

    def gathered():
        dist.all_gather_into_tensor(whole, x)
        torch.mm(whole, w)

    show(f"all-gather + matmul, {shape}", batch_of(gathered))
    show(f"matmul + reduce-scatter, {shape}", batch_of(lambda: dist.reduce_scatter_tensor(x, torch.mm(whole, w))))
    try:
        symmetric.enable_symm_mem_for_group(group)
        fused = torch.ops.symm_mem.fused_all_gather_matmul
        show(f"fused all-gather + matmul, {shape}", batch_of(lambda: fused(x, [w], 0, group)))
        scattered = torch.ops.symm_mem.fused_matmul_reduce_scatter
        show(f"fused matmul + reduce-scatter, {shape}", batch_of(lambda: scattered(whole, w, "sum", 0, group)))
    except Exception as error:
        print(f"rank {rank}: fused: {str(error).splitlines()[0]}", flush=True)


def product_beside_gather():
    x, w = random(8192, SIDE), random(SIDE, 14336)
    share = 218_000_000 // world
    part, whole = random(share), random(share * world)

    def alone(begin, end):
        torch.mm(x, w)
        begin()
        torch.mm(x, w)
        end()

    def beside(begin, end):
        torch.mm(x, w)
        work = dist.all_gather_into_tensor(whole, part, async_op=True)
        begin()
        torch.mm(x, w)
        end()
        work.wait()

    show("matmul 8192 x 14336 x 4096 alone", time_of(alone))
    show("matmul 8192 x 14336 x 4096 beside an all-gather of 436 MB", time_of(beside))


with torch.no_grad():
    for rows in () if sys.argv[1:] == ["product"] else (1024, 4096):
        gathered_and_scattered(rows)
    product_beside_gather()
dist.destroy_process_group()
