"""A run cannot adopt or take over objects of others by any request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs
from yarl import URL

from operator_runner.core.model import GVK, Json, ObjectRef, Ownership
from operator_runner.kube.session import Connection, connect
from operator_runner.proxy import protobuf
from operator_runner.proxy.ownership import ABSENT_RESOURCE_VERSION, MetadataPatch
from tests.support import helm
from tests.support.kubectl import Kubectl

from .conftest import SECONDS, WATCH, Recorder, Run, Start, config_map, owners, proxied
from .test_anonymous import client as plain
from .test_anonymous import named
from .test_ownership_policies import ADOPT, REFUSE, apply_owned_by_account, refused

Upstream = Callable[..., Awaitable[Run]]
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
MAX_STALE = {"Cache-Control": "max-stale"}
OTHERS = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "others", "uid": "uid-9"}


async def apply(http: aiohttp.ClientSession, path: str, body: Json) -> tuple[int, Json]:
    """Send a server-side apply; return status and answer."""
    return await sent(http, "PATCH", f"{path}?fieldManager=play&force=true", body, APPLY)


@asynccontextmanager
async def client(run: Run) -> AsyncIterator[aiohttp.ClientSession]:
    """Give an HTTP client with the run's token."""
    server, authority, token = run.server
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(SECONDS),
        aiohttp.ClientSession(server, headers=headers, connector=connector) as session,
    ):
        yield session


async def sent(
    http: aiohttp.ClientSession, method: str, path: str, body: Json | None = None, kind: str = ""
) -> tuple[int, Json]:
    """Send a request; return status and answer."""
    data = None if body is None else json.dumps(body)
    headers = {"Content-Type": kind or "application/json"} if data else {}
    async with http.request(
        method, URL(path, encoded=True), data=data, headers=headers
    ) as response:
        return response.status, await response.json()


async def test_bodies_that_claim_to_be_the_owner_are_owned(run: Run, owner: Json) -> None:
    """The owner's uid in a body, or in a reference of another kind, does not help."""
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps"
    uid = owner["metadata"]["uid"]
    wrong = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": uid, "controller": True}
    forged = {"operator-sdk/primary-resource": "other/one"}
    hostile: list[Json] = [{"uid": uid}, {"ownerReferences": [wrong]}, {"annotations": forged}]
    async with client(run) as http:
        for number, more in enumerate(hostile):
            body = config_map(f"h{number}")
            body["metadata"] |= more
            status, made = await sent(http, "POST", path, body)
            (reference,) = made["metadata"]["ownerReferences"]
            assert (status, reference["kind"], "controller" in reference) == (
                201,
                "ConfigMap",
                False,
            )
            named_owner = (
                made["metadata"].get("annotations", {}).get("operator-sdk/primary-resource")
            )
            assert named_owner in {None, f"{owner['metadata']['namespace']}/owner"}


async def test_an_encoded_slash_hides_no_object(start: Start, kubectl: Kubectl) -> None:
    """The API server decodes a path before it splits it, and so does the policy."""
    run = start(REFUSE)
    kubectl("create", "configmap", "theirs")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps%2Ftheirs"
    twice = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/%2574heirs"
    async with client(run) as http:
        for method, kind in (("PUT", ""), ("PATCH", MERGE), ("PATCH", APPLY), ("DELETE", "")):
            body = None if method == "DELETE" else config_map("theirs", a="1")
            status, answer = await sent(http, method, path, body, kind)
            assert (status, answer["reason"]) == (403, "NotOwned"), method
            status, answer = await sent(http, method, twice, body, kind)
            assert (status, "may not contain '%'" in answer["message"]) == (400, True), method
    assert "data" not in await run.get("configmap", "theirs")


async def test_a_name_that_is_encoded_twice_is_invalid(start: Start, kubectl: Kubectl) -> None:
    """The API server decodes it once, so the run gets its answer, not a failure of the proxy."""
    kubectl("create", "configmap", "theirs")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/%2574heirs"
    async with client(start(REFUSE)) as http:
        for method, kind in (("PUT", ""), ("PATCH", MERGE), ("PATCH", APPLY), ("DELETE", "")):
            body = None if method == "DELETE" else config_map("theirs", a="1")
            status, answer = await sent(http, method, path, body, kind)
            assert (status, answer["reason"]) == (400, "BadRequest"), method
            assert "may not contain" in answer["message"]


