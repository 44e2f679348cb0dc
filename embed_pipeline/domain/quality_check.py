"""Judges what a sample of the vectors says."""

from collections.abc import Iterator

from embed_pipeline.domain.checks import QUALITY
from embed_pipeline.domain.quality import (
    DRIFTED,
    ENOUGH,
    FALL,
    FEWEST,
    FLOOR,
    MOST_DUPLICATES,
    MOST_HUB,
    MOST_ODD,
    Quality,
)
from embed_pipeline.domain.verdict import Verdict


def follows_the_graph(quality: Quality | None) -> Verdict:
    """Whether vectors of joined entities are near each other, compared with earlier readings."""
    if quality is None:
        message = (
            "not measured yet; the schedule daily_quality does it, 'embed-pipeline quality' now"
        )
        return Verdict(QUALITY, passed=None, message=message)
    auc, usual = quality.auc, quality.usual
    if auc is None and quality.is_withheld:
        message = (
            "the edges are in the texts, and limit, budget or provider did not let enough of them "
            "be embedded without: nothing can be said"
        )
        return Verdict(QUALITY, passed=True, message=message)
    if auc is None:
        message = f"fewer than {FEWEST} edges between embedded entities: nothing can be said"
        return Verdict(QUALITY, passed=True, message=message)
    figures = quality_figures(quality)
    told = f"AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f}, {auc.edges} edges)"
    if auc.value < FLOOR and max(quality.words or 0.0, usual or 0.0) < FLOOR:
        message = f"no signal: {told}, and joined texts share no more words than others do"
        return Verdict(QUALITY, passed=True, message=message, figures=figures)
    if auc.value < FLOOR and auc.edges >= ENOUGH:
        advice = (
            "the vectors do not fit their texts; 'embed-pipeline reconcile --force' makes them anew"
        )
        message = f"{told}, below {FLOOR:g}: {advice}"
        return Verdict(QUALITY, passed=False, message=message, figures=figures)
    problems = list(_problems(quality))
    if usual is not None and auc.value < usual - FALL:
        problems.insert(0, f"it was {usual:.3f} before: look at what wrote vectors since")
    message = "; ".join([told, *problems])
    return Verdict(QUALITY, not problems, message, figures, milder=True)


def _problems(quality: Quality) -> Iterator[str]:
    if quality.odd_lengths > MOST_ODD:
        yield f"{quality.odd_lengths:.0%} of the vectors are much longer or shorter than the rest"
    if quality.duplicates > MOST_DUPLICATES:
        yield f"{quality.duplicates:.0%} of the vectors are those of other texts, too"
    if quality.hub > MOST_HUB:
        yield f"{quality.hub:.0%} of the entities have one and the same nearest neighbour"
    if quality.drift is not None and quality.drift < DRIFTED:
        yield (
            f"the provider gives other vectors than before (cosine {quality.drift:.3f}): it has "
            "changed the model"
        )


def quality_figures(quality: Quality) -> dict[str, float]:
    """The plotted figures, with one per type of edges that had enough samples."""
    types = {f"quality_auc/{name}": found.value for name, found in quality.types.items()}
    return overall_figures(quality) | types


def overall_figures(quality: Quality) -> dict[str, float]:
    """The figures under names that stay."""
    if quality.auc is None:
        return {}
    auc = quality.auc
    figures = {
        "quality_auc": auc.value,
        "quality_auc_low": auc.low,
        "quality_auc_high": auc.high,
        "quality_edges": auc.edges,
        "quality_auc_of_words": quality.words or 0.0,
        "quality_odd_lengths": quality.odd_lengths,
        "quality_duplicates": quality.duplicates,
        "quality_hub": quality.hub,
    }
    if quality.drift is not None:
        figures["quality_drift"] = quality.drift
    return figures
