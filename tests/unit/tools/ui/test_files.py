"""The files of the page: one document, style sheets and modules without a build step."""

from __future__ import annotations

import re

import pytest

from operator_runner.tools.ui.server import static_files

FILES = {name: content.decode() for name, content in static_files().items()}
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_names_no_other_origin(name: str) -> None:
    """The page works without internet. Names of XML namespaces are not requested."""
    text = FILES[name].replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)^\s*//.*$", "", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_inserts_html(name: str) -> None:
    """Texts of resources are set as text."""
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|\beval\b|srcdoc"
    assert not re.search(forbidden, FILES[name])


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_sends_anything_but_get_requests(name: str) -> None:
    """Nothing in the page writes."""
    assert not re.search(r"method:|XMLHttpRequest|sendBeacon|WebSocket|<form", FILES[name])


def test_the_document_has_no_inline_scripts_and_styles() -> None:
    """The policy of the server would block them."""
    page = FILES["index.html"]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<form", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]


def test_every_table_has_a_caption_and_headers_with_a_scope() -> None:
    """Screen readers name tables and cells by them."""
    tables = re.findall(r"<table.*?</table>", FILES["index.html"], re.DOTALL)
    assert len(tables) > 5
    for table in tables:
        assert "<caption" in table
        assert len(re.findall(r"<th\b", table)) == len(re.findall(r'<th scope="col"', table))
