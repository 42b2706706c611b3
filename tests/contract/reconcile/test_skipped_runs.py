"""`skipUnchanged` with random roles and edits: a skipped run would have changed nothing.

The long form is `make fuzz-unchanged`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from operator_runner.app.operator import Operator, open_operator
from operator_runner.config.flags import RunCommand, run_options, settings_from
from operator_runner.config.watches import load
from operator_runner.core.errors import NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.session import connect
from operator_runner.reconcile.results import ReconcileResult, Succeeded, Unchanged
from tests.contract.kube.crds import crd
from tests.support.kubectl import Kubectl

SAMPLE = GVK("skipping.example.com", "v1", "Sample")
LONG = settings.get_current_profile_name() == "fuzz"
EXAMPLES = settings.get_profile("fuzz").max_examples if LONG else 4
NAMES = ("a", "b", "c")
APPS = ("x", "y")
FOREIGN = "kube-root-ca.crt"
"""A controller creates it in each namespace."""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NO_METRICS = "--user-metrics-bind-address=0"
LABEL = "example.com/edited"
VALUES = st.sampled_from(["1", "2", "{{ now() }}"])


@dataclass(frozen=True, slots=True)
class Role:
    """Tasks, included tasks and a template; `reads` are the names that are read in each run."""

    tasks: tuple[Json, ...]
    included: tuple[Json, ...] = ()
    template: str = "none"
    reads: frozenset[str] = frozenset()
    selectors: frozenset[str] = frozenset()
    """Values of the label `app` whose ConfigMaps are listed in each run."""

    def certainly_reads(self, config_map: Json | None) -> bool:
        """Return whether each run reads a ConfigMap."""
        if config_map is None:
            return False
        return config_map["metadata"]["name"] in self.reads or _app(config_map) in self.selectors

    def write(self, folder: Path, comment: str = "") -> None:
        """Write the files of the role."""
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        (folder / "templates").mkdir(exist_ok=True)
        main = yaml.safe_dump(list(self.tasks))
        (folder / "tasks/main.yml").write_text(f"# {comment}\n{main}")
        (folder / "tasks/more.yml").write_text(yaml.safe_dump(list(self.included)))
        body = yaml.safe_dump(output("template", "VALUE")["definition"])
        text = body.replace("VALUE", f'"{self.template}"')
        (folder / "templates/out.yaml.j2").write_text(text)


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit by hand of what is named, to a value."""

    what: str
    name: str = "a"
    value: str = "1"


def output(name: str, value: str, **arguments: Any) -> Json:
    """Return the arguments of a task that writes a ConfigMap."""
    metadata = {
        "name": "{{ ansible_operator_meta.name }}-" + name,
        "namespace": "{{ ansible_operator_meta.namespace }}",
    }
    definition = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"value": value},
    }
    return {"definition": definition, **arguments}


def reading(register: str, **arguments: Any) -> Json:
    """Return a task that reads ConfigMaps."""
    everywhere = {
        "api_version": "v1",
        "kind": "ConfigMap",
        "namespace": "{{ ansible_operator_meta.namespace }}",
    }
    return {"kubernetes.core.k8s_info": {**everywhere, **arguments}, "register": register}


# Random roles ------------------------------------------------------------------------

REGISTERS = ("r0", "r1", "r2")
OF_OBJECTS = (
    "map(attribute='metadata.name') | sort | join('.')",
    "map(attribute='data.value', default='-') | sort | join('.')",
    "map(attribute='metadata.labels.app', default='-') | sort | join('.')",
    "length",
)
EXPRESSIONS = st.one_of(
    st.builds(
        "{{{{ (({}.resources | default([])) | {} | string)[:60] }}}}".format,
        st.sampled_from(REGISTERS),
        st.sampled_from(OF_OBJECTS),
    ),
    st.sampled_from(
        [
            "constant",
            "{{ word | default('none') }}",
            "{{ fact | default('none') }}",
            "{{ ansible_operator_meta.name }}",
            "{% for each in [1, 2] %}{{ word | default(each) }}{% endfor %}",
        ]
    ),
)
IMPURE = st.sampled_from(["{{ now().timestamp() }}", "{{ 100000 | random }}"])
CONDITIONS = st.sampled_from(
    [
        "word is defined",
        "r0.resources | default([]) | length > 1",
        "fact | default('') == 'x'",
        "word | default('1') == '1'",
    ]
)
READS = st.one_of(
    st.builds(lambda name: {"name": name}, st.sampled_from([*NAMES, "missing"])),
    st.builds(lambda app: {"label_selectors": [f"app={app}"]}, st.sampled_from(APPS)),
    st.sampled_from(
        [
            {},
            {"label_selectors": ["app in (x, y)"]},
            {"label_selectors": ["app!=x"]},
            {"field_selectors": ["metadata.name=b"]},
            {"name": "{{ word | default('a') }}"},
            {"kind": "Namespace", "name": "{{ ansible_operator_meta.namespace }}"},
            {"name": "{{ ansible_operator_meta.name }}-0"},
        ]
    ),
)


