"""Command `operator-runner ui`."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import cluster_options, complete, work_dir_option

_PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">operator-runner</a>'
)


@click.command()
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Show all namespaces.")
@click.option(
    "--port",
    default=0,
    show_default="a free one",
    type=click.IntRange(0, 65535),
    help="Port on 127.0.0.1.",
)
@click.option("--no-browser", is_flag=True, help="Print the URL only.")
@work_dir_option
def ui(
    namespace: str | None,
    kubeconfig: Kubeconfig,
    port: int,
    work_dir: Path | None,
    *,
    all_namespaces: bool,
    no_browser: bool,
) -> None:
    """Serve a live web page of resources, queue and runs.

    It also shows throttled loops and failures. The page is read-only, and only the printed URL
    opens it.
    """
    if all_namespaces and namespace is not None:
        raise click.UsageError("use either --namespace or --all-namespaces")
    complete(
        _serve(
            kubeconfig, namespace, work_dir, port, everywhere=all_namespaces, browse=not no_browser
        )
    )


async def _serve(
    kubeconfig: Kubeconfig,
    namespace: str | None,
    work_dir: Path | None,
    port: int,
    *,
    everywhere: bool,
    browse: bool,
) -> None:
    """Serve without end. Raises ApiError and ConfigError."""
    # These are slow to import, and --help does not need them.
    from operator_runner.tools.resources.cluster import open_cluster  # noqa: PLC0415
    from operator_runner.tools.ui.cluster_reader import ClusterReader  # noqa: PLC0415
    from operator_runner.tools.ui.server import Feed, application, serving  # noqa: PLC0415

    token, feed = secrets.token_urlsafe(24), Feed()
    async with open_cluster(kubeconfig, namespace) as cluster:
        reader = ClusterReader(cluster, feed, None if everywhere else cluster.namespace, work_dir)
        async with serving(application(feed, reader, token), port) as bound:
            url = f"http://127.0.0.1:{bound}/{token}/"
            click.echo(f"Serving {url}\nPress Ctrl-C to stop.")
            with _opened(url) if browse else nullcontext():
                await reader.follow()


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Open the page in the user's browser; keep the file that leads there inside the block.

    Arguments of programs are visible to other users, so the browser gets the name of a private
    file instead of the URL with the token.
    """
    with tempfile.TemporaryDirectory(prefix="operator-runner-ui-") as folder:
        file = Path(folder, "open.html")
        file.write_text(_PAGE.format(url=url), encoding="utf-8")
        opening = asyncio.get_running_loop().run_in_executor(None, webbrowser.open, file.as_uri())
        try:
            yield
        finally:
            opening.cancel()
