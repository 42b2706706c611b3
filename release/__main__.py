"""`python -m release`: the steps of `make release` that build nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from operator_runner import __version__
from release.changelog import ReleaseError, release_notes
from release.versions import Versions, disagreements

_ROOT = Path(__file__).parents[1]
_CHANGELOG = _ROOT / "CHANGELOG.md"
_BUILDER = "operators.operatorframework.io.metrics.builder"


@click.group()
def main() -> None:
    """Check a release and write its notes."""


@main.command()
@click.argument("version")
def check(version: str) -> None:
    """Check that all files state the same versions.

    VERSION is that of the Makefile.
    """
    versions = Versions(
        package=__version__,
        builder=_yaml("bundle/metadata/annotations.yaml")["annotations"][_BUILDER],
        makefile=version,
        bundle=_yaml("bundle/manifests/*.clusterserviceversion.yaml")["spec"]["version"],
    )
    problems = [*disagreements(versions, _CHANGELOG.read_text(encoding="utf-8"))]
    if problems:
        raise click.ClickException("\n".join(problems))
    click.echo(f"operator-runner {__version__}, nginx operator {version}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def notes(folder: Path) -> None:
    """Write the changelog of the current version into FOLDER."""
    try:
        text = release_notes(_CHANGELOG.read_text(encoding="utf-8"), __version__)
    except ReleaseError as error:
        raise click.ClickException(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"release-notes-{__version__}.md"
    file.write_text(text, encoding="utf-8")
    click.echo(file)


def _yaml(pattern: str) -> dict[str, Any]:
    """Return the only document of the only file that matches a pattern."""
    files = list(_ROOT.glob(pattern))
    if len(files) != 1:
        raise click.ClickException(
            f"{pattern}: expected one file, found {len(files)}: run `make bundle`"
        )
    found: dict[str, Any] = yaml.safe_load(files[0].read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main(prog_name="python -m release")
