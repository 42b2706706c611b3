"""From valid files to watches."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.config.watches import Loaded, load
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import (
    GVK,
    Conversion,
    DeclaredCondition,
    DeclaredStatus,
    Deselection,
    Drift,
    Finalizer,
    JobTemplate,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectTrigger,
    Ownership,
    Prune,
    Reference,
    RunContent,
    WakeOn,
    Watch,
)

HEAD = "- version: v1\n  kind: Web\n  role: web\n"


def read(project: Path, text: str, **environ: str) -> Loaded:
    path = project / "watches.yaml"
    path.write_text(text)
    return load(path, environ)


def read_one(project: Path, more: str, **environ: str) -> Watch:
    loaded = read(project, HEAD + "".join(f"  {line}\n" for line in more.splitlines()), **environ)
    assert loaded.warnings == ()
    (watch,) = loaded.watches
    return watch


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", ""),
        ("a$UNSET", ""),
        ("a$$b%{", ""),
        ("a:b", "Ansible splits search paths at ':'; move the directory, or rename it"),
        ("a{{ b", "Ansible evaluates '{{' as the start of a template"),
        ("a{% b", "Ansible evaluates '{%' as the start of a template"),
        ("a{# b", "Ansible evaluates '{#' as the start of a template"),
        ("a$HOME", "Ansible puts the value of the variable in place of $HOME"),
        ("a${HOME}b", "Ansible puts the value of the variable in place of ${HOME}"),
    ],
)
def test_a_role_in_a_directory_that_ansible_does_not_take_literally_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: str
) -> None:
    """With the path, the characters and what to do; each run would fail with another reason."""
    tasks = tmp_path / name / "roles" / "web" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    tasks.touch()
    monkeypatch.chdir(tmp_path / name)
    if not error:
        assert len(read(tmp_path / name, HEAD, HOME="/root").watches) == 1
        return
    with pytest.raises(ConfigError) as raised:
        read(tmp_path / name, HEAD, HOME="/root")
    [problem] = raised.value.problems
    assert f"watches.yaml:3: [0].role: role: {tmp_path / name}/roles/web: {error}" in problem


def test_a_playbook_has_to_be_in_a_directory_without_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is in no search path and no template."""
    text = "- version: v1\n  kind: Web\n  playbook: web.yml\n"
    for name in ("a:b{{ c", "a$HOME"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "web.yml").touch()
    monkeypatch.chdir(tmp_path / "a:b{{ c")
    assert len(read(tmp_path / "a:b{{ c", text, HOME="/root").watches) == 1
    monkeypatch.chdir(tmp_path / "a$HOME")
    with pytest.raises(ConfigError, match=r"playbook: .*a\$HOME/web.yml: .* in place of \$HOME"):
        read(tmp_path / "a$HOME", text, HOME="/root")


def test_a_short_entry_takes_all_defaults(project: Path) -> None:
    """Kind, version and role are enough; the rest is as in ansible-operator."""
    loaded = read(project, f"{HEAD}  group: example.com\n")

    assert loaded == Loaded(
        (
            Watch(
                gvk=GVK("example.com", "v1", "Web"),
                content=RunContent(role=project / "roles" / "web"),
                vars={},
                finalizer=None,
                selector=LabelSelector(),
                blacklist=frozenset(),
                max_runner_artifacts=20,
                reconcile_period=None,
                manage_status=True,
                watch_dependent_resources=True,
                watch_cluster_scoped_resources=False,
                watch_annotations_changes=False,
                snake_case_parameters=True,
                mark_unsafe=False,
                when=None,
                timeout=None,
                supersede=False,
                kstatus=False,
                references=(),
                triggers=(),
                block_upgrade=None,
            ),
        ),
        (),
    )


@pytest.mark.parametrize("group", ["", "apps", "networking.k8s.io", "rbac.authorization.k8s.io"])
def test_the_status_of_built_in_kinds_is_written_only_on_request(project: Path, group: str) -> None:
    """It belongs to the controllers of Kubernetes; kstatus alone is a warning with a hint."""
    entry = f"{HEAD}  group: '{group}'\n"
    assert not read(project, entry).watches[0].manage_status
    assert read(project, f"{entry}  manageStatus: true\n").watches[0].manage_status

    (warning,) = read(project, f"{entry}  kstatus: true\n").warnings
    assert warning.endswith(
        "watches.yaml:5: [0].kstatus: no effect: Web is a built-in kind, whose status is not"
        " written; remove it, or add `manageStatus: true`"
    )
    assert read(project, f"{entry}  kstatus: true\n  manageStatus: true\n").warnings == ()


