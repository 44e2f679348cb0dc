"""Figures, tables and small charts as Dagster shows them."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from embed_pipeline.domain.audit import AuditEntry
from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.figures import coverage_figures, queue_figures
from embed_pipeline.domain.health import Reading
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.domain.quality_check import overall_figures
from embed_pipeline.domain.results import FailureOutcome
from embed_pipeline.settings.secrets import without_secrets
from embed_pipeline.worker.report import DrainReport

SHOWN: Final = 100
"""Rows of a table; the queue has the rest."""
FIRST: Final = (
    "pending",
    "oldest_pending_seconds",
    "throughput_per_minute",
    "processing",
    "completed",
    "failed",
    "delayed",
    "expired_leases",
    "hold_seconds",
    "coverage_percent",
)
"""What an operator looks at first."""
COLOURS: Final = {
    Coverage.CURRENT: "#2a9d5c",
    Coverage.STALE: "#e9a23b",
    Coverage.MISSING: "#d64545",
    Coverage.WRONG_MODEL: "#8e5bb5",
    Coverage.FOREIGN: "#4a7fb5",
    Coverage.EMPTY_TEXT: "#c9ced6",
    Coverage.UNEMBEDDABLE: "#8a8f98",
}
TYPES: Final = 12
"""Bars of the chart, those of the most frequent types; it says what it leaves out."""
_BAR: Final = 320
_ROW: Final = 22
_NOT_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters, which XML refuses even when they are escaped."""
_MARKDOWN: Final = re.compile(r"[\[\]<>`]")


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without ``None`` (Dagster refuses it) and texts without secrets."""
    return {
        name: without_secrets(value) if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }


def table(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """A table with the columns of its first row."""
    records = [dg.TableRecord(dict(row)) for row in list(rows)[:SHOWN]]
    return dg.MetadataValue.table(records, schema=None if records else dg.TableSchema(columns=[]))


def picture(said: str, svg: str) -> dg.MarkdownMetadataValue:
    """An inline drawing with its text alternative."""
    coded = base64.b64encode(svg.encode()).decode()
    return dg.MetadataValue.md(f"![{said}](data:image/svg+xml;base64,{coded})")


def as_markdown(text: str) -> str:
    """Escape untrusted text where the UI renders markdown: no links, images or tags."""
    return _MARKDOWN.sub(r"\\\g<0>", text)


def of_queue(reading: Reading) -> dict[str, Any]:
    """Every figure of a reading, for one materialization of the queue's metrics."""
    if reading.metrics is None:
        raise dg.Failure(f"The queue cannot be read: {reading.schema_problem}")
    figures: dict[str, Any] = queue_figures(reading.metrics)
    if reading.coverage is not None:
        figures |= coverage_figures(reading.coverage)
    if reading.quality is not None:
        figures |= overall_figures(reading.quality)
    first = {name: figures.pop(name) for name in FIRST if name in figures}
    return {**first, **figures, "model": reading.model, **_warning(reading.model)}


def of_coverage(report: CoverageReport) -> dict[str, Any]:
    """How well the entities are covered: figures, a table and a chart."""
    types = [
        {
            "entity type": name or "(none)",
            "entities": sum(counts.values()),
            **{kind.value: counts[kind] for kind in Coverage},
        }
        for name, counts in report.by_type().items()
    ]
    models = [
        {"model": name or "(no vector)", "entities": count}
        for name, count in report.models().items()
    ]
    return {
        "chart": picture("coverage by entity type", _chart(report)),
        **coverage_figures(report),
        "by_entity_type": table(types),
        "by_model": table(models),
        **_unfit(report),
        **_oversized(report),
        "model": report.model,
        **_warning(report.model),
    }


