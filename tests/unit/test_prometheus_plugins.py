"""Module and filters of the example Prometheus operator."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.support.examples import FOLDER
from tests.support.prometheus_operator import monitoring, service_monitor


def plugin(path: str) -> Any:
    """Load a plugin of the role, as Ansible does: by its path."""
    file = FOLDER / "prometheus/roles/prometheus" / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


filters = plugin("filter_plugins/monitoring.py").FilterModule().filters()
promtool_check = plugin("library/promtool_check.py")


def test_failures_of_promtool_are_grouped_by_file() -> None:
    """Each file has all its messages on one line, without the name of the file."""
    output = """Checking 0.yaml
 SUCCESS: 0.yaml is valid prometheus config file syntax

Checking 1.yaml
  FAILED: parsing YAML file 1.yaml: yaml: line 2: did not find expected key

Checking 2.yaml
  FAILED:
2.yaml: 5:11: group "g", rule 1, "A": could not parse expression
2.yaml: 7:11: group "g", rule 2, "B": could not parse expression
Checking 3.yaml
  SUCCESS: 1 rules found
"""
    assert promtool_check.failures(output) == {
        "1.yaml": "yaml: line 2: did not find expected key",
        "2.yaml": '5:11: group "g", rule 1, "A": could not parse expression; '
        '7:11: group "g", rule 2, "B": could not parse expression',
    }


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ({"port": "web"}, ""),
        ({"bearerTokenSecret": {"key": ""}, "tlsConfig": {"ca": {}, "cert": {}}}, ""),
        ({"basicAuth": {"username": {"name": "a"}}}, "basicAuth is not supported"),
        ({"basicAuth": "text"}, "basicAuth is not supported"),
        ({"tlsConfig": {"keySecret": {"name": "a"}}}, "tlsConfig.keySecret is not supported"),
        ({"bearerTokenFile": "/token"}, "bearerTokenFile is not allowed"),
        ({"tlsConfig": {"caFile": "/ca"}}, "tlsConfig.caFile is not allowed"),
    ],
)
def test_monitors_that_need_secrets_or_files(endpoint: dict[str, Any], message: str) -> None:
    """They are refused; those that need files unless the Prometheus allows it."""
    monitor = service_monitor(endpoints=[{"port": "web"}, endpoint])
    monitor["metadata"]["namespace"] = "shop"
    found = filters["refusals"]([monitor], False)
    assert found.get("ServiceMonitor shop/web", "").startswith(message)
    assert bool(found) == bool(message)
    assert bool(filters["refusals"]([monitor], True)) == ("not supported" in message)


def test_probes_of_ingresses_are_refused() -> None:
    """Only targets with fixed addresses are supported."""
    probe = monitoring("Probe", "site", targets={"ingress": {}})
    probe["metadata"]["namespace"] = "shop"
    assert list(filters["refusals"]([probe], True)) == ["Probe shop/site"]
