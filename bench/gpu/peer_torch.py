"""PyTorch's side of the GPU rows: the process that peers.ts speaks to as it does to worker.ts. usage: peer_torch.py

{"prepare": job, "mode": "eager" | "compile" | "max-autotune", "graph": calls that one replays} -> {};
{"time": calls, "warm": calls before} -> {"us": a call}; {"drop": true} -> {}
"""
import gc, json, os, sys, time

import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "gpus"))
from peer_models import Gpt

device = "cuda"


def rand(shape, dtype):
    return torch.randn(*shape, device=device, dtype=dtype)


def matmul(fn, x_shape, w_shape):
    def make(job, dtype, wrap):
        m, n, k = job["shape"]
        sets = [(rand(x_shape(m, k), dtype), rand(w_shape(n, k), dtype)) for _ in range(job.get("rotate", 1))]
        run = wrap(fn)
        return lambda i: run(*sets[i % len(sets)])
    return make


def linear(fn, names):
    """A pass of a linear layer over two of x[m, k], w[n, k] and g[m, n], the gradient of its output."""
    def operands(job, dtype):
        m, n, k = job["shape"]
        shapes = {"x": [m, k], "w": [n, k], "g": [m, n]}
        return [rand(shapes[name], dtype) for name in names]
    return forward_of(fn, operands)


def forward_of(fn, operands):
    def make(job, dtype, wrap):
        sets = [operands(job, dtype) for _ in range(job.get("rotate", 1))]
        run = wrap(fn)
        return lambda i: run(*sets[i % len(sets)])
    return make


def backward_of(fn, operands, skip=()):
    def make(job, dtype, wrap):
        args = [a.requires_grad_(at not in skip) for at, a in enumerate(operands(job, dtype))]
        outputs = wrap(fn)(*args)
        if torch.is_tensor(outputs): outputs = [outputs]
        gradients = [torch.randn_like(output) for output in outputs]
        inputs = [a for a in args if a.requires_grad]
        return lambda i: torch.autograd.grad(outputs, inputs, gradients, retain_graph=True)
    return make


def rows_and(count, weights):
    return lambda job, dtype: [rand(job["shape"], dtype) for _ in range(count)] + [rand(job["shape"][1:], dtype) for _ in range(weights)]


layer_norm = lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b)


def sum_and_rms(x, r, w):  # the sum goes on as the next residual
    total = x + r
    return total, F.rms_norm(total, x.shape[1:], w)


softmax = lambda x: F.softmax(x, -1)


def attention(job, dtype):
    batch, heads, length, depth = job["shape"]
    keys = [batch, job.get("keyHeads", heads), length, depth]
    scores = job["scores"]
    mask = torch.ones(length, length, dtype=torch.bool, device=device)[None, None].tril().repeat(batch, 1, 1, 1) if scores == "masked" else None
    options = {"attn_mask": mask, "is_causal": mask is None, "dropout_p": 0.1 if "dropout" in scores else 0.0, "enable_gqa": keys[1] != heads}
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), lambda *_: [rand(job["shape"], dtype), rand(keys, dtype), rand(keys, dtype)]


def attention_by(make):
    return lambda job, dtype, wrap: make(*attention(job, dtype))(job, dtype, wrap)


def cross_entropy(is_cast):
    def make(job, dtype, wrap):
        logits = rand(job["shape"], dtype).requires_grad_()
        targets = torch.randint(0, job["shape"][1], (job["shape"][0],), device=device)
        def forward(x):
            with torch.autocast(device, torch.bfloat16, enabled=is_cast): return F.cross_entropy(x, targets)
        loss = wrap(forward)
        return lambda i: torch.autograd.grad(loss(logits), logits)
    return make


def steps_of(make, shapes):
    params = [torch.nn.Parameter(rand(s, torch.float32)) for s in shapes]
    for p in params: p.grad = torch.randn_like(p)
    optimizer = make(params)
    return lambda i: optimizer.step()


adamw = lambda params: torch.optim.AdamW(params, 1e-3, fused=True)
sgd = lambda params: torch.optim.SGD(params, 1e-3, momentum=0.9, fused=True)