def test_groups_below_k8s_io_may_be_of_crds(project: Path) -> None:
    """Gateway API and others are CRDs, whose status is written."""
    loaded = read(project, f"{HEAD}  group: gateway.networking.k8s.io\n")
    assert loaded.watches[0].manage_status


def test_a_full_entry_keeps_every_value(project: Path) -> None:
    """Every key of the contract, and the new ones, reach the watch."""
    watch = read_one(
        project,
        """\
group: example.com
vars: {size: 3, nested: {Key: [1, a]}}
maxRunnerArtifacts: 5
reconcilePeriod: 1h30m
manageStatus: false
watchDependentResources: false
watchClusterScopedResources: true
snakeCaseParameters: false
gatherFacts: false
watchAnnotationsChanges: true
markUnsafe: yes
nativeTypes: false
blacklist: [{group: apps, version: v1, kind: Deployment}, {version: v1, kind: Pod}]
selector:
  matchLabels: {tier: front}
  matchExpressions: [{key: example.com/zone, operator: In, values: [a, b]}]
finalizer: {name: example.com/cleanup, playbook: site.yml, vars: {state: absent}}
when: metadata.annotations.paused != 'true'
deselection: {name: example.com/reported, role: web, vars: {state: absent}}
timeout: 90s
supersede: true
kstatus: true
blockUpgrade: spec.migrate
allowVars: [ansibleHost, port]
topLevelFields: [rbacBindings, data]
references:
- {version: v1, kind: Secret, name: spec.secret, namespace: "'shared'"}
- {version: v1, kind: Pod, selector: spec.selector, namespace: "'*'"}
triggers:
- version: v1
  kind: Namespace
  selector: {matchLabels: {reports: "yes"}}
  when: metadata.annotations.team
  name: metadata.name
- {group: apps, version: v1, kind: Deployment, matching: spec.selector, namespace: "'*'"}
wakeOn:
- {version: v1, kind: Pod, fields: [status.phase, spec.nodeName]}
- {version: v1, kind: Secret, fields: [metadata.labels]}
conversion:
- version: v1beta1
  toHub: {spec.size: spec.replicas, spec.tls: null}
  fromHub: {'metadata.annotations."a/b"': spec.size}""",
    )

    assert watch == Watch(
        gvk=GVK("example.com", "v1", "Web"),
        content=RunContent(role=project / "roles" / "web"),
        vars={"size": 3, "nested": {"Key": [1, "a"]}},
        finalizer=Finalizer(
            "example.com/cleanup", RunContent(playbook=project / "site.yml"), {"state": "absent"}
        ),
        deselection=Deselection(
            "example.com/reported",
            RunContent(role=project / "roles" / "web"),
            {"state": "absent"},
        ),
        selector=LabelSelector(
            {"tier": "front"}, (LabelSelectorRequirement("example.com/zone", "In", ("a", "b")),)
        ),
        blacklist=frozenset({GVK("apps", "v1", "Deployment"), GVK("", "v1", "Pod")}),
        max_runner_artifacts=5,
        reconcile_period=timedelta(minutes=90),
        manage_status=False,
        watch_dependent_resources=False,
        watch_cluster_scoped_resources=True,
        watch_annotations_changes=True,
        gather_facts=False,
        snake_case_parameters=False,
        mark_unsafe=True,
        native_types=False,
        when="metadata.annotations.paused != 'true'",
        timeout=timedelta(seconds=90),
        supersede=True,
        kstatus=True,
        references=(
            Reference(GVK("", "v1", "Secret"), "spec.secret", "'shared'"),
            Reference(GVK("", "v1", "Pod"), None, "'*'", "spec.selector"),
        ),
        triggers=(
            ObjectTrigger(
                GVK("", "v1", "Namespace"),
                LabelSelector({"reports": "yes"}),
                "metadata.annotations.team",
                "metadata.name",
            ),
            ObjectTrigger(
                GVK("apps", "v1", "Deployment"), namespace="'*'", matching="spec.selector"
            ),
        ),
        conversions=(
            Conversion(
                "v1beta1",
                {("spec", "size"): "spec.replicas", ("spec", "tls"): None},
                {("metadata", "annotations", "a/b"): "spec.size"},
            ),
        ),
        block_upgrade="spec.migrate",
        allow_vars=frozenset({"ansibleHost", "port"}),
        top_level_fields=("rbacBindings", "data"),
        wake_on=(
            WakeOn(GVK("", "v1", "Pod"), ("status.phase", "spec.nodeName")),
            WakeOn(GVK("", "v1", "Secret"), ("metadata.labels",)),
        ),
    )


