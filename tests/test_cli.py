"""The command line, over tiny random models: what it prints, where, and how it ends."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from kvbind import Bank
from kvbind.cli import main
from kvbind.cli.select import select
from kvbind.cli.terminal import DOCUMENTS_WARNED, duration
from kvbind.cli.terminal import console as terminal_console
from kvbind.types import Document

TEXTS = {
    "light/house.txt": "The lighthouse was built in the year 1874, after three ships had been lost.",
    "light/keeper.txt": "Margaret Ellis kept two dogs, and a large collection of maps of the harbour.",
    "storm.txt": "The storm arrived on a Sunday, and the harbour master was the first to see it.",
}
PAGE = "The keeper trimmed the lamp and wrote the weather into a book. " * 3


@pytest.fixture(scope="session")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three documents."""
    root = tmp_path_factory.mktemp("docs")
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory, models: Callable[[str], Path], docs: Path) -> Path:
    """A bank with the three documents, compiled as text; copy it before writing to it."""
    bank = tmp_path_factory.mktemp("compiled") / "bank"
    done(run("compile", docs, "--bank", bank, "--model", models("qwen2")))
    return bank


@pytest.fixture
def bank(compiled: Path, tmp_path: Path) -> Path:
    """A copy of that bank."""
    return Path(shutil.copytree(compiled, tmp_path / "bank"))


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def one_line(result: Result, *words: str, code: int = 1) -> None:
    """An expected error: its line alone on stderr, and no exception that click did not mean."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def asked(bank: Path, *arguments: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done(run("ask", "Who?", "--bank", bank, "--json", *arguments)).stdout)
    return answer


def states(answer: dict[str, Any]) -> list[str]:
    return [source["state"] for source in answer["sources"]]


# Compiling and asking


def test_compile_says_what_it_did(models: Callable[[str], Path], docs: Path, tmp_path: Path) -> None:
    result = done(run("compile", docs, "--bank", tmp_path / "bank", "--model", models("qwen2")))
    assert re.fullmatch(
        r"template: 3 documents, 3 passages \(3 compiled, 0 skipped\), [\d,]+ tokens, [\d.]+ kB in .*\n", result.stdout
    )
    assert result.stderr == ""


def test_second_compile_skips_everything(bank: Path, docs: Path) -> None:
    result = done(run("compile", docs, "--bank", bank))
    assert "(0 compiled, 3 skipped), 0 tokens" in result.stdout


def test_several_methods_are_compiled_and_the_first_is_remembered(
    models: Callable[[str], Path], docs: Path, tmp_path: Path
) -> None:
    options = ("--model", models("qwen2"), "--method", "dummy:k=2", "--method", "prefix-free")
    lines = done(run("compile", docs, "--bank", tmp_path / "bank", *options)).stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["dummy:k=2", "prefix-free"]
    assert all("3 compiled" in line for line in lines)
    answer = asked(tmp_path / "bank")
    assert answer["method"] == "dummy"
    assert states(answer) == ["hit"] * 3
    assert states(asked(tmp_path / "bank", "--method", "prefix-free")) == ["hit"] * 3


def test_ask_streams_the_text_that_json_holds(bank: Path) -> None:
    options = ("--docs", "storm.txt", "--max-tokens", 8)
    streamed = done(run("ask", "Who?", "--bank", bank, *options))
    assert streamed.stdout == asked(bank, *options)["text"] + "\n"
    assert streamed.stderr == ""


def test_reordered_documents_are_all_found(bank: Path) -> None:
    first = asked(bank, "--docs", "storm.txt,light/house.txt", "--docs", "light/keeper.txt")
    second = asked(bank, "--docs", "light/*", "--docs", "storm.txt")
    assert [source["document"] for source in first["sources"]] == ["storm.txt", "light/house.txt", "light/keeper.txt"]
    assert [source["document"] for source in second["sources"]] == ["light/house.txt", "light/keeper.txt", "storm.txt"]
    assert states(first) == states(second) == ["hit"] * 3
    assert first["tokens"]["compiled"] == second["tokens"]["compiled"] == 0
    assert first["tokens"]["reused"] == second["tokens"]["reused"] > 0


def test_missing_passages_are_compiled_once(bank: Path) -> None:
    options = ("--method", "dummy:3", "--docs", "storm.txt")
    assert states(asked(bank, *options)) == ["compiled now"]
    assert states(asked(bank, *options)) == ["hit"]


def test_most_relevant_documents_are_chosen(bank: Path) -> None:
    result = done(run("ask", "When did the storm arrive?", "--bank", bank, "--top-k", 1, "--json"))
    assert [source["document"] for source in json.loads(result.stdout)["sources"]] == ["storm.txt"]


def test_question_may_come_from_standard_input(bank: Path) -> None:
    options = ("--bank", bank, "--docs", "storm.txt", "--json", "--max-tokens", 4)
    piped = done(run("ask", "-", *options, stdin="When did it arrive?\n"))
    direct = done(run("ask", "When did it arrive?", *options))
    assert json.loads(piped.stdout)["ids"] == json.loads(direct.stdout)["ids"]


def test_seed_repeats_a_sampled_answer(bank: Path) -> None:
    options = ("--docs", "storm.txt", "--temperature", 2, "--max-tokens", 16)
    one, again, other = (asked(bank, *options, "--seed", seed)["ids"] for seed in (1, 1, 2))
    assert one == again != other


def test_stop_string_ends_the_answer(bank: Path) -> None:
    whole = asked(bank, "--docs", "storm.txt", "--max-tokens", 24)["text"]
    stop = whole[len(whole) // 2 :][:2]
    stopped = asked(bank, "--docs", "storm.txt", "--max-tokens", 24, "--stop", stop)
    assert stopped["finish"] == "stop"
    assert stopped["text"] == whole[: whole.index(stop)]


def test_explain_shows_sources_and_costs(bank: Path) -> None:
    result = done(run("ask", "When did the storm arrive?", "--bank", bank, "--explain", "--max-tokens", 4))
    table = result.stdout.split("document", 1)[1]
    assert [line.split()[:2] for line in table.splitlines()[1:2]] == [["storm.txt", "text"]]
    assert re.search(r"storm\.txt +text +0 +\d+ +0\.\d\d +hit +\d+\.\d% █", table)
    steps, tokens = ("plan", "fetch", "stitch", "read", "decode"), ("head", "reused", "fresh", "generated")
    for word in ("time to first token", *steps, *tokens):
        assert f"\n{word} " in table or f"\n  {word} " in table


def test_full_prefill_needs_no_passages_and_reports_none(bank: Path) -> None:
    answer = asked(bank, "--method", "full", "--explain")
    assert set(states(answer)) == {"fresh"}
    assert answer["tokens"]["reused"] == 0
    shown = done(run("ask", "Who?", "--bank", bank, "--method", "full", "--explain", "--max-tokens", 2)).stdout
    assert "  plan" in shown
    assert "  fetch" not in shown


def test_settings_given_once_are_remembered(bank: Path, models: Callable[[str], Path]) -> None:
    with Bank.open(bank, create=False) as opened:
        kept = opened.get_setting("defaults")
    assert kept["model"] == str(models("qwen2").resolve())
    assert (kept["method"], kept["embedder"], kept["dtype"]) == ("template", "lexical", "auto")
    assert kept["page"]["font"] == "DejaVuSans"


def test_pages_with_explain(models: Callable[[str], Path], tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    for name in ("lamp", "book"):
        (tmp_path / f"{name}.txt").write_text(f"{name}: {PAGE}", "utf-8")
    options = ("--method", "qv-pic:low=24,high=40,budget=1", "--newline", "visible", "--no-crop-width")
    paths = (tmp_path / "lamp.txt", tmp_path / "book.txt")
    result = done(run("compile", *paths, "--bank", bank, "--model", models("glm4v"), *options))
    assert "2 documents, 4 passages (4 compiled, 0 skipped)" in result.stdout
    shown = done(run("ask", "Where is the book?", "--bank", bank, "--explain", "--max-tokens", 2)).stdout
    assert re.search(r"book\.txt +page@40, promoted +0 +\d+ +\d\.\d\d +hit", shown)
    assert re.search(r"lamp\.txt +page@24 +0 +\d+ +\d\.\d\d +hit", shown)
    with Bank.open(bank, create=False) as opened:
        page = opened.get_setting("defaults")["page"]
    assert (page["newline"], page["crop_width"], page["crop_last_page"]) == ("visible", False, True)


def test_characters_that_the_font_lacks_are_warned_of(models: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "tibetan.txt").write_text("a ཀ b", "utf-8")
    options = ("--model", models("glm4v"), "--method", "template:dpi=24")
    result = done(run("compile", tmp_path / "tibetan.txt", "--bank", tmp_path / "bank", *options))
    assert result.stderr.startswith("warning: tibetan.txt: the font lacks 1 character (ཀ)")
    many = "".join(json.dumps({"id": str(number), "text": "ཀ"}) + "\n" for number in range(DOCUMENTS_WARNED + 2))
    (tmp_path / "many.jsonl").write_text(many, "utf-8")
    lines = done(run("compile", tmp_path / "many.jsonl", "--bank", tmp_path / "bank")).stderr.splitlines()
    assert len(lines) == DOCUMENTS_WARNED + 1
    assert lines[-1] == "warning: the font also lacks characters of 2 further documents"


def test_real_processes(models: Callable[[str], Path], docs: Path, tmp_path: Path) -> None:
    def kvbind(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvbind", *map(str, arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, encoding="utf-8")

    compile_ = kvbind("compile", docs, "--bank", tmp_path / "bank", "--model", models("qwen2"))
    assert (compile_.returncode, compile_.stderr) == (0, "")
    answer = kvbind("ask", "Who?", "--bank", tmp_path / "bank", "--max-tokens", 3, "--explain")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "time to first token" in answer.stdout
    wrong = kvbind("ask", "Who?", "--bank", tmp_path / "none")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == f"error: no bank at {tmp_path / 'none'}: make one with `kvbind compile`\n"


# What goes wrong


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("nothing.txt", b" \n", ("nothing.txt", "empty")),
        ("binary.txt", b"a\0b", ("binary.txt", "not text")),
        ("latin.txt", b"caf\xe9", ("latin.txt", "not UTF-8")),
        ("paper.pdf", b"%PDF-1.7", ("paper.pdf", "not read")),
        ("lines.jsonl", b'{"id": "a"}\n', ("lines.jsonl:1", '"text"')),
    ],
)
def test_unusable_document(name: str, content: bytes, words: tuple[str, ...], tmp_path: Path) -> None:
    # The model does not exist: documents are looked at first.
    (tmp_path / name).write_bytes(content)
    one_line(run("compile", tmp_path / name, "--bank", tmp_path / "bank", "--model", "no-such-model"), *words)
    assert not (tmp_path / "bank").exists()


def test_unreadable_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = run("compile", tmp_path / "secret.txt", "--bank", tmp_path / "bank", "--model", "m")
    one_line(result, "secret.txt", "Permission denied")
    one_line(
        run("compile", tmp_path / "gone.txt", "--bank", tmp_path / "bank", "--model", "m"), "gone.txt", "not found"
    )


def test_later_unusable_document_stops_a_compile_before_it_begins(
    docs: Path, tmp_path: Path, models: Callable[[str], Path]
) -> None:
    (tmp_path / "binary.txt").write_bytes(b"\0")
    one_line(
        run("compile", docs, tmp_path / "binary.txt", "--bank", tmp_path / "bank", "--model", models("qwen2")), "NUL"
    )
    assert not (tmp_path / "bank").exists()


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_wrong_model_folder(folder: str, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    one_line(run("compile", docs, "--bank", tmp_path / "bank", "--model", tmp_path / folder), f"{tmp_path / folder}")


@pytest.mark.parametrize(
    ("name", "word"), [("gpt2", "gpt2 is not a supported"), ("mistral-sliding", "sliding_attention")]
)
def test_unsupported_architecture(
    name: str, word: str, docs: Path, tmp_path: Path, models: Callable[[str], Path]
) -> None:
    one_line(run("compile", docs, "--bank", tmp_path / "bank", "--model", models(name)), word)


def test_pages_for_a_text_model(docs: Path, tmp_path: Path, models: Callable[[str], Path]) -> None:
    options = ("--bank", tmp_path / "bank", "--model", models("qwen2"))
    one_line(run("compile", docs, *options, "--method", "qv-pic"), "text")
    assert "3 compiled" in done(run("compile", docs, *options)).stdout  # the method that failed is not remembered
    one_line(run("ask", "Who?", *options, "--method", "qv-pic"), "text")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("unheard", ("unheard", "template")),
        ("dummy:depth=3", ("depth", "k")),
        ("dummy:k=many", ("k=many", "int")),
        ("dummy:k=0", ("k=0",)),
        ("qv-pic:alpha=2", ("alpha=2",)),
        ("template:dpi=7", ("dpi 7",)),
    ],
)
def test_wrong_method(method: str, words: tuple[str, ...], bank: Path, docs: Path) -> None:
    one_line(run("ask", "Who?", "--bank", bank, "--method", method, "--model", "no-such-model"), *words)
    one_line(run("compile", docs, "--bank", bank, "--method", method, "--model", "no-such-model"), *words)


def test_nothing_to_compile_for_full_prefill(bank: Path, docs: Path) -> None:
    one_line(run("compile", docs, "--bank", bank, "--method", "full", "--model", "no-such-model"), "reuses nothing")


def test_bank_compiled_for_other_weights(bank: Path, models: Callable[[str], Path]) -> None:
    one_line(run("ask", "Who?", "--bank", bank, "--model", models("llama")), "weights", str(models("qwen2")))


def test_missing_font(docs: Path, tmp_path: Path) -> None:
    options = ("--bank", tmp_path / "bank", "--model", "no-such-model", "--method", "qv-pic", "--font", "none.ttf")
    one_line(run("compile", docs, *options), "none.ttf", "DejaVuSans")


def test_missing_bank(tmp_path: Path, docs: Path) -> None:
    one_line(run("ask", "Who?", "--bank", tmp_path / "none"), "no bank", "kvbind compile")
    for command in ("ls", "stats", "verify", "prune"):
        one_line(run("bank", command, "--bank", tmp_path / "none"), "no bank")
    one_line(run("ask", "Who?", "--bank", docs), "not a bank")
    Bank.open(tmp_path / "new").close()
    one_line(run("ask", "Who?", "--bank", tmp_path / "new", "--model", "m"), "no documents")
    assert not (tmp_path / "none").exists()


def test_without_a_model_the_built_in_reader_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pocket").mkdir()  # a folder that happens to have its name
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.txt").write_text("The Nezala scale has its plant in Domuhaven.")
    compiled = done(run("compile", tmp_path / "note.txt", "--bank", tmp_path / "bank"))
    assert "laboratory animal: give --model" in compiled.stderr
    assert asked(tmp_path / "bank")["text"]


def test_document_longer_than_the_window(models: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 5000)
    options = ("--bank", tmp_path / "bank", "--model", models("qwen2"))
    one_line(run("compile", tmp_path / "long.txt", *options), "long.txt", "window is 2048")


def test_prompt_longer_than_the_window(models: Callable[[str], Path], tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{number} " * 700)
    options = ("--bank", tmp_path / "bank", "--model", models("qwen2"))
    done(run("compile", *(tmp_path / f"{number}.txt" for number in range(3)), *options))
    one_line(run("ask", "Who?", "--bank", tmp_path / "bank", "--docs", "*"), "window is 2048", "fewer")


def test_unknown_document(bank: Path) -> None:
    arguments = ("ask", "Who?", "--bank", bank, "--model", "no-such-model", "--docs")
    one_line(run(*arguments, "strom.txt"), "'strom.txt'", "'storm.txt'")
    one_line(run(*arguments, "dark/*"), "dark/*", "kvbind bank ls")


@pytest.mark.parametrize(
    "options",
    [
        ("--temperature", "-1"),
        ("--top-p", "0"),
        ("--max-tokens", "0"),
        ("--stop", ""),
        ("--system", "a\udcff"),
        ("--seed", "x"),
    ],
)
def test_options_out_of_range(options: tuple[str, str], bank: Path) -> None:
    one_line(run("ask", "Who?", "--bank", bank, *options), options[0], code=2)


@pytest.mark.parametrize("question", [b"", b" \n", b"caf\xe9"])
def test_unusable_question(question: bytes, bank: Path) -> None:
    one_line(run("ask", "-", "--bank", bank, stdin=question), "QUESTION", code=2)


def test_disk_full_during_a_compile(
    docs: Path, tmp_path: Path, models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    options = ("--bank", tmp_path / "bank", "--model", models("qwen2"))
    with monkeypatch.context() as patch:
        patch.setattr("kvbind.bank.store.write_file", full)
        one_line(run("compile", docs, *options), "No space left on device", "free some space")
    assert "3 compiled" in done(run("compile", docs, *options)).stdout


def test_unforeseen_system_error_is_one_line_too(
    bank: Path, models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "scratch")

    monkeypatch.setattr(Bank, "get", full)
    one_line(run("ask", "Who?", "--bank", bank), "scratch", "No space left on device")


def test_interrupted_compile_keeps_what_is_done_and_goes_on(
    docs: Path, tmp_path: Path, models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, calls = Bank.put, []

    def interrupted(self: Bank, *arguments: Any, **named: Any) -> int:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return put(self, *arguments, **named)

    options = ("--bank", tmp_path / "bank", "--model", models("qwen2"))
    with monkeypatch.context() as patch:
        patch.setattr(Bank, "put", interrupted)
        result = run("compile", docs, *options)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr == "interrupted: 2 passages are kept; run the same command again to go on\n"
    assert "(1 compiled, 2 skipped)" in done(run("compile", docs, *options)).stdout


def test_interrupted_ask(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bank, "get", interrupt)
    result = run("ask", "Who?", "--bank", bank)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("ask", "Who?", "--bank", tmp_path / "none")
    for result in (run("--debug", *arguments), run(*arguments, "--debug")):
        assert type(result.exception).__name__ == "BankError"
    monkeypatch.setenv("KVBIND_DEBUG", "1")
    assert type(run(*arguments).exception).__name__ == "BankError"


# Damage


def spoil(bank: Path) -> None:
    """Flip one bit in the tensors of one record."""
    with Bank.open(bank) as opened:
        key = min(opened.catalogue.linked())
    (record,) = bank.glob(f"passages/*/{key}.safetensors")
    content = bytearray(record.read_bytes())
    content[-100] ^= 1
    record.write_bytes(content)


def test_damaged_record_is_reported_and_recompiled(bank: Path) -> None:
    whole = asked(bank)
    spoil(bank)
    result = done(run("ask", "Who?", "--bank", bank, "--json"))
    answer = json.loads(result.stdout)
    assert sorted(states(answer)) == ["compiled now", "hit", "hit"]
    assert len(answer["damage"]) == 1
    assert answer["ids"] == whole["ids"]
    assert re.fullmatch(r"warning: record \w+ is damaged \(.*\): put aside and recompiled\n", result.stderr)
    after = run("ask", "Who?", "--bank", bank, "--json")
    assert states(json.loads(after.stdout)) == ["hit"] * 3
    assert after.stderr == ""


def test_verify_finds_damage_and_prune_clears_it(bank: Path, docs: Path) -> None:
    assert done(run("bank", "verify", "--bank", bank)).stdout == "3 passages, 0 faults\n"
    spoil(bank)
    result = run("bank", "verify", "--bank", bank)
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert "is damaged" in first
    assert last == "2 passages, 1 fault"
    assert "(1 compiled, 2 skipped)" in done(run("compile", docs, "--bank", bank)).stdout
    done(run("bank", "prune", "--bank", bank))
    assert done(run("bank", "verify", "--bank", bank)).stdout == "3 passages, 0 faults\n"


# The other commands


def test_bank_ls(bank: Path) -> None:
    lines = done(run("bank", "ls", "--bank", bank)).stdout.splitlines()
    assert lines[0].split() == ["document", "version", "characters", "passages", "tokens", "size"]
    assert [line.split()[0] for line in lines[1:]] == sorted(TEXTS)
    listed = json.loads(done(run("bank", "ls", "--bank", bank, "--json")).stdout)
    assert [entry["id"] for entry in listed] == sorted(TEXTS)
    assert all(entry["passages"] == entry["version"] == 1 for entry in listed)


def test_bank_stats(bank: Path, models: Callable[[str], Path]) -> None:
    shown = done(run("bank", "stats", "--bank", bank)).stdout
    assert re.search(r"documents +3\s", shown)
    counts = json.loads(done(run("bank", "stats", "--bank", bank, "--json")).stdout)
    assert (counts["documents"], counts["passages"], counts["orphans"]) == (3, 3, 0)
    assert counts["models"] == [str(models("qwen2").resolve())]
    assert counts["settings"]["method"] == "template"


def test_bank_rm_asks_first(bank: Path) -> None:
    refused = run("bank", "rm", "light/*", "--bank", bank, stdin="n\n")
    assert refused.exit_code == 1
    assert "Remove 2 documents (light/house.txt, light/keeper.txt)?" in refused.stderr
    removed = done(run("bank", "rm", "light/*", "--bank", bank, stdin="y\n"))
    assert removed.stdout.startswith("2 documents removed, ")
    assert done(run("bank", "rm", "--all", "--yes", "--bank", bank)).stdout.startswith("1 document removed, ")
    assert done(run("bank", "ls", "--bank", bank)).stdout == "the bank holds no documents\n"


def test_bank_rm_refuses_what_it_does_not_know(bank: Path) -> None:
    one_line(run("bank", "rm", "storm.txt", "none.txt", "--yes", "--bank", bank), "none.txt")
    one_line(run("bank", "rm", "--bank", bank), "--all", code=2)
    one_line(run("bank", "rm", "storm.txt", "--all", "--bank", bank), "--all", code=2)
    assert len(json.loads(done(run("bank", "ls", "--bank", bank, "--json")).stdout)) == 3


def test_select_takes_an_id_before_a_pattern() -> None:
    with Bank.memory() as bank:
        for identifier in ("a,b", "a*", "a1", "b"):
            bank.put_document(Document(identifier, "text"))
        assert select(bank, ["a,b"]) == ["a,b"]
        assert select(bank, ["a*"]) == ["a*"]
        assert select(bank, ["b, a?", "b"]) == ["b", "a*", "a1"]


def test_methods_lists_every_parameter() -> None:
    shown = done(run("methods")).stdout
    for line in ("full +dpi=0", "dummy +k=4,dpi=0", "qv-pic +alpha=0.65,budget=4,low=72,high=120,template=on"):
        assert re.search(rf"^{line} +\S", shown, re.MULTILINE)


def test_render_writes_the_pages_it_lists(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(PAGE * 60, "utf-8")
    arguments = (tmp_path / "book.txt", "-o", tmp_path / "pages", "--dpi", 72, "--dpi", 36)
    lines = done(run("render", *arguments)).stdout.splitlines()[1:]
    assert lines.pop() == f"wrote {len(lines)} images to {tmp_path / 'pages'}"
    files = sorted(path.name for path in (tmp_path / "pages").iterdir())
    assert len(lines) == len(files) >= 4
    assert files[:2] == ["page_001@36.png", "page_001@72.png"]
    page, dpi, pixels, characters, path = lines[0].split()
    with Image.open(tmp_path / "pages" / "page_001@72.png") as image:
        assert pixels == f"{image.width}×{image.height}"
    assert (page, dpi, path) == ("1", "72", "page_001@72.png")
    assert int(characters.replace(",", "")) > 1000


def test_render_refuses_what_it_cannot_draw(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a ཀ")
    assert "lacks 1 character" in done(run("render", tmp_path / "a.txt", "-o", tmp_path / "out")).stderr
    one_line(run("render", tmp_path / "a.txt", "-o", tmp_path / "a.txt"), "a.txt", "File exists")
    one_line(run("render", tmp_path / "a.txt", "-o", tmp_path / "out", "--dpi", 9), "dpi 9")
    one_line(run("render", tmp_path / "a.txt", "-o", tmp_path / "out", "--font", "x.ttf"), "x.ttf")
    (tmp_path / "two.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    one_line(run("render", tmp_path / "two.jsonl", "-o", tmp_path / "out"), "several documents")


def test_every_option_has_help() -> None:
    def commands(command: Any) -> list[Any]:
        return [command, *(below for child in getattr(command, "commands", {}).values() for below in commands(child))]

    for command in commands(main):
        assert command.help
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or parameter.help, f"{command.name} {parameter.name}"


def test_help_and_version() -> None:
    assert "kvbind compile docs/" in done(run("-h")).stdout
    assert re.fullmatch(r"kvbind \d+\.\d+\.\d+\S*\n", done(run("--version")).stdout)


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0.0004, 0.12, 4.06, 125.2)] == ["0.4 ms", "120 ms", "4.1 s", "2 min 5 s"]


def test_console_takes_ids_literally(capsys: pytest.CaptureFixture[str]) -> None:
    terminal_console().print("[bold]a[/bold] :smile:")
    assert capsys.readouterr().out == "[bold]a[/bold] :smile:\n"


def test_layers_are_profiled_and_drawn(bank: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("When did the storm arrive?\n\nWho was the keeper?\n")
    shown = done(run("profile-layers", questions, "--bank", bank, "--plot", tmp_path / "layers.svg")).stdout
    assert "2 questions" in shown
    assert "chance" in shown
    assert (tmp_path / "layers.svg").read_text().startswith("<svg")
    answer = done(run("ask", "Who?", "--bank", bank, "--method", "qcfuse", "--max-tokens", 2, "--explain")).stdout
    assert "recomputed" in answer
    questions.write_text("\n")
    failed = run("profile-layers", questions, "--bank", bank)
    assert (failed.exit_code, failed.stderr.count("\n")) == (1, 1)
    assert "there are no questions" in failed.stderr


def test_what_profiling_cannot_use_is_named_before_the_model_is_loaded(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbind.cli.settings.load_engine", lambda *_: pytest.fail("the model was loaded"))
    questions = tmp_path / "questions.txt"
    questions.write_bytes(b"Who was the keeper?\nQui \xe9tait-ce ?\n")
    one_line(run("profile-layers", questions, "--bank", bank), "questions.txt: not UTF-8 text (from byte 24)")
    questions.write_text("Who?\n")
    plot = tmp_path / "nowhere" / "layers.svg"
    one_line(run("profile-layers", questions, "--bank", bank, "--plot", plot), "--plot", str(plot.parent), code=2)
    for ratio in (0, 1, 5):
        one_line(run("profile-layers", questions, "--bank", bank, "--ratio", ratio), "--ratio", code=2)


def test_a_drawing_is_whole_or_the_one_before(bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    questions, plot = tmp_path / "questions.txt", tmp_path / "layers.svg"
    questions.write_text("Who was the keeper?\n")
    done(run("profile-layers", questions, "--bank", bank))  # compiles what it reads
    plot.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    failed = run("profile-layers", questions, "--bank", bank, "--plot", plot)
    one_line(failed, os.strerror(errno.ENOSPC))
    assert "chance" in failed.stdout
    assert plot.read_text() == "before"
