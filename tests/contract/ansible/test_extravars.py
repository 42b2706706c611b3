"""Variables of a role from a spec whose text is marked as unsafe, read by ansible-core."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operator_runner.ansible.rundir import serialize_extravars
from operator_runner.core.model import GVK, RunContent, Watch
from operator_runner.reconcile.variables import extra_vars

WATCH = Watch(GVK("example.com", "v1", "Foo"), RunContent(), mark_unsafe=True)
# Reads files as `-e @FILE`, and returns their values in a template.
PROGRAM = """
import json, sys
from operator_runner.ansible.templating import compatibility
compatibility.install()
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible.utils.vars import transform_to_native_types
template = trust_as_template("{{ [_example_com_foo_spec, _example_com_foo.spec] }}")
for path in sys.stdin:
    loader = DataLoader()
    variables = loader.load_from_file(path.strip(), trusted_as_template=True)
    seen = Templar(loader=loader, variables=variables).template(template)
    print(json.dumps(transform_to_native_types(seen)), flush=True)
"""

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "{{ 1 + 1 }}",
            "{% if true %}x{% endif %}",
            "{{ lookup('pipe', 'id') }}",
            "!unsafe x",
            "0x1f",
            "1_000",
            "yes",
            "~",
            "<<",
            "=",
            "2001-01-01",
            "__ansible_unsafe",
            "$ANSIBLE_VAULT;1.1;AES256",
            "__omit_place_holder__",
            "\t- a: b",
        ]
    ),
)
KEYS = st.one_of(
    TEXTS, st.sampled_from(["__ansible_unsafe", "__ansible_vault", "__ansible_type", "tags"])
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def read() -> Iterator[Callable[[Path], Any]]:
    """Give a reader of files, which is a process of its own: Ansible is imported there."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def read_variables(path: Path) -> Any:
            print(path, file=stdin, flush=True)
            return json.loads(stdout.readline())

        yield read_variables
        stdin.close()


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(spec=st.dictionaries(KEYS, VALUES, max_size=4))
def test_with_mark_unsafe_the_spec_is_unchanged(
    read: Callable[[Path], Any], tmp_path: Path, spec: dict[str, Any]
) -> None:
    """Any text is unchanged, as a variable and in the whole resource."""
    body = {"metadata": {"name": "a"}, "spec": spec}
    file = tmp_path / "extravars"
    # The variables of single fields are those of other tests: here any name may come up.
    file.write_text(serialize_extravars(extra_vars(body, WATCH, cleanup=False, excluded=spec)))

    seen = read(file)

    assert json.dumps(seen, sort_keys=True) == json.dumps([spec, spec], sort_keys=True)