@st.composite
def tasks(draw: st.DrawFn, index: int) -> Json:
    """Return one task."""
    value = draw(EXPRESSIONS if draw(st.integers(0, 9)) else IMPURE)
    match draw(st.sampled_from(["read", "read", "write", "write", "fact", "loop", "file", "more"])):
        case "read":
            task = reading(draw(st.sampled_from(REGISTERS)), **draw(READS))
        case "write":
            arguments: Json = draw(
                st.sampled_from([{}, {"apply": True}, {"state": "absent"}, {"force": True}])
            )
            task = {"kubernetes.core.k8s": output(str(index % 2), value, **arguments)}
        case "fact":
            task = {"ansible.builtin.set_fact": {"fact": value}}
        case "loop":
            loop = "{{ r0.resources | default([]) | map(attribute='metadata.name') | sort }}"
            task = {
                "kubernetes.core.k8s": output("loop-{{ item }}", value),
                "loop": draw(st.sampled_from([["p", "q"], loop])),
            }
            # Otherwise each run would write objects for those that the run before has written.
            task["when"] = "item | length < 3"
        case "file":
            task = {"kubernetes.core.k8s": {"template": "out.yaml.j2"}}
        case _:
            task = {"ansible.builtin.include_tasks": "more.yml"}
    if "when" not in task and not draw(st.integers(0, 3)):
        task["when"] = draw(CONDITIONS)
    return {"name": f"Task {index}", **task}


@st.composite
def roles(draw: st.DrawFn) -> Role:
    """Return a role of a few tasks."""
    main = tuple(draw(tasks(index)) for index in range(draw(st.integers(2, 5))))
    included = draw(tasks(9))
    while "ansible.builtin.include_tasks" in included:
        included = draw(tasks(9))
    certain = [
        each["kubernetes.core.k8s_info"]
        for each in main
        if "kubernetes.core.k8s_info" in each and "when" not in each
    ]
    selectors = {each["label_selectors"][0] for each in certain if "label_selectors" in each}
    return Role(
        main,
        (included,),
        draw(EXPRESSIONS),
        frozenset(each["name"] for each in certain if each.get("name") in NAMES),
        frozenset(app for app in APPS if f"app={app}" in selectors),
    )


EDITS = st.builds(
    Edit,
    st.sampled_from(
        [
            *("none", "spec", "data", "data", "label", "delete", "role", "comment"),
            *("output", "output deleted", "namespace", "annotation", "status"),
        ]
    ),
    st.sampled_from(NAMES),
    VALUES,
)
COPY = Role(
    (
        reading("r0", label_selectors=["app=x"]),
        reading("r1", name="c"),
        {"kubernetes.core.k8s": output("0", "{{ r0.resources | length }}{{ word }}")},
        {"kubernetes.core.k8s": {"template": "out.yaml.j2"}},
    ),
    template="{{ r1.resources | map(attribute='data.value') | join }}",
    reads=frozenset({"c"}),
    selectors=frozenset({"x"}),
)
"""Writes what it reads, so that each wrong skip is seen."""


# The cluster ------------------------------------------------------------------------


