"""Commands `operator-runner bundle`, `bundle-validate`, `catalog` and `operatorhub`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from operator_runner.config.flags.options import lookup_options
from operator_runner.config.flags.values import load_watches
from operator_runner.core.errors import ConfigError
from operator_runner.devcluster import binaries
from operator_runner.devcluster.errors import ClusterError
from operator_runner.tools import kustomize
from operator_runner.tools.bundle import catalog as catalogs
from operator_runner.tools.bundle.bundle import (
    ERROR,
    dockerfile,
    scorecard,
    validate,
    write,
    write_bundle,
)
from operator_runner.tools.bundle.bundle import bundle as make_bundle
from operator_runner.tools.bundle.cluster_service_version import BundleOptions
from operator_runner.tools.bundle.manifests import Manifests
from operator_runner.tools.yaml_io import load_objects

_FOLDER = click.Path(path_type=Path, file_okay=False)
_BUNDLES = click.argument(
    "bundles", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False)
)


@click.command()
@click.argument("project", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--version", required=True, help="Version of the operator, such as 0.0.1.")
@click.option("--image", default="", help="Operator image.  [default: that of the manifests]")
@click.option(
    "--channels", default="alpha", show_default=True, help="Channels, separated by commas."
)
@click.option("--default-channel", default="", help="Channel of Subscriptions that name none.")
@click.option("--use-image-digests", is_flag=True, help="Reject images without a digest.")
@click.option(
    "--manifests",
    default=Path("config/manifests"),
    show_default=True,
    type=_FOLDER,
    help="Kustomization to render, relative to the project.",
)
@click.option(
    "--kustomize", default="", help="Command that renders it.  [default: kubectl kustomize]"
)
@click.option(
    "--output",
    default=Path("bundle"),
    show_default=True,
    type=_FOLDER,
    help="Folder of the bundle; bundle.Dockerfile is written beside it.",
)
@lookup_options
def bundle(project: Path, output: Path, **flags: Any) -> None:
    """Write the bundle of the operator in PROJECT for OLM."""
    target = output.absolute()
    options = BundleOptions(
        flags["version"],
        tuple(filter(None, flags["channels"].split(","))),
        flags["default_channel"],
        flags["image"],
        flags["use_image_digests"],
    )
    if not project.is_dir():
        raise ConfigError(f"{project}: no such directory")
    # watches.yaml names roles and playbooks relative to the working directory.
    with contextlib.chdir(project):
        loaded = load_watches({**flags, "watches_file": Path("watches.yaml")}, os.environ)
        manifests = _render(flags["manifests"], flags["kustomize"])
    for warning in loaded.warnings:
        click.echo(f"Warning: {warning}", err=True)
    made = make_bundle(manifests, loaded.watches, options)
    write_bundle(target, made.files)
    write(target.parent / "bundle.Dockerfile", dockerfile(made.labels, target.name))
    for path in made.files:
        click.echo(output / path)
    click.echo(output.parent / "bundle.Dockerfile")


def _render(folder: Path, command: str) -> Manifests:
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such directory: expected a kustomization that renders the operator, its"
            " samples and a base ClusterServiceVersion; name another one with --manifests"
        )
    text = kustomize.render(folder, command, os.environ)
    return Manifests(load_objects(text, str(folder)), str(folder))


@click.command()
@_BUNDLES
@click.option(
    "--default-channel", default="", help="Default channel.  [default: that of the newest bundle]"
)
@click.option(
    "--bundle-image",
    default="",
    help="Images of the bundles, with {version}; without it the catalog contains all manifests.",
)
@click.option(
    "--output",
    default=Path("catalog"),
    show_default=True,
    type=_FOLDER,
    help="Folder of the catalog; catalog.Dockerfile is written beside it.",
)
def catalog(
    bundles: tuple[Path, ...], default_channel: str, bundle_image: str, output: Path
) -> None:
    """Write a file-based catalog of the versions in BUNDLES."""
    published = catalogs.read_bundles(bundles)
    text = catalogs.catalog(published, default_channel=default_channel, image=bundle_image)
    target = output.absolute()
    file = Path(published[0].package) / "catalog.yaml"
    write(target / file, text)
    write(target.parent / "catalog.Dockerfile", catalogs.DOCKERFILE % {"folder": target.name})
    click.echo(output / file)
    click.echo(output.parent / "catalog.Dockerfile")


@click.command()
@_BUNDLES
@click.option("--reviewer", multiple=True, help="Account that approves changes; may be repeated.")
@click.option("--output", required=True, type=_FOLDER, help="Checkout of the repository.")
def operatorhub(bundles: tuple[Path, ...], reviewer: tuple[str, ...], output: Path) -> None:
    """Write operators/PACKAGE for OperatorHub's repositories."""
    click.echo(catalogs.write_operatorhub(catalogs.read_bundles(bundles), output, reviewer))


@click.command("bundle-validate")
@click.argument(
    "bundle", default=Path("bundle"), type=click.Path(path_type=Path, exists=True, file_okay=False)
)
def validate_bundle(bundle: Path) -> None:
    """Validate BUNDLE with OLM's validators and scorecard.

    The first run builds them from source, which takes minutes.
    """
    try:
        programs = binaries.find_olm(os.environ, Console(stderr=True))
    except ClusterError as error:
        raise ConfigError(str(error)) from error
    found = [*validate(bundle, programs), *scorecard(bundle, programs)]
    for finding in found:
        click.echo(finding)
    errors = sum(finding.level == ERROR for finding in found)
    click.echo(f"{bundle}: {errors} errors, {len(found) - errors} warnings")
    sys.exit(errors > 0)
