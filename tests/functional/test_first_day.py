"""A role author's first day: a project, an application, and twelve mistakes, each named at once.

`make first-day` is the same with five seconds for each mistake to be named.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.scaffold import init, run
from tests.support.waiting import eventually

ROLES = Path(__file__).parent / "first_day" / "roles"
FIELDS = ("size:integer=1", "siteTitle:string=Wiki", "storage:string=1Gi", "listen:object")
WIKI = {
    "apiVersion": "apps.example.com/v1alpha1",
    "kind": "Wiki",
    "metadata": {"name": "handbook"},
    "spec": {"siteTitle": "Handbook", "listen": {"portNumber": 8080}},
}
WIKIS = "wikis.apps.example.com"


class Day:
    """The project of the day, the operator that serves it, and how long each answer took."""

    def __init__(
        self,
        project: Path,
        operator: Operator,
        kubectl: Kubectl,
        kubeconfig: Path,
        seconds: float,
    ) -> None:
        """Take the time within which each mistake is to be named."""
        self.project, self.operator, self.kubectl = project, operator, kubectl
        self.kubeconfig = kubeconfig
        self._seconds = seconds
        self.took: dict[str, float] = {}

    def log(self) -> str:
        """Return the values of all log lines, without the escapes of JSON."""
        lines = self.operator.log().splitlines()
        fields = [json.loads(line) if line.startswith("{") else {"": line} for line in lines]
        return "\n".join(" ".join(map(str, line.values())) for line in fields)

    def condition(self, kind: str, name: str = "handbook") -> str | None:
        """Return the message of a condition; None unless it is True."""
        wiki = self.kubectl.get(WIKIS, name) or {}
        for found in wiki.get("status", {}).get("conditions", []):
            if found["type"] == kind and found["status"] == "True":
                return str(found["message"])
        return None

    def is_successful(self) -> bool:
        return self.condition("Successful") is not None

    def is_absent(self, kind: str, name: str) -> bool:
        """Return whether an object does not exist."""
        return self.kubectl.get(kind, name) is None

    @contextmanager
    def edited(self, file: Path, old: str, new: str) -> Iterator[None]:
        """Save a file with a mistake, and save it as it was afterwards."""
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            file.write_text(text)

    def shows(self, name: str, look: Callable[[], str], *texts: str) -> None:
        """Assert that all of these texts appear within the time; note how long it took."""
        if not texts:
            return
        start = time.monotonic()
        eventually(
            look,
            lambda seen: all(text in seen for text in texts),
            seconds=self._seconds,
            details=self.log,
        )
        self.took[name] = time.monotonic() - start

    def why(self, resource: str) -> str:
        """Return what `operator-runner why` shows of a resource."""
        where = (f"--kubeconfig={self.kubeconfig}", f"--namespace={self.kubectl.namespace}")
        done = run(self.project, "why", resource, *where)
        return done.stdout + done.stderr

    def validate(self) -> str:
        """Return what `operator-runner validate` reports of the project."""
        done = run(self.project, "validate")
        return done.stdout + done.stderr


@dataclass(frozen=True)
class Mistake:
    """A wrong edit of a file, and what names it."""

    file: str
    old: str
    new: str
    validate: tuple[str, ...] = ()
    """Texts that `operator-runner validate` prints; none where only a run shows it."""
    log: tuple[str, ...] = ()
    """Texts that the running operator logs after the file is saved."""
    failure: tuple[str, ...] = ()
    """Texts of the condition Failure."""


TASKS = "roles/wiki/tasks/wiki.yml"
TEMPLATE = "roles/wiki/templates/site.conf.j2"
MISTAKES = {
    "a key of watches.yaml that does not exist": Mistake(
        "watches.yaml",
        "  profile: strict\n",
        "  profil: strict\n",
        validate=("watches.yaml:9", "did you mean profile?"),
    ),
    "a kind that the cluster does not serve": Mistake(
        "watches.yaml",
        "kind: Wiki\n",
        "kind: Wikki\n",
        validate=("watches.yaml:5", "did you mean Wiki in group apps.example.com"),
        log=("did you mean Wiki in group apps.example.com, served in v1alpha1?",),
    ),
    "a version that the CRD does not serve": Mistake(
        "watches.yaml",
        "version: v1alpha1\n",
        "version: v1\n",
        validate=("watches.yaml:5", "served in v1alpha1"),
        log=("it is served in v1alpha1; correct `version`, or add it to the CRD",),
    ),
    "a role that does not exist": Mistake(
        "watches.yaml", "role: wiki\n", "role: wikki\n", validate=("watches.yaml:6", "wikki")
    ),
    "YAML that does not parse": Mistake(
        TASKS,
        "  register: admin\n",
        "   register: admin\n",
        validate=(f"{TASKS}:8",),
        failure=("YAML parsing failed", f"{TASKS}:8"),
    ),
    "a module that does not exist": Mistake(
        TASKS,
        "kubernetes.core.k8s_info",
        "kubernetes.core.k8s_infos",
        validate=(f"{TASKS}:3", "kubernetes.core.k8s_infos"),
        failure=("couldn't resolve module/action 'kubernetes.core.k8s_infos'", f"{TASKS}:2"),
    ),
    "a collection that the image does not have": Mistake(
        TASKS,
        "  no_log: true\n",
        "  no_log: true\n\n- name: Notify the chat\n  community.general.slack: {token: a}\n"
        "  when: false\n",
        validate=("community.general", "requirements.yml"),
    ),
    "a field of the spec in camel case": Mistake(
        TEMPLATE,
        "{{ site_title }}",
        "{{ siteTitle }}",
        validate=(f"{TEMPLATE}:1", "site_title"),
        failure=("'siteTitle' is undefined", "site_title", f"{TEMPLATE}:1"),
    ),
    "a nested field in camel case": Mistake(
        TASKS,
        'targetPort: "{{ listen.port_number }}"',
        'targetPort: "{{ listen.portNumber }}"',
        failure=("portNumber", "port_number", f"{TASKS}:"),
    ),
    "a template that does not parse": Mistake(
        TEMPLATE,
        "{{ site_title }}",
        "{{ site_title }",
        validate=(f"{TEMPLATE}:1",),
        failure=(f"{TEMPLATE}:1",),
    ),
    "text where the API wants a number": Mistake(
        TASKS,
        'replicas: "{{ size }}"',
        'replicas: "{{ size }} "',
        failure=(".spec.replicas: expected numeric", "nativeTypes"),
    ),
}


@pytest.fixture(scope="module")
def day(
    control_plane_cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[Day]:
    """Make the project as the README of the scaffold has it, and run its operator."""
    scratch = tmp_path_factory.mktemp("first-day")
    project = scratch / "wiki-operator"
    init(project, "--domain=example.com")
    fields = [f"--field={field}" for field in FIELDS]
    kind = ("--group=apps", "--version=v1alpha1", "--kind=Wiki", "--generate-role")
    created = run(project, "create", "api", *kind, *fields)
    assert created.returncode == 0, created.stderr
    shutil.copytree(ROLES, project / "roles", dirs_exist_ok=True)
    watches = project / "watches.yaml"
    backup = "  finalizer: {name: apps.example.com/backup, vars: {is_deleted: true}}\n"
    watches.write_text(watches.read_text().replace("  role: wiki\n", "  role: wiki\n" + backup))
    kubectl = Kubectl.in_new_namespace(control_plane_cluster, "first-day")
    operator = Operator(project, control_plane_cluster.kubeconfig, kubectl.namespace, scratch, {})
    seconds = pytestconfig.getoption("--answer-seconds")
    day = Day(project, operator, kubectl, control_plane_cluster.kubeconfig, seconds)
    try:
        kubectl("apply", f"--kustomize={project / 'config/crd'}")
        kubectl.wait_for_kinds(WIKIS)
        operator.start("--reload")
        kubectl.apply(WIKI)
        eventually(day.is_successful, details=operator.log)
        yield day
    finally:
        operator.kill()
        # Without an operator the finalizer would keep the CRD, and `wiki` would be this kind in
        # later tests too.
        for each in kubectl.list(WIKIS):
            kubectl.merge(WIKIS, each["metadata"]["name"], {"metadata": {"finalizers": None}})
        kubectl("delete", f"--kustomize={project / 'config/crd'}", "--timeout=180s")
        sys.stdout.write(f"{operator.log()}\n")
        for name, seconds in day.took.items():
            sys.stdout.write(f"{seconds:6.1f} s  {name}\n")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_a_hint(day: Day, name: str) -> None:
    """By `validate` before it runs, by the log and the condition when it does; then all is well."""
    mistake = MISTAKES[name]
    since = len(day.log())
    with day.edited(day.project / mistake.file, mistake.old, mistake.new):
        day.shows(f"{name}: validate", day.validate, *mistake.validate)
        day.shows(f"{name}: log", lambda: day.log()[since:], *mistake.log)
        day.shows(f"{name}: Failure", lambda: day.condition("Failure") or "", *mistake.failure)
    eventually(day.is_successful, details=day.log)


def test_a_value_generated_in_each_run_is_reported(day: Day) -> None:
    """The twelfth mistake: the second unprompted run reports it, with task and field."""
    name = "a value that is made again in each run"
    period = "ansible.sdk.operatorframework.io/reconcile-period"
    random = "{{ lookup('ansible.builtin.password', '/dev/null') }}"
    # The default is ten hours: too long for a day.
    day.kubectl("annotate", WIKIS, "handbook", f"{period}=1s")
    with day.edited(day.project / TEMPLATE, "{{ site_title }}", "{{ site_title }} " + random):
        day.shows(f"{name}: log", day.log, "Write the configuration", "data.site.conf")
        day.shows(f"{name}: why", lambda: day.why("wiki/handbook"), "data.site.conf")
    day.kubectl("annotate", WIKIS, "handbook", f"{period}-")
    eventually(day.is_successful, details=day.log)


def test_the_role_makes_the_application(day: Day) -> None:
    """Each object exists with the values of the spec; status, metric and columns show it."""
    kinds = ("deployment", "service", "configmap", "persistentvolumeclaim")
    objects = {kind: day.kubectl.get(kind, "handbook") for kind in kinds}
    assert all(objects.values()), objects
    assert day.kubectl.get("secret", "handbook-admin")
    # A mistake of another test may just have been corrected.
    eventually(
        lambda: day.kubectl.get("configmap", "handbook"),
        lambda found: (
            found is not None and found["data"]["site.conf"] == "title = Handbook\nport = 8080\n"
        ),
        details=day.log,
    )
    wiki = day.kubectl.get(WIKIS, "handbook") or {}
    assert wiki["status"]["url"] == f"http://handbook.{day.kubectl.namespace}"
    assert day.operator.metric("wiki_replicas") == 1
    eventually(day.is_successful, details=day.log)
    columns, values = day.kubectl("get", WIKIS, "handbook").splitlines()
    assert columns.split() == ["NAME", "SIZE", "SITETITLE", "STORAGE", "READY", "FAILED", "AGE"]
    # No node runs its Pod.
    assert values.split()[:5] == ["handbook", "1", "Handbook", "1Gi", "False"]


def test_a_deleted_wiki_leaves_its_backup(day: Day) -> None:
    """The finalizer's ConfigMap stays; everything else is deleted with the resource."""
    metadata = {"name": "notes"}
    day.kubectl.apply({**WIKI, "metadata": metadata})
    eventually(lambda: day.condition("Successful", "notes") is not None, details=day.log)
    day.kubectl("delete", WIKIS, "notes", "--timeout=180s")
    for kind in ("deployment", "service", "configmap", "persistentvolumeclaim"):
        eventually(partial(day.is_absent, kind, "notes"), details=day.log)
    backup = day.kubectl.get("configmap", "notes-backup") or {}
    assert backup["data"] == {"title": "Handbook"}
    assert "ownerReferences" not in backup["metadata"]