def gpt2_shapes(layers, d):
    block = [[d], [d], [3 * d, d], [3 * d], [d, d], [d], [d], [d], [4 * d, d], [4 * d], [d, 4 * d], [d]]
    return [[50257, d], [1024, d]] + block * layers + [[d], [d]]


def embedding_backward(job, dtype, wrap):
    words, width, tokens = job["shape"]
    table = rand([words, width], dtype).requires_grad_()
    ids = torch.randint(0, words, (tokens,), device=device)
    output = wrap(lambda t: F.embedding(ids, t))(table)
    gradient = torch.randn_like(output)
    return lambda i: torch.autograd.grad(output, table, gradient, retain_graph=True)


def training(fn, operands):
    """Forward and backward in one call, under autocast."""
    def make(job, dtype, wrap):
        sets = [[a.requires_grad_() for a in operands(job["shape"], dtype)] for _ in range(job.get("rotate", 1))]
        def forward(*args):
            with torch.autocast(device, torch.bfloat16): return fn(*args)
        run = wrap(forward)
        gradient = torch.randn_like(run(*sets[0]))
        def call(i):
            args = sets[i % len(sets)]
            return torch.autograd.grad(run(*args), args, gradient)
        return call
    return make


def joined(heads): return heads.transpose(1, 2).flatten(2)


def attention_of_one(qkv):
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return joined(F.scaled_dot_product_attention(q, k, v, is_causal=True))


def grouped_attention(q, k, v):
    return joined(F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True))


def grouped_operands(shape, dtype):
    batch, context, heads, depth, key_heads = shape
    return [rand([batch, heads, context, depth], dtype), rand([batch, key_heads, context, depth], dtype), rand([batch, context, key_heads, depth], dtype)]


def normed(norm, weights):  # before a small product
    return training(
        lambda x, w, *gains: F.linear(norm(x, *gains), w),
        lambda shape, dtype: [rand(shape, torch.float32), rand([8, shape[1]], torch.float32)] + [rand(shape[1:], torch.float32) for _ in range(weights)],
    )


def training_adamw(job, dtype, wrap):
    names = ["vocabulary", "width", "heads", "hidden", "layers", "context"]
    size = dict(zip(names, job["shape"]))
    with torch.device(device): model = Gpt(size)
    tokens = torch.randint(0, size["vocabulary"], (1, size["context"]), device=device)
    with torch.autocast(device, torch.bfloat16): loss = model(tokens, tokens)
    loss.backward()
    optimizer = adamw(list(model.parameters()))
    return lambda i: optimizer.step()


def small(fn):
    def make(job, dtype, wrap):
        a = torch.ones(8, 8, device=device)
        def call(i):
            with torch.no_grad(): fn(a)
        return call
    return make


def backward_of_sum(job, dtype, wrap):
    x = torch.ones(8, device=job.get("device", device), requires_grad=True)
    def call(i):
        (x * 2 + 1).sum().backward()
        x.grad = None
    return call


def of(fn):
    def make(job, dtype, wrap):
        x = rand(job["shape"], dtype)
        def call(i):
            with torch.no_grad(): fn(x)
        return call
    return make


def selected_rows(job, dtype, wrap):
    table, ids = rand(job["shape"], dtype), torch.randint(0, job["shape"][0], (16_384,), device=device)
    return lambda i: table.index_select(0, ids)


def per_row(fn):  # some indices of each row, and as many elements
    def make(job, dtype, wrap):
        rows, columns = job["shape"]
        x, ids, source = rand(job["shape"], dtype), torch.randint(0, columns, (rows, 1024), device=device), rand([rows, 1024], dtype)
        return lambda i: fn(x, ids, source)
    return make


def put(accumulate):
    def make(job, dtype, wrap):
        x, at = rand(job["shape"], dtype), tuple(torch.randint(0, size, (2**20,), device=device) for size in job["shape"])
        values = rand([2**20], dtype)
        return lambda i: x.index_put_(at, values, accumulate=accumulate)
    return make


def drawn(fn):
    return lambda job, dtype, wrap: lambda i: fn(job["shape"])


def places_of_nonzero(job, dtype, wrap):
    mask = rand(job["shape"], dtype) > 0
    return lambda i: mask.nonzero()


