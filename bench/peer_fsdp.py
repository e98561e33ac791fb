"""
The rows of fsdp.ts with `ranks` in PyTorch: FSDP2, every GPU a rank. Prints one JSON object.

    python3 -m torch.distributed.run --nproc-per-node gpu bench/peer_fsdp.py [124m | 1.5b | 8b] [batch]
"""
import json, os, statistics, sys, time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

VOCABULARY, WIDTH, HEADS, HIDDEN, LAYERS, CONTEXT = range(6)
SIZES = {
    "124m": (50304, 768, 12, 3072, 12, 1024),
    "1.5b": (50304, 1600, 25, 6400, 48, 1024),
    "8b": (128256, 4096, 32, 16384, 32, 4096),
}


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size[VOCABULARY], size[WIDTH])
        self.positions = nn.Embedding(size[CONTEXT], size[WIDTH])
        self.layers = nn.ModuleList([Block(size[WIDTH], size[HEADS], size[HIDDEN]) for _ in range(size[LAYERS])])
        self.norm = nn.LayerNorm(size[WIDTH])
        self.head = nn.Linear(size[WIDTH], size[VOCABULARY], bias=False)

    def forward(self, tokens, target):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "124m"
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    size = SIZES[name]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    with torch.device("meta"):
        model = Gpt(size)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    draw = lambda: torch.randint(0, size[VOCABULARY], (batch, size[CONTEXT]), device="cuda")  # noqa: E731
    tokens, target = draw(), draw()

    def step():
        model(tokens, target).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    hosts, walls = [], []
    for _ in range(10):
        begin = time.perf_counter()
        step()
        hosts.append((time.perf_counter() - begin) * 1e3)
        torch.cuda.synchronize()
        walls.append((time.perf_counter() - begin) * 1e3)
    peak = torch.cuda.max_memory_allocated()
    if dist.get_rank() == 0:
        print(json.dumps({
            "name": f"PyTorch {torch.__version__} FSDP2, {name}, batch {batch}, one of {dist.get_world_size()} ranks",
            "hostMs": round(statistics.median(hosts), 2),
            "wallMs": round(statistics.median(walls), 1),
            "peakGiB": round(peak / 2**30, 2),
            "reservedGiB": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        }), flush=True)
    dist.destroy_process_group()


main()
