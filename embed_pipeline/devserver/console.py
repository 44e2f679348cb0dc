"""What a person sees while the local server gets ready."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from embed_pipeline.devserver.neo4j_server import Neo4jServer


def start_visibly(server: Neo4jServer, console: Console) -> bool:
    """Start the server with a progress bar for its download; return whether this call did."""
    progress = Progress(
        TextColumn("▸ Downloading Neo4j"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
    )
    task = progress.add_task("download", visible=False)
    with progress:
        started = server.start(
            on_progress=lambda done, total: progress.update(
                task, completed=done, total=total, visible=True
            )
        )
    try:
        with console.status(f"Neo4j {server.status().version} is starting"):
            server.wait_until_ready()
    except BaseException:
        if started:
            server.stop()
        raise
    console.print(f"▸ Neo4j {'started' if started else 'was running already'} at {server.uri}")
    return started
