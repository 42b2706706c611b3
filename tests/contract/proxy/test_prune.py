"""`prune` on a real API server: random runs, restarts and failures, crashes and attacks."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest
import yaml
from yarl import URL

from operator_runner.core.model import PART_OF, Json, Prune
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection
from operator_runner.proxy.applyset import id_of
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.pruner import ObjectPruner
from operator_runner.proxy.server import Proxy
from operator_runner.reconcile.results import PruneResult

from .conftest import WATCH, config_map

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PRUNE = Prune()
PRUNED = replace(WATCH, prune=PRUNE, blacklist=frozenset())
KINDS = "applyset.kubernetes.io/contains-group-kinds"
SEQUENCE = "test.example.com/sequence"
STYLES = ("module", "apply", "create", "replace", "json")


class Crash(BaseException):
    """The operator was killed."""


@dataclass(frozen=True, order=True)
class Wanted:
    """An object that a role writes: its collection, its kind and its name."""

    collection: str
    kind: str
    name: str

    @property
    def path(self) -> str:
        """Return the path of the object."""
        return f"{self.collection}/{self.name}"

    def body(self, sequence: str, text: str = "") -> Json:
        """Return the object as a role writes it."""
        api = "rbac.authorization.k8s.io/v1" if self.kind == "ClusterRole" else "v1"
        metadata = {
            "name": self.name,
            "labels": {SEQUENCE: sequence},
            "annotations": {"text": text},
        }
        return {"apiVersion": api, "kind": self.kind, "metadata": metadata}


@dataclass
class Administrator:
    """The API server as its administrator uses it."""

    connection: Connection
    namespace: str

    @property
    def config_maps(self) -> str:
        """Return the collection of the resources."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    async def request(
        self, method: str, path: str, body: Json | None = None, kind: str = MERGE
    ) -> tuple[int, Json]:
        """Send a request; return status and answer."""
        headers = {"Content-Type": kind} if method == "PATCH" else {}
        async with self.connection.http.request(
            method, self.connection.url(path), json=body, headers=headers
        ) as response:
            return response.status, await response.json()

    async def create(self, collection: str, body: Json) -> Json:
        """Create an object."""
        status, made = await self.request("POST", collection, body)
        assert status == 201, made
        return made

    async def get(self, path: str) -> Json | None:
        """Return an object, None if it does not exist."""
        status, found = await self.request("GET", path)
        return found if status == 200 else None

    def collections(self) -> list[tuple[str, str]]:
        """Return the collections that roles write: with owner references, and with annotations."""
        return [
            (self.config_maps, "ConfigMap"),
            (f"/api/v1/namespaces/{self.namespace}/secrets", "Secret"),
            (f"/api/v1/namespaces/{self.namespace}-far/configmaps", "ConfigMap"),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole"),
        ]

    async def objects(self, sequence: str) -> dict[Wanted, Json]:
        """Return the metadata of the objects of a sequence."""
        found: dict[Wanted, Json] = {}
        for collection, kind in self.collections():
            _, listed = await self.request(
                "GET", f"{collection}?labelSelector={SEQUENCE}={sequence}"
            )
            for each in listed["items"]:
                found[Wanted(collection, kind, each["metadata"]["name"])] = each["metadata"]
        return found


@pytest.fixture
async def admin(connection: Connection, namespace: str) -> AsyncIterator[Administrator]:
    """Give the API server, with a second namespace."""
    found = Administrator(connection, namespace)
    await found.create("/api/v1/namespaces", {"metadata": {"name": f"{namespace}-far"}})
    yield found
    await found.request("DELETE", f"/api/v1/namespaces/{namespace}-far")


