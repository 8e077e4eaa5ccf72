"""Names that others chose, as text to be shown."""

import unicodedata


def shown(text: str) -> str:
    """The text without control characters: a terminal would obey them, and hide or colour what follows. Lines stay
    lines."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) not in HIDDEN else _escaped(character)
        for character in text
    )


HIDDEN = ("Cc", "Cf", "Cs")
"""Controls (among them the escape that begins a sequence), invisible ones that turn the direction of writing, and
halves of characters that cannot be printed at all."""


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
