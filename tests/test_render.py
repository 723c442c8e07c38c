import random
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from html import escape
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, ImageChops
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.platypus import Paragraph, SimpleDocTemplate

from kvbind.errors import RenderError
from kvbind.render import Renderer
from kvbind.render.face import FONTS, load_face
from kvbind.render.layout import Box, has_cjk, layout
from kvbind.render.raster import rasterise
from kvbind.types import PageSpec

BOOK = Path(__file__).parents[2] / "shared" / "data" / "haystack" / "sherlock_holmes.txt"
OTHER_FACE = Path("/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf")
UNCROPPED = PageSpec(crop_width=False, crop_last_page=False)
SMALL = PageSpec(width=200, height=112)  # eight lines of some 28 characters
PANGRAM = "The five boxing wizards jump quickly, and nobody asks them why. "
CHINESE = "北京是中华人民共和国的首都，是一个历史悠久的城市。它位于华北平原的北部（毗邻天津），人口超过两千万！"


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture(scope="module")
def small() -> Renderer:
    return Renderer(SMALL)


def pixels(image: Image.Image) -> str:
    return sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


def ink(image: Image.Image) -> tuple[int, int, int, int]:
    box = image.convert("L").point([255 if level < 250 else 0 for level in range(256)]).getbbox()
    assert box is not None
    return box


def ink_rows(image: Image.Image, left: int, right: int) -> int:
    """How many separate bands of inked rows there are between two columns."""
    grey = image.convert("L").crop((left, 0, right, image.height))
    dark = [grey.crop((0, row, grey.width, row + 1)).getextrema()[0] < 200 for row in range(grey.height)]
    return sum(here and not above for above, here in zip([False, *dark], dark, strict=False))


# Page geometry


@pytest.mark.parametrize(("dpi", "size"), [(24, (198, 281)), (72, (595, 842)), (96, (793, 1123)), (120, (992, 1403))])
def test_page_size_follows_dpi(dpi: int, size: tuple[int, int]) -> None:
    image = Renderer(UNCROPPED).draw("Hello.", dpi)
    assert (image.mode, image.size) == ("RGB", size)


def test_page_holds_81_lines(renderer: Renderer) -> None:
    image = renderer.draw("\n".join("M" * 81), 72)
    assert ink_rows(image, 0, image.width) == 81
    with pytest.raises(RenderError, match="81 lines; split it with paginate"):
        renderer.draw("\n".join("M" * 82), 72)


def test_text_starts_where_the_protocol_says(renderer: Renderer) -> None:
    left, top, _, bottom = ink(Renderer(UNCROPPED).draw("H", 72))
    assert (left, bottom) == (16, 25)
    assert top == 18


def reference_page(text: str, spec: PageSpec, font: str) -> bytes:
    """The same page by ReportLab's own document template and paragraph."""
    markup = ' <font color="#FF0000"> \\n </font>' if spec.newline == "visible" else "<br/>"
    cleaned = re.sub("  +", lambda run: "\N{NO-BREAK SPACE}" * len(run[0]), escape(text, quote=False))
    style = ParagraphStyle("body", fontName=font, fontSize=9, leading=10, wordWrap="CJK" if has_cjk(text) else None)
    buffer = BytesIO()
    margins = dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), 10)
    SimpleDocTemplate(buffer, pagesize=(595, 842), **margins).build([Paragraph(cleaned.replace("\n", markup), style)])
    return buffer.getvalue()


@pytest.mark.parametrize("newline", ["plain", "visible"])
@pytest.mark.parametrize(
    "text",
    [
        PANGRAM * 40 + "\n\n" + "Short <b>tag</b> & more.\n" * 3 + "x" * 300 + "  two  spaces " + PANGRAM * 9,
        PANGRAM * 5 + "w" * 130 + " " + "tail " * 60,
        (CHINESE * 4 + "\n" + "Mixed with Latin words, as titles are. " * 3) * 5,
        "Žluťoučký kůň úpěl. Любя, съешь щипцы. " * 60,
    ],
)
def test_page_equals_reportlabs_own(text: str, newline: str) -> None:
    spec = replace(UNCROPPED, newline=newline)
    reference = rasterise(reference_page(text, spec, load_face(spec.font).name), 595, 842)
    assert ImageChops.difference(Renderer(spec).draw(text, 72), reference).getbbox() is None


