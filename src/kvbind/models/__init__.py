"""Model families, their chat templates and forward passes: the only package that imports transformers."""

from kvbind.models.adapters import TARGETS
from kvbind.models.attention import Pass, rows_blocks
from kvbind.models.backbone import Backbone, DynamicKV, Inputs, line
from kvbind.models.chat import ChatTemplate, Fixed, Part, Slot, Turn
from kvbind.models.context import Context, Rows
from kvbind.models.families import FAMILIES, ROPE_TYPES, Family, Features, joined
from kvbind.models.loading import check_supported, load_backbone
from kvbind.models.writer import Writer, check_writer, load_writer, new_writer

__all__ = [
    "FAMILIES",
    "ROPE_TYPES",
    "TARGETS",
    "Backbone",
    "ChatTemplate",
    "Context",
    "DynamicKV",
    "Family",
    "Features",
    "Fixed",
    "Inputs",
    "Part",
    "Pass",
    "Rows",
    "Slot",
    "Turn",
    "Writer",
    "check_supported",
    "check_writer",
    "joined",
    "line",
    "load_backbone",
    "load_writer",
    "new_writer",
    "rows_blocks",
]
