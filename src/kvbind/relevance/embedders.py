"""Texts to unit vectors, for relevance only: which documents matter most to a question."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kvbind.errors import EmbedderError
from kvbind.relevance.lexical import LexicalEmbedder


class Embedder(Protocol):
    """Maps texts to unit vectors; questions and documents alike.

    `identity` changes whenever the vectors may: vectors of two identities must not be compared.
    """

    identity: str

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit rows (N, d), float32 on the CPU; N may be 0."""


class SentenceTransformerEmbedder:
    """A sentence-transformers model, by its hub name or its folder.

    `device` is a torch device, by default the library's choice. `identity` holds the model's name and a digest of
    its loaded weights, so a changed model under an old name is noticed. Raises `EmbedderError` if the library
    is missing or the model cannot be loaded.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            mend = 'pip install "kvbind[embed]", or use the embedder "lexical"'
            raise EmbedderError(f"{name}: sentence-transformers cannot be imported: {mend}") from error
        try:
            self._model = SentenceTransformer(name, device=device)
        except Exception as error:  # the library lets through whatever its parts raise
            why = (str(error).splitlines() or [type(error).__name__])[0]
            mend = 'check the name, folder and device, or use the embedder "lexical"'
            raise EmbedderError(f"{name}: cannot be loaded as a sentence-transformers model ({why}): {mend}") from error
        label = Path(name).resolve().name if Path(name).is_dir() else name
        self.identity = f"sentence-transformers:{label}:{_model_digest(self._model)}"

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit rows (N, d), float32 on the CPU; texts longer than the model's window are cut by the model."""
        batch = list(texts) or [""]  # the library returns no width for an empty batch
        rows = self._model.encode(batch, convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False)
        return normalize(rows[: len(texts)].float().cpu(), dim=-1)  # again: half-precision rows are not quite units


def make_embedder(spec: str) -> LexicalEmbedder | SentenceTransformerEmbedder:
    """The embedder that `spec` names.

    "lexical" or "lexical:dim=8192"; every other string is the hub name or the folder of a sentence-transformers
    model, such as "BAAI/bge-m3" (write "./lexical" for a folder of that name). Raises `EmbedderError`.
    """
    name, _, option = spec.partition(":")
    if not spec.strip():
        raise EmbedderError('the embedder has no name: give "lexical" or the name of a sentence-transformers model')
    if name != "lexical":
        return SentenceTransformerEmbedder(spec)
    if spec == name:
        return LexicalEmbedder()
    key, _, value = option.partition("=")
    if key != "dim" or not (value.isascii() and value.isdigit()):
        raise EmbedderError(f'{spec}: unknown option: the lexical embedder takes a dimension, as in "lexical:dim=4096"')
    return LexicalEmbedder(int(value))


def cosines(query: Tensor, vectors: Tensor) -> Tensor:
    """Cosine (N,) of `query` (d,) with each of `vectors` (N, d), all unit vectors; equal rows have equal cosines.

    Raises `EmbedderError` if the dimensions differ.
    """
    if query.shape != vectors.shape[1:]:
        shapes = f"query {tuple(query.shape)}, vectors {tuple(vectors.shape)}"
        raise EmbedderError(f"{shapes}: the dimensions differ, embed both with the same embedder")
    # Not a matrix product: its rounding may depend on a row's place, and equal rows must tie.
    return (vectors * query).sum(dim=-1)


def rank(query: Tensor, vectors: Tensor) -> list[tuple[int, float]]:
    """Indices of `vectors` (N, d) with their cosine to `query` (d,), best first; ties in source order."""
    return sorted(enumerate(cosines(query, vectors).tolist()), key=lambda pair: -pair[1])


def _model_digest(model: torch.nn.Module) -> str:
    """Digest of a model's modules, window and weights; the same on every device."""
    digest = hashlib.sha256(f"{model!r} {getattr(model, 'max_seq_length', None)}".encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]
