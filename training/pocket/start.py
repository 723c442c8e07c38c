"""The folder `start/`: what a checkpoint holds beside the model that ships, so that `train.py` can go on from it.

python training/pocket/start.py FOLDER
"""

import argparse
import shutil
from pathlib import Path

import torch
from reader import Reader
from train import START, arguments_of
from transformers import AutoTokenizer


def main() -> None:
    """Read FOLDER's `decayed.pt`, whose model `export.py` writes, and write `start/`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where train.py keeps its checkpoints")
    folder = parser.parse_args().folder
    reader = Reader(AutoTokenizer.from_pretrained(folder / "tokenizer"), arguments_of([str(folder)]))
    reader.load(torch.load(folder / "decayed.pt", map_location="cpu", weights_only=True))
    reader.write_start(START)
    shutil.copy(folder / "log.jsonl", START / "log.jsonl")
    print(f"wrote {START}: step {reader.step}")


if __name__ == "__main__":
    main()