def matmul_in_float64(job, dtype, wrap):
    m, n, k = job["shape"]
    x, w = rand([m, k], torch.float64), rand([k, n], torch.float64)
    return lambda i: x @ w


common_ops = {
    "fill": of(lambda x: x.fill_(3)),
    "sum_of_all": of(lambda x: x.sum()),
    "sum_of_rows": of(lambda x: x.sum(-1)),
    "sum_of_columns": of(lambda x: x.sum(0)),
    "variance_of_rows": of(lambda x: x.var(-1)),
    "log_sum_exp_of_rows": of(lambda x: x.logsumexp(-1)),
    "largest_of_rows": of(lambda x: x.argmax(-1)),
    "norm_of_all": of(lambda x: x.norm()),
    "norm_of_rows": of(lambda x: x.norm(2, -1)),
    "softmax_of_rows": of(softmax),
    "softmax_of_rows_backward": backward_of(softmax, rows_and(1, 0)),
    "cumulative_sums_of_rows": of(lambda x: x.cumsum(-1)),
    "cumulative_sums_of_columns": of(lambda x: x.cumsum(0)),
    "cumulative_sums_of_a_list": of(lambda x: x.cumsum(0)),
    "sorted_rows": of(lambda x: x.sort(stable=True)),
    "sorted_list": of(lambda x: x.sort(stable=True)),
    "top_50_of_rows": of(lambda x: x.topk(50)),
    "uniform_numbers": drawn(lambda shape: torch.rand(shape, device=device)),
    "normal_numbers": drawn(lambda shape: torch.randn(shape, device=device)),
    "whole_numbers": drawn(lambda shape: torch.randint(0, 1000, shape, device=device)),
    "dropout": of(lambda x: F.dropout(x, 0.1)),
    "selected_rows": selected_rows,
    "gathered_elements": per_row(lambda x, ids, source: x.gather(-1, ids)),
    "scattered_elements": per_row(lambda x, ids, source: x.scatter_(-1, ids, source)),
    "scattered_sums": per_row(lambda x, ids, source: x.scatter_add_(-1, ids, source)),
    "elements_put": put(False),
    "sums_put": put(True),
    "places_of_nonzero": places_of_nonzero,
    "sgd_with_momentum": lambda job, dtype, wrap: steps_of(sgd, [job["shape"][1:]] * job["shape"][0]),
    "matmul_in_float64": matmul_in_float64,
}
makers = {
    **common_ops,
    "copy": forward_of(lambda x: x.clone(), lambda job, dtype: [rand(job["shape"], dtype)]),
    "matmul_nt": matmul(F.linear, lambda m, k: [m, k], lambda n, k: [n, k]),
    "matmul_nn": matmul(lambda x, w: x @ w, lambda m, k: [m, k], lambda n, k: [k, n]),
    "matmul_tn": matmul(lambda x, w: x.t() @ w, lambda m, k: [k, m], lambda n, k: [k, n]),
    "linear": linear(F.linear, "xw"),
    "linear_input_gradient": linear(lambda g, w: g @ w, "gw"),
    "linear_weight_gradient": linear(lambda g, x: (g.t() @ x).float(), "gx"),  # the parameter is in float32
    "training_gelu": training(lambda x: F.gelu(x, approximate="tanh"), lambda shape, dtype: [rand(shape, dtype)]),
    "training_swiglu": training(lambda gate, up: F.silu(gate) * up, lambda shape, dtype: [rand(shape, dtype), rand(shape, dtype)]),
    "training_layer_norm": normed(lambda x, w, b: F.layer_norm(x, w.shape, w, b), 2),
    "training_rms_norm": normed(lambda x, w: F.rms_norm(x, w.shape, w), 1),
    "training_attention": training(attention_of_one, lambda shape, dtype: [rand([*shape[:2], 3, *shape[2:]], dtype)]),
    "training_grouped_attention": training(grouped_attention, grouped_operands),
    "training_cross_entropy": cross_entropy(True),
    "training_adamw": training_adamw,
    "layer_norm": forward_of(layer_norm, rows_and(1, 2)),
    "layer_norm_backward": backward_of(layer_norm, rows_and(1, 2)),
    "rms_norm_of_a_sum": forward_of(sum_and_rms, rows_and(2, 1)),
    "rms_norm_of_a_sum_backward": backward_of(sum_and_rms, rows_and(2, 1), skip=(1,)),
    "softmax": forward_of(softmax, rows_and(1, 0)),
    "cross_entropy_and_gradient": cross_entropy(False),
    "adamw": lambda job, dtype, wrap: steps_of(adamw, [job["shape"][1:]] * job["shape"][0]),
    "adamw_gpt2": lambda job, dtype, wrap: steps_of(adamw, gpt2_shapes(*job["shape"])),
    "transpose": forward_of(lambda x: x.t().contiguous(), lambda job, dtype: [rand(job["shape"], dtype)]),
    "embedding_backward": embedding_backward,
    "cast": forward_of(lambda x: x.to(torch.bfloat16), lambda job, dtype: [rand(job["shape"], dtype)]),
    "attention": attention_by(forward_of),
    "attention_backward": attention_by(backward_of),
    "add": small(lambda a: a + a),
    "mm": small(lambda a: a @ a),
    "layer_norm_host": small(lambda a: F.layer_norm(a, (8,))),
    "backward_of_a_sum": backward_of_sum,
}
# Of these, compilation makes nothing else, or they are compared with eager calls: of products unless it searches for the fastest kernel.
uncompiled = {*common_ops, "copy", "adamw", "adamw_gpt2", "training_adamw", "attention", "attention_backward", "add", "mm", "layer_norm_host", "backward_of_a_sum"}
products = {"matmul_nt", "matmul_nn", "matmul_tn", "linear", "linear_input_gradient", "linear_weight_gradient"}
reading = {"places_of_nonzero"}  # a capture that fails as they read leaves PyTorch's random numbers unusable

