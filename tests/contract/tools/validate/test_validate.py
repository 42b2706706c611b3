"""`operator-runner validate` over projects: each mistake with file, line and hint, all at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scaffold import create_api, init, run

REPOSITORY = Path(__file__).parents[4]
WATCHES = "- {group: example.com, version: v1, kind: Site, role: site}\n"
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  names: {kind: Site, plural: sites, singular: site}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                siteTitle: {type: string}
                replicas: {type: integer}
                web: {type: object, properties: {listenPort: {type: integer}}}
                ports:
                  type: array
                  items: {type: object, properties: {hostPort: {type: integer}}}
"""
IMAGE = (
    "is not in the image: the base image has no collection community.general; "
    "add `- name: community.general` to the collections of requirements.yml"
)
UNDEFINED = "is undefined; add it to the CRD, or a value to defaults/main.yml of the role"
SNAKE = "'siteTitle' is undefined: spec fields are in snake case here: site_title"
MISTAKES = [
    ('- debug: {msg: "{{ siteTitle }}"}\n', SNAKE),
    (
        '- debug: {msg: "{{ web.listenPort }}"}\n',
        "'web' has no attribute 'listenPort': nested keys are in snake case too: listen_port",
    ),
    (
        '- debug:\n    msg: "{{ item.hostPort }}" # <\n  loop: "{{ ports }}"\n',
        "'ports[]' has no attribute 'hostPort': nested keys are in snake case too: host_port",
    ),
    (
        '- debug: {msg: "{{ web.listen_prot }}"}\n',
        "'web' has no attribute 'listen_prot': did you mean listen_port?",
    ),
    (
        "- kubernetes.core.k8s: {definition: {apiVersion: app/v1, kind: Deployment}}\n",
        "unknown group in apiVersion app/v1: did you mean apps/v1?",
    ),
    ('- debug: {msg: "{{ replica }}"}\n', "'replica' is undefined: did you mean replicas?"),
    ('- debug: {msg: "{{ owner_name }}"}\n', f"'owner_name' {UNDEFINED}"),
    (
        "- debug:\n    msg: |\n      one\n      {{ in_a_block_scalar }} # <\n",
        f"'in_a_block_scalar' {UNDEFINED}",
    ),
    ("- debug: {msg: a}\n  when: a_condition # <\n", f"'a_condition' {UNDEFINED}"),
    (
        "- kubernetes.core.k8z: {state: present}\n",
        "unknown module kubernetes.core.k8z: did you mean kubernetes.core.k8s?",
    ),
    (
        "- kubernets.core.k8s: {state: present}\n",
        (
            "unknown module kubernets.core.k8s: there is no collection kubernets.core"
            ": did you mean kubernetes.core.k8s?"
        ),
    ),
    ("- set_fcat: {a: b}\n", "unknown module set_fcat: did you mean set_fact?"),
    ("- community.general.ini_file: {path: /a}\n", f"module community.general.ini_file {IMAGE}"),
    ("- ini_file: {path: /a}\n", f"module ini_file {IMAGE}"),
    (
        "- kubernetes.core.k8s: {stat: present}\n",
        "module kubernetes.core.k8s has no parameter stat: did you mean state?",
    ),
    (
        "- debug: {msg: a}\n  whem: true # <\n",
        "'whem' is not a keyword of a task: did you mean when?",
    ),
    (
        "- whem: true # <\n  debug: {msg: a}\n",
        "'whem' is not a keyword of a task: did you mean when?",
    ),
    (
        "- whne: true # <\n  debug: {msg: a}\n",
        "'whne' is not a keyword of a task: did you mean when?",
    ),
    ("- name: Nothing\n", "the task has no module"),
    ('- debug: {msg: "{{ replicas | to_jsn }}"}\n', "unknown filter to_jsn: did you mean to_json?"),
    ('- debug: {msg: "{{ web | json_query(1) }}"}\n', f"filter json_query {IMAGE}"),
    ('- debug: {msg: "{{ web is mappign }}"}\n', "unknown test mappign: did you mean mapping?"),
    ("- debug: {msg: \"{{ lookup('fiel') }}\"}\n", "unknown lookup fiel: did you mean file?"),
    (
        '- debug: {msg: "{{ replicas "}\n',
        "Jinja syntax: unexpected end of template, expected 'end of print statement'.",
    ),
    (
        "- debug: {msg: a}\n  when: replicas = 1 # <\n",
        "Jinja syntax: expected token 'end of print statement', got '='",
    ),
    ("- include_tasks: othr.yml\n", "there is no tasks file othr.yml: did you mean other.yml?"),
    ("- include_role: {name: siet}\n", "there is no role siet: did you mean site?"),
    (
        "- template: {src: pgae.j2, dest: /a}\n",
        "there is no template file pgae.j2 in templates/: did you mean page.j2?",
    ),
    ("- copy: {src: logo.png, dest: /a}\n", "there is no file logo.png in files/"),
    (
        '- block:\n    - debug: {msg: a}\n  rescue:\n    - debug: {msg: "{{ rescued }}"} # <\n',
        f"'rescued' {UNDEFINED}",
    ),
]
"""Tasks and the message for the line with `<`, else for the first one."""
FILES = {
    "tasks/other.yml": ("- debug: {msg: a}\n- debug: [\n", 3, "YAML parsing failed"),
    "handlers/main.yml": ('- debug:\n    msg: "{{ handled }}"\n', 2, f"'handled' {UNDEFINED}"),
    "templates/page.j2": ("a: b\ntitle: {{ siteTitle }}\n", 2, SNAKE),
    "templates/loop.j2": (
        "{% for p in ports %}\n{{ p.hostPort }}\n{% endfor %}\n",
        2,
        "'ports[]' has no attribute 'hostPort': nested keys are in snake case too: host_port",
    ),
    "templates/broken.j2": ("a\n\n{% if %}\n", 3, "Jinja syntax: Expected an expression"),
    "vars/main.yml": ('a: 1\nb: "{{ of_vars }}"\n', 2, f"'of_vars' {UNDEFINED}"),
    "meta/argument_specs.yml": (
        "argument_specs:\n  main:\n    options:\n      replicas: {type: intt}\n",
        4,
        "option replicas: unknown type 'intt': did you mean int?",
    ),
}
GOOD_TASKS = """
- name: Facts
  ansible.builtin.set_fact: {made: "{{ replicas + size }}"}
- name: Block
  when: site_title is defined
  vars: {inner: 1}
  block:
    - name: Loop
      ansible.builtin.debug: {msg: "{{ each.host_port }} {{ made }} {{ inner }} {{ number }}"}
      loop: "{{ ports }}"
      loop_control: {loop_var: each, index_var: number}
      register: shown
      notify: Tell
  rescue:
    - ansible.builtin.debug: {var: ansible_failed_result.msg}
  always:
    - debug: msg="{{ shown.results | length }} {{ ansible_operator_meta.name }}"
- name: Old style
  action: debug msg=a
- name: Files
  kubernetes.core.k8s: {template: [{path: page.j2}], state: present}
- name: Included
  ansible.builtin.include_tasks: "{{ item }}.yml"
  with_items: [other]
- name: Variables
  ansible.builtin.include_vars: {file: more.yml}
- name: Use
  ansible.builtin.assert:
    that: [more == 1, site_title != 'x', "'a' in _example_com_site.metadata.labels"]
    fail_msg: "{{ optional | default(omit) }} {{ lookup('template', 'page.j2') }}"
- name: Not a template
  ansible.builtin.debug: {msg: !unsafe "{{ anything }}"}
- operator_sdk.util.k8s_status: {api_version: example.com/v1, kind: Site, name: a}
"""


