"""What a command works with: the options given, what the bank remembers, and defaults, in this order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from kvbind.bank import Bank
from kvbind.builtin import BUILT_IN
from kvbind.builtin import page_spec as model_page
from kvbind.cli.terminal import note
from kvbind.engine import Engine
from kvbind.errors import BankError
from kvbind.methods import Method, parse_method
from kvbind.relevance import make_embedder
from kvbind.render import Renderer
from kvbind.types import Page, PageSpec
from kvbind.writers import WRITER_FACTS

DEFAULTS = "defaults"
DEFAULT_MODEL = "pocket"


@dataclass(frozen=True)
class Settings:
    """Everything that decides which passages a command writes or finds."""

    model: str
    methods: tuple[str, ...]
    page: PageSpec
    embedder: str
    dtype: str

    def kept(self) -> dict[str, Any]:
        """The settings as a bank keeps them; of several methods the first."""
        return {
            "model": self.model,
            "method": self.methods[0],
            "page": asdict(self.page),
            "embedder": self.embedder,
            "dtype": self.dtype,
        }


def remembered(folder: Path) -> dict[str, Any]:
    """The settings of the last compile into a bank that may not be there yet."""
    try:
        with Bank.open(folder, hot_bytes=0, create=False) as bank:
            return dict(bank.get_setting(DEFAULTS, {}))
    except BankError:  # whatever is wrong is said when the bank is made
        return {}


def resolve(
    known: Mapping[str, Any],
    *,
    model: str | None,
    methods: Sequence[str],
    embedder: str | None,
    dtype: str | None,
    **page: Any,
) -> Settings:
    """The settings of a command; without any model named or remembered, the built-in reader's."""
    name = model or known.get("model") or DEFAULT_MODEL
    if name == DEFAULT_MODEL and not model:
        note(f"with the built-in reader {name!r}, a laboratory animal: give --model for answers in earnest")
    return Settings(
        _absolute(name, BUILT_IN),
        tuple(dict.fromkeys(map(_absolute_adapter, methods))) or (known.get("method", "template"),),
        page_spec(known.get("page") or asdict(model_page(name) or PageSpec()), **page),
        _absolute(embedder or known.get("embedder", "lexical"), ["lexical"]),
        dtype or known.get("dtype", "auto"),
    )


def page_spec(known: Mapping[str, Any], **given: Any) -> PageSpec:
    """The page spec that a bank remembers (none: the default), with what was given instead."""
    names = {field.name for field in fields(PageSpec)}
    spec = PageSpec(**{name: value for name, value in known.items() if name in names})
    spec = replace(spec, **{name: value for name, value in given.items() if value is not None})
    path = Path(spec.font)
    return replace(spec, font=str(path.resolve())) if path.suffix and path.is_file() else spec


def _absolute(name: str, ours: Collection[str]) -> str:
    """A folder's full path, so that it is found from anywhere; hub ids and names of our own stay as they are."""
    return str(Path(name).resolve()) if name not in ours and Path(name).is_dir() else name


def _absolute_adapter(spelling: str) -> str:
    """A method's spelling with the full path of the writer's folder in it, if it names one."""
    name, _, rest = spelling.partition(":")
    folder = Path(rest.removeprefix("adapter="))
    return f"{name}:adapter={folder.resolve()}" if (folder / WRITER_FACTS).is_file() else spelling


def ready_method(spelling: str, page: PageSpec) -> Method:
    """A method from its spelling, its pages tried: a wrong font or resolution is found before a model is loaded."""
    method = parse_method(spelling, page)
    for representation in method.representations:
        if isinstance(representation, Page):
            Renderer(representation.spec).draw("x", representation.dpi)
    return method


def load_engine(bank: Bank, settings: Settings, device: str) -> Engine:
    """The engine over a bank; the embedder first, since it is the cheaper one to fail."""
    embedder = make_embedder(settings.embedder)
    return Engine.from_pretrained(
        settings.model, bank=bank, device=device, dtype=settings.dtype, embedder=embedder, page=settings.page
    )