@dataclass(slots=True)
class Lab:
    """An operator that skips, another one that does not, and the objects of one namespace."""

    api: Api
    namespace: str
    role: Path
    skipping: Operator
    running: Operator
    counter: Iterator[int] = field(default_factory=itertools.count)
    skipped: int = 0

    async def check(self, role: Role, edits: Sequence[Edit]) -> None:
        """Run the role until its runs are skipped, after each edit again.

        Whenever a run is skipped, the other operator runs the role, which must change nothing.
        """
        await self._clear()
        role.write(self.role)
        for name, app in zip(NAMES[:2], APPS, strict=True):
            await self._merge(name, {"data": {"value": "0"}, "metadata": {"labels": {"app": app}}})
        ref = ObjectRef(SAMPLE, self.namespace, f"sample-{next(self.counter)}")
        kind = {"apiVersion": f"{SAMPLE.group}/{SAMPLE.version}", "kind": SAMPLE.kind}
        body = {**kind, "metadata": {"name": ref.name}, "spec": {"word": "1"}}
        uid = (await self.api.request("POST", self._samples(), body=body))["metadata"]["uid"]
        await self._settle(ref, uid)
        for edit in edits:
            is_selected = await self._edit(ref, role, edit)
            result = await self._reconcile(ref, uid)
            note(f"{edit}: {type(result).__name__}")
            assert not (is_selected and isinstance(result, Unchanged)), edit
            if not isinstance(result, Unchanged):
                await self._settle(ref, uid)
        await self.api.request("DELETE", f"{self._samples()}/{ref.name}")

    async def _settle(self, ref: ObjectRef, uid: str) -> None:
        for _ in range(3):
            if isinstance(await self._reconcile(ref, uid), Unchanged):
                return

    async def _reconcile(self, ref: ObjectRef, uid: str) -> ReconcileResult:
        result, _ = await self.skipping.reconcile(ref, uid)
        if isinstance(result, Unchanged):
            self.skipped += 1
            before = await self._objects()
            forced, _ = await self.running.reconcile(ref, uid)
            assert isinstance(forced, Succeeded)
            assert await self._objects() == before
        return result

    async def _edit(self, ref: ObjectRef, role: Role, edit: Edit) -> bool:
        """Make the edit; return whether it certainly changes an input."""
        sample = f"{self._samples()}/{ref.name}"
        label = {LABEL: str(next(self.counter))}
        match edit.what:
            case "spec":
                return await self._changes(sample, {"spec": {"word": edit.value}})
            case "annotation":
                return await self._changes(sample, {"metadata": {"annotations": label}})
            case "status":
                return await self._changes(f"{sample}/status", {"status": {"word": edit.value}})
            case "role" | "comment":
                template = f"edited {next(self.counter)}" if edit.what == "role" else role.template
                edited = replace(role, template=template)
                edited.write(self.role, comment=str(next(self.counter)))
                return True
            case "namespace":
                path = f"/api/v1/namespaces/{self.namespace}"
                await self._changes(path, {"metadata": {"labels": label}})
            case "output" | "output deleted":
                await self._edit_output(ref, edit)
            case "data" | "label" | "delete":
                was_read = role.certainly_reads(await self._config_map(edit.name))
                changed = await self._edit_config_map(edit)
                is_read = role.certainly_reads(await self._config_map(edit.name))
                return changed and (was_read or is_read)
        return False

    async def _edit_output(self, ref: ObjectRef, edit: Edit) -> None:
        written = [name for _, name in await self._objects() if name.startswith(f"{ref.name}-")]
        if not written:
            return
        if edit.what == "output":
            await self._merge(written[0], {"data": {"value": edit.value}})
        else:
            await self.api.request("DELETE", self._config_maps(written[-1]))

    async def _edit_config_map(self, edit: Edit) -> bool:
        """Return whether that changed anything."""
        current = await self._config_map(edit.name)
        match edit.what:
            case "data":
                return await self._merge(edit.name, {"data": {"value": edit.value}})
            case "label":
                app = "y" if current is not None and _app(current) == "x" else "x"
                return await self._merge(edit.name, {"metadata": {"labels": {"app": app}}})
        if current is None:
            return False
        await self.api.request("DELETE", self._config_maps(edit.name))
        return True

    async def _config_map(self, name: str) -> Json | None:
        return (await self._objects()).get(("ConfigMap", name))

    async def _objects(self) -> dict[tuple[str, str], Json]:
        """Return all objects that roles write or read, without the status of the resource."""
        config_maps = await self.api.request("GET", self._config_maps(), outer_levels=2)
        samples = await self.api.request("GET", self._samples(), outer_levels=2)
        specs = {("Sample", each["metadata"]["name"]): each["spec"] for each in samples["items"]}
        found = {
            ("ConfigMap", each["metadata"]["name"]): each
            for each in config_maps["items"]
            if each["metadata"]["name"] != FOREIGN
        }
        return specs | found

    async def _clear(self) -> None:
        for kind, name in await self._objects():
            path = self._config_maps(name) if kind == "ConfigMap" else f"{self._samples()}/{name}"
            with suppress(NotFound):  # the garbage collector was faster
                await self.api.request("DELETE", path)

    async def _merge(self, name: str, patch: Json) -> bool:
        """Create or edit a ConfigMap; return whether that changed anything."""
        try:
            return await self._changes(self._config_maps(name), patch)
        except NotFound:
            metadata = {"name": name, **patch.get("metadata", {})}
            body = {"apiVersion": "v1", "kind": "ConfigMap", **patch, "metadata": metadata}
            await self.api.request("POST", self._config_maps(), body=body)
            return True

    async def _changes(self, path: str, patch: Json) -> bool:
        before = await self.api.request("GET", path.removesuffix("/status"))
        after = await self.api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        versions = {each["metadata"]["resourceVersion"] for each in (before, after)}
        return len(versions) == 2

    def _samples(self) -> str:
        return f"/apis/{SAMPLE.group}/{SAMPLE.version}/namespaces/{self.namespace}/samples"

    def _config_maps(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}".rstrip("/")