@dataclass
class Role:
    """A run in progress, as the modules of its role use it."""

    http: aiohttp.ClientSession
    proxy: Proxy

    async def send(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Json]:
        """Send a request; return status and answer."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind} if data else {}
        async with self.http.request(
            method, URL(path, encoded=True), data=data, headers=headers
        ) as answer:
            return answer.status, await answer.json()

    async def write(self, style: str, wanted: Wanted, body: Json) -> None:
        """Write an object as modules of kubernetes.core, kubectl and other clients do."""
        if style == "apply":
            path = f"{wanted.path}?fieldManager=role&force=true"
            status, answer = await self.send("PATCH", path, body, APPLY)
        elif style == "create":
            status, answer = await self.send("POST", wanted.collection, body)
            status = 200 if status == 409 else status
        else:
            status, answer = await self.send("GET", wanted.path)
            if status == 404:
                status, answer = await self.send("POST", wanted.collection, body)
            elif style == "replace":
                status, answer = await self.send("PUT", wanted.path, body)
            elif style == "json":
                text = body["metadata"]["annotations"]["text"]
                operation = {"op": "add", "path": "/metadata/annotations/text", "value": text}
                status, answer = await self.send("PATCH", wanted.path, [operation], JSON_PATCH)
            else:
                status, answer = await self.send("PATCH", wanted.path, body, MERGE)
        assert status in {200, 201}, answer

    async def prune(self, prune: Prune = PRUNE) -> PruneResult:
        """Delete what the run did not want."""
        return await self.proxy.prune("run-1", prune, "")


@asynccontextmanager
async def run_of(proxy: Proxy, owner: Json) -> AsyncIterator[Role]:
    """Give a run of a resource."""
    with proxy.grant(owner, PRUNED, "run-1") as text:
        content = yaml.safe_load(text)
        server = content["clusters"][0]["cluster"]
        context = ssl.create_default_context(cafile=server["certificate-authority"])
        headers = {"Authorization": f"Bearer {content['users'][0]['user']['token']}"}
        async with aiohttp.ClientSession(
            server["server"], headers=headers, connector=aiohttp.TCPConnector(ssl=context)
        ) as http:
            yield Role(http, proxy)


@contextmanager
def crashing(
    monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool
) -> Iterator[Callable[[], bool]]:
    """Kill the operator at its request of this number, before it is sent or after its response.

    Gives a function that returns whether that has happened.
    """
    original, left = Api.request, number

    async def request(api: Api, *args: Any, **options: Any) -> Json:
        nonlocal left
        left -= 1
        if left != -1:
            return await original(api, *args, **options)
        if after:
            await original(api, *args, **options)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Api, "request", request)
        yield lambda: left < 0


def restart(proxy: Proxy, connection: Connection) -> None:
    """Let a new process take over: it has no memory."""
    api = Api(connection)
    proxy.pruner = ObjectPruner(api, Discovery(api), ResourceStates())


@dataclass
class Sequence:
    """Two resources with random roles, and what happens to them."""

    name: str
    chance: random.Random
    admin: Administrator
    proxy: Proxy
    monkeypatch: pytest.MonkeyPatch
    wanted: dict[int, set[Wanted]] = field(default_factory=lambda: {0: set(), 1: set()})
    foreign: dict[Wanted, str] = field(default_factory=dict)
    disabled: set[Wanted] = field(default_factory=set)
    done: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """Create the resources, and objects of others, some with a forged label."""
        for number in (0, 1):
            body = config_map(self.owner(number))
            made = await self.admin.create(self.admin.config_maps, body)
        for wanted in self.chance.sample(self.pool("foreign"), 2):
            body = wanted.body(self.name)
            if self.chance.random() < 0.5:
                body["metadata"]["labels"][PART_OF] = id_of(Owner.of(made))
            created = await self.admin.create(wanted.collection, body)
            self.foreign[wanted] = created["metadata"]["uid"]

    def owner(self, number: int) -> str:
        """Return the name of a resource."""
        return f"{self.name}-owner{number}"

    def pool(self, *stems: str) -> list[Wanted]:
        """Return objects that a role may write."""
        return [
            Wanted(collection, kind, f"{self.name}-{stem}")
            for stem in stems
            for collection, kind in self.admin.collections()
        ]

    def choice(self, number: int) -> set[Wanted]:
        """Return what a version of the role writes for a spec, which may name foreign objects."""
        version = self.chance.randrange(2)
        own = self.pool(f"r{number}-v{version}", f"r{number}-both")
        chosen = self.chance.sample(own, self.chance.randrange(len(own)))
        named = self.chance.sample(sorted(self.foreign), self.chance.randrange(2))
        return {*chosen, *named}

    async def step(self) -> None:
        """Do one random thing, and check the objects."""
        what = self.chance.choices(
            ("edit", "restart", "fail", "crash", "delete", "disable", "repeat", "replace"),
            (8, 2, 2, 3, 1, 1, 2, 1),
        )[0]
        number = self.chance.randrange(2)
        self.done.append(f"{what} {number}")
        match what:
            case "restart":
                restart(self.proxy, self.admin.connection)
            case "delete":
                for each in sorted(self.wanted[number] - self.foreign.keys())[:1]:
                    await self.admin.request("DELETE", each.path)
            case "disable":
                await self.disable()
            case "repeat":
                await self.run(number, self.wanted[number])
            case "replace":
                await self.run(number, self.wanted[number])
                body = config_map(self.owner(number))  # without annotations, as of a file
                path = f"{self.admin.config_maps}/{self.owner(number)}"
                assert (await self.admin.request("PUT", path, body))[0] == 200
                await self.run(number, self.choice(number))
            case "fail":
                wanted = sorted(self.choice(number))
                partly = self.chance.sample(wanted, len(wanted) // 2)
                await self.run(number, {*partly}, is_complete=False)
            case "crash":
                await self.run(number, self.choice(number), crash=self.chance.randrange(12))
            case _:
                await self.run(number, self.choice(number))

    async def disable(self) -> None:
        """Annotate an object, which is not deleted from now on."""
        found = await self.admin.objects(self.name)
        for each in sorted(found.keys() - self.foreign.keys())[:1]:
            body = {"metadata": {"annotations": {"operator-runner.dev/prune": "disabled"}}}
            await self.admin.request("PATCH", each.path, body)
            self.disabled.add(each)

    async def run(
        self,
        number: int,
        wanted: Collection[Wanted],
        *,
        is_complete: bool = True,
        crash: int | None = None,
    ) -> None:
        """Run the role of a resource."""
        owner = await self.admin.get(f"{self.admin.config_maps}/{self.owner(number)}")
        assert owner is not None
        self.wanted[number] = {*wanted}
        async with run_of(self.proxy, owner) as role:
            for each in self.chance.sample(sorted(wanted), len(wanted)):
                body = each.body(self.name, str(self.chance.random()))
                await role.write(self.chance.choice(STYLES), each, body)
            if crash is not None:
                after = self.chance.random() < 0.5
                try:
                    with crashing(self.monkeypatch, crash, after=after):
                        result = await role.prune()
                except Crash:
                    restart(self.proxy, self.admin.connection)
                    is_complete = False
            elif is_complete:
                result = await role.prune()
        if is_complete:
            assert result.refused == [], self.done
        await self.check(number, is_complete=is_complete)

    async def check(self, number: int, *, is_complete: bool) -> None:
        """Check the objects; after a complete run they are those of a fresh installation."""
        found = await self.admin.objects(self.name)
        foreign = {each: found[each]["uid"] for each in self.foreign if each in found}
        assert foreign == self.foreign, self.done
        assert self.wanted[number] <= found.keys(), self.done
        if is_complete:
            mine = {each for each in found if f"-r{number}-" in each.name}
            kept = self.disabled | self.foreign.keys()
            assert mine - kept == self.wanted[number] - kept, self.done


async def test_random_sequences_end_as_fresh_installations(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    admin: Administrator,
    proxy: Proxy,
) -> None:
    """Edits, new versions, restarts, failures and crashes, with clients of all kinds.

    What a run writes is never deleted, objects of others are never touched, and after a complete
    run there is nothing else.
    """
    first = request.config.getoption("--prune-seed")
    for seed in range(first, first + request.config.getoption("--prune-sequences")):
        chance = random.Random(seed)
        sequence = Sequence(f"{admin.namespace}-s{seed}", chance, admin, proxy, monkeypatch)
        await sequence.start()
        for _ in range(chance.randrange(3, 9)):
            await sequence.step()
        for number in (0, 1):
            await sequence.run(number, set())
        for each in await admin.objects(sequence.name):
            await admin.request("DELETE", each.path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_request_of_the_pruning_is_made_up_for(
    monkeypatch: pytest.MonkeyPatch, admin: Administrator, proxy: Proxy, after: bool
) -> None:
    """The next process lists the members and deletes the rest, however far the first one came."""
    number, has_crashed = 0, True
    while has_crashed:
        name = f"{admin.namespace}-{after}-{number}".lower()
        owner = await admin.create(admin.config_maps, config_map(name))
        old = [Wanted(collection, kind, f"{name}-x") for collection, kind in admin.collections()]
        async with run_of(proxy, owner) as role:
            for each in old:
                await role.write("module", each, each.body(name))
        restart(proxy, admin.connection)
        owner = await admin.get(f"{admin.config_maps}/{name}") or {}
        async with run_of(proxy, owner) as role:
            await role.write("module", old[0], old[0].body(name))
            with crashing(monkeypatch, number, after=after) as crashed:
                try:
                    await role.prune()
                except Crash:
                    restart(proxy, admin.connection)
                has_crashed = crashed()
        async with run_of(proxy, owner) as role:
            await role.write("module", old[0], old[0].body(name))
            await role.prune()
        assert [*await admin.objects(name)] == [old[0]], number
        number += 1
    assert number > 3 * len(old) - 3


async def test_the_last_writer_of_an_object_keeps_it(admin: Administrator, proxy: Proxy) -> None:
    """The owner deletes it only if no other resource has written it since."""
    one, two = [
        await admin.create(admin.config_maps, config_map(f"{admin.namespace}-{name}"))
        for name in ("one", "two")
    ]
    shared = Wanted(admin.config_maps, "ConfigMap", "shared")

    async def run(owner: Json, style: str = "") -> PruneResult:
        async with run_of(proxy, owner) as role:
            if style:
                await role.write(style, shared, shared.body("shared"))
            return await role.prune()

    for style in ("module", "apply", "replace", "json"):
        await run(one, "module")
        await run(two, style)
        await run(one)
        assert await admin.get(shared.path) is not None, style
        await run(two)
        assert await admin.get(shared.path) is not None, style
        await run(one, style)
        assert len((await run(one)).deleted) == 1, style
        assert await admin.get(shared.path) is None


async def test_who_scales_an_object_is_its_last_writer(admin: Administrator, proxy: Proxy) -> None:
    """The body of a scale has no labels of the object."""
    one, two = [
        await admin.create(admin.config_maps, config_map(f"{admin.namespace}-{name}"))
        for name in ("one", "two")
    ]
    collection = f"/apis/apps/v1/namespaces/{admin.namespace}/deployments"
    labels = {"app": "scaled"}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        },
    }
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    path = f"{collection}/scaled"
    async with run_of(proxy, one) as role:
        body = deployment | {"metadata": {"name": "scaled"}}
        assert (await role.send("POST", collection, body))[0] == 201
        await role.prune()
    async with run_of(proxy, two) as role:
        assert (await role.send("GET", path))[0] == 200
        scale = {"spec": {"replicas": 1}}
        assert (await role.send("PATCH", f"{path}/scale", scale, MERGE))[0] == 200
        await role.prune()
    for expected in (False, True):
        async with run_of(proxy, one) as role:
            assert bool((await role.prune()).deleted) is expected
        async with run_of(proxy, one) as role:
            await role.send("GET", path)
            await role.send("PATCH", f"{path}/scale", {"spec": {"replicas": 0}}, MERGE)
            await role.prune()


async def test_a_run_of_an_older_spec_deletes_nothing(admin: Administrator, proxy: Proxy) -> None:
    """The spec that replaced it may want the objects; the run that follows decides."""
    collection = f"/apis/networking.k8s.io/v1/namespaces/{admin.namespace}/networkpolicies"
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "edited"},
        "spec": {"podSelector": {}},
    }
    owner = await admin.create(collection, body)
    wanted = Wanted(admin.config_maps, "ConfigMap", "of-an-edited-one")
    async with run_of(proxy, owner) as role:
        await role.write("module", wanted, wanted.body("edited"))
        await role.prune()
    async with run_of(proxy, owner) as role:
        edit = {"spec": {"policyTypes": ["Ingress"], "podSelector": {"matchLabels": {"a": "b"}}}}
        status, edited = await admin.request("PATCH", f"{collection}/edited", edit)
        assert status == 200
        assert await role.prune() == PruneResult(skipped=1)
    assert await admin.get(wanted.path) is not None
    async with run_of(proxy, edited) as role:
        assert len((await role.prune()).deleted) == 1
    assert await admin.get(wanted.path) is None


async def test_an_object_of_others_cannot_be_made_a_member(
    admin: Administrator, proxy: Proxy
) -> None:
    """Not by labels and annotations that a role copies from a spec, in any kind of patch."""
    owner = await admin.create(admin.config_maps, config_map(f"{admin.namespace}-mallory"))
    claim = {PART_OF: id_of(Owner.of(owner))}
    path = f"{admin.config_maps}/precious"
    await admin.create(admin.config_maps, config_map("precious"))
    forged = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "precious",
            "labels": claim,
            "annotations": dict(Owner.of(owner).annotations),
        },
    }
    pointer = "/metadata/labels"
    async with run_of(proxy, owner) as role:
        for kind in (MERGE, "application/strategic-merge-patch+json"):
            assert (await role.send("PATCH", path, forged, kind))[0] == 200
        assert (await role.send("PATCH", f"{path}?fieldManager=a&force=true", forged, APPLY))[
            0
        ] == 200
        assert (await role.send("PUT", path, forged))[0] == 200
        for operation in (
            {"op": "add", "path": pointer, "value": claim},
            {"op": "copy", "from": "/metadata/annotations", "path": pointer},
        ):
            assert (await role.send("PATCH", path, [operation], JSON_PATCH))[0] == 403
    for _ in range(2):
        restart(proxy, admin.connection)
        owner = await admin.get(f"{admin.config_maps}/{owner['metadata']['name']}") or {}
        async with run_of(proxy, owner) as role:
            assert await role.prune() == PruneResult()
        found = await admin.get(path)
        assert found is not None
        assert PART_OF not in (found["metadata"].get("labels") or {})


async def test_a_refused_deletion_is_repeated_and_others_are_not_held_up(
    admin: Administrator, proxy: Proxy
) -> None:
    """An admission policy refuses one; the next complete run finds it again, also after a restart.

    With `propagation: Foreground`, an object stays until its dependents are deleted.
    """
    owner = await admin.create(admin.config_maps, config_map(f"{admin.namespace}-guarded"))
    guarded, free = (
        Wanted(admin.config_maps, "ConfigMap", name) for name in ("guarded", "unguarded")
    )
    async with run_of(proxy, owner) as role:
        for each in (guarded, free):
            await role.write("module", each, each.body("refused"))
        await role.prune()
    live = await admin.get(guarded.path) or {}
    dependent = config_map("dependent")
    dependent["metadata"] |= {
        "finalizers": ["test.example.com/hold"],
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": guarded.name,
                "uid": live["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ],
    }
    await admin.create(admin.config_maps, dependent)

    async with guarding(admin, guarded):
        for _ in range(2):
            async with run_of(proxy, owner) as role:
                result = await role.prune()
            assert [each for each in result.refused if "Keep it" in each], result
            restart(proxy, admin.connection)
            owner = await admin.get(f"{admin.config_maps}/{owner['metadata']['name']}") or {}
        assert await admin.get(free.path) is None

    async with run_of(proxy, owner) as role:
        assert not (await role.prune(Prune(propagation="Foreground"))).refused
    left = await admin.get(guarded.path) or {}
    assert left["metadata"]["finalizers"] == ["foregroundDeletion"]
    await admin.request(
        "PATCH", f"{admin.config_maps}/dependent", {"metadata": {"finalizers": None}}
    )


@asynccontextmanager
async def guarding(admin: Administrator, wanted: Wanted) -> AsyncIterator[None]:
    """Have an admission policy refuse the deletion of an object; wait until it holds, and no more.

    API servers read policies with a delay.
    """
    api, name = "admissionregistration.k8s.io/v1", f"{admin.namespace}-guard"
    collection = f"/apis/{api}/validatingadmissionpolic"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["configmaps"],
    }
    held = (
        f"request.name != '{wanted.name}' || request.namespace != '{admin.namespace}'"
        " || request.operation != 'DELETE'"
    )
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": held, "message": "Keep it"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}

    async def is_held() -> bool:
        status, _ = await admin.request("DELETE", f"{wanted.path}?dryRun=All")
        return status != 200

    async def until(*, held: bool) -> None:
        for _ in range(600):
            if await is_held() == held:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"the policy does not become {held}")

    try:
        for kind, suffix, spec in (
            ("ValidatingAdmissionPolicy", "ies", policy),
            ("ValidatingAdmissionPolicyBinding", "ybindings", binding),
        ):
            body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
            await admin.create(f"{collection}{suffix}", body)
        await until(held=True)
        yield
    finally:
        for suffix in ("ybindings", "ies"):
            await admin.request("DELETE", f"{collection}{suffix}/{name}")
    await until(held=False)


async def test_a_kind_without_members_is_no_longer_recorded(
    admin: Administrator, proxy: Proxy
) -> None:
    """So that a role that has stopped writing it needs no permission to list it for ever."""
    name = f"{admin.namespace}-kinds"
    await admin.create(admin.config_maps, config_map(name))
    old, new = (Wanted(each, kind, "kinds") for each, kind in admin.collections()[:2])

    async def run(*wanted: Wanted) -> str:
        owner = await admin.get(f"{admin.config_maps}/{name}") or {}
        async with run_of(proxy, owner) as role:
            for each in wanted:
                await role.write("module", each, each.body("kinds"))
            await role.prune()
        body = await admin.get(f"{admin.config_maps}/{name}") or {}
        kinds: str = body["metadata"]["annotations"][KINDS]
        return kinds

    assert len((await run(old, new)).split(",")) == 2
    assert len((await run(new)).split(",")) == 2
    restart(proxy, admin.connection)
    kept = await run(new)
    assert kept.partition(".")[0] == new.kind
    assert await run(new) == kept
    assert len((await run(old, new)).split(",")) == 2


async def test_an_edit_without_orphans_costs_no_request(
    monkeypatch: pytest.MonkeyPatch, admin: Administrator, proxy: Proxy
) -> None:
    """The members are known from the responses; after a restart they are listed once."""
    owner = await admin.create(admin.config_maps, config_map(f"{admin.namespace}-cheap"))
    wanted = [Wanted(collection, kind, "cheap") for collection, kind in admin.collections()[:2]]
    original, requests = Api.request, list[str]()

    async def request(api: Api, *args: Any, **options: Any) -> Json:
        requests.append(args[1])
        return await original(api, *args, **options)

    for is_restarted, expected in ((False, 0), (False, 0), (True, len(wanted)), (False, 0)):
        if is_restarted:
            restart(proxy, admin.connection)
        owner = await admin.get(f"{admin.config_maps}/{owner['metadata']['name']}") or {}
        async with run_of(proxy, owner) as role:
            for each in wanted:
                await role.write("module", each, each.body("cheap"))
            requests.clear()
            with monkeypatch.context() as patch:
                patch.setattr(Api, "request", request)
                await role.prune()
        # Discovery is not part of it.
        assert len([each for each in requests if admin.namespace in each]) == expected
