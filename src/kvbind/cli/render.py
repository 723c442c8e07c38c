"""`kvbind render`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, count, plain_table, warn_missing

if TYPE_CHECKING:
    from kvbind.types import Document


@click.command(short_help="Draw a document as page images.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--dpi",
    "resolutions",
    type=int,
    multiple=True,
    default=(72, 120),
    show_default=True,
    help="Dots per inch; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for the pages.",
)
@options.page_options
@options.debug
def render(file: Path, resolutions: tuple[int, ...], output: Path, **page: Any) -> None:
    """Draw a text file as the page images that a vision model is shown.

    Writes page_001@72.png and so on, and lists them. Nothing is compiled and no model is loaded.

    \b
    kvbind render docs/lighthouse.txt -o pages
    kvbind render docs/lighthouse.txt -o pages --dpi 96 --newline visible
    """
    from kvbind.cli.settings import page_spec
    from kvbind.render import Renderer

    renderer = Renderer(page_spec({}, **page))
    document = _document(file)
    pages = renderer.paginate(document.text)
    table = plain_table("page", right=("dpi", "pixels", "characters"))
    table.add_column("file")
    for number, text in enumerate(pages, 1):
        for dpi in dict.fromkeys(resolutions):
            image = renderer.draw(text, dpi, last=number == len(pages))
            output.mkdir(parents=True, exist_ok=True)
            path = output / f"page_{number:03}@{dpi}.png"
            image.save(path)
            table.add_row(str(number), str(dpi), f"{image.width}×{image.height}", f"{len(text):,}", path.name)
    missing = renderer.missing(document.text)
    warn_missing({document.id: missing} if missing else {})
    console().print(table)
    console().print(f"wrote {count(table.row_count, 'image')} to {output}", soft_wrap=True)


def _document(file: Path) -> "Document":
    from kvbind.corpus import read_documents
    from kvbind.errors import DocumentError

    documents = read_documents([file])
    document = next(documents)
    if next(documents, None) is not None:
        raise DocumentError(f"{file} holds several documents: render one text file at a time")
    return document
