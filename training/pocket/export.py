"""A checkpoint as a model folder that `kvbind` loads.

python training/pocket/export.py FOLDER/last.pt OUT
"""

import argparse
import hashlib
from pathlib import Path

import torch
from model import SIZES, build, export
from transformers import AutoTokenizer

from kvbind.builtin import SUMS


def write_sums(folder: Path) -> None:
    """The checksums by which kvbind tells that what ships with it is whole."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def main() -> None:
    """Read the checkpoint's model, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="its folder also holds the tokenizer")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="cpu", choices=sorted(SIZES))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint.parent / "tokenizer")
    state = torch.load(arguments.checkpoint, map_location="cpu", weights_only=True)
    model = build(tokenizer, arguments.size)
    model.load_state_dict(state["model"])
    export(model, tokenizer, arguments.out, getattr(torch, arguments.dtype))
    write_sums(arguments.out)
    size = sum(path.stat().st_size for path in arguments.out.iterdir()) / 1e6
    print(f"wrote {arguments.out}: step {state['rest']['step']}, {size:.1f} MB")


if __name__ == "__main__":
    main()
