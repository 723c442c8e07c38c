"""Documents of a bank by id or pattern."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kvbind.bank import Bank
from kvbind.errors import DocumentError

PATTERN = "*?["


def select(bank: Bank, names: Iterable[str]) -> list[str]:
    """The ids that names stand for, each once, in the order named; a name is an id, a pattern or a list with commas.

    Raises DocumentError for what the bank does not hold.
    """
    known = [info.id for info in bank.documents()]
    found: dict[str, None] = {}
    for name in names:
        pieces = [name] if name in known else [piece.strip() for piece in name.split(",") if piece.strip()]
        for piece in pieces:
            found.update(dict.fromkeys(_matches(bank, known, piece)))
    return list(found)


def _matches(bank: Bank, known: list[str], name: str) -> list[str]:
    if name in known or not any(sign in name for sign in PATTERN):
        return [bank.document(name).id]
    matches = [identifier for identifier in known if fnmatchcase(identifier, name)]
    if not matches:
        raise DocumentError(f"no document matches {name!r}: `kvbind bank ls` lists them")
    return matches
