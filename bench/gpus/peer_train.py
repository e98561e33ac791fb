"""
The jobs of train.ts in PyTorch: FSDP2, tensor parallel with sharded sequences, DDP. Every rank is a
GPU. Prints a JSON object for each mode.

    python3 -m torch.distributed.run --nproc-per-node N bench/gpus/peer_train.py JOB
"""
import contextlib
import ctypes
import gc
import json
import math
import os
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
from peer_models import MODELS, rotation_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

PRIME = 2**31 - 1
BOUND = 0.02 * math.sqrt(3)
AHEAD = 4
PHASED = 5
PR_SET_PDEATHSIG = 1
GIB = 2**30


# ---- values, the same as in initial.ts ---------------------------------------------------------


def hashed(index, salt):
    x = (index * 1103515245).add_(salt * 12345 + 1).remainder_(PRIME)
    for _ in range(2):
        x.mul_(x).add_(1).remainder_(PRIME)
    return x


def region_of(p, mesh):
    """Begin and size of this rank's part in each dim. Tensor parallel shards come first."""
    region = [[0, n] for n in p.shape]
    if not isinstance(p, DTensor):
        return region
    names = list(p.device_mesh.mesh_dim_names)
    for name in ("tp", "dp"):
        if name not in names:
            continue
        placement = p.placements[names.index(name)]
        if placement.is_replicate():
            continue
        part, ranks = region[placement.dim], mesh[name].size()
        size = -(-part[1] // ranks)
        begin = min(part[1], size * mesh.get_local_rank(name))
        region[placement.dim] = [part[0] + begin, max(0, min(size, part[1] - begin))]
    return region


@torch.no_grad()
def initialize(model, mesh):
    for i, (name, p) in enumerate(model.named_parameters()):
        local = p.to_local() if isinstance(p, DTensor) else p
        if p.dim() < 2:
            local.fill_(0 if name.endswith("bias") else 1)
            continue
        rows, columns = (
            torch.arange(begin, begin + size, device=local.device) for begin, size in region_of(p, mesh)
        )
        values = hashed(rows[:, None] * p.shape[1] + columns, i).double()
        local.copy_(values.mul_(2 * BOUND / PRIME).sub_(BOUND).float())


def tokens_of(job, rank, salt, device):
    batch, context = job["batch"], job["model"]["context"]
    begin = rank * batch * context
    index = torch.arange(begin, begin + batch * context, device=device)
    return hashed(index, 1000 + salt).remainder(job["model"]["vocabulary"]).view(batch, context)


# ---- sharding, the same as in sharded.ts -------------------------------------------------------


def parallelize(model, mesh):
    def takes(*more):
        return PrepareModuleInput(
            input_layouts=(Shard(1), *more), desired_input_layouts=(Replicate(), *more)
        )

    parallelize_module(model, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "n1": SequenceParallel(),
            "n2": SequenceParallel(),
            "attention": takes(None, None),
            "attention.q": ColwiseParallel(),
            "attention.k": ColwiseParallel(),
            "attention.v": ColwiseParallel(),
            "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward": takes(),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
        })


def shard(model, mesh, job, mode):
    dtype = getattr(torch, job["dtype"])
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = list(model.layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=mode["reshard"])
    fully_shard(model, mesh=mesh, mp_policy=policy)
    ahead = mode["prefetch"]
    if ahead == 0:
        return
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + ahead])
        layer.set_modules_to_backward_prefetch(layers[max(0, i - ahead) : i][::-1])


class Training:
    def __init__(self, job, mode, device):
        dp, tp = job["dataRanks"], job["tensorRanks"]
        self.job = job
        self.mesh = mesh = init_device_mesh(device.type, (dp, tp), mesh_dim_names=("dp", "tp"))
        size, dtype = job["model"], getattr(torch, job["dtype"])
        with torch.device("meta" if job["parallel"] == "fsdp" else device):
            model = MODELS[size["kind"]](size)
        if tp > 1:
            parallelize(model, mesh["tp"])
        if job["checkpoint"]:
            for i, layer in enumerate(model.layers):
                model.layers[i] = checkpoint_wrapper(layer, preserve_rng_state=False)
        is_whole = job["parallel"] == "ddp" and dp == 1
        if mode["compile"] and not is_whole:
            for i, layer in enumerate(model.layers):
                model.layers[i] = torch.compile(layer)
            if tp == 1:
                model.loss_of_rows = torch.compile(model.loss_of_rows)
        if job["parallel"] == "fsdp":
            shard(model, mesh["dp"], job, mode)
            model.to_empty(device=device)
        initialize(model, mesh)
        if job["parallel"] == "ddp" and dp > 1:
            ids = [device.index] if device.type == "cuda" else None
            model = torch.nn.parallel.DistributedDataParallel(
                model, device_ids=ids, process_group=mesh.get_group("dp"), gradient_as_bucket_view=True
            )
        if mode["compile"] and is_whole:
            model = torch.compile(model)
        rank = mesh.get_local_rank("dp")
        self.inputs = [tokens_of(job, rank, salt, device) for salt in (0, 1)]
        if size["kind"] == "llama":
            self.inputs += [each.to(dtype) for each in rotation_of(size, device)]
        self.model = model
        fused = {"fused": True} if device.type == "cuda" else {}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=job["lr"], **fused)
        self.losses = []
        self.marks = None  # of the phases, while they are timed

    def mark(self):
        if self.marks is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)

    def context(self):
        if self.job["tensorRanks"] > 1:
            return loss_parallel()
        if self.job["parallel"] == "fsdp" or self.job["dtype"] == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.mesh.device_type, getattr(torch, self.job["dtype"]))

    def step(self):
        self.mark()
        with self.context():
            loss = self.model(*self.inputs)
            self.mark()
            if self.job["tensorRanks"] > 1:  # the mode also has a rule for the backward pass
                loss.backward()
        if self.job["tensorRanks"] == 1:
            loss.backward()
        self.mark()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.mark()
        self.losses.append(loss.detach())

    def read(self):
        whole = [each.to_local() if isinstance(each, DTensor) else each for each in self.losses]
        return [each.item() for each in whole]


