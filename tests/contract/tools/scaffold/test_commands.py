"""The commands in directories that are not as fresh."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.scaffold import create_api, init, run


def test_init_makes_a_kind_as_well(tmp_path: Path) -> None:
    """One command is enough for a project with its first kind; the name is the directory's."""
    root = tmp_path / "web-operator"
    init(
        root, "--plugins=ansible", "--domain=example.com", "--group=web", "--version=v1",
        "--kind=Page",
    )  # fmt: skip
    assert yaml.safe_load((root / "PROJECT").read_text())["projectName"] == "web-operator"
    (watch,) = yaml.safe_load((root / "watches.yaml").read_text())
    gvk = {"version": "v1", "group": "web.example.com", "kind": "Page"}
    role = {"role": "page", "apply": "server-side", "gatherFacts": False}
    assert watch == gvk | role | {"profile": "strict", "timeout": "10m", "prune": True}
    assert (root / "roles/page/tasks/main.yml").is_file()


def test_nothing_of_the_user_is_overwritten(tmp_path: Path) -> None:
    """Both commands refuse with the names of the files in the way, and write nothing."""
    root = tmp_path / "web"
    root.mkdir()
    (root / "Makefile").write_text("mine\n")
    done = run(root, "init", "--domain=example.com")
    assert done.returncode == 1
    assert "Makefile: already exists" in done.stderr
    assert [f.name for f in root.iterdir()] == ["Makefile"]
    (root / "Makefile").unlink()
    assert run(root, "init", "--domain=example.com").returncode == 0
    (root / "roles/page/tasks").mkdir(parents=True)
    (root / "roles/page/tasks/main.yml").write_text("mine\n")
    before = (root / "watches.yaml").read_text()
    done = run(
        root, "create", "api", "--group=web", "--version=v1", "--kind=Page", "--generate-role"
    )
    assert done.returncode == 1
    assert "roles/page/tasks/main.yml: already exists" in done.stderr
    assert (root / "watches.yaml").read_text() == before
    assert (root / "roles/page/tasks/main.yml").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("init", "--domain=Example_Com"), "--domain 'Example_Com'"),
        (("init", "--domain=a.b", "--kind=page"), "--kind=Page"),
        (("create", "api", "--group=g", "--version=v1", "--kind=Page"), "PROJECT: no such file"),
    ],
)
def test_invalid_arguments_are_reported_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    """The error names flag or file, the exit code is 1, and nothing is written."""
    root = tmp_path / "web"
    root.mkdir()
    done = run(root, *arguments)
    assert done.returncode == 1
    assert problem in done.stderr
    assert not list(root.iterdir())


def test_create_api_adds_to_a_project_of_operator_sdk(tmp_path: Path) -> None:
    """`create api` adds to a project whose files have operator-sdk's form of markers, or none."""
    root = tmp_path / "legacy"
    files = {
        "PROJECT": (
            "# kept\ndomain: example.com\nlayout:\n- ansible.sdk.operatorframework.io/v1\n"
            "plugins:\n  manifests.sdk.operatorframework.io/v2: {}\nprojectName: legacy\n"
            'resources:\n- group: cache\n  kind: Old\n  version: v1\nversion: "3"\n'
        ),
        "watches.yaml": (
            "---\n# mine\n- version: v1\n  group: cache.example.com\n  kind: Old\n  role: old\n"
            "#+kubebuilder:scaffold:watch\n"
        ),
        "config/rbac/role.yaml": (
            "kind: ClusterRole\nrules:\n  ##\n  ## Base\n  ##\n  - apiGroups:\n      - apps\n"
            "    resources:\n      - deployments\n    verbs:\n      - get\n"
            "#+kubebuilder:scaffold:rules\n"
        ),
        "config/rbac/kustomization.yaml": "resources:\n- role.yaml\n- old_editor_role.yaml\n",
        "config/crd/kustomization.yaml": (
            "resources:\n- bases/cache.example.com_olds.yaml\n"
            "#+kubebuilder:scaffold:crdkustomizeresource\n"
        ),
        "config/samples/kustomization.yaml": (
            "resources:\n- cache_v1_old.yaml\n#+kubebuilder:scaffold:manifestskustomizesamples\n"
        ),
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    create_api(root, "Fresh", "--generate-role")
    assert (root / "config/crd/kustomization.yaml").read_text() == (
        "resources:\n- bases/cache.example.com_olds.yaml\n"
        "- bases/cache.example.com_freshes.yaml\n#+kubebuilder:scaffold:crdkustomizeresource\n"
    )
    assert (root / "config/samples/kustomization.yaml").read_text().splitlines()[1:3] == [
        "- cache_v1_old.yaml",
        "- cache_v1alpha1_fresh.yaml",
    ]
    watches = (root / "watches.yaml").read_text()
    assert watches.startswith("---\n# mine\n")
    assert [entry["role"] for entry in yaml.safe_load(watches)] == ["old", "fresh"]
    assert watches.endswith("\n#+kubebuilder:scaffold:watch\n")
    rules = yaml.safe_load((root / "config/rbac/role.yaml").read_text())["rules"]
    assert [rule["apiGroups"] for rule in rules] == [["apps"], ["cache.example.com"]]
    users = yaml.safe_load((root / "config/rbac/kustomization.yaml").read_text())["resources"]
    assert users[:2] == ["role.yaml", "old_editor_role.yaml"]
    assert users[2:] == [f"fresh_{who}_role.yaml" for who in ("admin", "editor", "viewer")]
    project = (root / "PROJECT").read_text()
    assert project.startswith("# kept\n")
    assert [entry["kind"] for entry in yaml.safe_load(project)["resources"]] == ["Old", "Fresh"]