def _app(config_map: Json) -> str:
    return str((config_map["metadata"].get("labels") or {}).get("app", ""))


async def _open(stack: AsyncExitStack, kubeconfig: Path, namespace: str, folder: Path) -> Lab:
    role = folder / "roles/sample"
    COPY.write(role)
    watches_file = folder / "watches.yaml"
    watch = {
        "group": SAMPLE.group,
        "version": SAMPLE.version,
        "kind": SAMPLE.kind,
        "role": str(role),
        "skipUnchanged": True,
        "markUnsafe": True,
    }
    watches_file.write_text(yaml.safe_dump([watch]))
    skipping = load(watches_file, {}).watches
    running = tuple(replace(each, skip_unchanged=False) for each in skipping)
    connection = await connect(kubeconfig, user_agent="tests")
    stack.push_async_callback(connection.close)
    operators = []
    for index, watches in enumerate((skipping, running)):
        flags = (f"--kubeconfig={kubeconfig}", f"--work-dir={folder / str(index)}")
        made = settings_from(_options(*flags, "--once=kind/name", NO_METRICS), {}, watches)
        operators.append(await stack.enter_async_context(open_operator(made, watches)))
    return Lab(Api(connection), namespace, role, operators[0], operators[1])


def _options(*arguments: str) -> dict[str, Any]:
    @click.command(cls=RunCommand)
    @run_options
    def run(**options: Any) -> dict[str, Any]:
        return options

    parsed = run.main(list(arguments), standalone_mode=False)
    assert isinstance(parsed, dict)
    return parsed


@pytest.fixture
def lab_and_runner(
    control_plane: Path, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Lab, asyncio.Runner]]:
    """Open both operators. Their lists are not shared: an edit follows at once."""
    monkeypatch.setattr("operator_runner.app.unchanged_inputs._SHARED_SECONDS", 0.0)
    definition = crd(SAMPLE)
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": ANYTHING}
    kubectl.apply(definition)
    kubectl.wait_for_kinds(f"samples.{SAMPLE.group}")
    kubectl.wait_for_account()
    kubectl("wait", "--for=create", f"configmap/{FOREIGN}", "--timeout=120s")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield runner.run(_open(stack, control_plane, kubectl.namespace, tmp_path)), runner
        runner.run(stack.aclose())


@settings(
    max_examples=EXAMPLES,
    derandomize=not LONG,
    # Examples are slow, so that the first failure is reported instead of a smaller one.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@example(COPY, [Edit("none"), Edit("data", "c", "2"), Edit("label", "b"), Edit("delete", "a")])
@given(roles(), st.lists(EDITS, min_size=1, max_size=3))
def test_a_skipped_run_would_have_changed_nothing(
    lab_and_runner: tuple[Lab, asyncio.Runner], role: Role, edits: list[Edit]
) -> None:
    """And the run after an edit of what is certainly read is not skipped."""
    lab, runner = lab_and_runner
    runner.run(lab.check(role, edits))
    assert lab.skipped