def test_line_breaks_are_the_same_at_each_dpi(renderer: Renderer) -> None:
    page = renderer.paginate(PANGRAM * 150)[0]
    coarse, fine = renderer.draw(page, 72, last=False), renderer.draw(page, 120, last=False)
    shrunk = fine.resize((round(fine.width * 0.6), round(fine.height * 0.6))).convert("L")
    for row in range(16, 820, 10):  # where each line ends, within less than a word
        ends = [ink(image.crop((0, row, image.width, row + 9)))[2] for image in (coarse, shrunk)]
        assert abs(ends[0] - ends[1]) <= 5


# Crop


def test_width_crop_leaves_the_margin_on_every_page(renderer: Renderer) -> None:
    for dpi, margin in ((72, 10), (120, 17)):
        image = renderer.draw("Hello.", dpi, last=False)
        assert image.width == ink(image)[2] + margin
        assert image.height == round(842 * dpi / 72)


def test_height_crop_is_for_last_pages_only(renderer: Renderer) -> None:
    last = renderer.draw("Hello.", 72)
    assert last.height == ink(last)[3] - 1 + 10
    assert renderer.draw("Hello.", 72, last=False).height == 842


def test_crops_can_be_switched_off() -> None:
    assert Renderer(replace(PageSpec(), crop_width=False)).draw("Hello.", 72).width == 595
    assert Renderer(replace(PageSpec(), crop_last_page=False)).draw("Hello.", 72).height == 842


def test_page_without_ink_is_not_cropped() -> None:
    assert Renderer().draw("\N{BRAILLE PATTERN BLANK}", 72).size == (595, 842)


# Determinism


def test_same_pixels_in_another_process(renderer: Renderer) -> None:
    text = PANGRAM * 20 + CHINESE
    code = (
        "import sys; from hashlib import sha256; from kvbind.render import Renderer\n"
        "image = Renderer().draw(sys.argv[1], 96)\n"
        "print(sha256(repr(image.size).encode() + image.tobytes()).hexdigest(), Renderer().digest)"
    )
    result = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [pixels(renderer.draw(text, 96)), renderer.digest]


def test_pixels_do_not_depend_on_what_was_drawn_before(renderer: Renderer) -> None:
    first = pixels(renderer.draw(PANGRAM, 72))
    renderer.draw("Ωμέγα ∑ " * 50, 120)
    assert pixels(renderer.draw(PANGRAM, 72)) == first


def test_digest_changes_with_each_field_of_the_spec() -> None:
    others = {
        "width": 600,
        "height": 800,
        "margin_x": 11,
        "margin_y": 11,
        "padding": 5,
        "font_size": 10,
        "line_height": 11,
        "newline": "visible",
        "crop_width": False,
        "crop_last_page": False,
    }
    digests = {Renderer(replace(PageSpec(), **{field: value})).digest for field, value in others.items()}
    assert len(digests | {Renderer().digest}) == len(others) + 1


def test_digest_knows_the_font_by_its_bytes(tmp_path: Path) -> None:
    copy = shutil.copy(FONTS / "DejaVuSans.ttf", tmp_path / "renamed.ttf")
    padded = tmp_path / "padded.ttf"
    padded.write_bytes(copy.read_bytes() + b"\0\0\0\0")
    assert Renderer(replace(PageSpec(), font=str(copy))).digest == Renderer().digest
    assert Renderer(replace(PageSpec(), font=str(padded))).digest != Renderer().digest
    assert Renderer(replace(PageSpec(), font_size=9.0)).digest == Renderer(replace(PageSpec(), font_size=9)).digest


@pytest.mark.skipif(not OTHER_FACE.exists(), reason="no second DejaVu face here")
def test_fonts_of_one_file_name_stay_apart(tmp_path: Path) -> None:
    other = shutil.copy(OTHER_FACE, tmp_path / "DejaVuSans.ttf")
    sans = pixels(Renderer().draw(PANGRAM, 72))
    serif = Renderer(replace(PageSpec(), font=str(other)))
    assert pixels(serif.draw(PANGRAM, 72)) != sans == pixels(Renderer().draw(PANGRAM, 72))
    assert serif.digest != Renderer().digest


