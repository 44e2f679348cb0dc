"""``embed-pipeline doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from embed_pipeline.cli.base import AsJson, as_plain, console, print_json, safe, show, table

if TYPE_CHECKING:
    from embed_pipeline.operations.doctor import Finding

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
    from embed_pipeline.operations.findings import examine_settings
    from embed_pipeline.settings import load_settings

    settings = load_settings()
    findings = examine_settings(settings)
    if not settings_only:
        from embed_pipeline.operations.blocking import finish
        from embed_pipeline.operations.doctor import examine

        async def collect() -> None:
            async for finding in examine(settings, ask_provider=probe):
                findings.append(finding)

        with console.status("Looking"):
            finish(collect())
    if json:
        print_json(
            [{**as_plain(finding), "mark": finding.mark.name.lower()} for finding in findings]
        )
    else:
        _print(findings)
    raise typer.Exit(next((f.exit_code for f in findings if f.exit_code), 0))


def _print(findings: list[Finding]) -> None:
    rows = table()
    for finding in findings:
        examples = f": {', '.join(finding.examples)}" if finding.examples else ""
        text = safe(finding.detail + examples)
        if finding.remedy:
            text += f"\n[dim]→[/] {safe(finding.remedy)}"
        rows.add_row(f"[{COLOURS[finding.mark.name]}]{finding.mark}", finding.subject, text)
    show(rows)
