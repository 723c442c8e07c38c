import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from kvbind.errors import EmbedderError
from kvbind.relevance import LexicalEmbedder, SentenceTransformerEmbedder, make_embedder, rank

DATA = Path(os.environ.get("KVBIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
XQUAD = DATA / "xquad" / "xquad.en.json"


def cosine(one: str, two: str) -> float:
    a, b = LexicalEmbedder().embed([one, two])
    return float(a @ b)


def assert_unit_rows(rows: Tensor, shape: tuple[int, int]) -> None:
    assert rows.shape == shape
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(shape[0]))


@pytest.mark.parametrize("dim", [2, 3, 64, 4096])
def test_lexical_rows_are_units_whatever_the_text(dim: int) -> None:
    texts = ["", " \n", "?!", "the", "the of and", "x", "Größe", "大", "東京都に住む", "\ud800", "a " * 5000, "🎉"]
    texts += [f"word{number} other{number * 7}" for number in range(50)]  # in two or three buckets many cancel
    assert_unit_rows(LexicalEmbedder(dim).embed(texts), (len(texts), dim))
    assert_unit_rows(LexicalEmbedder(dim).embed([]), (0, dim))


def test_texts_without_words_share_one_vector_that_meets_no_other() -> None:
    rows = LexicalEmbedder(8).embed(["", "?!", "some words", "other words entirely"])
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[2:] @ rows[0], torch.zeros(2))


def test_a_row_does_not_depend_on_the_batch() -> None:
    embedder = LexicalEmbedder()
    assert torch.equal(embedder.embed(["one thing", "another"])[1], embedder.embed(["another"])[0])


def test_lexical_vectors_are_the_same_in_every_process() -> None:
    # Stored vectors outlive the process: if this fails, raise the recipe's number in the identity.
    [row] = LexicalEmbedder(8).embed(["Two cats watched the 東京 tower"])
    expected = [0.0, 0.0, -0.5352, -0.7136, -0.339, -0.1606, -0.1784, -0.1784]
    torch.testing.assert_close(row, torch.tensor(expected), atol=1e-4, rtol=0)


def test_spelling_variants_meet() -> None:
    assert cosine("CATS", "cat") == pytest.approx(1)
    assert cosine("cities", "city") == pytest.approx(1)
    assert cosine("ﬁne Ｗｏｒｄ", "fine word") == pytest.approx(1)
    assert cosine("glass", "glas") < 0.9  # not a plural
    assert 0.2 < cosine("photosynthesis", "photosynthetic") < 0.9  # only the 4-grams meet
    assert cosine("東京大学", "東京駅") > 0.2
    assert cosine("हिन्दी", "हिन्दू") < 0.7  # vowel signs are part of the word


def test_frequent_words_weigh_little() -> None:
    assert cosine("what is the capital of France", "France") > 0.5
    assert cosine("what is the capital of France", "what is the") < 0.3


def test_repetition_counts_sub_linearly() -> None:
    once, often = cosine("cat dog", "cat"), cosine("cat cat cat cat dog", "cat")
    assert once < often < 4 / 17**0.5


def test_identity_holds_the_dimension() -> None:
    assert LexicalEmbedder(64).identity != LexicalEmbedder(128).identity
    assert LexicalEmbedder(64).identity == LexicalEmbedder(64).identity


def test_rank() -> None:
    vectors = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8], [-1.0, 0.0], [1.0, 0.0]])
    ranking = rank(torch.tensor([1.0, 0.0]), vectors)
    assert [index for index, _ in ranking] == [1, 4, 2, 0, 3]
    assert [cosine for _, cosine in ranking] == pytest.approx([1, 1, 0.6, 0, -1])
    assert rank(torch.tensor([1.0, 0.0]), vectors[:0]) == []


def test_equal_rows_tie_in_source_order() -> None:
    torch.manual_seed(0)
    query, row = torch.nn.functional.normalize(torch.randn(2, 1021), dim=-1)
    ranking = rank(query, row.repeat(37, 1))
    assert [index for index, _ in ranking] == list(range(37))
    assert len({cosine for _, cosine in ranking}) == 1


@pytest.mark.parametrize(("query", "vectors"), [((3,), (5, 4)), ((1, 4), (5, 4)), ((4,), (4,))])
def test_rank_refuses_other_dimensions(query: tuple[int, ...], vectors: tuple[int, ...]) -> None:
    with pytest.raises(EmbedderError, match="embed both with the same embedder"):
        rank(torch.ones(query), torch.ones(vectors))


def test_make_embedder() -> None:
    assert make_embedder("lexical").identity == LexicalEmbedder().identity == LexicalEmbedder(4096).identity
    assert make_embedder("lexical:dim=8192").identity == LexicalEmbedder(8192).identity


