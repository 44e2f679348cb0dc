"""Takes from a text of others what a terminal or a log would obey."""

UNPRINTABLE = "�"


def printable(text: str) -> str:
    """Keep lines, and nothing else that moves a cursor, colours a terminal or turns words round."""
    return "".join(c if c.isprintable() or c == "\n" else UNPRINTABLE for c in text)


def one_line(text: str) -> str:
    """The same in one line: line breaks and the like are written as escapes."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", errors="surrogatepass").decode("ascii")
