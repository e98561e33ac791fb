"""
Writes PyTorch's results for the ops, modules and optimizers of Shardwise as safetensors fixtures.

    python3 test/golden/make.py --out test/golden/fixtures

Runs on the CPU only, in a minute or two. A case that raises is reported on stderr and left out; the exit status is then 1.
"""

import argparse
import datetime
import json
import os
import sys
import time
import traceback
import warnings

import torch

import cases_attention
import cases_binary
import cases_convert
import cases_create
import cases_data_parallel
import cases_index
import cases_inplace
import cases_loss
import cases_matmul
import cases_nn
import cases_optimizer
import cases_pointwise
import cases_promotion
import cases_reduce
import cases_scheduler
import cases_state_dict
import cases_tiny_gpt
import cases_transformer
import cases_view
import safetensors_file
from recorder import Group

SEED = 20251120
MAX_FILE = 300_000
MAX_TOTAL = 1_800_000

GROUPS = {
    "pointwise": cases_pointwise.build,
    "binary": cases_binary.build,
    "promotion": cases_promotion.build,
    "convert": cases_convert.build,
    "create": cases_create.build,
    "reduce": cases_reduce.build,
    "matmul": cases_matmul.build,
    "view": cases_view.build,
    "index": cases_index.build,
    "inplace": cases_inplace.build,
    "nn": cases_nn.build,
    "loss": cases_loss.build,
    "attention": cases_attention.build,
    "optimizer": cases_optimizer.build,
    "scheduler": cases_scheduler.build,
    "state-dict": cases_state_dict.build,
    "transformer": cases_transformer.build,
    "transformer-layers": cases_transformer.build_layers,
    "tiny-gpt": cases_tiny_gpt.build,
    "data-parallel": cases_data_parallel.build,
}


def make(name, folder):
    """Builds one group and writes its file. Returns its size in bytes, its cases, its failures."""
    group = Group(name, SEED)
    try:
        GROUPS[name](group)
    except Exception:  # noqa: BLE001 the other groups are still worth having
        traceback.print_exc()
        group.failures.append(f"the group {name} itself")
    metadata = {
        "cases": json.dumps(group.cases, separators=(",", ":"), allow_nan=False),
        "torch": torch.__version__,
        "seed": str(SEED),
        "made": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    size = safetensors_file.write(os.path.join(folder, f"{name}.safetensors"), group.tensors, metadata)
    return size, len(group.cases), group


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the fixtures; made if it is not there")
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS), help="groups to write; default all")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore", UserWarning)  # PyTorch's hints on empty variances, nested tensors and the like
    start = time.monotonic()
    total = cases = 0
    problems = []
    for name in options.only:
        size, count, group = make(name, options.out)
        print(f"{name:20} {count:5} cases {size:8} bytes  {len(group.failures)} failed, {len(group.warnings)} ill-conditioned")
        problems += [f"{name}: {failure}" for failure in group.failures]
        if size > MAX_FILE:
            problems.append(f"{name}: {size} bytes, more than {MAX_FILE}")
        total += size
        cases += count
    if total > MAX_TOTAL:
        problems.append(f"{total} bytes in all, more than {MAX_TOTAL}")
    print(f"{'total':20} {cases:5} cases {total:8} bytes, torch {torch.__version__}, {time.monotonic() - start:.1f} s")
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
