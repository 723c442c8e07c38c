"""Lines to pixels: a one-page PDF by ReportLab, drawn by PDFium, cropped."""

from collections.abc import Sequence
from io import BytesIO

import pypdfium2
from PIL import Image
from pypdfium2 import raw as pdfium
from reportlab.pdfgen.canvas import Canvas
from reportlab.pdfgen.textobject import PDFTextObject

from kvbind.render.layout import NBSP, Line
from kvbind.types import PageSpec

_INK = 5  # grey levels off the white background


def page_pdf(lines: Sequence[Line], spec: PageSpec, font: str) -> bytes:
    """A one-page PDF of lines, the same bytes for the same lines."""
    buffer = BytesIO()
    canvas = Canvas(buffer, pagesize=(spec.width, spec.height), pageCompression=0, invariant=1)
    left, top = spec.margin_x + spec.padding, spec.height - spec.margin_y - spec.padding
    text = canvas.beginText(left, top - spec.font_size)
    text.setFont(font, spec.font_size, spec.line_height)
    for line in lines:
        spaces = line.text.count(" ") + line.text.count(NBSP)
        if line.over and spaces:
            text.setWordSpace(-line.over / spaces * spec.font_size / 1000)
        _write(text, line.text)
        if line.over and spaces:
            text.setWordSpace(0)
        text.textLine()
    canvas.drawText(text)
    canvas.save()
    return buffer.getvalue()


def _write(text: PDFTextObject, line: str) -> None:
    plain, *rest = line.split("\n")
    text.textOut(plain)
    for piece in rest:
        text.setFillColorRGB(1, 0, 0)
        text.textOut("\\n")
        text.setFillColorRGB(0, 0, 0)
        text.textOut(piece)


def rasterise(pdf: bytes, width: int, height: int) -> Image.Image:
    """Draw the only page of a PDF on white, width × height pixels, RGB."""
    document = pypdfium2.PdfDocument(pdf)
    page = document[0]
    bitmap = pypdfium2.PdfBitmap.new_native(width, height, pdfium.FPDFBitmap_BGR)
    pdfium.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, 0xFFFFFFFF)
    # pypdfium2's own render() rounds sizes up; this call takes the size, so that it is rounded to nearest.
    pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, 0)
    image: Image.Image = bitmap.to_pil().copy()
    for handle in (bitmap, page, document):
        handle.close()
    return image


def crop(image: Image.Image, spec: PageSpec, dpi: int, last: bool) -> Image.Image:
    """Cut the empty right of a page, and the empty bottom of a last one, as the spec says.

    Glyph keeps its margin as a number of pixels; here it is in points, so the cut is the same at every dpi.
    """
    ink = image.convert("L").point([255 if level < 255 - _INK else 0 for level in range(256)]).getbbox()
    if ink is None:
        return image
    right = min(image.width, ink[2] + round(spec.margin_x * dpi / 72)) if spec.crop_width else image.width
    # One less than for the width: the released protocol counts from the last row itself, not from the one after.
    lower = ink[3] - 1 + round(spec.margin_y * dpi / 72) if last and spec.crop_last_page else image.height
    return image.crop((0, 0, right, max(1, min(lower, image.height))))
