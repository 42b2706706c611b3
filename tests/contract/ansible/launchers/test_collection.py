"""operator_sdk.util: requeue_after and osdk_metric, and whose collection is found."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from operator_runner.core.settings import AnsibleSettings
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.servers import serve_user_metrics
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.projects import Project

COLLECTION = "collections/ansible_collections/operator_sdk/util"
INSTALLED = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({"time": {}}).exit_json(period="7m", installed=True)
"""


class Operator:
    """Takes metrics as an operator does, beside the event loop of the test."""

    def __init__(self) -> None:
        self.metrics = Metrics("1")
        self.address = ""

    def serve(self, ready: threading.Event, stop: threading.Event) -> None:
        """Serve until `stop` is set."""

        async def serve() -> None:
            server = await serve_user_metrics(self.metrics.user, "127.0.0.1", 0)
            assert server is not None
            self.address = f"http://localhost:{server.port}/metrics"
            ready.set()
            await asyncio.to_thread(stop.wait)
            await server.stop()

        asyncio.run(serve())

    def lines(self) -> list[str]:
        """Return the exported metrics of the roles of the test."""
        text = self.metrics.render()[0].decode()
        return [line for line in text.splitlines() if line.startswith("tried_")]


@pytest.fixture
def operator() -> Iterator[Operator]:
    """Run the server in a thread of its own."""
    taker, ready, stop = Operator(), threading.Event(), threading.Event()
    thread = threading.Thread(target=taker.serve, args=(ready, stop))
    thread.start()
    assert ready.wait(30)
    yield taker
    stop.set()
    thread.join()


def test_the_first_requeue_period_counts(both: Both) -> None:
    """The period is in the result; the first one counts, and an invalid period fails the task."""
    tasks = """
- name: First
  operator_sdk.util.requeue_after: {time: 1h30m}
- name: Checked
  operator_sdk.util.requeue_after: {time: 5s}
  check_mode: true
- name: Looped
  operator_sdk.util.requeue_after: {time: '{{ item }}'}
  loop: [10s, 500ms, 0]
- name: RejectedObject
  operator_sdk.util.requeue_after: {time: '{{ item }}'}
  loop: ['30', 5 minutes, 1.5h, '', h, 3m2]
  ignore_errors: true
- name: Nothing
  operator_sdk.util.requeue_after: {}
  ignore_errors: true
- name: Later
  debug: {msg: the play goes on}
"""
    record = both(Project(tasks))
    assert record.outcome.successful, record.outcome.failures
    assert record.outcome.requeue_after == timedelta(minutes=90)
    assert record.result("First")["period"] == "1h30m"
    assert record.result("First")["changed"] is False
    refused = [result["msg"] for _, result in record.ends("RejectedObject")[:-1]]
    assert refused[0] == "invalid time input: time is '30': it has no unit; write 30s, 30m or 30h"
    assert all(text.startswith("invalid time input: time is ") for text in refused)
    assert len(refused) == 6
    assert record.result("Nothing")["msg"] == "missing required arguments: time"
    assert record.result("Later")["msg"] == "the play goes on"