def write(project: Path, files: dict[str, str]) -> Path:
    for name, text in {"watches.yaml": WATCHES, "crds/site.yaml": CRD, **files}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return project


def validate(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(project, "validate", *arguments)


def test_each_mistake_has_its_file_line_and_hint(tmp_path: Path) -> None:
    """All mistakes of tasks are reported at once, and nothing else."""
    lines: list[str] = []
    expected = []
    for tasks, message in MISTAKES:
        block = tasks.splitlines()
        marked = next((number for number, line in enumerate(block) if "# <" in line), 0)
        expected.append(f"Error: roles/site/tasks/main.yml:{len(lines) + marked + 1}: {message}")
        lines += block
    files = {f"roles/site/{name}": text for name, (text, _, _) in FILES.items()}
    files["roles/site/tasks/other.yml"] = "- debug: {msg: a}\n"
    del files["roles/site/meta/argument_specs.yml"], files["roles/site/templates/broken.j2"]
    files |= {name: "a\n" for name in files if "templates" in name}
    for name in ("handlers/main.yml", "vars/main.yml"):
        del files[f"roles/site/{name}"]
    files["roles/site/tasks/main.yml"] = "\n".join(lines) + "\n"
    done = validate(write(tmp_path, files))
    assert done.stderr.splitlines() == [*expected, "Failed to validate roles and playbooks."]
    assert done.returncode == 1
    assert done.stdout.startswith("watches.yaml: valid, kinds: 1\n")


def test_mistakes_are_found_in_each_file_of_a_role(tmp_path: Path) -> None:
    """Tasks, handlers, templates, variables and argument specs."""
    files = {f"roles/site/{name}": text for name, (text, _, _) in FILES.items()}
    naming = f"- debug: {{msg: {json.dumps(sorted(FILES))}}}\n"
    done = validate(write(tmp_path, {"roles/site/tasks/main.yml": naming, **files}))
    for name, (_, line, message) in FILES.items():
        assert f"Error: roles/site/{name}:{line}: {message}" in done.stderr
    assert len(done.stderr.splitlines()) == len(FILES) + 1
    assert done.returncode == 1


def test_a_project_without_mistakes_has_no_findings(tmp_path: Path) -> None:
    """What blocks, loops, facts, files and `default` define is not reported."""
    files = {
        "tasks/main.yml": GOOD_TASKS,
        "tasks/other.yml": "- debug: {msg: '{{ size }}'}\n",
        "handlers/main.yml": "- name: Tell\n  debug: {msg: '{{ made }}'}\n  listen: telling\n",
        "defaults/main.yml": "size: 1\n",
        "vars/more.yml": "more: 1\n",
        "templates/page.j2": "{% set a = 1 %}{{ a }}{{ site_title }}{{ web['listen_port'] }}\n",
        "templates/logo.png.j2": "plain\n",
        "meta/main.yml": "dependencies: []\ncollections: [kubernetes.core]\n",
    }
    done = validate(write(tmp_path, {f"roles/site/{name}": text for name, text in files.items()}))
    assert (done.returncode, done.stderr) == (0, "")


def test_playbooks_and_finalizers_are_checked(tmp_path: Path) -> None:
    """Plays, their roles and files, and the role of a finalizer are checked too."""
    files = {
        "watches.yaml": (
            "- group: example.com\n  version: v1\n  kind: Site\n  playbook: playbooks/site.yml\n"
            "  finalizer: {name: example.com/x, role: bye, vars: {state: absent}}\n"
        ),
        "playbooks/site.yml": (
            "- hosts: localhost\n  vars: {of_play: 1}\n  vars_files: [more.yml]\n"
            "  pre_tasks:\n    - debug: {msg: '{{ of_play }} {{ more }} {{ site_title }}'}\n"
            "  tasks:\n    - debug: {msg: '{{ siteTitle }}'}\n"
            "  roles: [other, nowhere]\n  taks: []\n"
        ),
        "playbooks/more.yml": "more: 1\n",
        "roles/bye/tasks/main.yml": "- debug: {msg: '{{ state }} {{ stat }}'}\n",
        "roles/other/tasks/main.yml": "- no_module: {}\n",
    }
    done = validate(write(tmp_path, files))
    assert done.stderr.splitlines() == [
        f"Error: playbooks/site.yml:7: {SNAKE}",
        "Error: playbooks/site.yml:8: there is no role nowhere; add it to roles/",
        "Error: playbooks/site.yml:9: 'taks' is not a keyword of a play: did you mean tasks?",
        "Error: roles/bye/tasks/main.yml:1: 'stat' is undefined: did you mean state?",
        "Error: roles/other/tasks/main.yml:1: unknown module no_module",
        "Failed to validate roles and playbooks.",
    ]


def test_collections_of_requirements_are_in_the_image(tmp_path: Path) -> None:
    """A collection of requirements.yml is in the image; without it here there is a warning."""
    tasks = "- community.general.ini_file: {path: /a}\n- strange.things.do: {}\n"
    requirements = "collections: [community.general, strange.things]\n"
    files = {"roles/site/tasks/main.yml": tasks, "requirements.yml": requirements}
    done = validate(write(tmp_path, files))
    assert done.returncode == 0
    assert done.stderr == (
        "Warning: roles/site/tasks/main.yml:2: plugins of strange.things are not checked, "
        "it is not installed here; "
        "install it with `ansible-galaxy collection install -r requirements.yml`\n"
    )


def test_argument_specs_and_defaults_that_do_not_agree_with_the_crd(tmp_path: Path) -> None:
    """A type that differs, a name in camel case, and a default that is never overridden."""
    files = {
        "tasks/main.yml": "[]\n",
        "defaults/main.yml": "size: 1\nsiteTitle: a\n",
        "meta/argument_specs.yml": (
            "argument_specs:\n  main:\n    options:\n"
            "      siteTitle: {type: str}\n      replicas: {type: dict}\n"
            "      web: {type: dict}\n      ports: {type: list}\n      site_title: {}\n"
        ),
    }
    done = validate(write(tmp_path, {f"roles/site/{name}": text for name, text in files.items()}))
    assert done.stderr == (
        "Warning: roles/site/defaults/main.yml:2: siteTitle is not the default of the field: "
        "spec fields are in snake case here: site_title\n"
        "Warning: roles/site/meta/argument_specs.yml:4: option siteTitle is never set: "
        "spec fields are in snake case here: site_title\n"
        "Error: roles/site/meta/argument_specs.yml:5: option replicas has type dict, "
        "the field of the CRD is integer; give both the same type\n"
        "Failed to validate roles and playbooks.\n"
    )


@pytest.mark.parametrize(
    ("version", "kind", "hint"),
    [
        (
            "v1",
            "Sight",
            (
                "did you mean Site in group example.com, served in v1?"
                " If not, install its CRD with `kubectl apply -f`"
            ),
        ),
        ("v2", "Site", "it is served in v1; correct `version`, or add it to the CRD"),
    ],
)
def test_a_kind_that_the_crds_of_the_project_do_not_serve(
    tmp_path: Path, version: str, kind: str, hint: str
) -> None:
    """A warning has its line in watches.yaml: another project may install the CRD."""
    entry = f"- group: example.com\n  version: {version}\n  kind: {kind}\n  role: site\n"
    files = {"roles/site/tasks/main.yml": "[]\n", "watches.yaml": entry}
    done = validate(write(tmp_path, files))
    assert done.returncode == 0
    assert done.stderr == (
        f"Warning: watches.yaml:3: example.com/{version}, Kind={kind} is not served by the CRDs "
        f"of the project: {hint}\n"
    )


def test_kinds_of_references_and_triggers_are_compared_too(tmp_path: Path) -> None:
    """Each has its own line."""
    entry = (
        "- version: v1\n  kind: ConfigMap\n  role: site\n"
        "  references:\n    - {group: example.com, version: v1, kind: Sight, name: a}\n"
        "  triggers:\n    - group: example.com\n      version: v1\n      kind: Sites\n"
    )
    files = {"roles/site/tasks/main.yml": "[]\n", "watches.yaml": entry}
    done = validate(write(tmp_path, files))
    found = [line.split(" is not")[0] for line in done.stderr.splitlines()]
    assert found == [
        "Warning: watches.yaml:5: example.com/v1, Kind=Sight",
        "Warning: watches.yaml:9: example.com/v1, Kind=Sites",
    ]


@pytest.mark.parametrize("folder", [".", "tests/functional/project"])
def test_projects_of_this_repository_have_no_findings(folder: str) -> None:
    """The nginx operator and the project of the tests have no findings."""
    done = validate(REPOSITORY / folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_new_project_has_no_findings(tmp_path: Path) -> None:
    """What `init` and `create api` write has no findings."""
    project = tmp_path / "shop"
    init(project, "--domain=example.com")
    create_api(project, "Web", "--generate-role")
    create_api(project, "Backup", "--generate-playbook")
    done = validate(project)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_are_decrypted_with_the_vault_password_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it they are a warning, and their variables may have any name."""
    password, vault = tmp_path / "password", Path(sys.executable).with_name("ansible-vault")
    password.write_text("correct horse")
    files = {
        "roles/site/tasks/main.yml": "- debug: {msg: '{{ secret }}{{ secrte }}'}\n",
        "roles/site/vars/main.yml": "secret: 1\n",
    }
    project = write(tmp_path / "project", files)
    file = project / "roles/site/vars/main.yml"
    subprocess.run([vault, "encrypt", f"--vault-password-file={password}", file], check=True)

    unknown = validate(project)
    assert unknown.returncode == 0, unknown.stderr
    assert "roles/site/vars/main.yml:1: the file is not checked" in unknown.stderr
    assert "set ANSIBLE_VAULT_PASSWORD_FILE" in unknown.stderr

    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    done = validate(project)
    assert done.returncode == 1
    assert "'secrte' is undefined: did you mean secret?" in done.stderr
    assert "not checked" not in done.stderr

    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "none"))
    missing = validate(project)
    assert missing.returncode == 1
    assert f"vault password {tmp_path}/none: " in missing.stderr


def test_the_surroundings_are_those_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """./ansible.cfg is not read; versions and tasks that a run refuses are warnings."""
    files = {
        "ansible.cfg": "[defaults]\nlibrary = ./mods\n",
        "mods/nudge.py": "#!/usr/bin/python\n",
        "requirements.yml": (
            "collections:  # not kubernetes.core\n  - {name: community.docker, version: 3.4.0}\n"
            "  - {name: kubernetes.core, version: 2.2.3}\n"
            "  - {name: operator_sdk.util, version: 0.5.0}\n"
        ),
        "watches.yaml": "- {group: example.com, version: v1, kind: Site, playbook: site.yml}\n",
        "site.yml": (
            "- hosts: localhost\n  strategy: debug\n  vars_prompt:\n    - name: answer\n"
            "  tasks:\n    - nudge:\n    - pause: {prompt: Go on?}\n    - pause: seconds=1\n"
            "    - debug: {}\n      debugger: on_failed\n"
        ),
    }
    done = validate(write(tmp_path, files))
    found = [line.partition("Error: ")[2] or line for line in done.stderr.splitlines()]
    config, *rest = found
    assert config.startswith(f"Warning: {tmp_path}/ansible.cfg is not read by runs")
    assert [line.split(": ")[1] for line in rest[:-2]] == [
        "requirements.yml:3",
        "site.yml:2",
        "site.yml:4",
        "site.yml:7",
        "site.yml:10",
    ]
    assert "kubernetes.core 2.2.3 cannot work in the base image" in rest[0]
    assert "site.yml:6: unknown module nudge" in rest[-2]
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    assert validate(tmp_path).returncode == 0
    (tmp_path / "ansible.cfg").write_text("[defaults]\nlibrary = ./mods\nroles_path = ./more\n")
    (tmp_path / "site.yml").write_text("- {hosts: localhost, roles: [far]}\n")
    (tmp_path / "more" / "far" / "tasks").mkdir(parents=True)
    assert validate(tmp_path).returncode == 0
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = many\n")
    invalid = validate(tmp_path)
    assert invalid.returncode == 1
    assert "Traceback" not in invalid.stderr
    assert "cannot read the settings of Ansible" in invalid.stderr
    assert "'DEFAULT_FORKS'" in invalid.stderr


def test_correct_projects_of_all_layouts_have_no_errors(tmp_path: Path) -> None:
    """Paths of the image, roles as paths, requirements elsewhere, and modules in any language."""
    files = {
        "watches.yaml": (
            "- {group: example.com, version: v1, kind: Site, role: /opt/ansible/roles/site}\n"
            "- {group: example.com, version: v1, kind: Shop, playbook: /opt/ansible/shop.yml}\n"
        ),
        "build/Dockerfile": (
            "COPY roles/ ${HOME}/roles/\nCOPY plays/* ${HOME}/\nCOPY needs ${HOME}\n"
            "RUN ansible-galaxy collection install \\\n  -r ${HOME}/image.yml --force\n"
        ),
        "needs/image.yml": "collections: [my.own]\n",
        "plays/shop.yml": "- {hosts: localhost, roles: [./roles/site]}\n",
        "roles/site/tasks/main.yml": (
            "- debug: {msg: \"{{ lookup('template', '/opt/data/page.j2') }}\"}\n"
            "- debug: {msg: a}\n  when: retries is number\n"
            "- my.own.module: {a: b}\n"
            "- shout: word=moin\n"
            "- odd: {a: b}\n"
        ),
        "roles/site/tasks/old.yml": "- long_gone: {a: b}\n",
        "roles/site/library/shout": '#!/bin/bash\n. "$1"\necho "{}"\n',
        "roles/site/library/odd.py": 'DOCUMENTATION = """\noptions:\n  a: b: c\n"""\n',
    }
    done = validate(write(tmp_path, files))
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        "roles/site/tasks/main.yml:4",
        "roles/site/tasks/old.yml:1",
        "watches.yaml:2",
    ]


def test_tests_of_undefined_variables_fail_with_native_types_alone(tmp_path: Path) -> None:
    """Text types keep their result of ansible-core 2.18, which is false."""
    watch = "{group: example.com, version: v1, kind: Site, role: site"
    files = {"roles/site/tasks/main.yml": "- debug: {msg: a}\n  when: retries is number\n"}
    write(tmp_path, files | {"watches.yaml": f"- {watch}}}\n"})
    assert validate(tmp_path).returncode == 0
    done = validate(write(tmp_path, {"watches.yaml": f"- {watch}, nativeTypes: true}}\n"}))
    assert done.returncode == 1
    assert "roles/site/tasks/main.yml:2: 'retries' is undefined" in done.stderr


def test_facts_that_a_watch_does_not_gather_are_reported(tmp_path: Path) -> None:
    """Unless a task gathers them, or they have a default."""
    watch = "- {group: example.com, version: v1, kind: Site, role: site, gatherFacts: false}\n"
    main = "roles/site/tasks/main.yml"
    task = "- debug: {msg: '{{ ansible_facts.distribution }}, {{ ansible_env | default(1) }}'}\n"
    done = validate(write(tmp_path, {"watches.yaml": watch, main: task}))
    message = "'ansible_facts' is undefined: the watch has `gatherFacts: false`; remove that key"
    assert f"{main}:1: {message}" in done.stderr
    assert "'ansible_env' is undefined" not in done.stderr
    assert done.returncode == 0
    write(tmp_path, {main: "- setup: {gather_subset: [min]}\n" + task})
    assert message not in validate(tmp_path).stderr


def test_removed_modules_are_errors_with_their_successor(tmp_path: Path) -> None:
    """They fail in each run."""
    files = {"roles/site/tasks/main.yml": "- k8s_facts: {kind: Pod}\n- k8s_status: {kind: Pod}\n"}
    done = validate(write(tmp_path, files))
    assert done.returncode == 1
    assert "main.yml:1: The 'kubernetes.core.k8s_facts' module has been removed. Use" in done.stderr
    assert (
        "main.yml:2: unknown module k8s_status: write operator_sdk.util.k8s_status" in done.stderr
    )


@pytest.mark.parametrize(
    ("requirement", "status"),
    [("./own.tar.gz", 0), ("git+https://git.example.com/own.git", 0), ("other.kind:1.0.0", 1)],
)
def test_an_archive_in_the_dockerfile_can_have_any_collection(
    tmp_path: Path, requirement: str, status: int
) -> None:
    """A collection that is named has its own plugins only."""
    files = {
        "Dockerfile": f"RUN ansible-galaxy collection install -s own --force {requirement}\n",
        "roles/site/tasks/main.yml": "- my.own.module: {a: b}\n",
    }
    assert validate(write(tmp_path, files)).returncode == status


def test_warnings_of_one_kind_are_one_line(tmp_path: Path) -> None:
    """With the first places and the cure; `--all` and JSON have each of them."""
    tasks = "- debug: {msg: a}\n  when: site_title | length\n" * 5 + "- nothing_known: {}\n"
    project = write(tmp_path, {"roles/site/tasks/main.yml": tasks})
    warning, error, _ = validate(project).stderr.splitlines()
    assert warning == (
        "Warning: the condition can return int instead of a boolean, which ansible-core 2.23 "
        "refuses: compare it, such as `> 0` (5 places: roles/site/tasks/main.yml:2, "
        "roles/site/tasks/main.yml:4, roles/site/tasks/main.yml:6, ...; --all lists them)"
    )
    assert error.startswith("Error: roles/site/tasks/main.yml:11: unknown module nothing_known")
    assert validate(project, "--all").stderr.count("Warning: roles/site/tasks/main.yml:") == 5
    done = validate(project, "-o", "json")
    found = [(each["severity"], each["line"]) for each in json.loads(done.stdout)]
    assert found == [*(("warning", line) for line in (2, 4, 6, 8, 10)), ("error", 11)]
    assert done.returncode == 1
