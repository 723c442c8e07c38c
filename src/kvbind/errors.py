"""Everything that kvbind raises on purpose: one tree, one line each, naming the input and the mend."""


class KvbindError(Exception):
    """The root: catch this to catch everything that kvbind raises on purpose."""


class DocumentError(KvbindError):
    """A document cannot be used: unreadable, empty, binary, or unknown by that id."""


class RenderError(KvbindError):
    """A page cannot be drawn: a missing font, a page spec that leaves no room, a resolution out of range."""


class EmbedderError(KvbindError):
    """An embedder cannot be loaded."""


class ModelError(KvbindError):
    """A model cannot be loaded from the folder or hub id given."""


class UnsupportedModelError(ModelError):
    """The model loads, but its architecture would make reused keys and values wrong."""


class MethodError(KvbindError):
    """An unknown method, or a parameter that it does not take."""


class TrainingError(KvbindError):
    """Training cannot start or go on: broken data, a folder of another run, or a loss that is not a number."""


class PromptTooLongError(KvbindError):
    """The prompt is longer than the model's window."""


class BankError(KvbindError):
    """The bank cannot be opened, read or written."""


class DamagedRecordError(BankError):
    """A stored record fails its checksums; it is never served. `finding` is the message without the mend."""

    def __init__(self, key: str, why: str) -> None:
        self.finding = f"record {key} is damaged ({why})"
        super().__init__(f"{self.finding}: compile its document again")


class BenchError(KvbindError):
    """A benchmark cannot be run or reported: an unknown task, data or a run's folder that do not fit, no matplotlib."""


class ConfigError(KvbindError):
    """A configuration file cannot be used."""