def test_a_status_is_declared_by_expressions(project: Path) -> None:
    """Fields and conditions keep their order; only a status that uses dependents keeps them."""
    watch = read_one(
        project,
        """\
group: example.com
status:
  fields:
    size: resource.spec.size
    ready: dependents[0].status.readyReplicas
  conditions:
  - {type: Available, status: "length(dependents) > `0`", reason: "'Ready'"}
  - {type: example.com/Tested, status: result.successful, message: result.message}
  - {type: Degraded, failed: true, message: "'See the log'"}""",
    )
    assert watch.status == DeclaredStatus(
        {"size": "resource.spec.size", "ready": "dependents[0].status.readyReplicas"},
        (
            DeclaredCondition("Available", "length(dependents) > `0`", "'Ready'"),
            DeclaredCondition("example.com/Tested", "result.successful", None, "result.message"),
            DeclaredCondition("Degraded", "!(result.successful)", "result.reason", "'See the log'"),
        ),
        uses_dependents=True,
    )
    plain = read_one(project, "group: example.com\nstatus: {fields: {ok: result.ok}}")
    assert plain.status == DeclaredStatus({"ok": "result.ok"})


def test_named_expressions_are_put_in_where_they_are_used(project: Path) -> None:
    """In parentheses, in all keys with expressions; names use others, and texts stay."""
    watch = read_one(
        project,
        """\
group: example.com
define:
  web: dependents[?kind == 'Deployment'] | [0]
  replicas: define.web.spec.replicas
  phase: status.phase
wakeOn: [{version: v1, kind: Pod, fields: [define.phase]}]
triggers: [{version: v1, kind: Node, matching: "define.phase && 'define.phase'"}]
status: {fields: {size: "define.replicas || `0`", other: resource.define.web}}""",
    )
    web = "(dependents[?kind == 'Deployment'] | [0])"
    assert watch.status == DeclaredStatus(
        {"size": f"({web}.spec.replicas) || `0`", "other": "resource.define.web"},
        uses_dependents=True,
    )
    assert watch.wake_on[0].fields == ("(status.phase)",)
    assert watch.triggers[0].matching == "(status.phase) && 'define.phase'"


def test_a_named_expression_without_use_is_a_warning(project: Path) -> None:
    """It may be misspelt where it is meant; the size of expressions is bounded."""
    (warning,) = read(project, f"{HEAD}  define: {{a: x}}\n").warnings
    assert warning.endswith("[0].define.a: no expression uses define.a; remove it")
    names = [
        f"n{number}: '[define.n{number - 1}, define.n{number - 1}]'" for number in range(1, 40)
    ]
    text = f"{HEAD}  when: define.n39\n  define: {{n0: x, {', '.join(names)}}}\n"
    with pytest.raises(ConfigError, match="longer than 16384 characters with the names put in"):
        read(project, text)


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("watchDependentResources: false", "dependents are not"),
        ("blacklist: [{version: v1, kind: Pod}]", "is in the blacklist"),
    ],
)
def test_fields_of_kinds_that_are_not_watched_are_a_warning(
    project: Path, line: str, warning: str
) -> None:
    """WakeOn has an effect on dependents that are watched, and on references."""
    wake_on = "wakeOn: [{version: v1, kind: Pod, fields: [status.phase]}]"
    assert warning in "".join(read(project, f"{HEAD}  {line}\n  {wake_on}").warnings)
    reference = "references: [{version: v1, kind: Pod, name: spec.pod}]"
    assert read_one(project, f"{line}\n{reference}\n{wake_on}").wake_on


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("blockUpgrade: true", "`true`"),
        ("blockUpgrade: false", None),
        ("blockUpgrade:", None),
        ("blockUpgrade: yes", "`true`"),
        ("blockUpgrade: spec.version != status.version", "spec.version != status.version"),
    ],
)
def test_block_upgrade_is_a_boolean_or_an_expression(
    project: Path, line: str, expression: str | None
) -> None:
    """A boolean is not taken for the name of a field."""
    assert read_one(project, line).block_upgrade == expression


