"""Paths of the Kubernetes API are parsed as by the API server."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.proxy.request_info import RequestInfo, ambiguity

NAMES = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x7FF, exclude_characters="/"),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", RequestInfo("", "v1", "", "pods")),
        ("/api/v1/nodes/a", RequestInfo("", "v1", "", "nodes", "a")),
        ("/api/v1/namespaces", RequestInfo("", "v1", "", "namespaces")),
        ("/api/v1/namespaces/n", RequestInfo("", "v1", "", "namespaces", "n")),
        ("/api/v1/namespaces/n/status", RequestInfo("", "v1", "", "namespaces", "n", "status")),
        ("/api/v1/namespaces/n/finalize", RequestInfo("", "v1", "", "namespaces", "n", "finalize")),
        ("/api/v1/namespaces/n/pods", RequestInfo("", "v1", "n", "pods")),
        ("/api/v1/namespaces/n/pods/", RequestInfo("", "v1", "n", "pods")),
        ("/api/v1/namespaces/n/pods/p/log", RequestInfo("", "v1", "n", "pods", "p", "log")),
        ("/api/v1/namespaces/n/pods/p/proxy/a/b", RequestInfo("", "v1", "n", "pods", "p", "proxy")),
        ("/api/v1/watch/namespaces/n/pods", RequestInfo("", "v1", "n", "pods", watch=True)),
        ("/apis/apps/v1/deployments", RequestInfo("apps", "v1", "", "deployments")),
        (
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            RequestInfo("apps", "v1", "n", "deployments", "d", "scale"),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            RequestInfo("rbac.authorization.k8s.io", "v1", "", "clusterroles", "system:node"),
        ),
    ],
)
def test_resource_paths_are_parsed(path: str, expected: RequestInfo) -> None:
    """Group, scope, name and subresource are found where the API server finds them."""
    assert RequestInfo.parse(path) == expected


@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3"],
)
def test_other_paths_name_no_resource(path: str) -> None:
    """Discovery and the like name no resource."""
    assert RequestInfo.parse(path) is None


@pytest.mark.parametrize(
    ("path", "watch", "verb"),
    [
        ("/api/v1/namespaces/n/configmaps/c", False, "get"),
        ("/api/v1/namespaces/n/configmaps", False, "list"),
        ("/api/v1/namespaces/n/configmaps", True, "watch"),
        ("/api/v1/watch/namespaces/n/configmaps", False, "watch"),
    ],
)
def test_reads_are_logged_like_ansible_operator(path: str, watch: bool, verb: str) -> None:
    """Names and order of the fields are those of ansible-operator's log."""
    info = RequestInfo.parse(path)
    assert info is not None
    log_fields = info.log_fields(path, watch=watch)
    assert list(log_fields)[:4] == ["IsResourceRequest", "Path", "Verb", "APIPrefix"]
    assert log_fields["Verb"] == verb
    assert log_fields["Namespace"] == "n"
    assert log_fields["Path"] == path


@given(namespace=NAMES, resource=NAMES, name=NAMES, subresource=NAMES)
def test_quoted_names_round_trip(
    namespace: str, resource: str, name: str, subresource: str
) -> None:
    """Any quoted text is parsed to its name, and quoted again."""
    if resource in {"status", "finalize"}:
        return
    quoted = [quote(part, safe="") for part in (namespace, resource, name, subresource)]
    path = "/apis/g/v1/namespaces/{}/{}/{}/{}".format(*quoted)
    expected = RequestInfo("g", "v1", namespace, resource, name, subresource)
    assert RequestInfo.parse(path) == expected
    assert RequestInfo.parse(expected.object_path + f"/{quoted[3]}") == expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/namespaces/n/services/web/proxy", "web"),
        ("/api/v1/namespaces/n/services/web:80/proxy/a:b", "web"),
        ("/api/v1/namespaces/n/services/https:web:443/proxy", "web"),
        ("/api/v1/namespaces/n/pods/web%3A80/proxy", "web"),
        ("/api/v1/nodes/node-1:10250/proxy/exec", "node-1"),
        ("/api/v1/namespaces/n/services/ftp:web:21/proxy", "ftp:web:21"),
        ("/api/v1/namespaces/n/services/:80/proxy", ":80"),
        ("/api/v1/namespaces/n/services/a:b:c:d/proxy", "a:b:c:d"),
        ("/api/v1/namespaces/n/services/web:80", "web:80"),
        ("/apis/g/v1/namespaces/n/services/web:80/proxy", "web:80"),
    ],
)
def test_the_port_of_a_proxied_object_is_not_its_name(path: str, name: str) -> None:
    """Scheme and port are part of the path of nodes, Pods and Services with `proxy`."""
    info = RequestInfo.parse(path)
    assert info is not None
    assert info.target.name == name


def test_an_encoded_slash_separates() -> None:
    """The API server decodes a path before it takes it apart; an object cannot hide in a name."""
    expected = RequestInfo.parse("/api/v1/namespaces/team/secrets/s")
    assert RequestInfo.parse("/api/v1/namespaces/team/secrets%2Fs") == expected
    assert RequestInfo.parse("/api/v1/namespaces/team%2fsecrets/s") == expected


@given(st.text(max_size=60))
def test_no_path_is_an_error(text: str) -> None:
    """Any path of a client is parsed without an exception."""
    info = RequestInfo.parse("/api/v1/" + text)
    assert info is None or info.version == "v1"


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/api/v1/pods?fieldSelector=a;", "; as %3B"),
        ("/api/v1/pods?timeout=1s;&a=b", "; as %3B"),
        ("/api/v1/pods?labelSelector=a%3Db%zz", "% as %25"),
        ("/api/v1/pods?dryRun=All%", "% as %25"),
        ("/api/v1/pods?dryRun=All%4", "% as %25"),
        ("/api/v1/pods?a=b#", "# as %23"),
        ("/api/v1/namespaces/team#/events/e", "# as %23"),
        ("/api/v1/pods?" + "a&" * 1000, "1000 parameters"),
        ("/api/v1/namespaces/n/services/s/proxy/?a=b#", "# as %23"),
    ],
)
def test_what_go_reads_differently_is_ambiguous(target: str, found: str) -> None:
    """Go drops such a parameter or the whole query, and a fragment is not sent."""
    assert found in ambiguity(target)


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/pods",
        "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=500",
        "/api/v1/namespaces/n/pods/p/exec?command=a%3Bb&command=%25&stdin=true",
        "/api/v1/namespaces/n/services/s/proxy/find?a=1;b=100%",
        "/healthz/ping?verbose",
    ],
)
def test_ordinary_queries_are_not_ambiguous(target: str) -> None:
    """Those of clients, and any query of an application behind a Service."""
    assert ambiguity(target) == ""
