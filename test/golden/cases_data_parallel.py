"""
Ten steps of DDP, FSDP1 and FSDP2 over gloo on 1 to 4 processes: losses, the norm before a clip, parameters, and the shards of
each rank. Replayed by data-parallel.test.ts.
"""

import datetime
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import seeded_weights
from data_parallel_models import BATCH, LENGTH, MODELS, VOCAB, loss_of
from recorder import camel_case

STEPS = 10
CLIPPED_STEP = 3
SEED = 11
WORLDS = (1, 2, 3, 4)
EVERY = {"mlp": 1, "gpt": 7}  # of the parameters of a GPT, every seventh element is recorded, and the sum of all magnitudes
MAX_NORM = {"mlp": 0.05, "gpt": 0.25}
OPTIMIZERS = {
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
}
WRAPPERS = ("fullyShard", "FullyShardedDataParallel", "FullyShardedDataParallel with useOrigParams", "DistributedDataParallel")


def runs():
    """(model, wrapper, optimizer, dtype of the computation), the same on each rank."""
    for kind in MODELS:
        for wrapper in WRAPPERS:
            for optimizer in OPTIMIZERS:
                yield kind, wrapper, optimizer, "float32"
                if wrapper != "DistributedDataParallel":
                    yield kind, wrapper, optimizer, "bfloat16"


def new_model(kind, dtype=torch.float32):
    model = MODELS[kind]().to(dtype)
    described = seeded_weights.fill(model.named_parameters(), SEED)
    return model, described


def wrap(kind, wrapper, computation):
    """Each block is a unit, and what is left is one."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard

    model, _ = new_model(kind)
    half = computation == "bfloat16"
    if wrapper == "DistributedDataParallel":
        return torch.nn.parallel.DistributedDataParallel(model)
    if wrapper == "fullyShard":
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else MixedPrecisionPolicy()
        for parent, name in model.blocks():
            fully_shard(getattr(parent, name), mesh=mesh, mp_policy=policy)
        return fully_shard(model, mesh=mesh, mp_policy=policy)
    options = {
        "use_orig_params": wrapper.endswith("useOrigParams"),
        "device_id": torch.device("cpu"),
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None,
    }
    for parent, name in model.blocks():
        setattr(parent, name, FullyShardedDataParallel(getattr(parent, name), **options))
    return FullyShardedDataParallel(model, **options)


def clip(model, max_norm):
    if hasattr(model, "clip_grad_norm_"):
        return float(model.clip_grad_norm_(max_norm))
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def whole_parameters(model):
    """All of them in the order of the unwrapped model, as one vector each."""
    state = {name.removeprefix("module."): t for name, t in model.state_dict().items()}
    return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().flatten().clone() for name, t in state.items()}


def train(model, kind, optimizer, batches, rank=0, world=1):
    stepper = getattr(torch.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    each = BATCH // world
    losses, norm = [], None
    for step in range(STEPS):
        loss = loss_of(model, kind, batches[step % len(batches)][rank * each : (rank + 1) * each])
        loss.backward()
        if step == CLIPPED_STEP:
            norm = clip(model, MAX_NORM[kind])
        stepper.step()
        stepper.zero_grad()
        mean = loss.detach().double()
        if world > 1:
            dist.all_reduce(mean)
        losses.append(float(mean) / world)
    return {"losses": losses, "norm": norm, "params": whole_parameters(model)}


def shards_of(model):
    """The shapes that this rank holds: of each parameter, or the length of each flat one."""
    return {name: list((p.to_local() if hasattr(p, "to_local") else p).shape) for name, p in model.named_parameters()}


def rank_of_world(rank, world, folder, batches):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store{world}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=60),
    )
    results = {}
    for run in runs():
        kind, wrapper, optimizer, computation = run
        torch.manual_seed(0)
        model = wrap(kind, wrapper, computation)
        shards = shards_of(model)
        results[run] = train(model, kind, optimizer, batches[kind], rank, world) | {"shards": shards}
        dist.barrier()
    torch.save(results, f"{folder}/results{world}.{rank}")
    dist.destroy_process_group()


def run_world(world, batches):
    """Results of each rank, by run."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # FSDP1 would take an accelerator that is there
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_of_world, args=(world, folder, batches), nprocs=world)
        return [torch.load(f"{folder}/results{world}.{rank}") for rank in range(world)]


def sampled(params, kind):
    """What is recorded of the parameters."""
    whole = torch.cat(list(params.values()))
    sums = torch.stack([p.abs().sum() for p in params.values()])
    return whole[:: EVERY[kind]], sums


def largest_difference(a, b):
    return max(float((x.double() - y.double()).abs().max()) for x, y in zip(a["params"].values(), b["params"].values(), strict=True))


def build(g):
    batches = {
        "mlp": g.rand((2, BATCH, 9)),
        "gpt": g.ints((2, BATCH, LENGTH + 1), 0, VOCAB),
    }
    described = {kind: new_model(kind)[1] for kind in MODELS}
    wide = {"mlp": batches["mlp"].double(), "gpt": batches["gpt"]}
    exact = {
        (kind, optimizer): train(new_model(kind, torch.float64)[0], kind, optimizer, wide[kind]) for kind in MODELS for optimizer in OPTIMIZERS
    }
    g.cases.append(
        {
            "name": "setting",
            "seed": SEED,
            "params": described,
            "batches": {kind: g.key(t) for kind, t in batches.items()},
            "every": EVERY,
            "maxNorm": MAX_NORM,
            "clippedStep": CLIPPED_STEP,
            "optimizers": {name: {camel_case(k): v for k, v in options.items()} for name, options in OPTIMIZERS.items()},
        }
    )
    for world in WORLDS:
        ranks = run_world(world, batches)
        for run in runs():
            g.attempt(f"{', '.join(run)}, {world}", lambda: record(g, run, world, ranks, exact))  # noqa: B023


def record(g, run, world, ranks, exact):
    kind, wrapper, optimizer, computation = run
    result = ranks[0][run]
    ideal = exact[kind, optimizer]
    drift = largest_difference(result, ideal)
    limit = 0.1 if computation == "bfloat16" else 2e-5
    if drift > limit or not result["norm"] > MAX_NORM[kind] or not result["losses"][-1] < 0.95 * result["losses"][0]:
        raise AssertionError(f"does not train well: drift {drift}, norm {result['norm']}, losses {json.dumps(result['losses'])}")
    if any(not torch.equal(p, q) for r in ranks for p, q in zip(r[run]["params"].values(), result["params"].values(), strict=True)):
        raise AssertionError("the ranks end with different parameters")
    values, sums = sampled(result["params"], kind)
    shards = {name: [r[run]["shards"][name] for r in ranks] for name in result["shards"]}
    return {
        "model": kind,
        "wrapper": wrapper,
        "optimizer": optimizer,
        "computation": computation,
        "world": world,
        "losses": g.key(torch.tensor(result["losses"])),
        "norm": result["norm"],
        "values": g.key(values),
        "sums": g.key(sums),
        "drift": drift,
        **({"shards": shards} if optimizer == "SGD" and computation == "float32" and wrapper != "DistributedDataParallel" else {}),
    }