@pytest.mark.parametrize(
    ("line", "period"),
    [
        ("reconcilePeriod: 0s", None),
        ('reconcilePeriod: "0"', None),
        ("reconcilePeriod:", None),
        ("reconcilePeriod: -1s", timedelta(0)),
        ("reconcilePeriod: 500ms", timedelta(milliseconds=500)),
    ],
)
def test_a_period_of_zero_uses_the_flag(project: Path, line: str, period: timedelta | None) -> None:
    """0s in the file is the same as unset; a negative period disables periodic runs."""
    assert read_one(project, line).reconcile_period == period


@pytest.mark.parametrize(("text", "kept"), [("0", 20), ("3", 3), ("3.0", 3), ("", 20)])
def test_zero_artifacts_mean_the_default(project: Path, text: str, kept: int) -> None:
    """Only the annotation can disable the limit of artifacts."""
    assert read_one(project, f"maxRunnerArtifacts: {text}").max_runner_artifacts == kept


@pytest.mark.parametrize(
    ("more", "flag", "marked"),
    [("", True, True), ("", False, False), ("  markUnsafe: false\n", True, False)],
)
def test_mark_unsafe_defaults_to_the_flag(
    project: Path, more: str, flag: bool, marked: bool
) -> None:
    """--mark-unsafe applies to all watches without the key."""
    path = project / "watches.yaml"
    path.write_text(HEAD + more)

    (watch,) = load(path, {}, mark_unsafe=flag).watches

    assert watch.mark_unsafe is marked


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ("", (False, None, False, Ownership.IGNORE)),
        ("profile: compatible", (False, None, False, Ownership.IGNORE)),
        ("profile: strict", (True, True, True, Ownership.REFUSE)),
        (
            "profile: strict\nmarkUnsafe: no\nnativeTypes: no\nkstatus: no\nownership: ignore",
            (False, False, False, Ownership.IGNORE),
        ),
    ],
)
def test_a_profile_has_the_defaults_of_other_keys(
    project: Path, more: str, values: tuple[Any, ...]
) -> None:
    """Keys that the watch has win."""
    watch = read_one(project, f"group: example.com\n{more}")
    assert (watch.mark_unsafe, watch.native_types, watch.kstatus, watch.ownership) == values


def test_keys_match_case_insensitively(project: Path) -> None:
    """Keys are those of a Go struct, which JSON matches without case."""
    text = "- Version: v1\n  KIND: Web\n  Role: web\n  managestatus: false\n"

    loaded = read(project, text)

    assert loaded.warnings == ()
    assert loaded.watches[0].manage_status is False


def test_numbers_and_booleans_serve_as_text(project: Path) -> None:
    """An unquoted number is a version, and an unquoted boolean a label's value."""
    loaded = read(
        project,
        "- {version: 1, kind: Web, role: web, selector: {matchLabels: {on: yes, size: 3.0}}}",
    )

    (watch,) = loaded.watches
    assert watch.gvk.version == "1"
    assert watch.selector.match_labels == {"true": "true", "size": "3"}


def test_one_kind_may_be_in_several_groups_and_versions(project: Path) -> None:
    """Each is a watch of its own, also where kind and version are the same."""
    loaded = read(
        project,
        """\
- {group: a.example.com, version: v1, kind: Web, role: web}
- {group: b.example.com, version: v1, kind: Web, role: web}
- {group: a.example.com, version: v2, kind: Web, role: web}
- {version: v1, kind: Secret, role: web}
""",
    )

    assert loaded.warnings == ()
    assert [watch.gvk for watch in loaded.watches] == [
        GVK("a.example.com", "v1", "Web"),
        GVK("b.example.com", "v1", "Web"),
        GVK("a.example.com", "v2", "Web"),
        GVK("", "v1", "Secret"),
    ]


def test_the_environment_may_contain_several_lines(project: Path) -> None:
    """Variables are put into the text before it is YAML, so a value may be structure."""
    text = "- version: v1\n  kind: ${KIND}\n  $CONTENT\n"

    loaded = read(project, text, KIND="Web", CONTENT="playbook: site.yml\n  manageStatus: no")

    (watch,) = loaded.watches
    assert watch.gvk.kind == "Web"
    assert watch.content == RunContent(playbook=project / "site.yml")
    assert not watch.manage_status


