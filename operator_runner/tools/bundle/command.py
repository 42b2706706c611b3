"""`operator-runner bundle`, `bundle-validate`, `catalog`, `operatorhub`: flags to files."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from operator_runner.config.flags import lookup_options
from operator_runner.config.watches import load
from operator_runner.core.errors import ConfigError
from operator_runner.devcluster import binaries
from operator_runner.devcluster.errors import ClusterError
from operator_runner.tools.bundle import catalog as catalogs
from operator_runner.tools.bundle import hub
from operator_runner.tools.bundle.bundle import bundle as make_bundle
from operator_runner.tools.bundle.bundle import dockerfile
from operator_runner.tools.bundle.published import read_all
from operator_runner.tools.bundle.rendering import render
from operator_runner.tools.bundle.validation import ERROR, scorecard, validate
from operator_runner.tools.bundle.wanted import Wanted
from operator_runner.tools.bundle.writing import write, write_bundle

_FOLDER = click.Path(path_type=Path, file_okay=False)
_BUNDLES = click.argument(
    "bundles", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False)
)


@click.command()
@click.argument("project", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--version", required=True, help="Version of the operator, such as 0.0.1.")
@click.option("--image", default="", help="The operator's image; else that of the manifests.")
@click.option(
    "--channels", default="alpha", show_default=True, help="Where it is offered, parted by commas."
)
@click.option("--default-channel", default="", help="The channel for those who choose none.")
@click.option("--use-image-digests", is_flag=True, help="Refuse images that are not by digest.")
@click.option(
    "--manifests",
    default=Path("config/manifests"),
    show_default=True,
    type=_FOLDER,
    help="What kustomize renders, in the project.",
)
@click.option(
    "--kustomize", default="", help="The command that does so.  [default: kubectl kustomize]"
)
@click.option(
    "--output",
    default=Path("bundle"),
    show_default=True,
    type=_FOLDER,
    help="The bundle's folder; bundle.Dockerfile is put beside it.",
)
@lookup_options
def bundle(project: Path, output: Path, **options: Any) -> None:
    """Write the bundle of the operator in PROJECT for the Operator Lifecycle Manager."""
    with _errors():
        target = output.absolute()
        wanted = Wanted(
            options["version"],
            tuple(filter(None, options["channels"].split(","))),
            options["default_channel"],
            options["image"],
            options["use_image_digests"],
        )
        if not project.is_dir():
            raise ConfigError(f"{project}: there is no such folder")
        # Roles and playbooks of watches.yaml are sought from the working directory on.
        with contextlib.chdir(project):
            loaded = load(
                Path("watches.yaml"),
                os.environ,
                roles_path=options["ansible_roles_path"],
                collections_path=options["ansible_collections_path"],
            )
            rendered = render(options["manifests"], options["kustomize"], os.environ)
        for warning in loaded.warnings:
            click.echo(f"Warning: {warning}", err=True)
        made = make_bundle(rendered, loaded.watches, wanted)
        write_bundle(target, made.files)
        write(target.parent / "bundle.Dockerfile", dockerfile(made.labels, target.name))
        for path in made.files:
            click.echo(output / path)
        click.echo(output.parent / "bundle.Dockerfile")


@click.command()
@_BUNDLES
@click.option("--default-channel", default="", help="Else the one that the newest bundle names.")
@click.option(
    "--bundle-image",
    default="",
    help="Images of the bundles, {version} for the version; else the catalog has all manifests.",
)
@click.option(
    "--output",
    default=Path("catalog"),
    show_default=True,
    type=_FOLDER,
    help="The catalog's folder; catalog.Dockerfile is put beside it.",
)
def catalog(
    bundles: tuple[Path, ...], default_channel: str, bundle_image: str, output: Path
) -> None:
    """Write a file-based catalog that offers the versions in the folders BUNDLES."""
    with _errors():
        published = read_all(bundles)
        text = catalogs.catalog(published, default_channel=default_channel, image=bundle_image)
        target = output.absolute()
        file = Path(published[0].package) / "catalog.yaml"
        write(target / file, text)
        write(target.parent / "catalog.Dockerfile", catalogs.DOCKERFILE % {"folder": target.name})
        click.echo(output / file)
        click.echo(output.parent / "catalog.Dockerfile")


@click.command()
@_BUNDLES
@click.option("--reviewer", multiple=True, help="Account of one who approves changes.")
@click.option("--output", required=True, type=_FOLDER, help="A checkout of the repository.")
def operatorhub(bundles: tuple[Path, ...], reviewer: tuple[str, ...], output: Path) -> None:
    """Write operators/PACKAGE as the repositories behind OperatorHub have it."""
    with _errors():
        click.echo(hub.publish(read_all(bundles), output, reviewer))


@click.command("bundle-validate")
@click.argument("bundle", default=Path("bundle"), type=_FOLDER)
def validate_bundle(bundle: Path) -> None:
    """Have OLM's validators and the tests of scorecard look at the folder BUNDLE.

    They are built from source the first time, which takes minutes.
    """
    with _errors():
        try:
            programs = binaries.find_olm(os.environ, Console(stderr=True))
        except ClusterError as error:
            raise ConfigError(str(error)) from error
        found = [*validate(bundle, programs), *scorecard(bundle, programs)]
    for finding in found:
        click.echo(finding)
    wrong = sum(finding.level == ERROR for finding in found)
    click.echo(f"{bundle}: {wrong} errors, {len(found) - wrong} warnings")
    sys.exit(wrong > 0)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        for warning in error.warnings:
            click.echo(f"Warning: {warning}", err=True)
        for problem in error.problems:
            click.echo(f"Error: {problem}", err=True)
        sys.exit(1)