@pytest.mark.parametrize("spec", ["", " ", "lexical:", "lexical:dim", "lexical:dim=", "lexical:dim=x", "lexical:d=4"])
def test_make_embedder_refuses(spec: str) -> None:
    with pytest.raises(EmbedderError, match='"lexical'):
        make_embedder(spec)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_lexical_needs_two_buckets(dim: int) -> None:
    with pytest.raises(EmbedderError, match=f"dim={dim} is too small"):
        LexicalEmbedder(dim)


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EmbedderError, match=r'acme/model.*pip install "kvbind\[embed\]"'):
        make_embedder("acme/model")


class StandIn(torch.nn.Linear):
    """What the embedder uses of a sentence-transformers model."""

    max_seq_length = 8
    fill = 2.0

    def __init__(self, name: str, device: str | None = None) -> None:
        if name == "broken":
            raise OSError("no such model\nand a second line")
        super().__init__(1, 6, bias=False)
        self.asked: dict[str, Any] = {"device": device}
        torch.nn.init.constant_(self.weight, self.fill)

    def encode(self, texts: Sequence[str], **options: Any) -> Tensor:
        self.asked |= options
        return (torch.tensor([[len(text) + 1.0] for text in texts]) @ self.weight.T).to(torch.bfloat16).detach()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return StandIn


def test_model_rows_are_float32_units(stand_in: type[StandIn]) -> None:
    embedder = SentenceTransformerEmbedder("acme/model", "cpu")
    assert_unit_rows(embedder.embed(["a", "bcd"]), (2, 6))
    assert_unit_rows(embedder.embed([]), (0, 6))
    assert embedder._model.asked["device"] == "cpu"
    assert embedder._model.asked["normalize_embeddings"] is True


@pytest.mark.parametrize(("attribute", "value"), [("max_seq_length", 9), ("fill", 3.0)])
def test_model_identity_follows_name_window_and_weights(
    stand_in: type[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, value: float
) -> None:
    identity = make_embedder("acme/model").identity
    assert identity.startswith("sentence-transformers:acme/model:")
    assert make_embedder("acme/model").identity == identity
    assert make_embedder("acme/other").identity != identity
    assert make_embedder(str(tmp_path)).identity.startswith(f"sentence-transformers:{tmp_path.name}:")
    monkeypatch.setattr(stand_in, attribute, value)
    assert make_embedder("acme/model").identity != identity


def test_model_that_cannot_be_loaded(stand_in: type[StandIn]) -> None:
    with pytest.raises(EmbedderError) as caught:
        make_embedder("broken")
    assert str(caught.value).startswith("broken: cannot be loaded as a sentence-transformers model (no such model)")
    assert "\n" not in str(caught.value)


def test_real_library(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="the extra kvbind[embed] is not installed")
    try:
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    except ImportError:  # before version 6
        from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "cat": 1, "dog": 2, "sun": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for name, scale in (("one", 3.0), ("two", 4.0)):
        weights = scale * torch.eye(4, 6).numpy()
        model = library.SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights)], device="cpu")
        model.save(str(tmp_path / name))
    one, two = (make_embedder(str(tmp_path / name)) for name in ("one", "two"))
    rows = one.embed(["cat", "dog", "cat cat", "cat sun"])
    assert_unit_rows(rows, (4, 6))
    assert [index for index, _ in rank(rows[0], rows)] == [0, 2, 3, 1]
    assert_unit_rows(one.embed([]), (0, 6))
    assert one.identity == make_embedder(str(tmp_path / "one")).identity
    assert one.identity.split(":")[2] != two.identity.split(":")[2]
    with pytest.raises(EmbedderError, match="cannot be loaded"):
        make_embedder(str(tmp_path))


@pytest.mark.skipif(not XQUAD.is_file(), reason=f"{XQUAD} is absent: set KVBIND_DATA to the folder that holds xquad/")
def test_lexical_retrieval_on_xquad() -> None:
    articles = json.loads(XQUAD.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [(qa["question"], place) for place, paragraph in enumerate(paragraphs) for qa in paragraph["qas"]]
    assert (len(paragraphs), len(questions)) == (240, 1190)
    embedder = LexicalEmbedder()
    vectors = embedder.embed([paragraph["context"] for paragraph in paragraphs])
    rows = embedder.embed([question for question, _ in questions])
    places = [
        [index for index, _ in rank(row, vectors)].index(gold) for row, (_, gold) in zip(rows, questions, strict=True)
    ]
    top1, top5 = (sum(place < k for place in places) / len(places) for k in (1, 5))
    assert top1 > 0.87, top1  # measured: 0.887
    assert top5 > 0.97, top5  # measured: 0.982
