"""Writes a safetensors file with struct and json alone, and reads it back to check it."""

import ctypes
import json
import struct

import torch

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def raw_bytes(tensor):
    """The elements in row-major order, little endian."""
    dense = tensor.detach().contiguous()
    size = dense.numel() * dense.element_size()
    return ctypes.string_at(dense.data_ptr(), size) if size else b""


def write(path, tensors, metadata):
    """`tensors` maps keys to tensors, `metadata` strings to strings. Wide dtypes come first, so that all are aligned."""
    header = {"__metadata__": metadata}
    chunks = []
    offset = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        data = raw_bytes(tensor)
        header[key] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(chunks)
    check(path, tensors, metadata)
    return 8 + len(text) + offset


def check(path, tensors, metadata):
    """Raises unless the file holds exactly what was to be written."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        body = file.read()
    if header.pop("__metadata__") != metadata or set(header) != set(tensors):
        raise AssertionError(f"{path}: the header does not hold what was written")
    end = 0
    for key, entry in header.items():
        first, last = entry["data_offsets"]
        if first != end or body[first:last] != raw_bytes(tensors[key]) or entry["shape"] != list(tensors[key].shape):
            raise AssertionError(f"{path}: {key} does not hold what was written")
        end = last
    if end != len(body):
        raise AssertionError(f"{path}: {len(body) - end} bytes too many")
