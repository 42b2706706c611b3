"""Templates of roles are compiled once, by ansible-core; the same text gives the same code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible._internal._templating import _jinja_bits
from ansible._internal._templating._engine import TemplateEngine, TemplateOptions
from ansible.template import trust_as_template

from operator_runner.ansible.forkserver import compiled_templates
from operator_runner.ansible.forkserver.compiled_templates import RoleFiles, compile_file
from tests.support.timestamps import wait_for_new_timestamp

TASKS = """
- name: Say {{ word }}
  debug: {msg: "{{ word | upper }}\\\\n", more: [{deep: '{% if word %}yes{% endif %}'}]}
  vars: {secret: !vault "{{ encrypted }}", raw: !unsafe "{{ raw }}"}
"""


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of all texts that ansible-core compiles from now on, with nothing kept yet."""
    original = _jinja_bits.AnsibleEnvironment.compile
    texts: list[str] = []

    def compile_(environment: Any, source: Any, *args: Any, **options: Any) -> Any:
        texts.append(str(source))
        return original(environment, source, *args, **options)

    monkeypatch.setattr(_jinja_bits.AnsibleEnvironment, "compile", compile_)
    monkeypatch.setattr(compiled_templates, "_compiled", {})
    compiled_templates.install()
    # pytest restores the state before `install`.
    return texts


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Write a role with tasks, a template and a template that others import."""
    for folder in ("tasks", "templates/parts", "defaults", "files"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tasks" / "main.yml").write_text(TASKS)
    (tmp_path / "templates" / "a.j2").write_text("{{ word }}\n")
    (tmp_path / "files" / "a.yml").write_text("x: '{{ no template }}'")
    return tmp_path


def learn(files: RoleFiles, role: Path) -> None:
    files.note(role)
    while files.is_pending:
        files.step()


def template(text: str, *, is_file: bool = False, **variables: Any) -> Any:
    options = TemplateOptions(escape_backslashes=not is_file)
    return TemplateEngine(variables=variables).template(trust_as_template(text), options=options)


def test_templates_of_roles_are_compiled_in_advance(met: list[str], role: Path) -> None:
    """A play uses the code of tasks and templates, with the same results as without it."""
    learn(RoleFiles([compile_file]), role)
    assert set(met) == {
        "Say {{ word }}",
        "{{ word | upper }}\\n",
        "{% if word %}yes{% endif %}",
        "{{ word }}\n",
    }
    met.clear()
    assert template("Say {{ word }}", word="it") == "Say it"
    assert template("{% if word %}yes{% endif %}", word=1) == "yes"
    assert template("{{ word }}\n", is_file=True, word="x") == "x\n"
    assert met == []


def test_the_same_text_under_other_settings_is_another_template(met: list[str]) -> None:
    """Backslashes count in files and not in YAML; other marks are other templates."""
    text = "{{ 'a\\tb' }}"
    assert template(text) == "a\\tb"
    assert template(text, is_file=True) == "a\tb"
    other = "#jinja2: variable_start_string: '[[', variable_end_string: ']]'\n[[ 1 + 1 ]]{{ 3 }}"
    assert template(other) == "2{{ 3 }}"
    assert len(met) == 3


def test_each_evaluation_is_one_of_its_own(met: list[str]) -> None:
    """Code is kept, results are not."""
    seen = {template("{{ 1000000 | random }}") for _ in range(20)}
    assert len(seen) > 1
    assert len(met) == 1
    assert [template("{{ a }}", a=a) for a in (1, "b")] == [1, "b"]


def test_only_changed_files_are_compiled_again(met: list[str], role: Path) -> None:
    """An edited file is looked at when there is a run of it, the others are not."""
    files = RoleFiles([compile_file])
    learn(files, role)
    met.clear()
    learn(files, role)
    assert met == []
    wait_for_new_timestamp(role)
    (role / "templates" / "a.j2").write_text("{{ other }}\n")
    learn(files, role)
    assert set(met) == {"{{ other }}\n"}


@pytest.mark.parametrize(
    "content",
    ["{{", "a: [", "a: &a ['{{ x }}', *a]", "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00", "\0"],
)
def test_invalid_templates_are_compiled_by_the_play(
    met: list[str], role: Path, content: str
) -> None:
    """Broken files and templates, lists that hold themselves: nothing ends, all others are kept."""
    del met
    (role / "tasks" / "broken.yml").write_text(content)
    (role / "templates" / "broken.j2").write_text("{% if %}" + content)
    (role / "templates" / "binary.j2").write_bytes(b"\xff\xfe{{ a }}")
    learn(RoleFiles([compile_file]), role)
    assert template("Say {{ word }}", word="it") == "Say it"


def test_the_cache_is_bounded(met: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound all works as before, and nothing more is kept."""
    monkeypatch.setattr(compiled_templates, "_MAX_TEMPLATES", 2)
    for _ in range(2):
        assert [template(f"{{{{ {n} + 1 }}}}") for n in range(4)] == [1, 2, 3, 4]
    assert len(met) == 6
