"""Compile six notes once, then ask about them twice, in two orders: the second question computes only itself.

python examples/quickstart.py                  a random model of GLM-4.1V's architecture: its answers mean nothing,
                                               the reuse, the positions and the timings are real
python examples/quickstart.py --model MODEL    a model folder or hub id, such as Qwen/Qwen2.5-0.5B-Instruct or
                                               zai-org/Glyph: real answers
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KVBIND = [sys.executable, "-m", "kvbind"]
QUESTION = "At what time did the storm reach the harbour, and who saw it first?"


def run(*command: str) -> None:
    print("\n$ kvbind", *(f'"{word}"' if " " in word else word for word in command), flush=True)
    subprocess.run([*KVBIND, *command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder or hub id (default: a random one, made here)")
    parser.add_argument("--method", help="default: qv-pic on the random model, template on yours")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        model, bank = arguments.model, f"{work}/bank"
        if model is None:
            model = f"{work}/random-glyph"
            subprocess.run([sys.executable, HERE.parent / "benchmarks" / "random_glyph.py", "toy", model], check=True)
        method = arguments.method or ("template" if arguments.model else "qv-pic")
        run("compile", str(HERE / "notes"), "--bank", bank, "--model", model, "--method", method)
        ask = ["ask", QUESTION, "--bank", bank, "--max-tokens", "32", "--explain"]
        run(*ask, "--docs", "storm.txt", "--docs", "lighthouse.txt", "--docs", "museum.txt")
        run(*ask, "--docs", "museum.txt", "--docs", "pump.txt", "--docs", "storm.txt", "--docs", "ferry.txt")
        run("bank", "stats", "--bank", bank)


if __name__ == "__main__":
    main()
