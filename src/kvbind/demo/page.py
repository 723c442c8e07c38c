"""An HTML page that shows the pages as the model saw them."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

from kvbind.demo.rounds import METHODS, Round
from kvbind.engine import Engine
from kvbind.types import Page

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
figure { display: inline-block; margin: .4rem .8rem .8rem 0; vertical-align: top; }
img { border: 1px solid #bbb; display: block; } .promoted img { border: 3px solid #d97706; }
figcaption { font-size: .8rem; color: #555; max-width: 28rem; } .promoted figcaption { color: #b45309; }
table { border-collapse: collapse; margin: .4rem 0; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
"""


def write_page(engine: Engine, rounds: Sequence[Round], path: Path) -> None:
    """Write one self-contained file: every question, its answers, and its pages, the promoted ones marked."""
    sections = "\n".join(_section(engine, each) for each in rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>kvbind demo</title><style>{STYLE}</style>"
        "<h1>What the model saw</h1><p>Pages with an orange frame were promoted to the higher resolution.</p>"
        f"{sections}",
        encoding="utf-8",
    )


def _section(engine: Engine, each: Round) -> str:
    rows = "".join(
        f"<tr><td>{method}<td>{html.escape(each.answers[method].text)}<td>{each.answers[method].ttft * 1e3:.0f} ms"
        for method in METHODS
    )
    right = f"<p>The right answer: <b>{html.escape(each.task.answer)}</b></p>" if each.task.answer else ""
    table = f"<table><tr><th>method<th>answer<th>time to first token{rows}</table>"
    return f"<h2>{html.escape(each.task.question)}</h2>{right}{table}{_figures(engine, each)}"


def _figures(engine: Engine, each: Round) -> str:
    method = engine.method("qv-pic")
    figures = []
    for source in each.answers["qv-pic"].sources:
        representation = method.representations[int(source.promoted)]
        assert isinstance(representation, Page)
        document = engine.bank.document(source.document)
        chunk = engine.library.chunks(document, representation)[source.chunk]
        image = engine.library.renderer(representation.spec).draw(chunk.text, representation.dpi, last=chunk.last)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        data = base64.b64encode(buffer.getvalue()).decode()
        kind = " class='promoted'" if source.promoted else ""
        caption = f"{html.escape(source.document)}, {representation.dpi} DPI, {source.rows} tokens"
        figures.append(
            f"<figure{kind}><img src='data:image/png;base64,{data}' width='{image.width}' alt=''>"
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "".join(figures)
