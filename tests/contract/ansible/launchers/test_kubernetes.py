"""kubernetes.core against a real API server: the modules and the lookup that operators use."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.contract.ansible.launchers.launching import JOB, Both, Launchers
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.records import Record
from tests.support import helm
from tests.support.kubectl import Kubectl


@pytest.fixture(scope="module")
def namespaces(control_plane_cluster: Cluster, launchers: Launchers) -> dict[str, str]:
    """Give each launcher a namespace of its own, with names of one length."""
    made: dict[str, str] = {}
    for name in (*launchers.names, JOB):
        kubectl = Kubectl.in_new_namespace(control_plane_cluster)
        # Without it no Pod can be created.
        kubectl.wait_for_account()
        made[name] = kubectl.namespace
    return made


@pytest.fixture
def in_cluster(both: Both, control_plane: Path, namespaces: dict[str, str]) -> InCluster:
    """Run plays against the control plane, with a namespace for each launcher."""
    return InCluster(both, control_plane.read_text(), namespaces)


class InCluster:
    """Runs tasks through both launchers, each in its namespace."""

    def __init__(self, both: Both, kubeconfig: str, namespaces: dict[str, str]) -> None:
        self._both = both
        self._kubeconfig = kubeconfig
        self._namespaces = namespaces

    def __call__(self, tasks: str, files: dict[str, str] | None = None, args: str = "") -> Record:
        project = Project(tasks, files or {}, kubeconfig=self._kubeconfig, args=args)
        return self._both(
            project,
            own=lambda name: {
                "variables": {"own": self._namespaces[name]},
                "masked": {self._namespaces[name]: "<namespace>"},
            },
        )


def test_kubernetes_objects_are_managed(in_cluster: InCluster) -> None:
    """Create, repeat, change, patch, read and delete, with what changed and how."""
    tasks = """
- name: Create
  kubernetes.core.k8s: &object
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: one, namespace: '{{ own }}', labels: {app: tried}}
      data: {key: value ü}
- name: Repeat
  kubernetes.core.k8s: *object
- name: Change
  kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: one
    namespace: '{{ own }}'
    definition: {data: {key: other, more: data}}
    hidden_fields: [metadata.managedFields, metadata.resourceVersion]
  diff: true
- name: Apply
  kubernetes.core.k8s:
    {apply: true, definition: '{{ lookup("template", "two.yml.j2") }}', wait: true}
- name: Template
  kubernetes.core.k8s:
    {template: two.yml.j2, namespace: '{{ own }}'}
- name: Source
  kubernetes.core.k8s:
    {src: three.yml, namespace: '{{ own }}'}
- name: Read
  kubernetes.core.k8s_info:
    {kind: ConfigMap, namespace: '{{ own }}', label_selectors: [app = tried]}
- name: Count
  debug:
    msg: "{{ query('kubernetes.core.k8s', kind='ConfigMap', namespace=own,
      label_selector='app=tried') | map(attribute='metadata.name') | sort }}"
- name: Patch
  kubernetes.core.k8s_json_patch:
    kind: ConfigMap
    name: one
    namespace: '{{ own }}'
    patch: [{op: replace, path: /data/key, value: patched}]
- name: Would delete
  kubernetes.core.k8s:
    {kind: ConfigMap, name: one, namespace: '{{ own }}', state: absent}
  check_mode: true
- name: Delete
  kubernetes.core.k8s:
    {kind: ConfigMap, name: one, namespace: '{{ own }}', state: absent, wait: true}
- name: Clean up
  kubernetes.core.k8s:
    {kind: ConfigMap, namespace: '{{ own }}', state: absent, delete_all: true,
    label_selectors: [app=tried]}
"""
    files = {
        "roles/tried/templates/two.yml.j2": """
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: '{{ own }}', labels: {app: tried}}
data: {rendered: '{{ 1 + 1 }}'}
""",
        "roles/tried/files/three.yml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: three, labels: {app: tried}}
---
apiVersion: v1
kind: Secret
metadata: {name: three}
stringData: {word: xyzzy}
""",
    }
    record = in_cluster(tasks, files)
    assert record.outcome.successful, record.outcome.failures
    changed = [record.result(task)["changed"] for task in ("Create", "Repeat", "Change", "Patch")]
    assert changed == [True, False, True, True]
    assert record.result("Count")["msg"] == ["one", "three", "two"]
    assert record.result("Would delete")["changed"] is True
    assert record.result("Delete")["changed"] is True


