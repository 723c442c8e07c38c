"""Several methods or tasks in one option, though commas also separate a method's parameters."""

import re
from collections.abc import Collection, Iterable


def split_spellings(given: Iterable[str], known: Collection[str]) -> list[str]:
    """Each spelling once, separated by ";", or by a comma where no further parameter follows it.

    A parameter follows a spelling that has a ":" already, unless it is a known name without "=".
    """
    found: list[str] = []
    for text in (part for value in given for part in value.split(";")):
        spelled: list[str] = []
        for piece in filter(None, map(str.strip, text.split(","))):
            name = re.split("[:=]", piece)[0]
            begins = name in known and not piece.startswith(f"{name}=")
            if spelled and ":" in spelled[-1] and not begins:
                spelled[-1] += f",{piece}"
            else:
                spelled.append(piece)
        found += spelled
    return list(dict.fromkeys(found))
