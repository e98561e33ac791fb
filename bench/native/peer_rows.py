"""Times with PyTorch what rows_time.cc times: eager and torch.compile, graphs of some calls over rotating inputs, medians of six replays.

python3 peer_rows.py [seconds [part of a name ...]]    after that many seconds no more is compiled
"""

import sys
import time

import torch
import torch._functorch.config
import torch.nn.functional as Fn

t_start = time.time()
LIMIT = float(sys.argv[1]) if len(sys.argv) > 1 else 1e9
filters = sys.argv[2:]
torch._functorch.config.donated_buffer = False
dev = 'cuda'
H = torch.bfloat16


def want(n):
    return not filters or any(f in n for f in filters)


def timed(fn, n, graph=True):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(3):
            fn()
        torch.cuda.synchronize()
        e0, e1 = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        ts = []
        if graph:
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=s):
                for _ in range(n):
                    fn()
            run = g.replay
        else:

            def run():
                for _ in range(n):
                    fn()

        run()
        torch.cuda.synchronize()
        for _ in range(6):
            e0.record(s)
            run()
            e1.record(s)
            torch.cuda.synchronize()
            ts.append(e0.elapsed_time(e1) * 1e3 / n)
    ts.sort()
    return ts[len(ts) // 2]


def show(name, kind, us, bytes):
    print(f'{name:44s} {kind:9s} {us:9.1f} us {bytes/us*1e-6:5.2f} TB/s', flush=True)


def late():
    return time.time() - t_start > LIMIT


def rows(name, f, inputs, bytes_f, bytes_b, sets, grads):
    # f(*inputs) -> tensor; `sets` copies of the inputs are used in turn
    for kind in ('eager', 'compiled'):
        if late():
            print('late', name, kind)
            return
        try:
            torch._dynamo.reset()
            ff = f if kind == 'eager' else torch.compile(f, dynamic=False)
            n = max(4, min(40, int(5e-3 / (bytes_f / 3.5e12))))
            n -= n % sets
            n = max(n, sets)
            state = {'i': 0}

            def nxt():
                state['i'] = (state['i'] + 1) % sets
                return inputs[state['i']]

            def fwd():
                with torch.no_grad():
                    ff(*nxt())

            if bytes_f:
                show(name + ' fwd', kind, timed(fwd, n), bytes_f)
            if bytes_b:
                st = torch.cuda.Stream()
                outs = []
                for i in inputs:
                    ii = [t.detach().requires_grad_(t.dtype.is_floating_point) for t in i]
                    with torch.cuda.stream(st):
                        o = ff(*ii)
                    torch.cuda.synchronize()
                    o0 = o if isinstance(o, tuple) else (o,)
                    outs.append((o0, [t for t in ii if t.requires_grad][:grads], [torch.randn_like(x) for x in o0]))

                def bwd():
                    state['i'] = (state['i'] + 1) % sets
                    o, ii, g = outs[state['i']]
                    torch.autograd.grad(o, ii, g, retain_graph=True)

                show(name + ' bwd', kind, timed(bwd, n), bytes_b)
                del outs
        except Exception as e:
            print(name, kind, 'FAILED', str(e)[:300].replace('\n', ' '), flush=True)
    torch.cuda.empty_cache()


def nsets(b):
    return max(1, min(4, int(4e8 / b) + 1))


x = torch.empty(1 << 28, device=dev)
y = torch.empty_like(x)
show('copy 1GiB', 'eager', timed(lambda: y.copy_(x), 4), 2.0 * (1 << 30))
del x, y
for r, c in ((32768, 4096), (8192, 4096), (16384, 768), (8192, 16384)):
    name = f'layer_norm {r}x{c}'
    if not want(name):
        continue
    b = r * c * 2
    k = nsets(2 * b)

    def ln(x, w, bb):
        return Fn.layer_norm(x, (c,), w, bb, 1e-5)

    rows(
        name,
        ln,
        [
            [
                torch.randn(r, c, device=dev, dtype=H),
                torch.randn(c, device=dev, dtype=H),
                torch.randn(c, device=dev, dtype=H),
            ]
            for _ in range(k)
        ],
        2 * b,
        3 * b,
        k,
        3,
    )
r, c = 16384, 4096
b = r * c * 2
if want('rms_norm'):

    def rms(x, w):
        return Fn.rms_norm(x, (c,), w, 1e-5)

    rows(
        'rms_norm 16384x4096',
        rms,
        [[torch.randn(r, c, device=dev, dtype=H), torch.randn(c, device=dev, dtype=H)] for _ in range(2)],
        2 * b,
        3 * b,
        2,
        2,
    )

    def rmsr(x, w, res):
        s = x + res
        return Fn.rms_norm(s, (c,), w, 1e-5), s

    rows(
        'rms_norm+residual 16384x4096',
        rmsr,
        [
            [
                torch.randn(r, c, device=dev, dtype=H),
                torch.randn(c, device=dev, dtype=H),
                torch.randn(r, c, device=dev, dtype=H),
            ]
            for _ in range(2)
        ],
        4 * b,
        4 * b,
        2,
        3,
    )
for t, r, c in ((H, 8192, 4096), (H, 8192, 16384), (torch.float32, 2048, 131072)):
    name = f'softmax {t} {r}x{c}'
    if not want(name):
        continue
    b = r * c * t.itemsize
    k = nsets(2 * b)
    rows(
        name,
        lambda x: torch.softmax(x, -1),
        [[torch.randn(r, c, device=dev, dtype=t)] for _ in range(k)],
        2 * b,
        3 * b,
        k,
        1,
    )
if want('cross_entropy'):
    r, c = 8192, 128256
    x = torch.randn(r, c, device=dev, dtype=H)
    t = torch.randint(c, (r,), device=dev)
    b = r * c * 2
    for kind in ('eager', 'compiled'):
        if late():
            break
        torch._dynamo.reset()
        f = lambda x, t: Fn.cross_entropy(x, t)
        if kind == 'compiled':
            f = torch.compile(f, dynamic=False)
        xx = x.detach().requires_grad_()

        def both():
            torch.autograd.grad(f(xx, t), xx)

        try:
            show('cross_entropy fwd+grad', kind, timed(both, 2), 2 * b)
        except Exception as e:
            print('ce FAILED', kind, str(e)[:300])
    del x, xx
    torch.cuda.empty_cache()


def adam(shapes, name):
    ps = [torch.nn.Parameter(torch.randn(s, device=dev)) for s in shapes]
    for p in ps:
        p.grad = torch.randn_like(p)
    n = sum(p.numel() for p in ps)
    o = torch.optim.AdamW(ps, lr=1e-3, weight_decay=0.01, fused=True)
    show(name, 'step', timed(o.step, 5, False), 28.0 * n)
    t0 = time.perf_counter()
    for _ in range(5):
        o.step()
    t1 = time.perf_counter()
    torch.cuda.synchronize()
    print(f'{name} host {(t1-t0)/5*1e6:.1f} us')
    try:
        o = torch.optim.AdamW(ps, lr=1e-3, weight_decay=0.01, fused=True, capturable=True)
        show(name, 'graph', timed(o.step, 5, True), 28.0 * n)
    except Exception as e:
        print(name, 'graph FAILED', str(e)[:200])


if want('adamw'):
    adam([(4096, 4096)] * 32, 'adamw 32x4096^2')
    torch.cuda.empty_cache()
    g = [(50257, 768), (1024, 768)]
    for _ in range(12):
        g += [
            (768,),
            (768,),
            (2304, 768),
            (2304,),
            (768, 768),
            (768,),
            (768,),
            (768,),
            (3072, 768),
            (3072,),
            (768, 3072),
            (768,),
        ]
    g += [(768,), (768,)]
    adam(g, 'adamw gpt2 148')
    torch.cuda.empty_cache()
if want('transpose'):
    x = torch.randn(16384, 16384, device=dev, dtype=H)
    show('transpose 16384^2 bf16', 'eager', timed(lambda: x.t().contiguous(), 4), 2.0 * x.numel() * 2)
    if not late():
        f = torch.compile(lambda x: x.t().contiguous(), dynamic=False)
        show('transpose 16384^2 bf16', 'compiled', timed(lambda: f(x), 4), 2.0 * x.numel() * 2)
    del x
if want('cast'):
    x = torch.randn(1 << 28, device=dev)
    show('cast fp32 1GiB -> bf16', 'eager', timed(lambda: x.to(H), 4), 1.5 * (1 << 30))
    x = torch.randn(1 << 29, device=dev, dtype=H)
    show('cast bf16 1GiB -> fp32', 'eager', timed(lambda: x.float(), 4), 3.0 * (1 << 30))
    del x
    torch.cuda.empty_cache()
if want('embedding'):
    for t in (H, torch.float32):
        idx = torch.randint(128256, (16384,), device=dev)
        g = torch.randn(16384, 4096, device=dev, dtype=t)
        show(
            f'embedding bwd {t}',
            'eager',
            timed(lambda: torch.ops.aten.embedding_dense_backward(g, idx, 128256, -1, False), 4, False),
            t.itemsize * (128256.0 + 3 * 16384) * 4096,
        )
print('seconds', time.time() - t_start)
