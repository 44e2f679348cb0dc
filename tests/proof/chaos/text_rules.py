"""What the graph says of texts: which ones the vectors are of, and the pieces of an entity.

The promise: a vector is that of a text which was current when it was read, and the scan mends what
has changed since.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from embed_pipeline.domain.relations import (
    INCOMING,
    OUTGOING,
    READ_AS,
    line_of,
    relation_lines,
)
from embed_pipeline.domain.text import HALF, hash_of_entity, recipe_of, render_for
from tests.proof.chaos.evidence import Evidence, Facts
from tests.proof.chaos.history import ANSWER, ERROR
from tests.proof.chaos.texts import BETWEEN, MODEL, SHAPE, stored_vector, vector_of

TYPE = "KNOWS"


class Texts:
    """The texts of a run: as they are in the end, and whatever they may have been."""

    def __init__(self, run: Evidence) -> None:
        self.run = run
        names = {entity["name"]: entity for entity in run.graph.entities}
        self._neighbours: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for one, other in run.graph.relations:
            for uid, sign, neighbour in ((one, OUTGOING, other), (other, INCOMING, one)):
                called = names[neighbour].get("alias") or neighbour
                self._neighbours[uid][sign].add(line_of(sign, TYPE, called))

    def of(self, entity: Facts) -> str:
        """The text of an entity at the end."""
        most = SHAPE.relations.most
        ways = self._neighbours[entity["name"]]
        lines = [line for sign in ways for line in sorted(ways[sign])[:most]]
        return render_for(SHAPE)({**entity, READ_AS: lines})

    def was_never(self, uid: str, text: str) -> str | None:
        """Why the entity cannot have had this text, or ``None``."""
        own, _, lines = text.partition(BETWEEN)
        if own not in {f"{uid}\n{words}" for words in self._own[uid]}:
            return "its own words were never these together"
        for line in lines.splitlines():
            if line not in self._lines[uid]:
                return f"nobody ever said {line!r} of it"
        return None

    @cached_property
    def _own(self) -> Mapping[str, set[str]]:
        """What each entity has said of itself, also in writes of which nobody knows."""
        found: dict[str, set[str]] = defaultdict(set)
        for event in self.run.of("write"):
            if event["kind"] != "delete" and event["phase"] in (ANSWER, ERROR):
                for row in event["rows"]:
                    found[row["uid"]].add(row["text"])
        return found

    @cached_property
    def _lines(self) -> Mapping[str, set[str]]:
        """What may ever have been said of its neighbours."""
        called: dict[str, set[str]] = defaultdict(set)
        found: dict[str, set[str]] = defaultdict(set)
        for event in self.run.of("relation"):
            if event["kind"] == "rename":
                called[event["row"]["one"]].add(event["row"]["alias"])
        for event in self.run.of("relation"):
            if event["kind"] == "add":
                one, other = event["row"]["one"], event["row"]["other"]
                for uid, sign, neighbour in ((one, OUTGOING, other), (other, INCOMING, one)):
                    names = {neighbour, *called[neighbour]}
                    found[uid] |= set(relation_lines(line_of(sign, TYPE, n) for n in names))
        return found


def stale_vectors(run: Evidence) -> Iterator[str]:
    """After a scan every entity has the vector of its present text, or a reason (I5, M116)."""
    jobs = {(job["entity_uid"], job["version"]): job for job in run.graph.jobs}
    texts = Texts(run)
    for entity in run.graph.entities:
        uid, version = entity["name"], entity["version"]
        is_right = entity.get("embedding") == stored_vector(texts.of(entity))
        job = jobs.get((uid, version))
        is_stopped = (uid, version) in run.cancelled and (
            job is None or job["status"] == "cancelled"
        )
        is_unlucky = job is not None and job["id"] in run.unlucky
        if not is_right and not is_stopped and not is_unlucky and uid not in run.special:
            status = "was cleaned up" if job is None else f"is {job['status']}"
            kind = "no vector" if entity.get("embedding") is None else "a vector of another text"
            yield f"{uid} version {version} has {kind}; its job {status}"


def never_current(run: Evidence) -> Iterator[str]:
    """Whoever looks finds the vector of a text that the entity had once, never of another."""
    texts = Texts(run)
    for entity in seen(run):
        text = "".join(piece[3] for piece in entity["pieces"])
        if text and (why := texts.was_never(entity["name"], text)):
            yield f"{entity['name']} has the vector of a text that it never had: {why}"


def other_words(run: Evidence) -> Iterator[str]:
    """No vector is written of words that the entity no longer has; a scan would mend it (I5)."""
    render, recipe = render_for(SHAPE), recipe_of(SHAPE)
    for entity in run.graph.entities:
        for line in entity.get("chaos_texts", []):
            digest, _, words = line.partition(":")
            own = {"name": entity["name"], "observations": [words], READ_AS: []}
            right = hash_of_entity(own, render(own), render=render, recipe=recipe)
            if digest[:HALF] != right[:HALF]:
                yield f"{entity['name']} got the vector of other words than {words!r:.60}"


def own_words_lost(run: Evidence) -> Iterator[str]:
    """Before the scan, too, an entity has the vector of its own last words (M6).

    Its neighbours may have changed: nobody asked for that.
    """
    unlucky = {run.uid_of[id_] for id_ in run.unlucky if id_ in run.uid_of}
    for entity in run.graph.unscanned:
        uid, version = entity["name"], entity["version"]
        text = "".join(piece[3] for piece in entity["pieces"])
        own = "\n".join([uid, *entity["observations"]])
        is_excused = (uid, version) in run.cancelled or uid in run.special | unlucky
        if text.partition(BETWEEN)[0] != own and not is_excused:
            yield f"{uid} version {version} has no vector of its words; nobody had to scan for that"


def two_texts(run: Evidence) -> Iterator[str]:
    """No entity has pieces of two texts, nor a vector of another one, whenever one looks (M122).

    Nor has any of the pieces.
    """
    for entity in seen(run):
        pieces, end = entity["pieces"], 0
        text = "".join(piece[3] for piece in pieces)
        for place, (index, start, stop, words, model, vector) in enumerate(pieces):
            if (index, start, stop) != (place, end, end + len(words)):
                yield f"{entity['name']}: piece {place} says it is {index}, {start} to {stop}"
                break
            if (model, vector) != (MODEL, vector_of(words)):
                yield f"{entity['name']}: piece {place} has another vector than its words"
                break
            end = stop
        else:
            has_vector = entity.get("embedding") is not None
            if has_vector and entity["embedding"] != (stored_vector(text) if text else None):
                yield f"{entity['name']} has pieces of another text than its vector"
            if pieces and not has_vector:
                yield f"{entity['name']} has pieces and no vector"


def seen(run: Evidence) -> Iterator[Facts]:
    """Every entity as somebody has seen it: meanwhile, before the last scan, and in the end."""
    yield from (event for event in run.of("look") if event.get("phase") is None)
    yield from run.graph.unscanned
    yield from run.graph.entities
