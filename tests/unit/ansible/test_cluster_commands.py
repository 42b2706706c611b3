"""Which commands act on the cluster of their run alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operator_runner.ansible.cluster_commands import is_cluster_command


@pytest.mark.parametrize(
    "text",
    [
        "kubectl apply -f a.yaml",
        "/usr/bin/helm upgrade --install a oci://registry.example.com/a --version 1",
        "kustomize build . | kubectl apply -f - && oc get x",
        "kubectl create configmap a \\\n  --from-literal=url=https://example.com\nkubectl get cm",
        "kubectl -n a --v=2 get pods -o jsonpath={.items[0].metadata.name}",
        "kubectl apply --server-side -k overlays/prod",
        'kubectl patch x a --patch=\'{"url": "https://example.com", "n": "#1"}\'',
        "kubectl auth can-i get pods; kubectl rollout restart deployment/a",
        "kubectl create rolebinding a --role=a --user=b",
        'helm list --filter "a"',
    ],
)
def test_clients_of_the_cluster_are_run(text: str) -> None:
    """With quotes, pipes, lists and continued lines."""
    assert is_cluster_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kubectl get pods # wait\ncurl -X POST https://example.com",
        "kubectl get n#1; curl https://example.com",
        "kubectl get x\ncurl https://example.com",
        "kubectl get x\rcurl https://example.com",
        "kubectl get x & curl https://example.com",
        "kubectl get 'x",
        "kubectl get x > /data",
        "kubectl get $(rm -r /data)",
        'kubectl get "`rm -r /data`"',
        "kubectl get $'a\\'; curl https://example.com; '",
        "kubectl get x --$FLAG",
        "kubectl get {--kubeconfig=/other,x}",
        "kubectl get * --namespace a",
        "psql --command 'drop table a'",
        "KUBECONFIG=/other kubectl get x",
        "./kubectl get x",
        "kubectl",
    ],
)
def test_text_that_can_hide_another_program_is_refused(text: str) -> None:
    """Comments, expansions, redirections, and what is not understood."""
    assert not is_cluster_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "kubectl --context=prod delete ns a",
        "kubectl get x --kube\\\nconfig=/other",
        "kubectl -shttps://example.com get x",
        "kubectl get x -As https://example.com",
        "kubectl apply -f https://example.com/a.yaml",
        "kubectl apply -Rfhttps://example.com/a.yaml",
        "kubectl apply --filename=a.yaml,https://example.com/a.yaml",
        "kubectl apply -k example.com/a/b?ref=main",
        "kubectl apply --kustomize git@example.com:a/b",
        "kubectl exec a -- rm -r /data",
        "kubectl cost namespace",
        "kubectl --unknown get cost",
        "kubectl create x --edit",
        "kubectl apply edit-last-applied x/a",
        "kubectl get x --profile=cpu --profile-output=/data",
        "kubectl get x --cache_dir=/data",
        "kubectl config use-context a",
        "oc login",
        "helm upgrade a b --kubeconfig /other",
        "helm upgrade a b --post-renderer ./script",
        "helm upgrade a b --post-renderer-args x",
        "helm install a secrets://b",
        "helm install a b -fsecrets://c",
        "helm template a b --output-dir /data",
        "helm diff upgrade a b",
        "helm repo add a https://example.com",
        "kustomize build . --enable-exec",
        "kustomize build . --enable-helm",
        "kustomize build . -o /data",
        "kustomize build https://example.com/a",
        "kubectl kustomize example.com/a",
        "kustomize edit add resource a",
    ],
)
def test_effects_outside_of_the_cluster_are_refused(text: str) -> None:
    """Other servers, plugins, files, and programs that the clients run."""
    assert not is_cluster_command(text)


_PARTS = (
    *("kubectl get ", "helm list ", "curl ", "x", "--flag=y", "a=n"),
    *(" ", "\n", "\\", "\t", ";", "|", "&", "#", "'", '"', "$", "`", "(", ")", "{", "}", ",", "!"),
)
_HANDLER = {"BASH_FUNC_command_not_found_handle%%": '() { printf "%s\\n" "$1" >> "$FOUND"; }'}
"""What bash calls in place of a program that it does not find."""


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=st.lists(st.sampled_from(_PARTS), max_size=9).map("".join), start=st.booleans())
def test_the_shell_runs_no_other_program(tmp_path: Path, text: str, start: bool) -> None:
    """Of a command that is accepted."""
    command = f"kubectl get x{text}" if start else text
    if not is_cluster_command(command):
        return
    found = tmp_path / "found"
    found.write_text("")
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        env={"PATH": str(tmp_path / "empty"), "FOUND": str(found), **_HANDLER},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    programs = set(found.read_text().splitlines())
    assert programs <= {"kubectl", "helm"}
    is_syntax_error = done.returncode == 2
    assert programs or is_syntax_error, done.stderr
