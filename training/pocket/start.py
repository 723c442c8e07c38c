"""A checkpoint as the folder `start/`, small enough to travel with the recipe: `train.py` then goes on from there.

python training/pocket/start.py FOLDER
"""

import argparse
import shutil
from pathlib import Path

from train import START, arguments_of, prepare


def main() -> None:
    """Read FOLDER's `last.pt`, and write `start/`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where train.py keeps its checkpoints")
    folder = parser.parse_args().folder
    reader, _, _ = prepare(arguments_of([str(folder)]))
    reader.write_start(START)
    shutil.copytree(folder / "tokenizer", START / "tokenizer", dirs_exist_ok=True)
    shutil.copy(folder / "log.jsonl", START / "log.jsonl")
    print(f"wrote {START}: step {reader.step}")


if __name__ == "__main__":
    main()
