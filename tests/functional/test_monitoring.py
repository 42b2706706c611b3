"""A real Prometheus watches a running operator, with the rules and the dashboard of config/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.functional.test_operator import KIND, ROLE, echo, wait_for_text
from tests.support.dashboard import expressions
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY, Operator
from tests.support.prometheus import Prometheus
from tests.support.waiting import eventually

RULES = REPOSITORY / "config" / "prometheus" / "rules.yaml"
NEVER_SEEN = {
    'code="429"': "the API server has not refused anything for being too busy",
    'code="403"': "the operator has all rights here",
    'code=~"5..|<error>"': "the API server is well",
    'code=~"429|403|5..|<error>"': "the API server is well",
}
"""Metrics that may be empty: their series are created by the first event."""
FAILING = """
- name: Refuse
  ansible.builtin.fail: {msg: as requested}
  when: say_this | default('') == 'fail'
"""


def hasty_rules() -> str:
    """Return the rules with a second where they wait half an hour; promtool tests the times."""
    spec = yaml.safe_load(RULES.read_text())["spec"]
    for rule in (rule for group in spec["groups"] for rule in group["rules"]):
        rule["for"] = "1s"
        rule["expr"] = rule["expr"].replace("> 1800", "> 1")
    return yaml.safe_dump(spec)


@pytest.fixture
def prometheus(operator: Operator, tmp_path: Path) -> Iterator[Prometheus]:
    """Give a Prometheus that scrapes the operator; it is not started yet."""
    made = Prometheus(tmp_path / "prometheus", operator.metrics_address, hasty_rules())
    yield made
    made.stop()


def selectors(expression: str) -> list[str]:
    """Return the series that an expression is made of: `name{label="value"}`."""
    return re.findall(r"\w+\{[^}]*\}", expression)


def may_be_empty(expression: str) -> bool:
    return any(label in expression for label in NEVER_SEEN)


def test_rules_and_dashboard_see_the_operator(
    kubectl: Kubectl, operator: Operator, project: Path, prometheus: Prometheus
) -> None:
    """Every expression has data, and the alert for a failing resource fires while it fails."""
    (project / ROLE).write_text((project / ROLE).read_text() + FAILING)
    namespace = f"--leader-election-namespace={kubectl.namespace}"
    operator.start("--shards=auto", "--leader-elect", "--leader-election-id=watched", namespace)
    prometheus.start()
    kubectl.apply(echo("good", sayThis="hello"), echo("bad", sayThis="fail"))
    wait_for_text(kubectl, operator, "hello hello", "good")

    fires(prometheus, "OperatorResourceFailing")
    fires(prometheus, "OperatorReconcilesFail")

    # Each group of rules is evaluated at a second of its own, and rates need two samples.
    eventually(
        lambda: [rule for rule in prometheus.rules() if rule["health"] != "ok"],
        lambda found: found == [],
    )
    known = [selector for rule in prometheus.rules() for selector in selectors(rule["query"])]
    assert len(known) > len(prometheus.rules())
    series = [each for each in known if not may_be_empty(each)]
    expected = [e for _, e in expressions("1m") if not may_be_empty(e)]
    eventually(
        lambda: [each for each in (*series, *expected) if not prometheus.query(each)],
        lambda empty: empty == [],
    )

    kubectl.merge(KIND, "bad", {"spec": {"sayThis": "well"}})
    wait_for_text(kubectl, operator, "hello well", "bad")
    eventually(
        prometheus.alerts,
        lambda alerts: "OperatorResourceFailing" not in alerts,
        details=prometheus.log,
    )


def fires(prometheus: Prometheus, alert: str) -> None:
    """Wait until an alert fires."""
    look: Callable[[], dict[str, str]] = prometheus.alerts
    eventually(look, lambda alerts: alerts.get(alert) == "firing", details=prometheus.log)
