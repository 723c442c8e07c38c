"""Built-in models: found by name, checked before use, with the pages they read best."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbind import Engine, PageSpec, builtin
from kvbind.errors import ModelError


@pytest.fixture
def shipped(models: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that ships as "pocket"."""
    folder = shutil.copytree(models("glm4v"), tmp_path / "pocket")
    (folder / "kvbind.json").write_text(json.dumps({"page": {"width": 200, "height": 120, "crop_width": False}}))
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    monkeypatch.setattr(builtin, "BUILT_IN", {"pocket": folder})
    return folder


def test_a_built_in_model_loads_by_name_with_its_page(shipped: Path) -> None:
    engine = Engine.from_pretrained("pocket")
    assert engine.source == "pocket"
    assert engine.page == PageSpec(width=200, height=120, crop_width=False)
    assert Engine.from_pretrained("pocket", page=PageSpec()).page == PageSpec()


def test_any_folder_may_say_how_its_pages_look(shipped: Path, models: Callable[[str], Path]) -> None:
    assert Engine.from_pretrained(shipped).page.width == 200
    assert Engine.from_pretrained(models("glm4v")).page == PageSpec()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "kvbind.json"])
def test_a_damaged_built_in_model_is_refused(shipped: Path, file: str) -> None:
    content = bytearray((shipped / file).read_bytes())
    content[len(content) // 2] ^= 1
    (shipped / file).write_bytes(content)
    with pytest.raises(ModelError, match=f"built-in model pocket is damaged \\({file}\\): install kvbind again"):
        Engine.from_pretrained("pocket")
    (shipped / file).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        Engine.from_pretrained("pocket")


def test_a_missing_built_in_model_is_named(shipped: Path) -> None:
    shutil.rmtree(shipped)
    with pytest.raises(ModelError, match="pocket is not in this installation"):
        Engine.from_pretrained("pocket")


@pytest.mark.parametrize("name", ["pockt", "Pocket", "pockets"])
def test_nearly_a_built_in_name(name: str) -> None:
    with pytest.raises(ModelError, match=f"no built-in model {name}: did you mean 'pocket'"):
        Engine.from_pretrained(name)


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    assert builtin.locate("Qwen/Qwen2.5-0.5B-Instruct") == "Qwen/Qwen2.5-0.5B-Instruct"
    assert builtin.locate(tmp_path) == tmp_path
    assert builtin.page_spec(tmp_path) is None


@pytest.mark.parametrize("card", ["{", '{"pages": {}}', '{"page": {"colour": "red"}}'])
def test_a_card_that_makes_no_sense(tmp_path: Path, card: str) -> None:
    (tmp_path / "kvbind.json").write_text(card)
    with pytest.raises(ModelError, match=r"kvbind\.json does not describe a page"):
        builtin.page_spec(tmp_path)
