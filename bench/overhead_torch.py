"""The rows of overhead.ts in PyTorch, and the raw launch cost of the machine. usage: overhead_torch.py [cpu|cuda]"""
import json, statistics, sys, time
import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)

def row(name, burst, repeats, fn):
    for _ in range(burst): fn()
    sync(); host, total = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(burst): fn()
        host.append((time.perf_counter() - start) / burst * 1e6)
        sync(); total.append((time.perf_counter() - start) / burst * 1e6)
    print(json.dumps({"name": f"torch {name} {device}", "burst": burst, "usHost": round(statistics.median(host), 3), "usTotal": round(statistics.median(total), 3)}), flush=True)

a = torch.ones(8, device=device); b = torch.ones(8, device=device); m = torch.ones(8, 8, device=device)
with torch.no_grad():
    row("add", 500, 20, lambda: a + b)
    row("add", 20000, 5, lambda: a + b)
    row("mm 8x8", 20000, 5, lambda: m @ m)
    row("layer_norm 8x8", 20000, 5, lambda: F.layer_norm(m, (8,)))
x = torch.ones(8, device=device, requires_grad=True)
def both():
    (x * 2 + 1).sum().backward(); x.grad = None
row("(a*2+1).sum().backward()", 3000, 5, both)