async def test_what_the_api_server_reads_differently_is_rejected(
    start: Start, kubectl: Kubectl
) -> None:
    """A selector that Go drops selects everything, and what follows a # is not sent at all."""
    run = start(REFUSE)
    kubectl("create", "configmap", "theirs")
    theirs = json.loads(kubectl("get", "configmap", "theirs", "--output=json"))
    collection = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    selected = f"{collection}?fieldSelector=metadata.name%3Dmine"
    requests = [
        ("DELETE", f"{selected};", b""),
        ("DELETE", f"{selected}%zz", b""),
        ("DELETE", f"{selected}{'&a' * 10_000}", b""),
        ("PUT", f"{collection}/theirs#x", json.dumps({**theirs, "data": {"a": "1"}}).encode()),
        ("DELETE", f"/api/v1/namespaces/{kubectl.namespace}#/events/e", b""),
    ]

    answers = [await _sent_as_is(run, *each) for each in requests]

    live = json.loads(kubectl("get", "configmap", "theirs", "--output=json"))
    assert live["metadata"] == theirs["metadata"]
    assert "deletionTimestamp" not in kubectl(
        "get", "namespace", kubectl.namespace, "--output=jsonpath={.metadata}"
    )
    assert all(" 400 " in answer and "invalid path" in answer for answer in answers), answers


async def _sent_as_is(run: Run, method: str, target: str, body: bytes) -> str:
    """Send a request whose target no client would write; return the response."""
    server, authority, token = run.server
    host, _, port = server.removeprefix("https://").rpartition(":")
    tls = ssl.create_default_context(cafile=authority)
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
    return answer.decode()


