"""``embed-pipeline doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from embed_pipeline.cli.base import (
    AsJson,
    as_plain,
    console,
    each_chosen,
    pasteable,
    print_json,
    safe,
    show,
    table,
)

if TYPE_CHECKING:
    from embed_pipeline.operations.doctor import Finding
    from embed_pipeline.settings import Settings

COLOURS: Final = {"GOOD": "green", "WARNING": "yellow", "BAD": "red", "SKIPPED": "dim"}


def doctor(
    settings_only: Annotated[
        bool, typer.Option("--settings-only", help="Check the settings and nothing else.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Embed one word, also where that costs money.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check settings, Neo4j, APOC, schema, entities, rate limit and provider, and say what to do.

    Exit code: 0 all right, 2 configuration, 3 unreachable, 4 credentials, 5 schema.
    """
    from embed_pipeline.operations.findings import examine_places

    every = each_chosen()
    found = {own.queue: _examined(own, settings_only=settings_only, probe=probe) for own in every}
    found[every[0].queue] += examine_places(every)
    if json:
        plain = {
            queue: [{**as_plain(one), "mark": one.mark.name.lower()} for one in findings]
            for queue, findings in found.items()
        }
        print_json(plain if len(every) > 1 else next(iter(plain.values())))
    else:
        for queue, findings in found.items():
            if len(every) > 1:
                console.print(f"[bold]{safe(queue)}")
            _print(findings)
    codes = [finding.exit_code for findings in found.values() for finding in findings]
    raise typer.Exit(next(filter(None, codes), 0))


def _examined(settings: Settings, *, settings_only: bool, probe: bool) -> list[Finding]:
    from embed_pipeline.operations.findings import examine_settings

    findings = examine_settings(settings)
    if settings_only:
        return findings
    from embed_pipeline.operations.blocking import finish
    from embed_pipeline.operations.doctor import examine

    async def collect() -> None:
        async for finding in examine(settings, ask_provider=probe):
            findings.append(finding)

    with console.status("Looking"):
        finish(collect())
    return findings


def _print(findings: list[Finding]) -> None:
    rows = table()
    for finding in findings:
        examples = f": {', '.join(finding.examples)}" if finding.examples else ""
        text = safe(pasteable(finding.detail) + examples)
        if finding.remedy:
            text += f"\n[dim]→[/] {safe(pasteable(finding.remedy))}"
        rows.add_row(f"[{COLOURS[finding.mark.name]}]{finding.mark}", finding.subject, text)
    show(rows)