def of_actions(entries: Sequence[AuditEntry]) -> dict[str, Any]:
    """What operators did, the newest first."""
    rows = [
        {
            "time": f"{entry.at:%Y-%m-%d %H:%M:%S} UTC",
            "actor": entry.actor,
            "action": entry.action,
            "count": entry.count,
            "asked for": entry.filter,
            "run": entry.run_id or "",
            "finished": entry.is_complete,
        }
        for entry in entries
    ]
    return {"recent_actions": table(rows), "actions_shown": min(len(rows), SHOWN)}


def of_errors(report: DrainReport) -> dict[str, Any]:
    """Why attempts of a drain failed; empty when none did."""
    rows = [
        {
            "attempts": kind.count,
            "category": kind.category.value,
            "failed": kind.outcomes[FailureOutcome.FAILED],
            "to be tried again": kind.outcomes[FailureOutcome.RETRY],
            "given back": kind.outcomes[FailureOutcome.GIVEN_BACK],
            "example": without_secrets(kind.example),
        }
        for kind in report.errors
    ]
    return {"errors": table(rows)} if rows else {}


def _unfit(report: CoverageReport) -> dict[str, Any]:
    """Say why entities cannot be embedded, with examples."""
    if not report.unfit:
        return {}
    return {
        "unembeddable_because": table(
            {
                "reason": reason.words,
                "entities": number,
                "examples": ", ".join(report.unfit_names.get(reason, ())),
            }
            for reason, number in report.unfit.items()
        )
    }


def _oversized(report: CoverageReport) -> dict[str, Any]:
    """Name the entities of whose text only the beginning is read."""
    if not report.oversized:
        return {}
    return {"oversized": table({"entity": name} for name in report.oversized_names)}


def _warning(model: str) -> dict[str, str]:
    if not model.startswith(MOCK_PREFIX):
        return {}
    return {"warning": f"{model} makes mock vectors, which mean nothing; set OPENAI_API_KEY"}


def _chart(report: CoverageReport) -> str:
    """A bar per entity type, as SVG."""
    every = list(report.by_type().items())
    types, others = every[:TYPES], every[TYPES:]
    bars = [_bar(index, name, counts) for index, (name, counts) in enumerate(types)]
    legend, left = "", 8
    for kind, colour in COLOURS.items():
        name = kind.value.replace("_", " ")
        legend += (
            f'<rect x="{left}" y="{_ROW * len(types) + 12}" width="10" height="10" '
            f'fill="{colour}"/><text x="{left + 14}" y="{_ROW * len(types) + 21}">{name}</text>'
        )
        left += 34 + 7 * len(name)
    height = _ROW * len(types) + 30
    if others:
        left_out = sum(sum(counts.values()) for _, counts in others)
        said = f"not shown: {left_out:,} entities of {len(others):,} more types"
        legend += f'<text x="8" y="{height + 12}">{said}</text>'
        height += _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#8a8f98">'
        f"{''.join(bars)}{legend}</svg>"
    )


def _bar(index: int, name: str, counts: Mapping[Coverage, int]) -> str:
    total = sum(counts.values()) or 1
    parts: list[str] = []
    left = 0.0
    for kind, colour in COLOURS.items():
        width = _BAR * counts[kind] / total
        parts.append(
            f'<rect x="{170 + left:.1f}" y="{index * _ROW + 4}" width="{width:.1f}" '
            f'height="{_ROW - 6}" fill="{colour}"/>'
        )
        left += width
    label = _escaped(name or "(none)", 24)
    text = f'<text x="160" y="{index * _ROW + 17}" text-anchor="end">{label}</text>'
    number = f'<text x="{180 + _BAR}" y="{index * _ROW + 17}">{total}</text>'
    return text + "".join(parts) + number


def _escaped(text: str, longest: int) -> str:
    shown = _NOT_XML.sub("\ufffd", text)
    cut = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def ids(found: Sequence[str]) -> dict[str, Any]:
    """The ids of the affected jobs."""
    return {"job_ids": list(found[:SHOWN]), "job_ids_shown": min(len(found), SHOWN)}