def installed(kubectl: Path, kind: str) -> str:
    """Return tasks that install a CRD in a group of the launcher, and make an object of its kind.

    The command waits until the kind is served, so that no launcher has to try again.
    """
    plural, group = f"{kind.lower()}s", "{{ own }}.example.com"
    get = f"{kubectl} get --raw /apis"
    return f"""
- name: Install {kind}
  kubernetes.core.k8s:
    wait: true
    wait_sleep: 1
    wait_condition: {{type: Established, status: 'True'}}
    definition:
      apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata: {{name: '{plural}.{group}'}}
      spec:
        group: '{group}'
        scope: Namespaced
        names: {{plural: {plural}, singular: {kind.lower()}, kind: {kind}, listKind: {kind}List}}
        versions:
          - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}
- name: Until {kind} is served
  shell: >-
    until {get} | grep -q '{group}' && {get}/{group}/v1 | grep -q {plural}; do sleep 0.2; done
  environment: {{KUBECONFIG: "{{{{ lookup('env', 'K8S_AUTH_KUBECONFIG') }}}}"}}
- name: Create {kind}
  kubernetes.core.k8s:
    definition:
      apiVersion: '{group}/v1'
      kind: {kind}
      metadata: {{name: a, namespace: '{{{{ own }}}}'}}
"""


def test_a_kind_is_found_as_soon_as_it_is_served(
    in_cluster: InCluster, control_plane_cluster: Cluster
) -> None:
    """Roles ask for kinds that are missing, and install CRDs of their own."""
    kubectl = control_plane_cluster.bin / "kubectl"
    tasks = f"""
- name: Missing group
  kubernetes.core.k8s_info: {{api_version: route.openshift.io/v1, kind: Route}}
- name: Missing kind
  kubernetes.core.k8s_info: {{api_version: apps/v1, kind: Gadget}}
- name: Missing core kind
  kubernetes.core.k8s_info: {{kind: Gadget}}
- name: Not installed
  kubernetes.core.k8s_info: {{api_version: '{{{{ own }}}}.example.com/v1', kind: Gadget}}
{installed(kubectl, "Gadget")}
- name: Not installed in a known group
  kubernetes.core.k8s_info: {{api_version: '{{{{ own }}}}.example.com/v1', kind: Widget}}
{installed(kubectl, "Widget")}
- name: Read
  kubernetes.core.k8s_info: {{api_version: '{{{{ own }}}}.example.com/v1', kind: Gadget}}
- name: Uninstall
  kubernetes.core.k8s:
    state: absent
    api_version: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    name: '{{{{ item }}}}.{{{{ own }}}}.example.com'
    wait: true
    wait_sleep: 1
  loop: [gadgets, widgets]
"""
    record = in_cluster(tasks)
    assert record.outcome.successful, record.outcome.failures
    missing = ("Missing group", "Missing kind", "Missing core kind", "Not installed")
    found = [record.result(name) for name in (*missing, "Not installed in a known group")]
    assert [each["api_found"] for each in found] == [False] * 5
    assert [each["metadata"]["name"] for each in record.result("Read")["resources"]] == ["a"]


def test_short_names_of_modules_are_redirected(in_cluster: InCluster) -> None:
    """Each lookup of a name displays where it leads."""
    tasks = """
- k8s_info: {kind: Gadget}
- name: Again
  k8s_info: {kind: Gadget}
"""
    record = in_cluster(tasks, args="-vv")
    assert record.result("Again")["api_found"] is False


