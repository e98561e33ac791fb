"""Runs a call in PyTorch and records it: inputs, outputs, gradients, and how far PyTorch itself is from the exact result."""

import json
import math
import re
import sys
import zlib

import torch
import torch.nn.functional as F

import safetensors_file
from inputs import Inputs

# Ops whose PyTorch signature is that of torch.nn.functional, not that of the function in torch of the same name.
FUNCTIONAL = set(
    """layer_norm rms_norm cross_entropy nll_loss mse_loss l1_loss binary_cross_entropy_with_logits dropout
    scaled_dot_product_attention gelu relu silu softplus leaky_relu elu linear embedding one_hot softmax log_softmax""".split()
)

# torch.testing.assert_close: relative and absolute tolerance.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}


def snake_case(name):
    return re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), name)


def camel_case(name):
    """`label_smoothing` to `labelSmoothing`, `T_max` to `TMax`; a leading or trailing underscore stays."""
    return re.sub(r"(?<=[A-Za-z0-9])_([a-zA-Z0-9])", lambda match: match.group(1).upper(), name)


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def python_callable(op, method):
    name = snake_case(op)
    if method or not (name in FUNCTIONAL or hasattr(torch, name)):
        return lambda first, *rest, **options: getattr(first, name)(*rest, **options)
    return getattr(F if name in FUNCTIONAL else torch, name)


def map_tensors(value, transform, path=""):
    """Replaces the tensors in nested lists, tuples and dicts; `transform` gets the path, such as `2.0`, and the tensor."""
    if isinstance(value, torch.Tensor):
        return transform(path, value)
    if isinstance(value, (list, tuple)):
        return [map_tensors(v, transform, f"{path}.{i}" if path else str(i)) for i, v in enumerate(value)]
    if isinstance(value, dict):
        return {k: map_tensors(v, transform, f"{path}.{camel_case(k)}" if path else camel_case(k)) for k, v in value.items()}
    return value


def as_list(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def describe(value):
    """For the name of a case: `a transposed float32 [3, 5]`."""
    if isinstance(value, torch.Tensor):
        words = f"{getattr(value, 'golden_word', '')} {dtype_name(value.dtype)} {list(value.shape)}".strip()
        return ("an " if words[0] in "aeio" else "a ") + words
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(describe(v) for v in value) + "]"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)


def slack_needed(actual, ideal):
    """
    The absolute tolerance that another implementation of PyTorch's accuracy needs beside assert_close's relative one: 0 where
    the usual one will do, three times PyTorch's own error where that is no longer small, infinite where NaN or infinities differ.
    """
    if not actual.dtype.is_floating_point:
        return 0.0 if torch.equal(actual, ideal.to(actual.dtype)) else math.inf
    rtol, atol = TOLERANCES[actual.dtype]
    got, want = actual.detach().double(), ideal.detach().to(actual.dtype).double()
    same = (got == want) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return 0.0
    error = (got - want)[~same].abs()
    if not bool(error.isfinite().all()):
        return math.inf
    needed = float((3 * error - 0.5 * rtol * want[~same].abs()).max())
    return needed if needed > atol else 0.0


def slack_by_dtype(pairs):
    """For each dtype that needs it, the absolute tolerance, rounded up to two digits; the second result says if it is too much."""
    slack, hopeless = {}, False
    for actual, ideal in pairs:
        needed = slack_needed(actual, ideal)
        if needed == 0.0:
            continue
        largest = float(ideal.detach().double().abs().max())
        hopeless = hopeless or not math.isfinite(needed) or needed > 0.1 * max(largest, 0.01)
        if math.isfinite(needed):
            name = dtype_name(actual.dtype)
            slack[name] = max(slack.get(name, 0.0), float(f"{needed * 1.05:.1e}"))
    return slack or None, hopeless


