"""`kvbind diagnose`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, plain_table, progress_display

if TYPE_CHECKING:
    from rich.table import Table

    from kvbind.train.diagnostics import Deviations


@click.command(short_help="Compare the question's attention with full prefill's.")
@click.option("--model", required=True, metavar="M", help="Model folder or hub id.")
@click.option(
    "--data",
    required=True,
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="JSON Lines file, or folder of them, as for `kvbind train`; may be repeated.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=("prefix-free",),
    show_default=True,
    metavar="METHOD",
    help="Text methods to compare; may be repeated.",
)
@click.option("--samples", type=click.IntRange(1), default=20, show_default=True, help="Examples of each file.")
@click.option("--layers", is_flag=True, help="Print every layer, and not all together.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw it as this SVG.")
@options.as_json
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Such as cpu or cuda:0.")
@click.option("--dtype", default="auto", show_default=True, metavar="TYPE", help="Number format of the model.")
@options.debug
def diagnose(
    model: str,
    data: tuple[Path, ...],
    methods: tuple[str, ...],
    samples: int,
    layers: bool,
    plot: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show where stitched passages are read otherwise than the whole context.

    Compared is the question's attention on each document, at its first rows, in its interior and at its last rows, by
    layer: the deviation, Σ |stitched − full| / Σ full, and the density ratio, Σ stitched / Σ full. Soft rows have no
    counterpart; the share of attention on them is told apart. A trained writer is to be judged on questions that it was
    not trained on.

    \b
    kvbind diagnose --model M --data notes.jsonl --method prefix-free --method sempic:adapter=my-writer --plot a.svg
    """
    from kvbind.methods import parse_method
    from kvbind.train.data import read_data

    for spelling in methods:
        parse_method(spelling)
    sets = read_data(data, held_out=0, samples=samples)
    examples = [example for part in sets for example in part.training]
    found = _diagnose(model, given, examples, methods)
    if as_json:
        click.echo(json.dumps([_plain(part) for part in found]))
    else:
        console().print(_table(found, layers))
    if plot is not None:
        from kvbind.files import write_file
        from kvbind.train.plot import draw_deviations

        write_file(plot, [draw_deviations(found).encode()])


def _diagnose(model: str, given: dict[str, Any], examples: Sequence[Any], methods: Sequence[str]) -> "list[Deviations]":
    from kvbind.engine import Engine
    from kvbind.train.diagnostics import diagnose

    with progress_display() as progress:
        task = progress.add_task(f"loading {model}", total=None, counts="")
        # Every method is to reuse what it reuses, also where full prefill would be faster.
        engine = Engine.from_pretrained(model, weigh=False, **given)

        def tell(done: int) -> None:
            counts = f"{done:,}/{len(examples):,}"
            progress.update(task, description="comparing", completed=done, total=len(examples), counts=counts)

        return diagnose(engine, examples, methods, tell)


def _table(found: "Sequence[Deviations]", layers: bool) -> "Table":
    """Deviation at the first row, the next seven, in the interior and at the last eight; density ratios; soft rows."""
    from kvbind.train.diagnostics import EDGE

    numbers = ("+1", "+2 to +8", "interior", "-8 to -1", "density +1", "density +2 to +8", "soft rows")
    table = plain_table("method", "layer", right=numbers)
    places = (slice(0, 1), slice(1, EDGE), slice(EDGE, EDGE + 1), slice(EDGE + 1, None))
    for part in found:
        for layer in range(len(part.soft)) if layers else [None]:
            chosen = slice(None) if layer is None else slice(layer, layer + 1)
            deviations, densities = zip(*(part.over(chosen, place) for place in places), strict=True)
            row = [f"{cell:.3f}" for cell in (*deviations, *densities[:2])]
            table.add_row(part.method, "all" if layer is None else str(layer), *row, f"{part.soft[chosen].mean():.1%}")
    return table


def _plain(part: "Deviations") -> dict[str, Any]:
    from kvbind.train.diagnostics import PLACES

    by_layer = {"deviation": part.deviation, "density": part.density, "soft_rows": part.soft}
    return {"method": part.method, "places": PLACES, **{name: values.tolist() for name, values in by_layer.items()}}
