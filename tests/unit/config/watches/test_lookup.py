"""Where roles and playbooks are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.config.watches.lookup import Lookup, has_tasks


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_a_role_lives_below_roles(project: Path) -> None:
    """A bare name is a directory in ./roles."""
    assert Lookup.of({}, "", "").role("web") == project / "roles" / "web"


def test_the_roles_path_precedes_the_working_directory(project: Path) -> None:
    """Each directory of the path is tried with and without roles/."""
    inner = make(project / "more" / "roles" / "web")
    environ = {"ANSIBLE_ROLES_PATH": f"{project}/none:{project}/more"}

    assert Lookup.of(environ, "", "").role("web") == inner
    outer = make(project / "more" / "web")
    assert Lookup.of(environ, "", "").role("web") == outer


def test_the_flags_beat_the_environment(project: Path) -> None:
    """Where both are given, only the paths of the flags are searched."""
    flagged = make(project / "flag" / "web")
    make(project / "env" / "web")
    environ = {"ANSIBLE_ROLES_PATH": str(project / "env")}

    assert Lookup.of(environ, "flag", "").role("web") == flagged


@pytest.mark.parametrize(
    ("environ", "flag", "place"),
    [
        ({"HOME": "{project}"}, "", ".ansible/collections"),
        ({"ANSIBLE_COLLECTIONS_PATH": "{project}/c"}, "", "c"),
        ({"ANSIBLE_COLLECTIONS_PATH": "~/c", "HOME": "{project}"}, "", "c"),
        ({"ANSIBLE_COLLECTIONS_PATH": "/none"}, "{project}/d", "d"),
    ],
)
def test_a_name_of_three_parts_is_a_role_of_a_collection(
    project: Path, environ: dict[str, str], flag: str, place: str
) -> None:
    """Collections are sought in the flag's path, the environment's, or the usual places."""
    role = make(project / place / "ansible_collections" / "acme" / "shop" / "roles" / "web")
    environ = {name: value.format(project=project) for name, value in environ.items()}

    lookup = Lookup.of(environ, "", flag.format(project=project))

    assert lookup.role("acme.shop.web") == role


def test_existing_paths_are_used_unchanged(project: Path) -> None:
    """Absolute paths, and relative ones that exist, are not sought elsewhere."""
    role = make(project / "elsewhere" / "web")

    assert Lookup.of({}, "", "").role(str(role)) == role
    assert Lookup.of({}, "", "").role("elsewhere/web") == role


def test_a_link_to_a_role_is_a_role_under_its_own_name(project: Path) -> None:
    """The link is not resolved: the name of the role is that of the link."""
    link = project / "roles" / "alias"
    link.symlink_to(project / "roles" / "web")

    role = Lookup.of({}, "", "").role("alias")

    assert role == link
    assert has_tasks(role)


def test_playbooks_start_at_the_working_directory(project: Path) -> None:
    """A relative playbook is found from where the operator was started."""
    lookup = Lookup.of({}, "", "")

    assert lookup.playbook("site.yml") == project / "site.yml"
    assert lookup.playbook("/abs/site.yml") == Path("/abs/site.yml")


@pytest.mark.parametrize("name", ["main.yml", "main.yaml", "main.json", "main"])
def test_tasks_may_have_any_ending_that_ansible_supports(tmp_path: Path, name: str) -> None:
    """A role has tasks if Ansible would find them."""
    assert not has_tasks(tmp_path)
    (make(tmp_path / "tasks") / name).write_text("[]")
    assert has_tasks(tmp_path)


@pytest.mark.parametrize(
    ("copied", "name", "found"),
    [
        ("COPY ansible/roles/ ${HOME}/roles/", "/opt/ansible/roles/web", "ansible/roles/web"),
        ("COPY --chown=1:0 plays/* $HOME/", "/opt/ansible/web.yml", "plays/web.yml"),
        ("ADD other.yml \\\n  /opt/ansible/web.yml", "/opt/ansible/web.yml", "other.yml"),
        ('COPY ["a/web", "b", "roles/"]', "/opt/ansible/roles/web.yml", "a/web/web.yml"),
        ("COPY --from=x y /opt/ansible/", "/opt/ansible/web.yml", "web.yml"),
    ],
)
def test_paths_of_the_image_are_found_where_the_dockerfile_copies_them_from(
    project: Path, copied: str, name: str, found: str
) -> None:
    """Else in the directory of watches.yaml, which is the home directory of the image."""
    (project / "Dockerfile").write_text(f"FROM x\n{copied}\n")
    for each in ("ansible/roles/web", "a/web", "b"):
        (project / each).mkdir(parents=True, exist_ok=True)
    (project / found).parent.mkdir(parents=True, exist_ok=True)
    if found.endswith(".yml"):
        (project / found).touch()
    lookup = Lookup.of({}, "", "", project)
    assert lookup.role(name) == lookup.playbook(name) == project / found


@pytest.mark.parametrize(
    ("file", "copied", "is_found"),
    [
        ("docker/Dockerfile", "COPY watches.yaml plays/web.yml ${HOME}/", True),
        ("Containerfile", "COPY op/watches.yaml op/plays/web.yml ${HOME}/", True),
        ("build/Dockerfile", "COPY other/watches.yaml op/plays/web.yml ${HOME}/", False),
        ("neighbour/Dockerfile", "COPY watches.yaml plays/web.yml ${HOME}/", False),
    ],
)
def test_a_dockerfile_beside_the_project_is_its_own_if_it_copies_its_watches(
    tmp_path: Path, file: str, copied: str, is_found: bool
) -> None:
    """It may be built in the project or above it; a neighbour with watches has another project."""
    for each in ("op/watches.yaml", "op/plays/web.yml", "neighbour/watches.yaml", file):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text(f"FROM x\n{copied}\n")
    found = Lookup.of({}, "", "", tmp_path / "op").playbook("/opt/ansible/web.yml")
    assert (found == tmp_path / "op/plays/web.yml") is is_found
