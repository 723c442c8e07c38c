"""Text to page images, deterministic to the byte."""

from kvbind.render.page import RENDER_VERSION, Renderer

__all__ = ["RENDER_VERSION", "Renderer"]