@pytest.mark.local_only("the port for metrics of roles is on localhost of the operator")
def test_each_metric_type_is_sent_to_the_operator(
    both: Both, launchers: Launchers, operator: Operator
) -> None:
    """Each type of metric; the operator's error message; a missing server."""
    tasks = """
- module_defaults: {operator_sdk.util.osdk_metric: {address: '{{ address }}', description: it}}
  block:
    - name: Made
      operator_sdk.util.osdk_metric: {name: tried_total, counter: {}}
    - name: Counted
      operator_sdk.util.osdk_metric: {name: tried_total, counter: {increment: true}}
    - name: Added
      operator_sdk.util.osdk_metric: {name: tried_total, counter: {add: 1.5}}
    - name: Set
      operator_sdk.util.osdk_metric: {name: tried_nodes, gauge: {set: 0}}
    - name: Timed
      operator_sdk.util.osdk_metric: {name: tried_seconds, histogram: {observe: 2}}
    - name: Summed
      operator_sdk.util.osdk_metric: {name: tried_bytes, summary: {observe: 3}}
    - name: Checked
      operator_sdk.util.osdk_metric: {name: tried_not, gauge: {set: 1}}
      check_mode: true
    - name: RejectedObject
      operator_sdk.util.osdk_metric: {name: tried_nodes, counter: {increment: true}}
      ignore_errors: true
    - name: Two at once
      operator_sdk.util.osdk_metric: {name: tried_nodes, counter: {}, gauge: {}}
      ignore_errors: true
- name: From the environment
  operator_sdk.util.osdk_metric: {name: tried_nodes, description: it, gauge: {set: 4}}
  environment: {OSDK_METRIC_ADDRESS: '{{ address }}', http_proxy: 'http://127.0.0.1:1'}
- name: Nobody there
  operator_sdk.util.osdk_metric:
    {name: tried_nodes, description: it, gauge: {set: 4}, address: 'http://localhost:1/metrics'}
  ignore_errors: true
- name: Not wanted
  operator_sdk.util.osdk_metric: {name: tried_nodes, description: it, gauge: {set: 4}, address: '0'}
"""
    record = both(Project(tasks, variables={"address": operator.address}))
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Counted")["changed"] is True
    refusal = record.result("RejectedObject")
    assert refusal["msg"] == "cannot change metric type of tried_nodes, which is a gauge"
    assert refusal["status_code"] == 400
    assert record.result("Two at once")["msg"] == "only one metric can be processed at a time"
    nobody = record.result("Nobody there")["msg"]
    assert nobody.startswith("No operator takes metrics at http://localhost:1/metrics: ")
    assert "--user-metrics-bind-address" in nobody
    assert record.result("Not wanted")["changed"] is False
    # Each launcher has sent them.
    times = float(len(list(launchers.names)))
    assert f"tried_total {2.5 * times}" in operator.lines()
    assert "tried_nodes 4.0" in operator.lines()
    assert f"tried_seconds_count {times}" in operator.lines()
    assert f"tried_bytes_sum {3 * times}" in operator.lines()
    assert not [line for line in operator.lines() if line.startswith("tried_not")]


def test_a_collection_of_the_project_wins(both: Both) -> None:
    """One beside the playbook is found first, by its long names and by its short ones."""
    playbook = """
- hosts: localhost
  gather_facts: false
  collections: [operator_sdk.util]
  tasks:
    - {name: Long, operator_sdk.util.requeue_after: {time: 1s}}
    - {name: Short, requeue_after: {time: 1s}}
"""
    module = f"{COLLECTION}/plugins/modules/requeue_after.py"
    record = both(Project(files={"site.yml": playbook, module: INSTALLED}))
    assert record.result("Long")["installed"] is True
    assert record.result("Short")["installed"] is True
    assert record.outcome.requeue_after == timedelta(minutes=7)


@pytest.mark.slow
def test_an_installed_collection_wins(tmp_path: Path) -> None:
    """One on the collections path, as `ansible-galaxy` puts it there, is found before ours."""
    module = tmp_path / COLLECTION / "plugins" / "modules" / "requeue_after.py"
    module.parent.mkdir(parents=True)
    module.write_text(INSTALLED)
    settings = AnsibleSettings(
        skip_facts=True, collections_path=str(tmp_path / "collections"), metric_address="http://x"
    )
    tasks = """
- {name: Told, operator_sdk.util.requeue_after: {time: 1s}}
- {name: Address, debug: {msg: '{{ lookup("env", "OSDK_METRIC_ADDRESS") }}'}}
"""
    with Launchers(settings) as launchers:
        record = launchers.compare(Project(tasks), tmp_path / "case")
    assert record.result("Told")["installed"] is True
    assert record.result("Address")["msg"] == "http://x"