def test_fonts_of_one_face_name_stay_apart(tmp_path: Path) -> None:
    padded = tmp_path / "padded.ttf"
    padded.write_bytes((FONTS / "DejaVuSans.ttf").read_bytes() + b"\0\0\0\0")
    names = [load_face("DejaVuSans").name, load_face(str(padded)).name]
    assert pdfmetrics.getFont(names[0]) is not pdfmetrics.getFont(names[1])


# Pagination

PIECES = [
    *("a", "W", "word ", "the ", ". ", "! ", "。", "，", "漢字", "é\u0301", "\ud800", "😀", "“", "”", " ", "  ", "\t"),
    *("\n", "\n\n", "\r\n", "\xad", "\u200b", "\0", "\u3000", "\u2028", "\xa0", "x" * 60, " " * 40, "m" * 300),
    *("日本語" * 20, "\n" * 30, "Longer text follows here. "),
]


@pytest.mark.parametrize("newline", ["plain", "visible"])
@pytest.mark.parametrize("seed", range(20))
def test_pages_lose_nothing_and_all_fit(seed: int, newline: str) -> None:
    chance = random.Random(seed)
    pieces = chance.sample(PIECES, 8)
    text = "start" + "".join(chance.choice(pieces) for _ in range(200))
    renderer = Renderer(replace(SMALL, newline=newline))
    pages = renderer.paginate(text)
    assert "".join(pages) == text
    for page in pages:
        assert renderer.draw(page, 24).width > 0  # raises where a page is blank or too long


@pytest.mark.parametrize("text", [PANGRAM * 300, CHINESE * 400, "x" * 30000, "line of code\n" * 400])
def test_pages_are_at_least_two_thirds_full(renderer: Renderer, text: str) -> None:
    pages = renderer.paginate(text)
    assert "".join(pages) == text
    assert len(pages) > 1
    for page in pages[:-1]:
        assert ink(renderer.draw(page, 72))[3] > 842 * 0.65


def test_page_ends_at_a_paragraph(small: Renderer) -> None:
    first = "One two three. " * 12 + "The end.\n\n"
    assert small.paginate(first + "Next one. " * 20)[0] == first


def test_page_ends_at_a_sentence_if_no_paragraph_ends(small: Renderer) -> None:
    for page in small.paginate("Mr. Fox met Dr. J. Owl at e.g. noon today. " * 30)[:-1]:
        assert page.endswith("noon today. ")


def test_page_ends_at_a_line_if_no_sentence_ends(small: Renderer) -> None:
    for page in small.paginate("some words and a few more of\n" * 40)[:-1]:
        assert page.endswith("\n")


def test_page_ends_at_a_word_if_no_line_ends(small: Renderer) -> None:
    for page in small.paginate("word " * 300)[:-1]:
        assert page.endswith("word ")


def test_chinese_pages_end_at_sentences(small: Renderer) -> None:
    for page in small.paginate("今天天气很好，我们去公园散步。" * 40)[:-1]:
        assert page.endswith("。")


def test_indentation_goes_with_the_line_it_indents(small: Renderer) -> None:
    pages = small.paginate("def f(x):\n    return x\n\n" * 20)
    assert len(pages) > 1
    assert all(page.startswith("def") for page in pages)


def test_text_of_one_page_stays_whole(renderer: Renderer) -> None:
    assert renderer.paginate(PANGRAM * 3 + "\n\n\n") == [PANGRAM * 3 + "\n\n\n"]


@pytest.mark.skipif(not BOOK.exists(), reason="the book is not here")
def test_book_is_paginated_at_sentence_ends(renderer: Renderer) -> None:
    text = BOOK.read_text("utf-8")
    pages = renderer.paginate(text)
    assert "".join(pages) == text
    assert 80 < len(pages) < 130
    assert sum(page.endswith("\n") for page in pages) > 0.95 * len(pages)


# Text


def red(image: Image.Image) -> int:
    return sum(r > 150 and g < 110 and b < 110 for r, g, b in image.get_flattened_data())


def test_visible_newlines_are_red_and_run_on() -> None:
    text = "one\ntwo\nthree"
    visible = Renderer(PageSpec(newline="visible")).draw(text, 96)
    assert red(visible) > 20
    assert ink_rows(visible, 0, visible.width) == 1
    plain = Renderer().draw(text, 96)
    assert red(plain) == 0
    assert ink_rows(plain, 0, plain.width) == 3