@pytest.mark.local_only("refused upgrades have the header Server of the port for Jobs")
@pytest.mark.slow
def test_api_errors_fail_the_task(in_cluster: InCluster) -> None:
    """Rejected requests, missing objects, and modules that need a node or a program."""
    tasks = """
- name: Invalid
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap,
      metadata: {name: Not Valid, namespace: '{{ own }}'}}
- name: Unknown kind
  kubernetes.core.k8s:
    {definition: {apiVersion: example.com/v1, kind: Nothing, metadata: {name: x}}}
- name: Missing
  kubernetes.core.k8s_info:
    {kind: ConfigMap, name: missing, namespace: '{{ own }}'}
- name: Pod
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: Pod, metadata: {name: tried, namespace: '{{ own }}'},
      spec: {containers: [{name: c, image: none}]}}
- name: Waiting in vain
  kubernetes.core.k8s_info:
    {kind: Pod, name: tried, namespace: '{{ own }}', wait: true, wait_timeout: 1,
    wait_sleep: 1, wait_condition: {type: Ready, status: 'True'}}
- name: Exec
  kubernetes.core.k8s_exec: {pod: missing, namespace: '{{ own }}', command: 'true'}
- name: Log
  kubernetes.core.k8s_log: {name: tried, namespace: '{{ own }}'}
- name: Helm
  kubernetes.core.helm_template: {chart_ref: '{{ site }}/chart', release_name: x}
- name: Unreachable
  kubernetes.core.k8s_info:
    {kind: ConfigMap, host: 'http://127.0.0.1:1', kubeconfig: /nowhere}
- name: Lookup
  debug: {msg: "{{ lookup('kubernetes.core.k8s', kind='Nothing', namespace=own) }}"}
"""
    record = in_cluster(tasks.replace("\n- name:", "\n- ignore_errors: true\n  name:"))
    assert record.outcome.successful, record.outcome.failures
    for task in ("Invalid", "Unknown kind", "Exec", "Helm", "Waiting in vain"):
        assert record.kinds(task=task)[-1] == "runner_on_failed", task
    assert record.result("Missing")["resources"] == []
    assert "helm" in str(record.result("Helm")["msg"])


