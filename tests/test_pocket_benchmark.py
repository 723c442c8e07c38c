"""One command runs every method on the reader that ships; here over two examples a task, and docs beside it."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "docs" / "benchmarks" / "pocket"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pocket")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", str(ROOT / "benchmarks" / "pocket.sh"), "runs", "reports", "2"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, check=True, timeout=600)
    return folder


@pytest.mark.parametrize("name", ["five", "twelve"])
def test_every_method_answers(made: Path, name: str) -> None:
    run = made / "runs" / name
    config = json.loads((run / "run.json").read_text("utf-8"))
    records = [json.loads(line) for line in (run / "run.jsonl").read_text("utf-8").splitlines()]
    assert [record for record in records if "error" in record] == []
    assert len(records) == 2 * len(config["tasks"]) * len(config["methods"])


@pytest.mark.parametrize("name", ["five", "twelve"])
def test_the_reports_in_docs_are_over_the_same_tasks_and_methods(made: Path, name: str) -> None:
    assert _rows(made / "reports" / name) == _rows(REPORTS / name)
    for report in (made / "reports" / name, REPORTS / name):
        assert {file.name for file in report.iterdir()} == {"report.md", "report.csv", "report.html"}


def _rows(report: Path) -> list[tuple[str, str]]:
    with (report / "report.csv").open(encoding="utf-8", newline="") as file:
        return [(row["task"], row["method"]) for row in csv.DictReader(file)]