def test_cleaning_changes_nothing_else(renderer: Renderer) -> None:
    assert pixels(renderer.draw("so\N{SOFT HYPHEN}ft\u200b\0 <b>&amp;</b>", 72)) == pixels(
        renderer.draw("soft <b>&amp;</b>", 72)
    )
    assert pixels(renderer.draw("a\tb", 72)) == pixels(renderer.draw("a    b", 72))
    assert pixels(renderer.draw("a b\r\n", 72)) == pixels(renderer.draw("\n a\u2003b", 72))
    assert renderer.draw("a  b", 72).width > renderer.draw("a b", 72).width


def test_ideographs_switch_to_wrapping_by_characters() -> None:
    face, box = load_face("DejaVuSans"), Box(width=6000, lines=9, marked=False)
    texts = [
        [line.text for line in layout(text, face.widths, box, has_cjk(text), 9)]
        for text in ("aaaa bbbbbb cccc", "中文中文中文中文中文中文中文中文中文中文。")
    ]
    assert texts[0] == ["aaaa", "bbbbbb", "cccc"]
    assert len(texts[1]) == 3
    assert not any(line.startswith("。") for line in texts[1])


def test_missing_characters_are_listed_once_in_order(renderer: Renderer) -> None:
    assert renderer.missing("plain — ‘text’ Ω\n\t\0\N{SOFT HYPHEN}\u3000") == ""
    assert renderer.missing("漢 and 字, 漢 again, then ह") == "漢字ह"


# Errors


@pytest.mark.parametrize("dpi", [23, 601, 0, -72])
def test_dpi_out_of_range(renderer: Renderer, dpi: int) -> None:
    with pytest.raises(RenderError, match=f"dpi {dpi} is out of range; choose a value from 24 to 600"):
        renderer.draw("Hello.", dpi)


@pytest.mark.parametrize("text", ["", " \n\t\u200b\N{SOFT HYPHEN}"])
def test_blank_text(renderer: Renderer, text: str) -> None:
    with pytest.raises(RenderError, match="nothing to draw"):
        renderer.draw(text, 72)
    with pytest.raises(RenderError, match="nothing to draw"):
        renderer.paginate(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": 40}, "no room for a line"),
        ({"width": 60}, "no room for a line"),
        ({"margin_y": 415}, "no room for a line"),
        ({"font_size": 0}, "positive sizes"),
        ({"line_height": float("nan")}, "positive sizes"),
        ({"margin_x": -1}, "margins of 0 or more"),
        ({"padding": -1}, "padding and margins of 0 or more"),
        ({"newline": "loud"}, "choose 'plain' or 'visible'"),
        ({"font": "NoSuchFont"}, "font 'NoSuchFont': .*DejaVuSans"),
        ({"font": "/no/such/font.ttf"}, "font '/no/such/font.ttf': .*give the path of a TrueType file"),
    ],
)
def test_unusable_specs(change: dict[str, object], message: str) -> None:
    with pytest.raises(RenderError, match=message):
        Renderer(replace(PageSpec(), **change))


def table_directory(data: bytes, tag: bytes) -> int:
    """Where the directory entry of a font's table begins."""
    count = struct.unpack(">H", data[4:6])[0]
    return next(at for at in range(12, 12 + 16 * count, 16) if data[at : at + 4] == tag)


def without_table(data: bytes, tag: bytes) -> bytes:
    at = table_directory(data, tag)
    return data[:at] + b"none" + data[at + 4 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"not a font", "not a usable TrueType font"),
        (lambda data: b"", "not a usable TrueType font"),
        (lambda data: b"OTTO" + data[4:], "CFF outlines.*TrueType"),
        (lambda data: data[: len(data) // 2], "font .* (cut short|not a usable)"),
        (lambda data: without_table(data, b"cmap"), "not a usable TrueType font"),
        (lambda data: without_table(data, b"glyf"), "no TrueType outlines"),
    ],
)
def test_unusable_fonts(tmp_path: Path, change, message: str) -> None:
    path = tmp_path / "font.ttf"
    path.write_bytes(change((FONTS / "DejaVuSans.ttf").read_bytes()))
    with pytest.raises(RenderError, match=message) as caught:
        Renderer(replace(PageSpec(), font=str(path)))
    assert "font.ttf" in str(caught.value)
    assert "\n" not in str(caught.value)