async def test_what_acts_on_an_object_is_judged_as_a_write_of_it(
    start: Start, kubectl: Kubectl, namespace: str
) -> None:
    """By a body that names it, by a websocket or a port; a review gives no uid to the run."""
    run = start(REFUSE)
    kubectl.wait_for_account()
    for name in ("mine", "theirs"):
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
        service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
        service["spec"] = {"ports": [{"port": 80}]}
        if name == "mine":
            await run.send("create", pod, service)
        else:
            kubectl.apply(pod, service)
    theirs = json.loads(kubectl("get", "pod", "theirs", "--output=json"))["metadata"]
    base = f"/api/v1/namespaces/{namespace}"
    node = "/api/v1/nodes/node-1:10250/proxy/exec/team/web/app?command=sh&watch=true"
    websocket = {"Connection": "Upgrade", "Upgrade": "websocket"}
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})

    async with client(run) as http:
        for path in (f"{base}/bindings", f"{base}/pods/theirs/binding"):
            status, answer = await sent(http, "POST", path, _binding("theirs"))
            assert (status, "Pod " in answer["message"]) == (403, True), answer
        for scheme in ("theirs:80", "https:theirs:80"):
            status, answer = await sent(http, "POST", f"{base}/services/{scheme}/proxy/a", {})
            assert (status, "does not belong" in answer["message"]) == (403, True), answer
        async with http.get(URL(node, encoded=True), headers=websocket) as response:
            assert response.status == 403
            assert "Node node-1 does not belong" in (await response.json())["message"]
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        forged = {**review, "metadata": {"uid": theirs["uid"]}, "spec": {"token": "a"}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        assert (await sent(http, "POST", path, forged))[0] == 201
        assert (await sent(http, "DELETE", f"{base}/pods/theirs"))[0] == 403

        # Another Pod of the name is not bound: uid or version in the body are preconditions.
        other = _binding("mine", resourceVersion="1")
        assert (await sent(http, "POST", f"{base}/bindings", other))[0] == 409
        other = _binding("mine", uid="uid-9")
        assert (await sent(http, "POST", f"{base}/pods/mine/binding", other))[0] == 409
        assert (await sent(http, "POST", f"{base}/bindings", _binding("mine")))[0] == 201
        # The API server looks for the port in the Service.
        status, answer = await sent(http, "POST", f"{base}/services/mine:81/proxy/a", {})
        assert (status, "no service port 81" in answer["message"]) == (503, True), answer
    nodes = [
        kubectl("get", "pod", name, "--output=jsonpath={.spec.nodeName}")
        for name in ("mine", "theirs")
    ]
    kubectl("delete", "node", "node-1")
    assert nodes == ["node-1", ""]


def _binding(name: str, **metadata: str) -> Json:
    """Return the assignment of a Pod to a node."""
    target = {"kind": "Node", "name": "node-1"}
    metadata = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


async def test_typed_bodies_keep_owners(run: Run, kubectl: Kubectl) -> None:
    """A PUT in protobuf, as typed Go clients send it, adopts nothing and keeps the owners."""
    await run.kubectl("create", "configmap", "mine")
    kubectl("create", "configmap", "theirs")
    kubectl("create", "configmap", "of-theirs")
    uid = (await run.get("configmap", "theirs"))["metadata"]["uid"]
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": uid}
    kubectl.merge("configmap", "of-theirs", {"metadata": {"ownerReferences": [theirs]}})
    cases: dict[str, list[str]] = {"mine": ["owner"], "theirs": [], "of-theirs": ["theirs"]}
    async with client(run) as http:
        for name, expected in cases.items():
            path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/{name}"
            async with http.get(path, headers={"Accept": PROTOBUF}) as response:
                body = await response.read()
            # An object without owners, as sent by a client that did not read it first.
            bare = _without_owners(body)
            headers = {"Content-Type": PROTOBUF}
            async with http.put(path, data=bare, headers=headers) as response:
                assert response.status == 200
            assert owners(await run.get("configmap", name)) == expected


async def test_a_selection_with_objects_of_others_is_not_deleted(
    start: Start, kubectl: Kubectl
) -> None:
    """All of it stays, and the message names them; without them it is deleted."""
    run = start(REFUSE)
    for maker, name in ((run.kubectl, "mine-1"), (run.kubectl, "mine-2")):
        await maker("create", "configmap", name)
        await maker("label", "configmap", name, "app=a")
    kubectl("create", "configmap", "theirs")
    kubectl("label", "configmap", "theirs", "app=a")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps?labelSelector=app%3Da"
    async with client(run) as http:
        status, answer = await sent(http, "DELETE", path)
        assert status == 403
        assert "theirs (has no owner); select those that do" in answer["message"]
        kubectl("label", "configmap", "theirs", "app-")
        assert (await sent(http, "DELETE", path))[0] == 200
    left = kubectl("get", "configmaps", "--output=name")
    assert "theirs" in left
    assert "mine" not in left


async def test_a_resource_of_the_same_name_is_another_one(start: Start, kubectl: Kubectl) -> None:
    """A run whose resource was deleted and made again cannot write the new one."""
    run = start(REFUSE)
    await run.kubectl("label", "configmap", "owner", "a=b")
    kubectl("delete", "configmap", "owner")
    kubectl("create", "configmap", "owner")
    assert "created again" in await refused(run, "label", "configmap", "owner", "a=b")


@pytest.mark.parametrize("ownership", Ownership)
async def test_no_policy_lets_a_run_write_a_recreated_resource(
    upstream: Upstream, ownership: Ownership
) -> None:
    """Neither its status nor itself, and it is not adopted: it would be deleted with the former."""
    writes: list[str] = []
    live: Json = {"name": "owner", "namespace": "team", "uid": "uid-2"}
    kind = {"name": "configmaps", "namespaced": True, "kind": "ConfigMap", "verbs": ["get"]}
    answers: dict[str, Json] = {
        "/api": {"items": []},
        "/api/v1": {"kind": "APIResourceList", "resources": [kind]},
    }

    async def serve(_: asyncio.StreamReader, writer_: asyncio.StreamWriter, head: str) -> None:
        method, path = head.split()[:2]
        if method != "GET":
            writes.append(path)
        body = answers.get(path, {"kind": "PartialObjectMetadata", "metadata": live})
        text = json.dumps(body).encode()
        writer_.write(
            f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\n\r\n".encode()
            + text
        )

    run = await upstream(serve, replace(WATCH, ownership=ownership))
    path = "/api/v1/namespaces/team/configmaps/owner"
    tried: list[tuple[str, str, Json | None, str]] = [
        ("PATCH", f"{path}/status", {"status": {}}, MERGE),
        ("PATCH", path, {"data": {}}, MERGE),
        ("PATCH", path, config_map("owner"), APPLY),
        ("PUT", path, config_map("owner"), ""),
        ("DELETE", path, None, ""),
    ]
    async with client(run) as http:
        for each in tried:
            status, answer = await sent(http, *each)
            assert status == 403, each
            assert "was deleted and created again" in answer["message"]
        assert writes == []
        live["uid"] = "uid-1"
        assert (await sent(http, *tried[0]))[0] == 200


async def test_kinds_that_have_no_owner_are_not_hindered(start: Start, kubectl: Kubectl) -> None:
    """Events of others may be updated and reviews created; exceptions may be written too."""
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": kubectl.namespace},
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": kubectl.namespace},
    }
    kubectl.apply(event)
    exceptions = frozenset({GVK("", "v9", "Secret")})
    run = start(replace(REFUSE, ownership_exceptions=exceptions))
    await run.kubectl("patch", "event", "e", '--patch={"count": 2}')
    assert (await run.kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    kubectl("create", "secret", "generic", "s")
    await run.kubectl("label", "secret", "s", "a=b")
    kubectl("create", "configmap", "c")
    assert "does not belong" in await refused(run, "label", "configmap", "c", "a=b")


async def test_dry_runs_are_decided_like_real_writes(start: Start, kubectl: Kubectl) -> None:
    """A dry run is refused as the real write would be, and adopts nothing."""
    kubectl("create", "configmap", "theirs")
    error = await refused(start(REFUSE), "label", "configmap", "theirs", "a=b", "--dry-run=server")
    assert "does not belong" in error
    run = start(ADOPT, "run-2")
    await run.kubectl("label", "configmap", "theirs", "a=b", "--dry-run=server")
    assert owners(await run.get("configmap", "theirs")) == []


async def test_a_finalizer_writes_its_records_again(start: Start) -> None:
    """A ConfigMap that the first attempt made belongs to the second one, and has no owner."""
    await start(REFUSE, "run-1", of_finalizer=True).kubectl("create", "configmap", "record")
    again = start(REFUSE, "run-2", of_finalizer=True)
    await again.kubectl("label", "configmap", "record", "a=b")
    body = await again.get("configmap", "record")
    assert (owners(body), body["metadata"]["labels"]) == ([], {"a": "b"})


@pytest.mark.slow  # Helm is built; make attack runs it
async def test_helm_changes_only_its_own_releases_under_a_policy(
    start: Start, tmp_path: Path, kubectl: Kubectl
) -> None:
    """A release of the run is installed, upgraded and removed; one of others stays."""
    run = start(REFUSE)
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: tried, version: 0.1.0}")
    (chart / "templates" / "map.yaml").write_text(json.dumps(config_map("tried")))
    program = helm.program()
    for command in (
        (program, "upgrade", "--install", "tried", str(chart)),
        (program, "upgrade", "tried", str(chart), "--description=again"),
        (program, "uninstall", "tried"),
    ):
        status, out, err = await run.done(*command)
        assert status == 0, out + err
    kubectl("create", "configmap", "tried")
    status, _, err = await run.done(program, "install", "tried", str(chart), "--take-ownership")
    assert status == 1
    assert "does not belong to" in err


