"""Collections that the image of a project has."""

from __future__ import annotations

import json
from pathlib import Path

from operator_runner.tools.validate.requirements import image_collections


def test_the_base_image_has_its_own_collections(tmp_path: Path) -> None:
    """Without requirements.yml there are those of the base image."""
    image = image_collections(tmp_path, lambda _: None)
    assert "kubernetes.core" in image
    assert "community.general" not in image


def test_collections_are_read_from_requirements_and_dockerfile(tmp_path: Path) -> None:
    """requirements.yml, what these depend on, and the Dockerfile add collections."""
    (tmp_path / "requirements.yml").write_text(
        "collections: [{name: a.one, version: '1'}, 'a.two:>=1', {name: a.three}]\n"
    )
    (tmp_path / "Dockerfile").write_text(
        "FROM x\nRUN ansible-galaxy collection install \\\n  b.one b.two:1.0 && echo c.one\n"
    )
    needed = {"collection_info": {"dependencies": {"a.needed": "*"}}}
    (tmp_path / "MANIFEST.json").write_text(json.dumps(needed))
    image = image_collections(tmp_path, lambda name: tmp_path if name == "a.one" else None)
    for name in ("a.one", "a.two", "a.three", "a.needed", "b.one", "b.two"):
        assert name in image
    assert "c.one" not in image


def test_an_archive_may_have_any_collection(tmp_path: Path) -> None:
    """A repository or an archive may have any collection."""
    text = "collections: [{name: 'https://example.com/repository.git', type: git}]\n"
    (tmp_path / "requirements.yml").write_text(text)
    assert "any.thing" in image_collections(tmp_path, lambda _: None)