def attention_of(mode):
    if mode.get("attention") != "cudnn":
        return contextlib.nullcontext()
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    return sdpa_kernel([*order, SDPBackend.MATH], set_priority=True)


# ---- time --------------------------------------------------------------------------------------


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(training, device):
    """Milliseconds of the host, and until the step is done."""
    begin = time.perf_counter()
    training.step()
    host = time.perf_counter() - begin
    settle(device)
    return host * 1e3, (time.perf_counter() - begin) * 1e3


def timed_phases(training, device):
    """Milliseconds of the GPU for forward, backward and the optimizer."""
    if device.type != "cuda":
        return {"forwardMs": None, "backwardMs": None, "optimizerMs": None}
    training.marks = []
    for _ in range(PHASED):
        timed(training, device)
    marks, training.marks = training.marks, None
    steps = [marks[i : i + 4] for i in range(0, len(marks), 4)]
    forward, backward, optimizer = (
        statistics.median(step[i].elapsed_time(step[i + 1]) for step in steps) for i in range(3)
    )
    return {"forwardMs": forward, "backwardMs": backward, "optimizerMs": optimizer}


def traced(training, job, mode, device):
    """Traces kernels of a step on rank 0. Returns the file."""
    if job["trace"] is None or device.type != "cuda":
        return None
    if dist.get_rank() > 0:
        timed(training, device)
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        timed(training, device)
    file = os.path.join(job["trace"], f"torch-{job['name']}-{mode['name']}.json".replace(" ", "-"))
    profile.export_chrome_trace(file)
    return file


def trained(job, mode, device):
    begin = time.perf_counter()
    training = Training(job, mode, device)
    settle(device)
    start = time.perf_counter() - begin
    first = timed(training, device)[1]
    for _ in range(1, job["warm"]):
        timed(training, device)
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = [timed(training, device) for _ in range(job["steps"])]
    begin = time.perf_counter()
    for _ in range(AHEAD):
        training.step()
    settle(device)
    ahead = (time.perf_counter() - begin) * 1e3 / AHEAD
    step = statistics.median(wall for _, wall in times)
    tokens = job["batch"] * job["model"]["context"]
    of_cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if of_cuda else 0
    reserved = torch.cuda.max_memory_reserved() if of_cuda else 0
    return {
        "name": job["name"],
        "mode": mode["name"],
        "stepMs": step,
        "aheadMs": ahead,
        "hostMs": statistics.median(host for host, _ in times),
        "tokensPerSecond": tokens * 1e3 / step / job["tensorRanks"],
        "peakGiB": peak / GIB,
        "reservedGiB": reserved / GIB,
        **timed_phases(training, device),
        "trace": traced(training, job, mode, device),
        "losses": training.read(),
        "startSeconds": start,
        "firstStepSeconds": first / 1e3,
    }


def show(line):
    def short(value):
        if isinstance(value, list):
            return [short(each) for each in value]
        return float(f"{value:.6g}") if isinstance(value, float) else value

    if dist.get_rank() == 0:
        print(json.dumps({key: short(value) for key, value in line.items()}), flush=True)


def main():
    # A rank has a session of its own: one that compiles would outlive torchrun, with its memory.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    job = json.loads(sys.argv[1])
    device = torch.device("cpu")
    if job["device"] == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    torch.set_float32_matmul_precision("high")
    for mode in job["modes"]:
        try:
            with attention_of(mode):
                show(trained(job, mode, device))
        except Exception as error:  # the next mode may work
            said = " ".join(str(error).split())[:300]
            show({"name": job["name"], "mode": mode["name"], "error": f"{type(error).__name__}: {said}"})
        gc.collect()
        if device.type == "cuda":
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    dist.destroy_process_group()


main()
