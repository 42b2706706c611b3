"""The projects of examples/, and the page that leads to them."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.support import examples
from tests.support.doc_commands import steps
from tests.support.operator import REPOSITORY

PAGE = (REPOSITORY / "docs" / "examples.md").read_text()
_LINE_LIMIT = 80
"""Lines of a README: one page."""


@pytest.mark.parametrize("name", examples.NAMES)
def test_each_example_is_complete(name: str) -> None:
    """It has a README of one page with commands, content, samples, and tests on a cluster."""
    project = examples.FOLDER / name
    readme = (project / "README.md").read_text()
    assert len(readme.splitlines()) <= _LINE_LIMIT
    assert steps(readme)
    assert (project / "roles").is_dir() or (project / "playbooks").is_dir()
    for folder in ("default", "rbac", "manager", "samples"):
        assert (project / "config" / folder / "kustomization.yaml").is_file()
    samples = yaml.safe_load((project / "config/samples/kustomization.yaml").read_text())
    assert samples["resources"]
    tests = [*(REPOSITORY / "tests").glob(f"*/examples/test_{name.replace('-', '_')}.py")]
    assert tests


@pytest.mark.parametrize("name", examples.NAMES)
def test_columns_of_kinds_include_the_age(name: str) -> None:
    """`kubectl get` shows NAME and AGE only for kinds without columns of their own."""
    for file in (examples.FOLDER / name).glob("crds/*.yaml"):
        for version in yaml.safe_load(file.read_text())["spec"]["versions"]:
            columns = [each["name"] for each in version.get("additionalPrinterColumns", [])]
            assert not columns or "Age" in columns, file.name


def test_the_page_links_every_example() -> None:
    """docs/examples.md has a row for each example, and no other one."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    linked = set(re.findall(r"\(\.\./examples/([\w-]+)/", "\n".join(rows)))
    assert linked == set(examples.NAMES)


def test_the_page_is_linked() -> None:
    """README and watches.md lead to the examples."""
    assert "(docs/examples.md)" in (REPOSITORY / "README.md").read_text()
    assert "(examples.md)" in (REPOSITORY / "docs" / "watches.md").read_text()
