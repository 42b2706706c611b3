"""The example WebApp: installation, credentials, upgrades, failed versions, backup and restore.

The tests share one WebApp, and leave it available.
"""

from __future__ import annotations

import base64
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.visitor import Visitor
from tests.support.waiting import eventually

KIND = "webapps.myapp.mysite.com"
API = "myapp.mysite.com/v1alpha1"
IMAGES = {
    1: {
        tier: f"operator-runner.local/webapp-{tier}:1"
        for tier in ("frontend", "backend", "database")
    }
}
IMAGES[2] = IMAGES[1] | {
    tier: f"operator-runner.local/webapp-{tier}:2" for tier in ("frontend", "backend")
}
MISSING = "operator-runner.local/webapp-backend:missing"


def load_images(example: Example) -> None:
    """Load the images of the example, and a second version of those that visitors see."""
    images = example.project / "images"
    for tier in IMAGES[1]:
        example.load_image(f"images/{tier}.yaml")
    for tier in ("frontend", "backend"):
        text = (images / f"{tier}.yaml").read_text()
        text = text.replace(f"webapp-{tier}:1", f"webapp-{tier}:2").replace('"1"', '"2"')
        (images / "second.yaml").write_text(text)
        example.load_image("images/second.yaml")


def webapp(example: Example) -> Json:
    """Return the WebApp of the samples."""
    sample = example.project / "config/samples/myapp_v1alpha1_webapp.yaml"
    body: Json = yaml.safe_load(sample.read_text())
    return body


