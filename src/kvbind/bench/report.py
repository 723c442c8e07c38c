"""A report of one or several runs: Markdown, CSV, and one HTML page with the papers' figures."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvbind.bench.cells import Table, values
from kvbind.bench.groups import gather
from kvbind.bench.html import html
from kvbind.bench.sections import NOTES, TITLE, Section, section
from kvbind.files import write_file

MARKDOWN, CSV, HTML = "report.md", "report.csv", "report.html"


def write_report(folders: Sequence[Path], out: Path) -> Iterator[Path]:
    """Write report.md, report.csv and report.html into `out`, and hand out each when it is there.

    Raises BenchError where a folder holds no run, and, once the first two are written, where matplotlib is missing.
    """
    sections = [section(group) for group in gather(folders)]
    out.mkdir(parents=True, exist_ok=True)
    for name, make in {MARKDOWN: markdown, CSV: as_csv, HTML: html}.items():
        write_file(out / name, [make(sections).encode()])
        yield out / name


def markdown(sections: Sequence[Section]) -> str:
    """The conditions and the tables."""
    parts = [f"# {TITLE}", _list(NOTES)]
    for one in sections:
        parts += [f"## {one.title}", _list(one.facts)]
        for table in one.tables:
            parts += [f"### {table.title}", _table(table)]
    return "\n\n".join(parts) + "\n"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _table(table: Table) -> str:
    rows = [table.headers, ["---"] * len(table.headers), *table.rows]
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def as_csv(sections: Sequence[Section]) -> str:
    """Every number of the tables: a line for each model, task and method."""
    lines = [
        {"model": one.title, "conditions": one.conditions, "task": task, **values(row)}
        for one in sections
        for task, rows in one.numbers.items()
        for row in rows
    ]
    written = io.StringIO()
    writer = csv.DictWriter(written, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return written.getvalue()
