#!/usr/bin/env python3
"""Reads a checkpoint directory with PyTorch's HuggingFaceStorageReader and prints it as JSON.

    check_checkpoint.py DIR

Prints {name: [shape, first value, sum]}. Exit codes: 0 read; 77 PyTorch is not installed.
"""

import json
import sys
from pathlib import Path


def main(directory):
    try:
        import torch
        import torch.distributed.checkpoint as dcp
        from safetensors import safe_open
        from torch.distributed.checkpoint import HuggingFaceStorageReader
    except ImportError as error:
        print(error, file=sys.stderr)
        return 77
    state = {}
    for path in sorted(Path(directory).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                state[name] = torch.full(file.get_slice(name).get_shape(), float("nan"))
    dcp.load(state, storage_reader=HuggingFaceStorageReader(directory), no_dist=True)
    found = {
        name: [list(t.shape), t.flatten()[0].item() if t.numel() else None, t.double().sum().item()]
        for name, t in state.items()
    }
    json.dump(found, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
