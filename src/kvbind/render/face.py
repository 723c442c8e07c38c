"""The font: found, read once, and made known to ReportLab under a name of its own."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from kvbind.errors import RenderError

FONTS = Path(__file__).parent / "fonts"


@dataclass(frozen=True)
class Face:
    """A font that ReportLab knows as `name`; `widths` by character in thousandths of an em."""

    name: str
    digest: str
    widths: Mapping[str, float]
    characters: frozenset[str]


def load_face(font: str) -> Face:
    """Load a shipped font by name, or a font with TrueType outlines by path. Raises RenderError."""
    data = _read(font)
    digest = hashlib.sha256(data).hexdigest()
    name = f"kvbind-{digest}"
    if name not in pdfmetrics.getRegisteredFontNames():
        pdfmetrics.registerFont(_parse(font, data, name))
    face = pdfmetrics.getFont(name).face
    widths: dict[str, float] = defaultdict(lambda: float(face.defaultWidth))
    widths.update((chr(code), float(width)) for code, width in face.charWidths.items())
    widths["\n"] = widths["\\"] + widths["n"]
    return Face(name, digest, widths, frozenset(map(chr, face.charToGlyph)))


def _read(font: str) -> bytes:
    shipped = FONTS / f"{font}.ttf"
    path = shipped if font == Path(font).name and shipped.is_file() else Path(font)
    try:
        return path.read_bytes()
    except OSError as error:
        names = ", ".join(sorted(file.stem for file in FONTS.glob("*.ttf")))
        reason = error.strerror or "cannot be read"
        raise RenderError(
            f"font {font!r}: {reason}; give the path of a TrueType file, or the name of a shipped font ({names})"
        ) from error


def _parse(font: str, data: bytes, name: str) -> TTFont:
    if data.startswith(b"OTTO"):
        raise RenderError(f"font {font!r} has CFF outlines, which cannot be drawn; give its TrueType (.ttf) version")
    try:
        parsed = TTFont(name, BytesIO(data))
    except Exception as error:  # ReportLab's reader lets whatever a malformed file provokes through
        reason = str(error).strip().splitlines()[0:1] or [type(error).__name__]
        raise RenderError(f"font {font!r} is not a usable TrueType font ({reason[0]}); give another file") from error
    if not {"glyf", "loca"} <= parsed.face.table.keys():
        raise RenderError(f"font {font!r} has no TrueType outlines; give another file")
    if any(table["offset"] + table["length"] > len(data) for table in parsed.face.tables):
        raise RenderError(f"font {font!r} is cut short: some of its tables are missing; fetch the file again")
    # ReportLab would hand out the first font registered for a face of this name, whatever its bytes.
    parsed.face.name = name.encode()
    return parsed
