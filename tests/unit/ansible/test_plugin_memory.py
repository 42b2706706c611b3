"""Which plugins for templates leave something behind in their process, by their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.ansible.plugin_memory import Plugin, plugins_of_collections, read_plugin

FILTER = """

class FilterModule(object):
    def filters(self):
        return {"f": f}
"""


def plugin(tmp_path: Path, source: str, kind: str = "filter") -> Plugin:
    path = tmp_path / "own.py"
    path.write_text(source)
    return read_plugin(path, kind)


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\n__metaclass__ = type\ndef f(x):\n    return x",
        "import re\nWORD = re.compile('a')\ndef f(x):\n    return WORD.sub('', x)",
        "UNITS = {'Ki': 1024}\ndef f(x):\n    return UNITS.get(x, UNITS['Ki']) in UNITS.values()",
        "def f(x, more=None):\n    x['a'] = 1\n    x.pop('b')\n    return [f(y) for y in x]",
        "def f(x):\n    return sorted(x, key=lambda y: (y['a'], y.get('b')))",
        (
            "try:\n    import yaml\n    OK = True\nexcept ImportError:\n    OK = False\n"
            "def f(x):\n    return yaml.safe_load(x)"
        ),
        "import os\ndef f(x):\n    return os.environ.get(x) or os.path.basename(x)",
        "from ansible.errors import AnsibleFilterError as E\ndef f(x):\n    raise E('no')",
        (
            "class Part:\n    def __init__(self, x):\n        self.x = [x]\n"
            "    def more(self):\n        self.x.append(1)\n        return self\n"
            "def f(x):\n    return Part(x).more().x"
        ),
        "META = {'status': ['preview']}\ndef f(x):\n    return x",
        "def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(1))",
    ],
)
def test_functions_and_constants_have_no_memory(tmp_path: Path, source: str) -> None:
    """Plugins that only compute run in the play."""
    found = plugin(tmp_path, source + FILTER)
    assert found.memory == ""
    assert found.names == frozenset({"f"})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("N = 0\ndef f(x):\n    global N\n    N += 1\n    return N", "changes `N`"),
        ("SEEN = []\ndef f(x):\n    SEEN.append(x)\n    return SEEN", "change"),
        ("SEEN = []\ndef f(x):\n    s = SEEN\n    s.append(x)", "may change `SEEN`"),
        ("SEEN = {'a': []}\ndef f(x):\n    SEEN['a'].append(x)", "may change `SEEN`"),
        ("SEEN = {'a': []}\ndef f(x):\n    return SEEN", "may change `SEEN`"),
        ("SEEN = []\ndef f(x):\n    return SEEN", "may change `SEEN`"),
        ("def f(x, seen=[]):\n    seen.append(x)\n    return seen", "keeps the default `[]`"),
        ("def f(x):\n    f.n = getattr(f, 'n', 0) + 1\n    return f.n", "`f.n`"),
        ("import os\ndef f(x):\n    os.environ['A'] = x", "`os.environ`"),
        ("import os\ndef f(x):\n    e = os.environ\n    e['A'] = x", "uses `os.environ`"),
        ("import os\ndef f(x):\n    os.chdir('/')", "uses `os.chdir`"),
        ("from os import umask as u\ndef f(x):\n    return u(0)", "uses `os.umask`"),
        ("import locale\ndef f(x):\n    locale.setlocale(0, 'C')", "uses `locale.setlocale`"),
        ("import random\ndef f(x):\n    random.seed(1)\n    return x", "uses `random.seed`"),
        ("def f(x):\n    import random\n    return random.random()", "uses `random.random`"),
        ("import functools\n@functools.cache\ndef f(x):\n    return []", "has the decorator"),
        ("import sys\ndef f(x):\n    sys.path.append(x)", "`sys.path"),
        ("import json\ndef f(x):\n    json.seen = x", "uses `json.seen`"),
        ("import requests\ndef f(x):\n    return requests.get(x)", "uses `requests.get`"),
        ("def f(x):\n    exec('N = 1', globals())", "uses `"),
        ("def f(x):\n    print(x)", "uses `print`"),
        ("import os\ndef f(x):\n    return getattr(os, 'chdir')('/')", "`os`"),
        ("def f(x):\n    return f.__globals__", "uses `f.__globals__`"),
        (
            "def make():\n    n = []\n    def g(x):\n        n.append(x)\n    return g\nf = make()",
            "",
        ),
        (
            "import jinja2\n@jinja2.pass_context\ndef f(c, x):\n    c.vars['x'] = 1",
            "has the decorator `jinja2.pass_context`",
        ),
    ],
)
def test_what_later_tasks_could_find_is_memory(tmp_path: Path, source: str, reason: str) -> None:
    """Counters, caches, settings of the process and changes of other modules are found."""
    found = plugin(tmp_path, source + FILTER)
    assert reason in found.memory
    assert found.memory.startswith("line ")


@pytest.mark.parametrize(
    "methods",
    [
        "seen = []\n    def f(self, x):\n        self.seen.append(x)",
        "def __init__(self):\n        self.n = 0\n    def f(self, x):\n        self.n += 1",
        (
            "def __init__(self):\n        self.c = {}\n    def f(self, x):\n        c = self.c\n"
            "        c[x] = 1"
        ),
        "def f(self, x):\n        me = self\n        me.n = x",
        "def f(self, x):\n        type(self).n = x",
    ],
)
def test_objects_of_filters_are_kept(tmp_path: Path, methods: str) -> None:
    """Ansible keeps the object that has the filters: its attributes are memory."""
    source = f"class FilterModule:\n    {methods}\n"
    source += "    def filters(self):\n        return {'f': self.f}\n"
    assert plugin(tmp_path, source).memory
    nested = "    def filters(self):\n        n = []\n        return {'f': lambda x: n.append(x)}\n"
    assert plugin(tmp_path, f"class FilterModule:\n{nested}").memory


def test_lookups_get_the_variables_of_the_play(tmp_path: Path) -> None:
    """They count as memory; only tasks with their names need a process."""
    found = plugin(tmp_path, "def f():\n    return 1\n", "lookup")
    assert found.memory
    assert (found.names, found.changes_when_loaded) == (frozenset({"own"}), False)


@pytest.mark.parametrize(
    "source",
    ["import os\nos.environ['A'] = '1'", "import random\nX = random.seed(1)", "def f(:", "f()"],
)
def test_effects_of_loading_are_reported(tmp_path: Path, source: str) -> None:
    """A module that does something when it is loaded concerns all templates."""
    assert plugin(tmp_path, source + FILTER).changes_when_loaded


def test_names_that_are_computed_are_not_known(tmp_path: Path) -> None:
    """Without a literal dict of names, any template may call the plugins."""
    source = "class FilterModule:\n    def filters(self):\n        return dict(f=len)\n"
    assert plugin(tmp_path, source).names is None


def test_plugins_of_a_collection_are_read(tmp_path: Path) -> None:
    """What they import from it may have memory."""
    plugins = tmp_path / "ansible_collections" / "acme" / "own" / "plugins" / "filter"
    plugins.mkdir(parents=True)
    (plugins / "own.py").write_text("def f(x):\n    return x\n" + FILTER)
    assert [each.memory for each in plugins_of_collections(tmp_path)] == [""]
    source = "from ansible_collections.acme.own.plugins.module_utils.tools import count as f"
    (plugins / "own.py").write_text(source + FILTER)
    (found,) = plugins_of_collections(tmp_path)
    assert "uses `ansible_collections.acme.own.plugins.module_utils.tools.count`" in found.memory
