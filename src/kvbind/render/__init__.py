"""Text to page images, deterministic to the byte."""

from kvbind.render.page import DPI_RANGE, RENDER_VERSION, Renderer

__all__ = ["DPI_RANGE", "RENDER_VERSION", "Renderer"]
