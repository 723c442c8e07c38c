"""Where to end a page: at the best boundary in the last third of what the page can hold."""

import re
from collections.abc import Mapping

from kvbind.render.layout import BLANKS, Box, Line, has_cjk, layout

_NARROW = 400  # thousandths of an em: text of this average width would be unusually narrow
_BLANK = f"[{re.escape(BLANKS)}]"
_ABBREVIATED = "".join(rf"(?<!\b{word})" for word in ("Mr", "Mrs", "Ms", "Dr", "St", "[A-Z]"))
_SENTENCE = rf"(?:{_ABBREVIATED}\.|[!?\u2026])[\"'\u2019\u201d\u00bb)\]]*"
_BOUNDARIES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\n{_BLANK}*\n",
        rf"{_SENTENCE}[ \t\r]*\n",
        rf"{_SENTENCE}{_BLANK}++(?![a-z])|[。！？][\u201d\u2019」』）]*{_BLANK}*",
        r"\n",
        rf"{_BLANK}+|(?<=[\u2e80-\uffff])",
    )
)
"""From the best to the worst: paragraph, sentence that ends its line, sentence, line, word."""

_REST = re.compile(rf"{_BLANK}++\Z|{_BLANK}*\n|{_BLANK}+")
_REST_MARKED = re.compile(rf"[{re.escape(BLANKS.replace(chr(10), ''))}]+")


def page_end(text: str, start: int, widths: Mapping[str, float], box: Box) -> int:
    """The offset where the page that begins at `start` ends, always beyond `start`."""
    size = int(box.lines * box.width / _NARROW)
    while True:
        lines = _fill(text[start : start + size], widths, box)
        if len(lines) > box.lines:
            break
        if start + size >= len(text):
            return len(text)
        size *= 2
    full = _absorb(text, start + max(1, lines[box.lines - 1].end), box)
    enough = -(-box.lines * 2 // 3)
    before, least = (start + lines[index].end if index >= 0 else start for index in (enough - 2, enough - 1))
    for boundary in _BOUNDARIES:
        # A boundary may begin on the line before the first that a page may end with.
        ends = [match.end() for match in boundary.finditer(text, before, full)]
        if ends and ends[-1] >= least and ends[-1] > start:
            return ends[-1]
    return full


def _fill(window: str, widths: Mapping[str, float], box: Box) -> list[Line]:
    """The lines of a page and one more, if there is one.

    Whether ideographs occur decides how a page is wrapped, and where the page ends decides which occur: any
    page that ends within the lines given is drawn in at most as many.
    """
    most = box.lines + 1
    lines = layout(window, widths, box, cjk=False, most=most)
    full = lines[box.lines - 1].end if len(lines) == most else len(window)
    return layout(window, widths, box, cjk=True, most=most) if has_cjk(window[:full]) else lines


def _absorb(text: str, end: int, box: Box) -> int:
    """Move an end beyond blanks, up to the last newline among them: they leave no ink at the end of a page."""
    match = (_REST_MARKED if box.marked else _REST).match(text, end)
    return match.end() if match else end
