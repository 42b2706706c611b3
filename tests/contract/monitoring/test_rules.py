"""The alert rules and the dashboard as Prometheus' own tools take them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.tools.scaffold.plan import plan_init
from operator_runner.tools.scaffold.project_file import Project
from tests.support import prometheus_crds
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY
from tests.support.prometheus import JOB, promtool

CONFIG = REPOSITORY / "config"
RULES = CONFIG / "prometheus" / "rules.yaml"
OPERAND_MONITOR, OPERAND_RULES = yaml.safe_load_all(
    (CONFIG / "prometheus" / "operand.yaml").read_text()
)
PAGE = REPOSITORY / "docs" / "monitoring.md"
PACKAGE = REPOSITORY / "operator_runner"
_MESSAGE = re.compile(r'log\.(?:info|warning|error|exception)\(\s*"([^"]*)"')


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["spec"]["groups"] + OPERAND_RULES["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Write the rules as Prometheus reads them."""
    file = tmp_path / "rules.yml"
    spec = yaml.safe_load(RULES.read_text())["spec"]
    spec["groups"] += OPERAND_RULES["spec"]["groups"]
    file.write_text(yaml.safe_dump(spec))
    return file


def test_prometheus_accepts_the_rules(rules: Path) -> None:
    """Expressions and the templates of annotations are well formed."""
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout


def test_each_alert_fires_in_time_and_not_before(rules: Path) -> None:
    """Series made for it drive each alert; an operator that is well makes none fire."""
    series = Path(__file__).with_name("alerts.yaml")
    tests = Path(shutil.copy(series, rules.with_name("alerts.yml")))
    done = promtool("test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr
    driven = set(re.findall(r'alertname="(\w+)"', series.read_text()))
    assert driven == {alert["alert"] for alert in alerts()}


def test_each_alert_has_a_runbook() -> None:
    """Its annotations have the problem and the first step, and name a section of the page."""
    anchors = {line[4:].strip().lower() for line in _headings()}
    for alert in alerts():
        name, texts = alert["alert"], alert["annotations"]
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description", "runbook"} == set(texts), name
        assert texts["runbook"].endswith(f"docs/monitoring.md#{name.lower()}"), name
        assert name.lower() in anchors


def test_the_runbook_searches_for_lines_that_the_operator_logs() -> None:
    """Alerts quote messages of the log, and the page has commands that search for them."""
    quoted = re.findall(r'[Ll]og(?:\'s last)? line "(.*?)"', RULES.read_text())
    searched = re.findall(r"\| grep (?:-i |-iE )?'?(.*?)'?$", PAGE.read_text(), re.MULTILINE)
    assert len(quoted) > 1
    assert len(searched) > 2
    sources = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    messages = "\n".join(_MESSAGE.findall(sources))
    for text in (*quoted, *searched):
        assert re.search(text, messages, re.IGNORECASE), text


def _headings() -> list[str]:
    return [line for line in PAGE.read_text().splitlines() if line.startswith("### ")]


def with_monitoring(kubectl: Kubectl, tmp_path: Path) -> list[Json]:
    """Return the objects of config/default with the line of config/prometheus uncommented."""
    for folder in ("config", "crds"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    file = tmp_path / "config" / "default" / "kustomization.yaml"
    text = file.read_text()
    line = "# components: [../prometheus]"
    assert text.count(line) == 1
    file.write_text(text.replace(line, line.removeprefix("# ")))
    return list(yaml.safe_load_all(kubectl("kustomize", str(file.parent))))


def test_one_line_switches_monitoring_on(kubectl: Kubectl, tmp_path: Path) -> None:
    """Uncommented in config/default, it adds Service, ServiceMonitor and rules that fit."""
    documents = with_monitoring(kubectl, tmp_path)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    monitor = objects["ServiceMonitor", "nginx-operator-controller-manager-metrics-monitor"]
    service = objects["Service", "nginx-operator-controller-manager-metrics-service"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": JOB}]
    assert ("PrometheusRule", "nginx-operator-controller-manager-rules") in objects
    assert ("PrometheusRule", "nginx-operator-nginx-rules") in objects
    assert ("PodMonitor", "nginx-operator-nginx-monitor") in objects
    namespaces = {d["metadata"]["namespace"] for d in (monitor, service)}
    assert namespaces == {"nginx-operator-system"}


def test_the_prometheus_operator_takes_the_objects(kubectl: Kubectl, tmp_path: Path) -> None:
    """Its own definitions have each of their fields, and allow their values."""
    group = "monitoring.coreos.com"
    plurals = ("podmonitors", "servicemonitors", "prometheusrules")
    files = prometheus_crds.crds(*plurals)
    objects = [
        each | {"metadata": {"name": each["metadata"]["name"]}}
        for each in with_monitoring(kubectl, tmp_path)
        if each["apiVersion"].startswith(group)
    ]
    assert sorted(each["kind"] for each in objects) == [
        "PodMonitor",
        "PrometheusRule",
        "PrometheusRule",
        "ServiceMonitor",
    ]
    kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    try:
        kubectl.wait_for_kinds(*(f"{plural}.{group}" for plural in plurals))
        create = ("create", "--validate=strict", "--filename=-")
        made = kubectl(*create, input_=yaml.safe_dump_all(objects))
        assert made.count("created") == len(objects)
        wrong = objects[0] | {"metadata": {"name": "wrong"}, "spec": {"unknown": "1"}}
        refused = kubectl.run(*create, input_=json.dumps(wrong))
        assert 'unknown field "spec.unknown"' in refused.stderr
    finally:
        kubectl("delete", *(f"--filename={file}" for file in files))


def test_new_projects_have_the_same_rules() -> None:
    """What `operator-runner init` writes differs in the name of the operator alone."""
    files = plan_init(Project(JOB, "example.com"))
    made = yaml.safe_load(files["config/prometheus/rules.yaml"])
    assert made["spec"] == yaml.safe_load(RULES.read_text())["spec"]


def test_the_dashboard_can_be_applied(kubectl: Kubectl) -> None:
    """Kustomize makes a ConfigMap that Grafana's sidecar finds, with the dashboard as it is."""
    (made,) = yaml.safe_load_all(kubectl("kustomize", str(CONFIG / "grafana")))
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {
        file.name: json.loads(file.read_text()) for file in (CONFIG / "grafana").glob("*.json")
    }
    assert {name: json.loads(text) for name, text in made["data"].items()} == files
    assert len(files) == 2
