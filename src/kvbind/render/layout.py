"""Text to lines: cleaning and line breaking with the results of ReportLab's Paragraph, source offsets kept.

Widths are in thousandths of an em. In a line's text a newline character stands for the visible mark: it is
drawn as a red backslash and n, and measured as such.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from unicodedata import category

from reportlab.lib.textsplit import ALL_CANNOT_START

NBSP = "\N{NO-BREAK SPACE}"
_CONTROLS = "".join(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if not chr(code).isspace())
_DROPPED = "\N{SOFT HYPHEN}\N{ZERO WIDTH SPACE}" + _CONTROLS
BLANKS = _DROPPED + "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""The characters that leave no ink."""

_SHOWN = {"\t": NBSP * 4} | dict.fromkeys(_DROPPED, "")
_SHOWN_BY_CODE = {ord(character): shown for character, shown in _SHOWN.items()}
_MARKED = {"\n": "  \n "}
_RUN = re.compile(" {2,}")
_OTHER_SPACE = re.compile(rf"[^\S\n{NBSP}]")
_WORD = re.compile(rf"\n|(?:\S|{NBSP})+")
_IDEOGRAPH = re.compile("[\u4e00-\u9fff]")
_WIDE = "\u3000"  # from this character on, a line may end after each
_SLACK = 1e-6
_SQUEEZE = 0.05  # ReportLab lets a line run over by this part of its spaces, as if they were to be squeezed


@dataclass(frozen=True)
class Line:
    """One line as drawn, the source offset where it ends, and by how much its spaces are to be squeezed."""

    text: str
    end: int
    over: float


@dataclass(frozen=True)
class Box:
    """The room for text: `width` of a line in thousandths of an em, `lines` a page.

    `marked`: newlines do not end a line, they run on as visible marks.
    """

    width: float
    lines: int
    marked: bool

    @property
    def trailing(self) -> str:
        """The characters that leave no ink at the end of a text."""
        return BLANKS.replace("\n", "") if self.marked else BLANKS


def has_cjk(text: str) -> bool:
    """Whether a text is wrapped by characters, as any text with an ideograph of U+4E00-9FFF is."""
    return _IDEOGRAPH.search(text) is not None


def layout(text: str, widths: Mapping[str, float], box: Box, cjk: bool, most: int) -> list[Line]:
    """The first `most` lines of a text, without blank lines at either end: these would only cost pixels."""
    shown, origin = _clean(text.rstrip(box.trailing), box.marked)
    lines: list[Line] = []
    for line, end in (_character_lines if cjk else _word_lines)(shown, widths, box):
        if lines or line.strip(" " + NBSP):
            drawn = line.rstrip(" ")
            # Wrapped by characters, a line only overruns by a stop or bracket that may not begin the next one.
            over = 0.0 if cjk else max(0.0, sum(map(widths.__getitem__, drawn)) - box.width)
            lines.append(Line(drawn, origin[end] if origin else end, over))
        if len(lines) == most:
            break
    return lines


def _clean(text: str, marked: bool) -> tuple[str, list[int] | None]:
    """The text as shown, and for each offset in it the one in the source (None: they are the same)."""
    changes = _SHOWN | (_MARKED if marked else {})
    # Runs of spaces come after the dropped characters, which may part them, and before the marks' own spaces.
    shown = text.translate(_SHOWN_BY_CODE)
    shown = _OTHER_SPACE.sub(" ", _RUN.sub(lambda run: NBSP * len(run[0]), shown))
    shown = shown.replace("\n", _MARKED["\n"]) if marked else shown
    if changes.keys().isdisjoint(text):
        return shown, None
    origin = []
    for index, character in enumerate(text):
        size = len(changes.get(character, character))
        origin += [index] * size
        if size > 1:
            origin[-1] += 1  # the last of several is a blank: a line that ends before it has all the ink
    return shown, [*origin, len(text)]


def _word_lines(shown: str, widths: Mapping[str, float], box: Box) -> Iterator[tuple[str, int]]:
    gap = widths[" "]
    line, used, end = "", 0.0, 0
    for match in _WORD.finditer(shown):
        word = match[0]
        if word == "\n" and not box.marked:
            yield line, match.end()
            line, used = "", 0.0
            continue
        width = sum(map(widths.__getitem__, word))
        over = _SQUEEZE * gap * (line.count(" ") + 1)
        fits = used + gap + width <= box.width + over + _SLACK
        if line and not fits and width <= box.width + _SLACK:
            yield line, end
            line, used = "", 0.0
        if line:
            line, used = line + " ", used + gap
        # Only a word wider than a whole line comes in more than one piece, and it begins where it stands.
        pieces = [word] if line and fits else _pieces(word, widths, box.width - used, box.width)
        end = match.start()
        for piece in pieces[:-1]:
            end += len(piece)
            yield line + piece, end
            line, used = "", 0.0
        line, used, end = line + pieces[-1], used + sum(map(widths.__getitem__, pieces[-1])), match.end()
    if line:
        yield line, end


def _pieces(word: str, widths: Mapping[str, float], room: float, full: float) -> list[str]:
    """A word cut so that the first piece fits `room` (it may be empty) and each other one `full`."""
    pieces, start, used = [], 0, 0.0
    for index, character in enumerate(word):
        used += widths[character]
        if used > room + _SLACK and (index > start or room < full):
            pieces.append(word[start:index])
            start, used, room = index, widths[character], full
    return [*pieces, word[start:]]


def _character_lines(shown: str, widths: Mapping[str, float], box: Box) -> Iterator[tuple[str, int]]:
    start = 0
    while start < len(shown):
        stop = _character_stop(shown, start, widths, box)
        yield shown[start:stop] if box.marked else shown[start:stop].removesuffix("\n"), stop
        start = stop


def _character_stop(shown: str, start: int, widths: Mapping[str, float], box: Box) -> int:
    """Where the line from `start` ends: after a newline, or before the first character that does not fit."""
    used = 0.0
    for index in range(start, len(shown)):
        character = shown[index]
        if character == "\n" and not box.marked:
            return index + 1
        used += widths[character]
        if used > box.width + _SLACK and index > start:
            return _break_near(shown, start, index)
    return len(shown)


def _break_near(shown: str, start: int, index: int) -> int:
    """The line end for a line that overflows with the character at `index`, by ReportLab's East Asian rules."""
    if shown[index] < _WIDE:
        # Amid Latin text go back to a space, but not over more than half of the line.
        half = (start + index + 1) // 2
        spaces = (k for k in range(index - 1, half, -1) if shown[k] >= _WIDE or category(shown[k]) == "Zs")
        index = next(spaces, index - 1) + 1
    return index + 1 if shown[index] in ALL_CANNOT_START else index