class Group(Inputs):
    """One fixture file: deduplicated tensors and a list of cases."""

    def __init__(self, name, seed):
        super().__init__(seed + zlib.crc32(name.encode()))
        self.name = name
        self.tensors = {}
        self.cases = []
        self.failures = []
        self.warnings = []
        self._keys = {}
        self._names = set()

    def key(self, tensor):
        """Stores a tensor, once for each content, and returns its key."""
        data = tensor.detach()
        identity = (data.dtype, tuple(data.shape), safetensors_file.raw_bytes(data))
        if identity not in self._keys:
            key = f"t{len(self._keys)}"
            self._keys[identity] = key
            self.tensors[key] = data.contiguous().clone()
        return self._keys[identity]

    def unique_name(self, name):
        number = 2
        unique = name
        while unique in self._names:
            unique = f"{name} #{number}"
            number += 1
        self._names.add(unique)
        return unique

    def attempt(self, name, record):
        """Runs `record()`; an exception is reported with the name of the case, which is then left out."""
        try:
            self.cases.append({"name": self.unique_name(name), **record()})
        except Exception as error:  # noqa: BLE001 any failure of one case must leave the others alone
            self.failures.append(name)
            print(f"FAILED {self.name}: {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)

    def encode(self, value):
        """An argument as JSON. A tensor that is not a whole contiguous memory becomes a view of that memory."""
        if isinstance(value, torch.Tensor):
            data = value.detach()
            memory = data.untyped_storage().nbytes() // data.element_size()
            if data.is_contiguous() and (memory == data.numel() or data.numel() == 0):
                return {"tensor": self.key(data)}
            whole = torch.as_strided(data, [memory], [1], 0)
            return {
                "view": {
                    "tensor": self.key(whole),
                    "shape": list(data.shape),
                    "stride": list(data.stride()),
                    "offset": data.storage_offset(),
                }
            }
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")}
        if isinstance(value, (list, tuple)):
            return [self.encode(v) for v in value]
        if isinstance(value, dict):
            return {camel_case(k): self.encode(v) for k, v in value.items()}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"cannot record {type(value).__name__}")

    def cotangent(self, output):
        """Fixed random numbers for each shape and dtype."""
        generator = torch.Generator().manual_seed(zlib.crc32(str(tuple(output.shape)).encode()))
        return (torch.rand(output.shape, generator=generator, dtype=torch.float64) * 2 - 1).to(output.dtype)

    def call(self, op, *args, fn=None, method=False, grad=True, fixed=(), strides=False, calibrate=True, factory=False, note="", **options):
        """
        Records one call. `fn` replaces the PyTorch function named like `op`; `fixed` lists argument paths without a gradient;
        `strides` records the strides of the outputs and whether they view an input; `factory` marks calls that take a device.
        """
        shown = [describe(a) for a in args] + [f"{camel_case(k)} {describe(v)}" for k, v in options.items()]
        name = f"{op}{' (method)' if method else ''} of {', '.join(shown)}{f' ({note})' if note else ''}"
        run = fn or python_callable(op, method)

        def record():
            case = {"op": op, **({"call": "method"} if method else {}), "args": self.encode(args)}
            if options:
                case["options"] = self.encode(options)
            if factory:
                case["factory"] = True
            if op.endswith("_"):
                case.update(self._in_place(run, args, options))
                return case
            outputs, cotangents, grads = self._differentiate(run, args, options, grad, fixed)
            case["outputs"] = [self._output(o, args, strides) for o in outputs]
            if grads:
                case["cotangents"] = [None if c is None else self.key(c) for c in cotangents]
                case["grads"] = {path: self.key(g) for path, g in grads.items()}
            if calibrate:
                tolerance = self._calibrate(name, run, args, options, outputs, cotangents, grads)
                if tolerance:
                    case["tolerance"] = tolerance
            return case

        self.attempt(name, record)

    def _output(self, output, args, strides):
        if not strides:
            return self.key(output)
        memories = []
        map_tensors(args, lambda _path, t: memories.append(t.untyped_storage().data_ptr()))
        shared = output.untyped_storage().data_ptr() in memories if output.numel() else None
        return {"tensor": self.key(output), "stride": list(output.stride()), "view": shared}

    def _in_place(self, run, args, options):
        """The first argument's whole memory is recorded too: what is beside a view must not change."""
        target = args[0].detach()
        memory = torch.as_strided(target, [target.untyped_storage().nbytes() // target.element_size()], [1], 0).clone()
        live = torch.as_strided(memory, target.shape, target.stride(), target.storage_offset())
        result = run(live, *args[1:], **options)
        if result.data_ptr() != live.data_ptr():
            raise AssertionError("an in-place op returned other memory")
        return {"outputs": [self.key(result)], "memory": self.key(memory)}

    def _differentiate(self, run, args, options, grad, fixed, cotangents=None):
        leaves = {}

        def leaf(path, value):
            if not (grad and value.dtype.is_floating_point) or path in fixed:
                return value.detach()
            leaves[path] = value.detach().requires_grad_()
            return leaves[path]

        outputs = as_list(run(*map_tensors(args, leaf), **map_tensors(options, leaf)))
        differentiable = [o for o in outputs if o.requires_grad]
        if not (leaves and differentiable):
            return outputs, None, {}
        if cotangents is None:
            cotangents = [self.cotangent(o) if o.requires_grad else None for o in outputs]
        given = [c for c in cotangents if c is not None]
        found = torch.autograd.grad(differentiable, list(leaves.values()), given, allow_unused=True)
        return outputs, cotangents, {path: g for path, g in zip(leaves, found, strict=True) if g is not None}

    def _calibrate(self, name, run, args, options, outputs, cotangents, grads):
        """
        The same call in float64 shows how far PyTorch's own rounding takes it. None, or for each dtype the absolute tolerance
        that replaces assert_close's.
        """
        dtypes = [o.dtype for o in outputs if o.dtype.is_floating_point]
        if "dtype" in options or not dtypes or torch.float64 in dtypes:
            return None
        widen = lambda _path, t: t.detach().double() if t.dtype.is_floating_point else t  # noqa: E731
        wide_args, wide_options = map_tensors(args, widen), map_tensors(options, widen)
        fixed = []
        note = lambda path, _t: fixed.append(path) if path not in grads else None  # noqa: E731
        map_tensors(args, note)
        map_tensors(options, note)
        wide_cotangents = cotangents and [None if c is None else c.double() for c in cotangents]
        ideal, _, ideal_grads = self._differentiate(run, wide_args, wide_options, bool(grads), fixed, wide_cotangents)
        slack, hopeless = slack_by_dtype([*zip(outputs, ideal, strict=True), *((grads[p], ideal_grads[p]) for p in grads)])
        if hopeless:
            self.warnings.append(name)
            print(f"WARNING {self.name}: {name}: PyTorch is far from its own float64 result, slack {slack}", file=sys.stderr)
        return slack
