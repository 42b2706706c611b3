"""Items are added where they belong, and nothing else changes."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold.plan import insert


def add(text: str, item: str = "- new.yaml\n", key: str = "resources") -> str:
    return insert("file.yaml", text, "here", key, item)


@pytest.mark.parametrize("marker", ["# +kubebuilder:scaffold:here", "#+kubebuilder:scaffold:here"])
def test_text_is_inserted_before_the_marker(marker: str) -> None:
    """Both spellings of the marker are known; comments and other keys stay."""
    text = f"# mine\nresources:\n- a.yaml # why\n{marker}\n\npatches: []\n"
    assert add(text) == f"# mine\nresources:\n- a.yaml # why\n- new.yaml\n{marker}\n\npatches: []\n"


def test_new_items_have_the_indentation_of_their_siblings() -> None:
    """A marker at the left margin below indented items does not move the new item left."""
    text = "rules:\n  - apiGroups: [a]\n    verbs: [get]\n#+kubebuilder:scaffold:here\n"
    assert add(text, "- apiGroups:\n    - b\n", "rules") == (
        "rules:\n  - apiGroups: [a]\n    verbs: [get]\n"
        "  - apiGroups:\n      - b\n#+kubebuilder:scaffold:here\n"
    )


def test_an_entry_without_a_marker_is_at_the_end_of_the_list() -> None:
    """The list ends where the next key begins."""
    text = "resources:\n- a.yaml\n# a word on b\n- b.yaml\n\npatches:\n- path: c.yaml\n"
    assert add(text) == (
        "resources:\n- a.yaml\n# a word on b\n- b.yaml\n- new.yaml\n\npatches:\n- path: c.yaml\n"
    )


def test_an_entry_without_a_marker_is_at_the_end_of_a_whole_file() -> None:
    """A watches.yaml that lost its marker is added to at its end."""
    text = "---\n- version: v1\n  kind: A\n# the end\n"
    assert add(text, "- version: v2\n  kind: B\n", "") == (
        "---\n- version: v1\n  kind: A\n- version: v2\n  kind: B\n# the end\n"
    )


def test_existing_lines_are_not_added_again() -> None:
    """A line that the user has written already stays the only one."""
    text = "resources:\n- new.yaml\n# +kubebuilder:scaffold:here\n"
    assert add(text) == text


def test_a_file_without_a_marker_is_an_error() -> None:
    """The error names the file, the marker and what to add by hand."""
    with pytest.raises(ConfigError) as caught:
        add("resources: [a.yaml]\n")
    for part in ("file.yaml", "+kubebuilder:scaffold:here", "resources:", "- new.yaml"):
        assert part in str(caught.value)
