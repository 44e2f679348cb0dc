"""Takes secrets, and texts of entities, out of what is said and stored about a failure."""

import json
import re
import traceback
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from embed_pipeline.domain.errors import EmbedPipelineError

UNPRINTABLE = "�"


def printable(text: str) -> str:
    """Replace what is not printable, except line breaks: cursor moves, colours, text direction."""
    return "".join(c if c.isprintable() or c == "\n" else UNPRINTABLE for c in text)


def one_line(text: str) -> str:
    """The same in one line: line breaks and the like are written as escapes."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", errors="surrogatepass").decode("ascii")


MASK: Final = "***"
MAX_MESSAGE: Final = 1_000
MAX_STACK: Final = 4_000
_PATTERNS: Final = (
    # Keys of OpenAI and of the servers that copy its format.
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-*.]{6,}"),
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{6,}"),
    # A user and password inside an address.
    re.compile(r"(?<=://)[^\s/@]+@"),
    re.compile(
        r"(?i)\b(\w*(?:api[_-]?key|authorization|password|passwd|secret|token))"
        r"([\"']?\s*[=:]\s*)(?!\d+\b)(\"[^\"]*\"|'[^']*'|[^\s,;)}]+)"
    ),
)

_SECRET_NAME: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|PRIVATE|AUTH|DSN|CONNECTION_STRING"
    r"|CONN_STR|(?:^|_)(?:PASS|PWD|PAT|SAS|JWT|COOKIE|SALT)(?:_|$)",
    re.IGNORECASE,
)
_NAME_OF_A_PLACE: Final = re.compile(r"_(?:FILE|PATH|DIR|SOCK|SOCKET)$", re.IGNORECASE)
_SHORTEST_SECRET: Final = 8
_PIECE: Final = re.compile(r"""[^\s"',;{}]+""")
_SHORTEST_PART: Final = 16
_ORDINARY: Final = re.compile(r"[A-Za-z]{1,11}|[0-9.]{1,11}")
"""A word or a number that is no secret for certain: masking it would make messages unreadable."""

_WORD: Final = re.compile(r"[^\W_]+")
_ESCAPED: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[nrtbfv])")
_REPEATED: Final = re.compile(rf"{re.escape(MASK)}(?:\W{{0,3}}{re.escape(MASK)})+")
_PROVIDERS_WORDS: Final = """
about above account after again all allowed also an and another any api are as at available be
because been before below between billing body but by can cannot code connection contact content
context could current currently details dimension dimensions do does due during each either element
embedding embeddings empty encoding error errors exceed exceeded exceeds exist exists expected
failed field first for forbidden format found from got gpt has have help high id if in incorrect
index input inputs insufficient integer internal invalid is it its json key large larger later
least length less limit limits list longer max maximum may message messages min missing model
models more most must name no none not null number object of on one only or org organization out
over overloaded page parameter per permission plan please policy processing project prompt property
provided quota rate reach reached read received reduce refused request requested requests required
response retry seconds see server service shorter size small so string support supported text texts
than that the their them there they this timeout to token tokens too true try type unable
unauthorized unexpected unknown unsupported up use used user valid value values was we when where
which with without you your
"""
"""Words that say what is wrong with a request, and nothing about whose text was in it."""
_KEPT: Final = frozenset(_PROVIDERS_WORDS.split())