def test_ownership_is_ignored_by_default(project: Path) -> None:
    """Existing projects write what belongs to others; kinds may be left out of the policy."""
    assert read_one(project, "").ownership is Ownership.IGNORE
    watch = read_one(
        project,
        """\
ownership: refuse
ownershipExceptions:
  - {version: v1, kind: PersistentVolumeClaim}
""",
    )
    assert watch.ownership is Ownership.REFUSE
    assert watch.ownership_exceptions == {GVK("", "v1", "PersistentVolumeClaim")}


@pytest.mark.parametrize("ownership", ["", "ownership: ignore"])
def test_exceptions_of_ownership_without_a_policy_are_a_warning(
    project: Path, ownership: str
) -> None:
    """They have no effect; with a policy there is no warning."""
    exceptions = "  ownershipExceptions: [{version: v1, kind: Pod}]\n"
    (warning,) = read(project, f"{HEAD}{exceptions}  {ownership}\n").warnings
    assert "[0].ownershipExceptions: no effect without `ownership`; add `ownership: ref" in warning
    assert read(project, f"{HEAD}{exceptions}  ownership: adopt\n").warnings == ()


def test_nothing_is_pruned_by_default(project: Path) -> None:
    """`prune` is true or false, or a map, which is true."""
    assert read_one(project, "").prune is None
    assert read_one(project, "prune: false").prune is None
    assert read_one(project, "prune: true").prune == read_one(project, "prune: {}").prune == Prune()
    found = read_one(project, "prune: {kinds: [Namespace], propagation: Foreground}").prune
    assert found == Prune(frozenset({"Namespace"}), "Foreground")


def test_drift_is_enforced_by_default(project: Path) -> None:
    """As in existing projects; a word that does not exist is refused with its line."""
    assert read_one(project, "").drift is Drift.ENFORCE
    assert read_one(project, "drift: warn").drift is Drift.WARN
    with pytest.raises(ConfigError, match=r"watches\.yaml:\d+.*drift.*enforce.*warn.*ignore"):
        read_one(project, "drift: report")


def test_an_unknown_policy_of_ownership_is_refused(project: Path) -> None:
    """The message names the words that there are."""
    with pytest.raises(ConfigError, match="expected refuse, adopt or ignore"):
        read_one(project, "ownership: deny")


def test_a_playbook_wins_over_a_role(project: Path) -> None:
    """With both, the role is not even looked for."""
    loaded = read(project, "- {version: v1, kind: Web, role: none, playbook: site.yml}")

    assert loaded.watches[0].content == RunContent(playbook=project / "site.yml")


@pytest.mark.parametrize(
    ("finalizer", "content"),
    [
        ("{name: a/b, vars: {x: 1}}", None),
        ("{name: a/b, role: web}", "role"),
        ("{name: a/b, role: none, playbook: site.yml, vars: {x: 1}}", "playbook"),
    ],
)
def test_a_finalizer_needs_something_to_run_or_vars(
    project: Path, finalizer: str, content: str | None
) -> None:
    """With vars alone the content of the watch itself runs."""
    read_finalizer = read_one(project, f"finalizer: {finalizer}").finalizer

    assert read_finalizer is not None
    expected = {
        None: None,
        "role": RunContent(role=project / "roles" / "web"),
        "playbook": RunContent(playbook=project / "site.yml"),
    }
    assert read_finalizer.content == expected[content]


def test_merge_keys_and_anchors_set_defaults(project: Path) -> None:
    """An entry may take over another's keys; its own win."""
    loaded = read(
        project,
        """\
- &base {version: v1, kind: Web, role: web, manageStatus: false, markUnsafe: true}
- <<: *base
  kind: Shop
  markUnsafe: false
- <<: [{kind: First, role: web}, {kind: Second, version: v2}]
""",
    )

    assert loaded.warnings == ()
    shop, first = loaded.watches[1:]
    assert (shop.gvk, shop.manage_status, shop.mark_unsafe) == (GVK("", "v1", "Shop"), False, False)
    assert first.gvk == GVK("", "v2", "First")