def credentials(username: str, password: str, *, webapp: str = "shop") -> Json:
    """Return the Secret of the sample; it permits a WebApp to use it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shop-database", "labels": {"myapp.mysite.com/webapp": webapp}},
        "stringData": {"username": username, "password": password},
    }


class World:
    """A namespace with a WebApp; reads it and waits for states."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self.kubectl, self.operator = kubectl, example.operator

    def until(self, look: Callable[[], Any], expected: Any = True) -> None:
        eventually(look, lambda seen: seen == expected, seconds=180, details=self.operator.log)

    def status(self, field: str, kind: str = KIND, name: str = "shop") -> Any:
        return (self.kubectl.get(kind, name) or {}).get("status", {}).get(field)

    def condition(self, type_: str, kind: str = KIND, name: str = "shop") -> Json:
        found = self.status("conditions", kind, name) or []
        return next((each for each in found if each["type"] == type_), {})

    def until_condition(self, type_: str, status: str, reason: str, **resource: str) -> None:
        self.until(
            lambda: [self.condition(type_, **resource).get(key) for key in ("status", "reason")],
            [status, reason],
        )

    def until_serving(self, version: int) -> None:
        """Wait until all Pods have the images of a version."""
        for field in ("currentVersion", "lastGoodVersion"):
            self.until(partial(self.status, field), IMAGES[version])
        self.until_condition("Available", "True", "AllTiersAvailable")
        self.until_condition("Degraded", "False", "AsExpected")

    @property
    def version(self) -> int:
        """The version whose Pods serve."""
        good = self.status("lastGoodVersion")
        return next(version for version, images in IMAGES.items() if images == good)

    def deployment(self, tier: str) -> Json:
        found = self.kubectl.get("deployment", f"shop-{tier}")
        assert found is not None
        return found

    def patch(self, **spec: Any) -> None:
        self.kubectl.merge(KIND, "shop", {"spec": spec})

    @property
    def url(self) -> str:
        service = self.kubectl.get("service", "shop-frontend")
        assert service is not None
        return f"http://{service['spec']['clusterIP']}/"

    def page(self, note: str | None = None) -> list[str]:
        """Return the lines of the page; a note is added to the database before."""
        if note is not None:
            urllib.request.urlopen(self.url, data=note.encode(), timeout=30).close()
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            return str(answer.read().decode()).splitlines()

    def until_page(self, line: str) -> None:
        """Wait until the page has a line: kube-proxy follows the Pods a moment later."""

        def look() -> bool:
            try:
                return line in self.page()
            except (OSError, HTTPException):
                return False

        self.until(look)

    def logins(self) -> list[str]:
        """Return the users that may log in to the database."""
        query = "SELECT rolname FROM pg_roles WHERE rolcanlogin ORDER BY rolname"
        return self.sql(query, "postgres", '"$POSTGRES_PASSWORD"')

    def sql(self, query: str, user: str, password: str) -> list[str]:
        """Return the lines of a query in the Pod of the database; `password` is a word of sh."""
        script = f'PGPASSWORD={password} psql -At -h localhost -U "$1" -d postgres -c "$2"'
        pod = ("exec", "deployment/shop-database", "--", "sh", "-c", script, "sh", user, query)
        return self.kubectl(*pod).splitlines()


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator, with two versions of the images on the node."""
    with running("webapp", cluster, tmp_path_factory.mktemp("webapp")) as example:
        load_images(example)
        yield example


@pytest.fixture(scope="module")
def shop(cluster: Cluster, example: Example) -> World:
    """Apply the sample in a namespace that accepts only unprivileged Pods; wait until it serves."""
    name = f"shop-{secrets.token_hex(4)}"
    kubectl = Kubectl(cluster.bin / "kubectl", name)
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    kubectl.apply(credentials("shop", secrets.token_hex(8)), webapp(example))
    shop = World(kubectl, example)
    shop.until_serving(1)
    shop.until_page("Shop")
    return shop


def test_one_apply_serves_a_row_of_the_database(shop: World) -> None:
    """Three tiers, each with its Pods; `kubectl get` shows their state."""
    assert shop.page()[:2] == ["Shop", "Hello from the database"]
    shown = shop.kubectl("get", "webapp", "shop").splitlines()[1].split()
    assert shown[:3] == ["shop", "True", "AsExpected"]
    tiers = shop.kubectl.list("deployment")
    replicas = {body["metadata"]["name"]: body["status"]["availableReplicas"] for body in tiers}
    assert replicas == {"shop-backend": 2, "shop-database": 1, "shop-frontend": 2}
    assert shop.logins() == ["postgres", "shop"]
    nginx = ("nginx", "-e", "stderr", "-T", "-c", "/etc/webapp/nginx.conf")
    frontend = shop.kubectl("exec", "deployment/shop-frontend", "--", *nginx)
    assert "proxy_read_timeout 20s;" in frontend
    assert "error_log stderr warn;" in frontend
    level = ("python3.11", "-c", "import os; print(os.environ['LOG_LEVEL'])")
    assert shop.kubectl("exec", "deployment/shop-backend", "--", *level) == "warning\n"
    # The run that saw the last Pod become available had nothing to change.
    shop.until(lambda: shop.operator.lines("Reconciled")[-1]["changed"], 0)


def test_changed_credentials_alter_the_user_and_keep_the_data(shop: World) -> None:
    """The backend is rolled, without a failed request; the former user cannot log in any more."""
    assert "before the change" in shop.page("before the change")
    former = shop.logins()
    user, password = f"user-{secrets.token_hex(3)}", secrets.token_hex(8)
    with Visitor(shop.url).visiting() as visitor:
        eventually(lambda: visitor.answers, details=shop.operator.log)
        shop.kubectl.apply(credentials(user, password))
        secret = shop.kubectl.get("secret", "shop-database")
        assert secret is not None
        version = secret["metadata"]["resourceVersion"]

        def rolled_for() -> Any:
            template = shop.deployment("backend")["spec"]["template"]
            return template["metadata"]["annotations"]["myapp.mysite.com/credentials"]

        shop.until(rolled_for, version)
        shop.kubectl("rollout", "status", "deployment/shop-backend", "--timeout=180s")
    assert visitor.failures == []
    assert shop.logins() == sorted(["postgres", user])
    assert user not in former
    assert shop.sql("SELECT current_user", user, password) == ["webapp"]
    assert "before the change" in shop.page()
    shop.until(lambda: len(shop.kubectl.list("job", "app.kubernetes.io/instance=shop")), 1)

    seen = shop.kubectl("get", "all,configmaps,events,webapps", "--output=yaml")
    pods = [pod["metadata"]["name"] for pod in shop.kubectl.list("pod")]
    logs = [shop.kubectl.run("logs", pod, "--all-containers").stdout for pod in pods]
    admin = shop.kubectl.get("secret", "shop-database-admin")
    assert admin is not None
    for value in (password, base64.b64decode(admin["data"]["password"]).decode()):
        for text in (shop.operator.log(), seen, *logs):
            assert value not in text


def test_new_images_are_rolled_out_without_a_failed_request(shop: World) -> None:
    """The new version is the last good one as soon as all of its Pods serve."""
    former, new = shop.version, 3 - shop.version
    with Visitor(shop.url).visiting() as visitor:
        eventually(lambda: visitor.answers, details=shop.operator.log)
        assert shop.page()[-1] == f"frontend {former}, backend {former}"
        shop.patch(image=IMAGES[new])
        shop.until_serving(new)
        shop.until_page(f"frontend {new}, backend {new}")
        shop.until(lambda: visitor.answers > 100)
    assert visitor.failures == []


def test_a_failed_version_is_replaced_by_the_last_good_one(shop: World) -> None:
    """Requests succeed; the failure is shown until the resource has another version."""
    good = IMAGES[shop.version]
    failed = good | {"backend": MISSING}
    with Visitor(shop.url).visiting() as visitor:
        eventually(lambda: visitor.answers, details=shop.operator.log)
        shop.patch(image=failed, progressDeadlineSeconds=5)
        shop.until_condition("Degraded", "True", "RolledBack")
        shop.until(lambda: shop.status("currentVersion"), good)
        assert shop.status("failedVersion") == failed
        assert shop.status("lastGoodVersion") == good
        shop.until(lambda: MISSING in shop.kubectl("get", "pods", "--output=yaml"), expected=False)
        # Other changes are applied to the version that serves.
        shop.patch(replicas=3)
        shop.until(lambda: shop.deployment("backend")["spec"]["replicas"], 3)
        assert (
            shop.deployment("backend")["spec"]["template"]["spec"]["containers"][0]["image"]
            == good["backend"]
        )
        assert shop.condition("Degraded")["reason"] == "RolledBack"
        shop.patch(image=good, progressDeadlineSeconds=60, replicas=2)
        shop.until_serving(shop.version)
    assert shop.status("failedVersion") is None
    assert visitor.failures == []


@pytest.mark.slow
def test_a_failed_database_returns_with_its_data(shop: World) -> None:
    """It has one Pod, which ends before that of the new image starts."""
    good = IMAGES[shop.version]
    shop.page("before the failure")
    failed = good | {"database": "operator-runner.local/webapp-database:missing"}
    shop.patch(image=failed, progressDeadlineSeconds=5)
    shop.until_condition("Degraded", "True", "RolledBack")
    shop.until_condition("Available", "True", "AllTiersAvailable")
    shop.until_page("before the failure")
    shop.patch(image=good, progressDeadlineSeconds=60)
    shop.until_serving(shop.version)


def job(kind: str, name: str, **spec: str) -> Json:
    """Return a WebAppBackup or a WebAppRestore of the shop."""
    spec = {"webApp": "shop"} | spec
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_backup_is_restored(shop: World) -> None:
    """Later rows are removed, earlier ones restored. A restore waits for its backup."""
    shop.page("before the backup")
    shop.kubectl.apply(job("WebAppBackup", "monday"))
    shop.until_condition("Complete", "True", "Completed", kind="webappbackup", name="monday")
    assert "after the backup" in shop.page("after the backup")
    with Visitor(shop.url).visiting() as visitor:
        eventually(lambda: visitor.answers, details=shop.operator.log)
        shop.kubectl.apply(job("WebAppRestore", "from-monday", backup="monday"))
        shop.until_condition(
            "Complete", "True", "Completed", kind="webapprestore", name="from-monday"
        )
        page = shop.page()
        assert "before the backup" in page
        assert "after the backup" not in page
    assert visitor.failures == []

    shop.kubectl.apply(job("WebAppRestore", "from-tuesday", backup="tuesday"))
    shop.until_condition("Complete", "False", "Waiting", kind="webapprestore", name="from-tuesday")
    shop.kubectl.apply(job("WebAppBackup", "tuesday"))
    shop.until_condition("Complete", "True", "Completed", kind="webapprestore", name="from-tuesday")
    assert shop.page() == page
    # A backup is kept when its WebApp is deleted.
    volume = shop.kubectl.get("persistentvolumeclaim", "monday-backup")
    assert volume is not None
    owners = [owner["kind"] for owner in volume["metadata"]["ownerReferences"]]
    assert owners == ["WebAppBackup"]


def test_a_secret_is_used_only_if_it_permits_that(example: Example, kubectl: Kubectl) -> None:
    """Until then nothing is created; each change of the Secret starts a run."""
    waiting = World(kubectl, example)

    def until_message(text: str) -> None:
        waiting.until(lambda: text in waiting.condition("Degraded").get("message", ""))

    kubectl.apply(webapp(example))
    until_message("Secret shop-database does not exist; create it with username, password")
    kubectl.apply(credentials("shop", "secret", webapp="another"))
    until_message("Secret shop-database does not permit this WebApp to use it; label it with")
    kubectl.apply(credentials("postgres", "secret"))
    until_message("username in Secret shop-database is a role of the database itself")
    assert waiting.condition("Available")["status"] == "False"
    assert kubectl.list("deployments,services,jobs") == []
    kubectl.apply(credentials("shop", "secret"))
    kubectl("wait", "--for=create", "deployment/shop-database", "--timeout=180s")
    causes = {line["cause"] for line in example.operator.lines("Reconciling")}
    assert any(f"Secret {kubectl.namespace}/shop-database" in cause for cause in causes), causes
    kubectl("delete", "webapp", "shop")
