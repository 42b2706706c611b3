"""The `cluster` commands: argv to calls of `Cluster`, and its answers to tables and exit codes."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from operator_runner.core.errors import INTERRUPTED
from operator_runner.devcluster import image_packing
from operator_runner.devcluster.cluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.network import MAX_NODES


class _ClusterGroup(click.Group):
    """A group whose commands print errors of the cluster, and end gracefully on signals."""

    def invoke(self, ctx: click.Context) -> Any:
        """Execute a command and set the exit status."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            return super().invoke(ctx)
        except ClusterError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            sys.exit(INTERRUPTED)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            hint = "Free some space, or point XDG_STATE_HOME and XDG_CACHE_HOME to a larger disk."
            raise click.ClickException(f"{error.filename}: the disk is full\n{hint}") from error


@click.group(cls=_ClusterGroup)
def cluster() -> None:
    """Run a local Kubernetes cluster."""


def _named(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--name", default="default", show_default=True, help="Name of the cluster."
    )(command)


@cluster.command()
@_named
@click.option("--control-plane-only", is_flag=True, help="No nodes and Pods; works without root.")
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), help="Number of nodes.  [default: 1]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API server.")
@click.option("--install-packages", is_flag=True, help="Install missing packages with apt-get.")
@click.option(
    "--admission-plugin",
    "admission_plugins",
    multiple=True,
    metavar="NAME",
    help="Admission plugin that is off by default; may be repeated.",
)
@click.option(
    "--audit-policy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Audit policy of the API server; the log is audit.log beside those of the parts.",
)
def up(
    name: str,
    *,
    control_plane_only: bool,
    nodes: int | None,
    port: int | None,
    install_packages: bool,
    admission_plugins: tuple[str, ...],
    audit_policy: Path | None,
) -> None:
    """Start a cluster, or check a running one."""
    if control_plane_only and nodes:
        raise click.UsageError("--control-plane-only has no nodes: leave out --nodes")
    this = Cluster(name)
    this.up(
        control_plane_only=control_plane_only,
        port=port,
        install_packages=install_packages,
        admission_plugins=admission_plugins,
        audit_policy=audit_policy,
        nodes=nodes,
    )
    click.echo(f"KUBECONFIG={this.kubeconfig}")
    click.echo(f"kubectl:   {this.bin / 'kubectl'}")


@cluster.command()
@_named
def down(name: str) -> None:
    """Remove a cluster with all its data."""
    Cluster(name).down()


@cluster.command()
@_named
def status(name: str) -> None:
    """Show the status of every part.

    The exit status is 1 if one is unhealthy.
    """
    this = Cluster(name)
    parts = this.status()
    table = Table("part", "pid", "state", "log", box=None)
    for part in parts:
        pid = "-" if part.pid is None else str(part.pid)
        table.add_row(part.name, pid, part.problem or "healthy", str(part.log))
    # Not cut off where the output is a file or a pipe.
    Console(width=None if sys.stdout.isatty() else 300, highlight=False).print(table)
    click.echo(f"KUBECONFIG={this.kubeconfig}")
    if any(part.problem for part in parts):
        sys.exit(1)


@cluster.command()
@_named
def env(name: str) -> None:
    """Print the environment for kubectl.

    Use it as: eval "$(operator-runner cluster env)"
    """
    this = Cluster(name)
    this.status()
    click.echo(f"export KUBECONFIG={shlex.quote(str(this.kubeconfig))}")
    click.echo(f"export PATH={shlex.quote(str(this.home.tools))}:$PATH")


@cluster.command()
@_named
@click.argument("archives", type=click.Path(path_type=Path), nargs=-1, required=True)
def load(name: str, archives: tuple[Path, ...]) -> None:
    """Load images from archives into every node.

    The archives are those of `docker save` and `cluster pack`.
    """
    for archive in archives:
        for image in Cluster(name).load(archive):
            click.echo(image)


@cluster.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.argument("archive", type=click.Path(path_type=Path))
def pack(spec: Path, archive: Path) -> None:
    """Build an image from Debian packages, programs and files.

    SPEC is the YAML file that lists them, and ARCHIVE the image.
    """
    click.echo(image_packing.pack(spec, archive).tag)


@cluster.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@_named
@click.argument("command", nargs=-1, required=True)
def exec_(name: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the node.

    KUBECONFIG is set, and kubectl and ctr are on PATH.
    """
    argv, environment = Cluster(name).command(command)
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - it takes this process's place
    except FileNotFoundError as error:
        raise ClusterError(f"{argv[0]}: no such program") from error


@cluster.command()
@_named
@click.argument("part")
def stop(name: str, part: str) -> None:
    """Stop one part, such as etcd or kubelet."""
    Cluster(name).stop_part(part)


@cluster.command()
@_named
@click.argument("part")
def start(name: str, part: str) -> None:
    """Start a stopped part."""
    Cluster(name).start_part(part)


@cluster.group()
def olm() -> None:
    """Run the Operator Lifecycle Manager, and serve catalogs to it."""


@olm.command("up")
@_named
def olm_up(name: str) -> None:
    """Install OLM, or check a running one."""
    Cluster(name).install_olm()


@olm.command("serve")
@_named
@click.option("--catalog", help="Name of the catalog.  [default: name of the folder]")
@click.argument("folder", type=click.Path(path_type=Path))
def olm_serve(name: str, catalog: str | None, folder: Path) -> None:
    """Serve a copy of the file-based catalog in FOLDER to OLM."""
    source = Cluster(name).serve_catalog(catalog or folder.resolve().name, folder)
    namespace, _, called = source.partition("/")
    click.echo(f"source: {called}\nsourceNamespace: {namespace}")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