@pytest.mark.local_only("the temporary directory is that of the Pod")
@pytest.mark.slow
def test_charts_are_installed_and_upgraded(in_cluster: InCluster) -> None:
    """A chart in the role is rendered, installed, found, upgraded and removed."""
    tasks = """
- name: Render
  kubernetes.core.helm_template:
    chart_ref: '{{ role_path }}/files/chart'
    release_name: tried
    release_namespace: '{{ own }}'
    release_values: {word: rendered}
    binary_path: '{{ helm }}'
- name: Install
  kubernetes.core.helm: &release
    name: tried
    chart_ref: '{{ role_path }}/files/chart'
    release_namespace: '{{ own }}'
    values: {word: first}
    binary_path: '{{ helm }}'
- name: Repeat
  kubernetes.core.helm: *release
- name: Read
  kubernetes.core.k8s_info: {kind: ConfigMap, name: tried, namespace: '{{ own }}'}
- name: Upgrade
  kubernetes.core.helm:
    name: tried
    chart_ref: '{{ role_path }}/files/chart'
    release_namespace: '{{ own }}'
    values: {word: second}
    binary_path: '{{ helm }}'
- name: Read again
  kubernetes.core.k8s_info: {kind: ConfigMap, name: tried, namespace: '{{ own }}'}
- name: Info
  kubernetes.core.helm_info:
    {name: tried, release_namespace: '{{ own }}', binary_path: '{{ helm }}'}
- name: Remove
  kubernetes.core.helm:
    {name: tried, release_namespace: '{{ own }}', state: absent, binary_path: '{{ helm }}'}
"""
    files = {
        "roles/tried/files/chart/Chart.yaml": "{apiVersion: v2, name: tried, version: 0.1.0}",
        "roles/tried/files/chart/values.yaml": "word: none",
        "roles/tried/files/chart/templates/map.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {word: {{ .Values.word }}}
""",
    }
    record = in_cluster(tasks.replace("{{ helm }}", str(helm.program())), files)
    assert record.outcome.successful, record.outcome.failures
    assert "word: rendered" in record.result("Render")["stdout"]
    changed = [
        record.result(task)["changed"] for task in ("Install", "Repeat", "Upgrade", "Remove")
    ]
    assert changed == [True, False, True, True]
    words = [record.result(task)["resources"][0]["data"] for task in ("Read", "Read again")]
    assert words == [{"word": "first"}, {"word": "second"}]
    assert record.result("Info")["status"]["revision"] == "2"


def test_modules_of_the_runner_give_the_same_results(in_cluster: InCluster) -> None:
    """The collection that comes with the runner, and questions about the cluster."""
    tasks = """
- name: Status
  operator_sdk.util.k8s_status:
    api_version: v1
    kind: Namespace
    name: '{{ own }}'
    status: {phase: Active}
  ignore_errors: true
- name: Account
  kubernetes.core.k8s:
    definition:
      {apiVersion: v1, kind: ServiceAccount, metadata: {name: told, namespace: '{{ own }}'}}
- name: Event
  operator_sdk.util.k8s_event: &event
    name: told
    namespace: '{{ own }}'
    type: Warning
    reason: Tried
    message: it was tried
    reportingComponent: example.com/tests
    source: {component: tests}
    involvedObject:
      {apiVersion: v1, kind: ServiceAccount, name: told, namespace: '{{ own }}'}
- name: Again
  operator_sdk.util.k8s_event: *event
- name: Would delete
  operator_sdk.util.k8s_event:
    {state: absent, name: told, namespace: '{{ own }}', reason: Tried, message: x}
  check_mode: true
- name: No such status
  operator_sdk.util.k8s_status:
    {kind: ServiceAccount, name: told, namespace: '{{ own }}', status: {size: 3}}
  ignore_errors: true
- name: Cluster
  kubernetes.core.k8s_cluster_info:
  no_log: true
- name: Services
  kubernetes.core.k8s_info:
    {kind: Service, name: kubernetes, namespace: default}
"""
    record = in_cluster(tasks)
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Event")["result"]["count"] == 1
    assert record.result("Again")["result"]["count"] == 2
    assert record.result("Would delete")["changed"] is True
    assert record.kinds(task="No such status")[-1] == "runner_on_failed"
    assert len(record.result("Services")["resources"]) == 1


def test_a_lookup_has_the_credentials_of_its_arguments(
    in_cluster: InCluster, control_plane: Path
) -> None:
    """It does not have the certificate of the kubeconfig that an earlier lookup has read."""
    cluster = yaml.safe_load(control_plane.read_text())["clusters"][0]["cluster"]
    read = """lookup("kubernetes.core.k8s", kind="Namespace", resource_name="default"{more})"""
    other = f', host="{cluster["server"]}", api_key="wrong", ca_cert=role_path ~ "/ca.crt"'
    tasks = f"""
- name: Kubeconfig
  debug: {{msg: '{{{{ {read.format(more="")}.metadata.name }}}}'}}
- name: Wrong token
  debug: {{msg: '{{{{ {read.format(more=other)}.metadata.name }}}}'}}
  ignore_errors: true
"""
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    record = in_cluster(tasks, {"roles/tried/ca.crt": authority})
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Kubeconfig")["msg"] == "default"
    assert "401" in record.result("Wrong token")["msg"]


def test_log_messages_of_modules_do_not_reach_the_play(both: Both) -> None:
    """The client logs that the program for its credentials has failed, and that it retries."""
    plays = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: No credentials
      kubernetes.core.k8s_info:
        kind: Namespace
        kubeconfig:
          current-context: tried
          contexts: [{name: tried, context: {cluster: tried, user: tried}}]
          clusters: [{name: tried, cluster: {server: 'https://127.0.0.1:1'}}]
          users:
            - name: tried
              user:
                exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false'}
      ignore_errors: true
    - name: Last
      debug:
"""
    callback = """
import logging
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "logs"

    def v2_playbook_on_task_start(self, task, is_conditional):
        logging.getLogger("callback").warning("logged for %s", task.get_name())
"""
    project = Project(files={"site.yml": plays, "callback_plugins/logs.py": callback})
    record = both(project)
    assert record.outcome.successful, record.outcome.failures
    assert "Connection refused" in record.result("No credentials")["msg"]
    assert "logged for Last" in record.stdout
    assert "Logging error" not in record.stdout