async def test_the_owner_of_a_program_without_token_counts(
    connection: Connection, recorder: Recorder, owner: Json, kubectl: Kubectl
) -> None:
    """A sidecar that names an owner is bound by the policy of its watch."""
    kubectl("create", "configmap", "theirs")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/theirs"
    async with (
        proxied(connection, recorder, anonymous=[REFUSE]) as proxy,
        plain(proxy, named(owner)) as http,
    ):
        assert (await sent(http, "DELETE", path))[0] == 403


@pytest.fixture
async def writer(kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[Connection]:
    """Connect as an operator that may write ConfigMaps but not get them."""
    kubectl("create", "serviceaccount", "writer")
    verbs = "--verb=create,update,patch,delete"
    kubectl("create", "role", "writer", verbs, "--resource=configmaps")
    account = f"{kubectl.namespace}:writer"
    kubectl("create", "rolebinding", "writer", "--role=writer", f"--serviceaccount={account}")
    kubectl.wait_for_permission(f"system:serviceaccount:{account}", "update", "configmaps")
    token = kubectl.token("writer")
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = tmp_path / "writer.kubeconfig"
    file.write_text(json.dumps(config))
    opened = await connect(file, user_agent="operator-runner/test")
    yield opened
    await opened.close()


async def test_without_permission_to_get_no_object_is_adopted(
    writer: Connection, recorder: Recorder, owner: Json, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Nothing is adopted, with one warning for each kind; a policy rejects unreadable objects."""
    kubectl("create", "configmap", "theirs")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/theirs"
    run = Run(tmp_path / "kubeconfig", tmp_path)
    async with proxied(writer, recorder) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text, capture_logs() as logs:
            run.kubeconfig.write_text(text)
            async with client(run) as http:
                for number in range(2):
                    body = config_map("theirs", a=str(number))
                    status, answer = await sent(http, "PUT", path, body)
                    assert (status, owners(answer)) == (200, [])
        assert [log["hint"] for log in logs if "Cannot get" in log["event"]] == [
            "grant the verb get"
        ]
        with proxy.grant(owner, REFUSE, "run-1") as text:
            run.kubeconfig.write_text(text)
            async with client(run) as http:
                status, answer = await sent(http, "DELETE", path)
    assert status == 403
    assert "cannot get the owner of configmaps" in answer["message"]
    assert "grant the operator this permission" in answer["message"]


async def test_a_write_costs_few_requests(run: Run, connection: Connection, namespace: str) -> None:
    """Without a policy only PUT and server-side apply need a request of their own."""
    requests: Counter[str] = Counter()
    connection.on_response(lambda _, method, __: requests.update([method]))
    base = f"/api/v1/namespaces/{namespace}/configmaps"
    cost: dict[str, list[str]] = {}
    async with client(run) as http:
        # The kinds are discovered once, for the log of deletions.
        await sent(http, "POST", base, config_map("first"))
        await sent(http, "DELETE", f"{base}/first")
        for method, path, kind in (
            ("POST", base, ""),
            ("GET", f"{base}/m", ""),
            ("PATCH", f"{base}/m", MERGE),
            ("PUT", f"{base}/m", ""),
            ("PATCH", f"{base}/m", APPLY),
            ("DELETE", f"{base}/m", ""),
        ):
            requests.clear()
            body = None if method in {"GET", "DELETE"} else config_map("m", a="1")
            query = "?fieldManager=play&force=true" if kind == APPLY else ""
            status, answer = await sent(http, method, path + query, body, kind)
            assert status < 300, answer
            cost[f"{method} {kind}".strip()] = sorted(requests.elements())
    assert cost == {
        "POST": ["POST"],
        "GET": ["GET"],
        f"PATCH {MERGE}": ["PATCH"],
        "PUT": ["GET", "PUT"],
        f"PATCH {APPLY}": ["GET", "PATCH"],
        "DELETE": ["DELETE"],
    }


async def test_an_apply_after_a_read_needs_no_other(
    run: Run, connection: Connection, namespace: str
) -> None:
    """Neither that of an object that was read, nor that of one that was missing."""
    requests: Counter[str] = Counter()
    connection.on_response(lambda _, method, __: requests.update([method]))
    path = f"/api/v1/namespaces/{namespace}/configmaps/m"
    async with client(run) as http:
        for data, expected in (("1", 201), ("2", 200), ("2", 200)):
            await sent(http, "GET", path)
            requests.clear()
            status, answer = await apply(http, path, config_map("m", a=data))
            assert (status, owners(answer), answer["data"]) == (expected, ["owner"], {"a": data})
            assert requests == {"PATCH": 1}
        await apply(http, path, config_map("m", a="3"))  # the read was of the object before
        assert requests == {"PATCH": 2, "GET": 1}


@pytest.mark.parametrize("is_remembered", [False, True])
@pytest.mark.parametrize("policy", [Ownership.IGNORE, Ownership.REFUSE])
async def test_an_apply_is_decided_for_the_object_as_it_is(
    start: Start, kubectl: Kubectl, recorder: Recorder, policy: Ownership, *, is_remembered: bool
) -> None:
    """What others do after the read counts, also if it was answered from an older object.

    No apply ends in a conflict.
    """
    watch = replace(WATCH, ownership=policy)
    base = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    apply_owned_by_account(kubectl, config_map("theirs"))
    metadata = (kubectl.get("configmap", "theirs") or {})["metadata"]
    others = {"ownerReferences": metadata["ownerReferences"]}

    def hand_over() -> None:
        kubectl.merge("configmap", "mine", {"metadata": others})

    def create(name: str) -> None:
        kubectl.apply(config_map(name) | {"metadata": {"name": name, **others}})

    def recreate() -> None:
        kubectl("delete", "configmap", "mine")
        create("mine")

    status_of_others = 403 if policy is Ownership.REFUSE else 200
    cases: list[tuple[str, Callable[[], object], int, list[str]]] = [
        ("mine", lambda: kubectl("label", "configmap", "mine", "a=1"), 200, ["owner"]),
        ("mine", lambda: kubectl("delete", "configmap", "mine"), 201, ["owner"]),
        ("mine", hand_over, status_of_others, ["default"]),
        ("mine", recreate, status_of_others, ["default"]),
        ("new", lambda: create("new"), status_of_others, ["default"]),
    ]
    async with client(start(watch)) as http:
        await apply(http, f"{base}/mine", config_map("mine", a="0"))
    for number, (name, change, expected, owned_by) in enumerate(cases):
        run = start(watch, run_id=f"case-{number}")
        async with client(run) as http:
            _, seen = await sent(http, "GET", f"{base}/{name}")
            await asyncio.to_thread(change)
            if is_remembered:
                ref = ObjectRef(GVK("", "v1", "ConfigMap"), kubectl.namespace, name)
                is_there = seen["kind"] == "ConfigMap"
                recorder.known[ref] = json.dumps(seen).encode() if is_there else b""
                async with http.get(f"{base}/{name}", headers=MAX_STALE) as response:
                    answer = await response.json()
                assert answer | {"details": {}} == seen | {"details": {}}
            status, answer = await apply(http, f"{base}/{name}", config_map(name, a="1"))
            assert (status, owners(await run.get("configmap", name))) == (expected, owned_by), (
                answer
            )


async def test_no_object_has_the_version_of_absence(connection: Connection, namespace: str) -> None:
    """A PUT or apply with it creates an object, and is a conflict where there is one."""
    base = f"/api/v1/namespaces/{namespace}"
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "resourceVersion": ABSENT_RESOURCE_VERSION},
        "spec": {"ports": [{"port": 80}]},
    }
    body = config_map("m")
    body["metadata"]["resourceVersion"] = ABSENT_RESOURCE_VERSION
    statuses = []
    for method, path, sent_body, kind in (
        ("PUT", f"{base}/services/s", service, "application/json"),
        ("PATCH", f"{base}/configmaps/m?fieldManager=a", body, APPLY),
    ):
        for data in ("1", "2"):
            sent_body["metadata"]["labels"] = {"a": data}
            async with connection.http.request(
                method,
                connection.url(path),
                data=json.dumps(sent_body),
                headers={"Content-Type": kind},
            ) as response:
                statuses.append(response.status)
    assert statuses == [201, 409, 201, 409]


@pytest.mark.parametrize("ownership", [Ownership.IGNORE, Ownership.REFUSE])
async def test_an_object_created_between_read_and_write_is_not_overwritten(
    upstream: Upstream, ownership: Ownership
) -> None:
    """It is neither adopted nor, under a policy, overwritten: the conflict is decided again."""
    bodies: list[Json] = []
    there: Json = {"name": "m", "uid": "uid-9", "ownerReferences": [OTHERS]}

    async def serve(reader: asyncio.StreamReader, writer_: asyncio.StreamWriter, head: str) -> None:
        body: Json = {"kind": "Status", "code": 404, "message": "not found"}
        status = "404 Not Found"
        if head.startswith("PUT"):
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            bodies.append(json.loads(await reader.readexactly(length)))
            status = "409 Conflict" if len(bodies) == 1 else "200 OK"
        elif bodies:
            status, body = "200 OK", {"kind": "PartialObjectMetadata", "metadata": there}
        text = json.dumps(body).encode()
        writer_.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\n\r\n".encode()
            + text
        )

    run = await upstream(serve, replace(WATCH, ownership=ownership))
    path = "/api/v1/namespaces/team/configmaps/m"
    async with client(run) as http:
        status, _ = await sent(http, "PUT", path, config_map("m"))
    assert bodies[0]["metadata"]["resourceVersion"] == ABSENT_RESOURCE_VERSION
    assert owners(bodies[0]) == ["owner"]
    if ownership is Ownership.REFUSE:
        assert (status, len(bodies)) == (403, 1)
    else:
        assert (status, owners(bodies[1])) == (200, ["others"])


def _without_owners(body: bytes) -> bytes:
    """Return a protobuf body without its owner references."""
    return protobuf.add(body, MetadataPatch(references=()))