work, is_host, turn, graph = None, False, 0, None
LONG_US = 200  # nobody waits for Python, and a graph copies slower
stream = torch.cuda.Stream()  # gradients run on the stream of their forward pass, which a graph must be captured on


def prepare(job, mode, graph_calls):
    global work, is_host, graph
    graph = None
    is_host = job.get("host", False)
    name = "layer_norm_host" if is_host and job["op"] == "layer_norm" else job["op"]
    if mode != "eager" and name in uncompiled or mode == "compile" and name in products: return {"none": True}
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = job.get("precision") == "high"
    options = {"mode": "max-autotune-no-cudagraphs"} if mode == "max-autotune" else {}
    wrap = (lambda fn: fn) if mode == "eager" else (lambda fn: torch.compile(fn, dynamic=False, **options))
    work = makers[name](job, getattr(torch, job["dtype"]), wrap)
    run(20_000 if is_host else 3)
    torch.cuda.synchronize()
    if not is_host and name not in reading and time_calls(graph_calls, graph_calls) < LONG_US: capture(graph_calls)
    return {"graph": graph is not None}


def capture(calls):
    """Short kernels wait for Python unless a graph replays them; what cannot be captured is called."""
    global graph
    captured = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(captured, stream=stream): run(calls)
        captured.replay()
        torch.cuda.synchronize()
        graph = (captured, calls)
    except Exception:
        torch.cuda.synchronize()


def run(calls):
    global turn
    for _ in range(calls):
        work(turn)
        turn += 1


def time_calls(calls, warm):
    if is_host:
        begin = time.perf_counter()
        run(calls)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e6 / calls
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    batch, each = (graph[0].replay, graph[1]) if graph else (lambda: run(1), 1)
    times = -(-calls // each)
    for _ in range(-(-warm // each)): batch()
    begin.record()
    for _ in range(times): batch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (times * each)


def answer(request):
    global work, graph
    if "prepare" in request: return prepare(request["prepare"], request.get("mode", "eager"), request["graph"])
    if "time" in request: return {"us": time_calls(request["time"], request["warm"])}
    if "version" in request: return {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    work = graph = None
    gc.collect()
    torch.cuda.empty_cache()
    return {}


for line in sys.stdin:
    try:
        with torch.cuda.stream(stream): reply = answer(json.loads(line))
    except Exception as error: reply = {"failed": f"{type(error).__name__}: {error}"}
    print("\x1e" + json.dumps(reply), flush=True)
