"""Relevance: embedders, and the ranking of documents by their cosine to the question."""

from kvbind.relevance.embedders import Embedder, SentenceTransformerEmbedder, cosines, make_embedder, rank
from kvbind.relevance.lexical import LexicalEmbedder

__all__ = ["Embedder", "LexicalEmbedder", "SentenceTransformerEmbedder", "cosines", "make_embedder", "rank"]
