"""Values of `execution.job` that `operator-runner validate` refuses, compared with the API server.

It does not judge the names of images: they are an error of the node.
"""

from __future__ import annotations

import json

import pytest

from operator_runner.config.watches.document import Diagnostics, Location, YamlValue
from operator_runner.config.watches.execution import check_resources
from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from tests.support.kubectl import Kubectl

QUANTITIES = (
    *("1", "0", "0.5", ".5", "1.", "500m", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi"),
    *("1Gi", "1e3", "1E3", "1e-1", "1e+2", "+1", "100u", "1n", 2, 0.25),
    *("", " 1", "1 ", "1 Gi", "1GB", "1gi", "1K", "one", "1,5", "-1", "1e", "0x1", "1.2.3", "Gi"),
    *("1ki", "m", ".", "+", "1mi", "1MiB", "  ", "-0", "-", True, "1_000"),
)
RESOURCES = (
    *({"limits": {"memory": each}} for each in QUANTITIES),
    {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}},
    {"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}},
    {"requests": {"memory": "1G"}, "limits": {"memory": "1Gi"}},
    {"requests": {"cpu": "1"}},
    {"requests": {"cpus": "1"}},
    {"limits": {"Memory": "1Gi"}},
    {"requests": {"ephemeral-storage": "1Gi"}},
    {"limits": {"example.com/gpu": "1"}},
    {"limits": {"hugepages-2Mi": "2Mi", "memory": "1Gi"}},
    {"limits": None},
    {"limits": ["memory"]},
    {},
)


def _yaml(value: object) -> YamlValue:
    if isinstance(value, dict):
        return YamlValue({name: _yaml(each) for name, each in value.items()}, Location(1))
    if isinstance(value, list):
        return YamlValue(tuple(map(_yaml, value)), Location(1))
    return YamlValue(value, Location(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("resources", RESOURCES, ids=json.dumps)
async def test_resources_of_a_container_are_refused_as_by_the_api_server(
    api: Api, kubectl: Kubectl, resources: Json
) -> None:
    """No more and no fewer."""
    report = Diagnostics("watches.yaml")
    check_resources(_yaml(resources), report)
    container = {"name": "run", "image": "ee", "resources": resources}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"metadata": {"name": "job"}, "spec": {"template": {"spec": pod}}}
    path = f"/apis/batch/v1/namespaces/{kubectl.namespace}/jobs"
    refusal = ""
    try:
        await api.request("POST", path, body=job, params={"dryRun": "All"})
    except ApiError as error:
        refusal = str(error)
    assert bool(report.problems) is bool(refusal), (report.problems, refusal)