def test_vars_keep_their_types(project: Path) -> None:
    """JSON in the file is the same JSON in the vars; dates remain text."""
    watch = read_one(
        project,
        """\
vars:
  text: "1"
  date: 2024-05-01
  number: 1.5
  none:
  3: int key
  block: |-
    two
    lines""",
    )

    assert watch.vars == {
        "text": "1",
        "date": "2024-05-01",
        "number": 1.5,
        "none": None,
        "3": "int key",
        "block": "two\nlines",
    }


@pytest.mark.parametrize(
    ("more", "warning"),
    [
        ("reconcilePeriode: 1m", "4: [0].reconcilePeriode: unknown key, ignored; did you mean"),
        (
            "maxWorkers: 3",
            "4: [0].maxWorkers: unknown key, ignored; known keys are group, version,",
        ),
        ("finalizer: {name: a/b, rol: web, vars: {x: 1}}", "finalizer.rol: unknown key, ignored"),
        ("kind: Web", "4: [0].kind: duplicate key; the last one is used"),
        (
            "vars:\n    home: $NOBODY",
            "5: [0].vars.home: ${NOBODY} is kept as text: the environment",
        ),
        ("vars: {key: !vault x}", "4: [0].vars.key: the tag !vault is unknown; its text is"),
        ("blacklist: [{kind: Pod}]", "[0].blacklist[0].version: must not be empty; the entry is"),
        ("finalizer: {name: a/b, role: none, vars: {x: 1}}", "finalizer.role: role: none was not"),
        ("role: tasks", "[0].role: the role has no tasks; "),
        ("skipUnchanged: true", "4: [0].skipUnchanged: ignored: no run is skipped; a longer"),
    ],
)
def test_harmless_mistakes_are_warnings(project: Path, more: str, warning: str) -> None:
    """The operator starts as with ansible-operator, but logs the ignored keys."""
    (project / "roles" / "tasks").mkdir()

    loaded = read(project, HEAD + f"  {more}\n")

    assert len(loaded.watches) == 1
    assert any(warning in text for text in loaded.warnings), loaded.warnings


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "[]\n", "null\n"])
def test_an_empty_file_is_valid(project: Path, text: str) -> None:
    """A fresh project has no watches yet."""
    assert read(project, text).watches == ()


def test_only_the_first_document_is_read(project: Path) -> None:
    """A second document is ignored with a warning."""
    loaded = read(project, f"---\n{HEAD}---\n- {{version: v1, kind: Shop, role: web}}\n")

    assert [watch.gvk.kind for watch in loaded.watches] == ["Web"]
    assert "only the first YAML document is read" in loaded.warnings[0]


def test_runs_are_jobs_if_a_watch_declares_it(project: Path) -> None:
    """Off by default; an image is enough, and everything else of a Pod is possible."""
    assert read_one(project, "").job is None
    assert read_one(project, "execution: {}").job is None
    assert read_one(project, "execution: {job: {image: ee}}").job == JobTemplate("ee")
    watch = read_one(
        project,
        """
execution:
  job:
    image: ee
    namespace: jobs
    serviceAccountName: puller
    resources: {limits: {memory: 1Gi}}
    nodeSelector: {disk: fast}
    tolerations: [{key: gpu}]
    volumes: [{name: data, emptyDir: {}}]
    volumeMounts: [{name: data, mountPath: /data}]
    ttl: 1h
    template: {spec: {priorityClassName: low}}
""",
    )
    assert watch.job == JobTemplate(
        "ee",
        "jobs",
        "puller",
        {"limits": {"memory": "1Gi"}},
        {"disk": "fast"},
        ({"key": "gpu"},),
        ({"name": "data", "emptyDir": {}},),
        ({"name": "data", "mountPath": "/data"},),
        timedelta(hours=1),
        {"spec": {"priorityClassName": "low"}},
    )


@pytest.mark.parametrize(
    "image",
    [
        "ee",
        "quay.io/example/ee:1.0",
        "localhost:5000/a/b_c__d:Latest",
        "[::1]:5000/ee",
        f"Registry.example.com/ee:1.0@sha256:{'0' * 64}",
    ],
)
def test_images_of_jobs(project: Path, image: str) -> None:
    """Every name that a container runtime accepts; the fixtures have others."""
    job = read_one(project, f"execution: {{job: {{image: '{image}'}}}}").job
    assert job is not None
    assert job.image == image
