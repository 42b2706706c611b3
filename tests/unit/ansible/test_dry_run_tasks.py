"""Which tasks of a dry run are run as in any other run."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.ansible.dry_run_tasks import is_previewed


@pytest.mark.parametrize(
    ("action", "args", "previewed"),
    [
        ("kubernetes.core.k8s", {"state": "absent"}, True),
        ("k8s", {}, True),
        ("kubernetes.core.helm", {"name": "a"}, True),
        ("operator_sdk.util.k8s_status", {}, True),
        ("kubernetes.core.k8s", {"kubeconfig": "/other"}, False),
        ("kubernetes.core.k8s", {"host": "https://other.example.com"}, False),
        ("kubernetes.core.k8s_drain", {}, False),
        ("ansible.builtin.command", {"_raw_params": "kubectl apply -f a"}, False),
        ("shell", {"_raw_params": "kubectl get x"}, False),
        ("ansible.builtin.uri", {"url": "https://example.com"}, False),
        ("ansible.builtin.script", {"_raw_params": "deploy.sh"}, False),
        ("ansible.builtin.copy", {"dest": "/run/tmp/1/a"}, True),
        ("ansible.builtin.template", {"dest": "/run/tmp/1/../../a"}, False),
        ("ansible.builtin.file", {"path": "/etc/a"}, False),
        ("ansible.builtin.tempfile", {}, True),
        ("community.general.mail", {}, False),
    ],
)
def test_tasks_that_only_act_on_the_cluster_are_run(
    action: str, args: dict[str, Any], previewed: bool
) -> None:
    """And those that write files of the run; all others are in check mode."""
    assert is_previewed(action, args, {}, "/run/tmp/1") is previewed


def test_a_task_with_another_kubeconfig_in_its_environment_is_not_run() -> None:
    """Its writes would not pass the proxy."""
    for name in ("KUBECONFIG", "K8S_AUTH_HOST", "HELM_KUBEAPISERVER", "HELM_DRIVER"):
        assert not is_previewed("kubernetes.core.k8s", {}, {name: "x"}, "")