def secrets_of(variables: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Every value of an environment that must not be shown, in every spelling.

    By the name of its variable, whatever program it belongs to; and passwords inside addresses.
    """
    found: set[str] = set()
    for name, value in variables:
        if _SECRET_NAME.search(name) and not _NAME_OF_A_PLACE.search(name):
            found |= {value.strip(), *_parts_of(value)}
        elif "://" in value and "@" in value:
            found |= _passwords_in(value)
    return spellings(
        secret
        for secret in found
        if len(secret) >= _SHORTEST_SECRET and not _ORDINARY.fullmatch(secret)
    )


def _parts_of(value: str) -> set[str]:
    """The secrets inside a multi-line key, a JSON document or a connection string."""
    pieces = _PIECE.findall(value)
    pieces += [piece.partition("=")[2] for piece in pieces]
    return {piece for piece in pieces if len(piece) >= _SHORTEST_PART}


def _passwords_in(address: str) -> set[str]:
    try:
        password = urlsplit(address).password or ""
    except ValueError:
        return set()
    return {password, unquote(password)}


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Secrets as they are, and as JSON, Python and URLs write them."""
    spelled = {
        spelling: None
        for secret in secrets
        for spelling in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, ""))
    }
    return tuple(spelled)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask known secrets, and everything that looks like one."""
    # The longest first: one that is part of another would leave that in pieces.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    key, scheme, userinfo, assignment = _PATTERNS
    text = key.sub(MASK, text)
    text = scheme.sub(rf"\1 {MASK}", text)
    text = userinfo.sub(f"{MASK}@", text)
    return assignment.sub(rf"\1\2{MASK}", text)


def without_words_of(texts: Iterable[str], message: str) -> str:
    """Mask the words of a provider's message that stand in a text it was sent.

    Providers quote what they refuse: whole, cut off, or escaped. No quotation marks can be relied
    on, so each word is compared by itself; those that providers use for every fault stay, or
    it could not be told what is wrong.
    """
    sent = "\n".join(texts).casefold()

    def judged(word: re.Match[str]) -> str:
        folded = word[0].casefold()
        return MASK if folded not in _KEPT and _stands_in(folded, sent) else word[0]

    return _REPEATED.sub(MASK, _WORD.sub(judged, _ESCAPED.sub(_unescaped, message)))


def words_beside(texts: Iterable[str], message: str) -> frozenset[str]:
    """The words of a provider's message that do not occur in the sent texts; without numbers.

    Two messages that quote different texts, or count them, have the same.
    """
    # Each word after a blank: a quotation may end inside a word, but it begins with one.
    sent = " ".join(["", *_WORD.findall("\n".join(texts).casefold())])

    def is_own(word: str) -> bool:
        if len(word) == 1 or any(character.isdigit() for character in word):
            return False
        return f" {word}" not in sent if word.isascii() else not _stands_in(word, sent)

    words = (word.casefold() for word in _WORD.findall(_ESCAPED.sub(_unescaped, message)))
    return frozenset(word for word in words if is_own(word))


def _stands_in(word: str, sent: str) -> bool:
    if word.isascii():
        # A single letter or digit stands in every text, and says nothing.
        return len(word) > 1 and word in sent
    # Writing without blanks: a quotation is then only a part of what looks like one word.
    return any(word[at : at + 2] in sent for at in range(max(1, len(word) - 1)))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else " "


def said_by_provider(message: str, *, texts: Iterable[str], secret: str) -> str:
    """A provider's message in one short line, without the key and the texts of the request."""
    # A hostile answer has no end. The key goes first: a cut through it would leave half of it.
    start = redact(message, [secret])[: 4 * MAX_MESSAGE]
    return one_line(without_words_of(texts, start))[:MAX_MESSAGE]


def stack_of(error: BaseException) -> str:
    """Where an error happened, and why; the words of other libraries are left out.

    Drivers quote values in their messages: a node's property, a parameter.
    """
    lines: list[str] = []
    chain: BaseException | None = error
    while chain is not None:
        frames = traceback.format_tb(chain.__traceback__)
        lines[:0] = [*frames, f"{described(chain)}\n", *(["\n"] if lines else [])]
        hidden = chain.__suppress_context__
        chain = chain.__cause__ or (None if hidden else chain.__context__)
    return "".join(lines)


def described(error: BaseException) -> str:
    """The type of an error, and its message if it is one of ours."""
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, EmbedPipelineError):
        return f"{name}: {error}"
    if isinstance(error, BaseExceptionGroup):
        return f"{name} of {', '.join(map(described, error.exceptions))}"
    code = getattr(error, "code", None)
    if isinstance(error, OSError):
        code = error.strerror
    return f"{name} ({one_line(code)})" if isinstance(code, str) else name
