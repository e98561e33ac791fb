"""The rows of overhead.ts and kernels.ts in PyTorch. usage: peer_torch.py [cpu|cuda]"""
import json, statistics, sys, time

begin = time.perf_counter()
import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
torch.ones(1, device=device)
start_ms = (time.perf_counter() - begin) * 1e3
sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)


def show(name, unit, value, burst=1):
    print(json.dumps({"name": name, "unit": unit, "value": float(f"{value:.4g}"), "burst": burst}), flush=True)


def seconds_of(fn, burst, repeats, warm=3):
    for _ in range(warm * burst): fn()
    sync(); times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(burst): fn()
        sync(); times.append((time.perf_counter() - begin) / burst)
    return statistics.median(times)


def overhead():
    a = torch.ones(8, device=device); b = torch.ones(8, device=device); m = torch.ones(8, 8, device=device)
    with torch.no_grad():
        show("add", "us", seconds_of(lambda: a + b, 500, 41, 40) * 1e6, 500)
        show("add", "us", seconds_of(lambda: a + b, 20000, 7, 1) * 1e6, 20000)
        show("mm 8x8", "us", seconds_of(lambda: m @ m, 20000, 7, 1) * 1e6, 20000)
        show("layer norm 8x8", "us", seconds_of(lambda: F.layer_norm(m, (8,)), 20000, 7, 1) * 1e6, 20000)
        net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(24))).to(device)
        x = torch.ones(4, 8, device=device)
        show("24 linear layers 8x8, eager", "us", seconds_of(lambda: net(x), 200, 31, 5) * 1e6, 200)
    x = torch.ones(8, device=device, requires_grad=True)
    def both():
        (x * 2 + 1).sum().backward(); x.grad = None
    show("(a*2+1).sum().backward()", "us", seconds_of(both, 3000, 7, 1) * 1e6, 3000)


def kernels():
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            a = torch.rand(2048, 2048, device=device).to(dtype); b = torch.rand(2048, 2048, device=device).to(dtype)
            show(f"matmul 2048 cubed, {str(dtype)[6:]}", "GFLOP/s", 2 * 2048**3 / seconds_of(lambda: a @ b, 3, 9, 1) / 1e9, 3)
        x = torch.rand(512, 768, device=device); g = torch.ones(768, device=device); c = torch.zeros(768, device=device)
        show("layer norm 512x768", "ms", seconds_of(lambda: F.layer_norm(x, (768,), g, c), 50, 15) * 1e3, 50)
        y = torch.rand(1 << 20, device=device)
        show("tanh chain of 1M", "ms", seconds_of(lambda: torch.tanh(y * 1.5 + 0.5) * 2 + 0.25, 10, 15) * 1e3, 10)


def mlp():
    net = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    x = torch.rand(64, 784, device=device) * 2 - 1; y = torch.randint(0, 10, (64,), device=device)
    def step():
        loss = F.cross_entropy(net(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step(); loss.item()
    show("MLP Adam step", "ms", seconds_of(step, 1, 301, 200) * 1e3)


overhead()
kernels()
mlp()
show("start", "ms", start_ms)
