"""The data model: immutable values without behaviour. Standard library only."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object, such as a Kubernetes object as the API gives it."""


ANNOTATION_DOMAIN = "operator-runner.dev"
"""Domain of the annotations that only this runner defines, as in `operator-runner.dev/cause`."""
TEST_ANNOTATION = f"{ANNOTATION_DOMAIN}/test"
"""At resources of tests, so that an operator that runs in the same cluster leaves them alone."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of kubectl that has all fields of a client-side apply, those of Secrets included."""
APPLYSET_DOMAIN = "applyset.kubernetes.io"
"""Domain of the labels and annotations of ApplySets, see KEP-3659."""
PART_OF = f"{APPLYSET_DOMAIN}/part-of"
"""Label of the members of an ApplySet: its id. The runner sets it, not the role."""
NOT_OWNED, FORMER_OWNER = "NotOwned", "FormerOwnerDeleting"
"""Reasons in the Status of a refused write: the object has another owner, or had this resource's
deleted predecessor as its owner."""
TYPE_TAG_PREFIX = "__ansible_"
"""Prefix of the keys that Ansible's JSON decoder interprets as type information.

`__ansible_unsafe`, `__ansible_vault` and `__ansible_type` in ansible-core 2.19.
"""


BUILT_IN_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        "admissionregistration",
        "apiextensions",
        "apiregistration",
        "authentication",
        "authorization",
        "certificates",
        "coordination",
        "discovery",
        "events",
        "flowcontrol.apiserver",
        "internal.apiserver",
        "networking",
        "node",
        "rbac.authorization",
        "resource",
        "scheduling",
        "storage",
        "storagemigration",
    )
)
"""Groups of Kubernetes itself with a dot in their names, which groups of CRDs must have."""


class PlainMap(Json):
    """A map of a resource with such a key: for Ansible it is a map all the same."""


@dataclass(frozen=True, slots=True, order=True)
class GVK:
    """Group, version and kind; the group is empty for the core group."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def kind_and_group(self) -> str:
        """`Deployment.apps`, as kubectl accepts it; `Pod` for the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def is_built_in(self) -> bool:
        """Whether the kind is one of Kubernetes itself, not of a CRD or an aggregated API."""
        return "." not in self.group or self.group in BUILT_IN_GROUPS

    @classmethod
    def of(cls, api_version: str, kind: str) -> GVK:
        """Take the `apiVersion` and `kind` of an object apart."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    def __str__(self) -> str:
        """Return it as Go writes it in logs and metric labels: `apps/v1, Kind=Deployment`."""
        return f"{self.group}/{self.version}, Kind={self.kind}"


NOT_DESIRED = ("apiVersion", "kind", "metadata", "status")
"""Top-level fields of an object that are not part of its desired state."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """Reference to an object; the key of the workqueue. `namespace` is empty if cluster-scoped."""

    gvk: GVK
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        """`page.debug.example.com/home`, as kubectl writes and reads it."""
        return f"{self.gvk.kind_and_group.lower()}/{self.name}"

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ObjectRef:
        """Return the reference of an object as the API gives it (apiVersion and kind included)."""
        return cls.of_kind(GVK.of(body["apiVersion"], body["kind"]), body)

    @classmethod
    def of_kind(cls, gvk: GVK, body: Mapping[str, Any]) -> ObjectRef:
        """Return the reference of an object of a known kind: items of lists lack apiVersion."""
        metadata = body["metadata"]
        return cls(gvk, metadata.get("namespace") or "", metadata["name"])

    def __str__(self) -> str:
        """Return the text for display: `NginxOperator default/web`."""
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.gvk.kind} {path}"


def uid_of(body: Mapping[str, Any]) -> str:
    """Return `metadata.uid`, which distinguishes objects of the same name; empty if missing."""
    return str(body["metadata"].get("uid") or "")


def generation_of(body: Json) -> int:
    """Return the generation of a resource, 0 if its kind has no generations."""
    return int(body["metadata"].get("generation") or 0)


def desired_state(body: Mapping[str, Any]) -> Json:
    """Return the fields of an object that users write: `spec`, or `data`, `rules`, `subsets` ...

    These are all top-level fields but apiVersion, kind, metadata and status.
    """
    return {name: value for name, value in body.items() if name not in NOT_DESIRED}


@dataclass(frozen=True, slots=True)
class LabelSelectorRequirement:
    """One `matchExpressions` entry of a label selector; operator is In, NotIn, Exists, ..."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector as Kubernetes defines it; an empty one matches everything."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class RunContent:
    """The content of a run: a playbook file, or a role's directory. Exactly one is set."""

    playbook: Path | None = None
    role: Path | None = None

    @property
    def path(self) -> Path:
        """The one path that is set."""
        path = self.playbook or self.role
        assert path is not None
        return path


@dataclass(frozen=True, slots=True)
class Finalizer:
    """The clean-up of a watch; without `content` the watch's own content runs, with `vars`."""

    name: str
    content: RunContent | None
    vars: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deselection:
    """A run, once, when selector and `when` no longer match a resource that has been run.

    `annotation` marks resources that have been run. Without `content` the watch's own content
    runs, with `vars`.
    """

    annotation: str
    content: RunContent | None
    vars: Mapping[str, Any] = field(default_factory=dict)


class Ownership(enum.Enum):
    """Objects that a run may write although its resource does not own them; values as in the file.

    REFUSE: none. ADOPT: objects without an owner; the resource becomes their owner. IGNORE: all.
    """

    REFUSE = "refuse"
    ADOPT = "adopt"
    IGNORE = "ignore"


class Profile(enum.StrEnum):
    """Defaults of the keys of a watch."""

    COMPATIBLE = "compatible"
    STRICT = "strict"


class Drift(enum.Enum):
    """Policy for objects that differ from the desired state of an unchanged resource.

    ENFORCE: the role writes them. WARN: they are reported. IGNORE: nothing runs.
    """

    ENFORCE = "enforce"
    WARN = "warn"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Prune:
    """Deletion of objects that runs of a resource no longer write.

    `kinds` are those that are deleted although they hold data of users. `propagation` is the
    propagationPolicy of the deletions.
    """

    kinds: frozenset[str] = frozenset()
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind whose objects resources refer to, by JMESPath expressions over a resource.

    `name` gives a name, a list of them, or nothing; `selector` a label selector or nothing. One of
    the two is set. `namespace` gives names too; without it or a value, it is the resource's own.
    """

    gvk: GVK
    name: str | None = None
    namespace: str | None = None
    selector: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a watch, as JMESPath expressions over a resource.

    Literals of the file are JMESPath literals here. `cron` gives a cron schedule or nothing,
    `time_zone` the name of a zone, `starting_deadline` seconds or a Go duration, and `suspend`
    whether no tick runs.
    """

    cron: str
    time_zone: str | None = None
    starting_deadline: str | None = None
    suspend: str | None = None


@dataclass(frozen=True, slots=True)
class WakeOn:
    """Fields of a kind, as JMESPath over an object, whose changes start a reconcile.

    They are those of dependents, of references and of triggers.
    """

    gvk: GVK
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredCondition:
    """A condition of the status: JMESPath for its status, reason and message, None if absent."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredStatus:
    """The part of the status that is written at the end of each run.

    Expressions are JMESPath over `resource`, `dependents`, `readiness`, `schedule` and `result`.
    `fields` has them by top-level field. `uses_dependents` and `uses_readiness` are whether one of
    them may read `dependents` or `readiness`.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[DeclaredCondition, ...] = ()
    uses_dependents: bool = False
    uses_readiness: bool = False


ALL_NAMESPACES = "*"
"""In place of a namespace: objects of all namespaces."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a resource selects by label, in a namespace or ALL_NAMESPACES."""

    gvk: GVK
    namespace: str
    requirements: tuple[LabelSelectorRequirement, ...]
    """All that their labels must fulfil; `matchLabels` are requirements with the operator In."""


@dataclass(frozen=True, slots=True)
class ObjectTrigger:
    """A kind whose objects lead to runs of resources that neither own nor name them.

    `selector` and `when`, JMESPath over the object, choose the objects. `name` and `namespace`,
    JMESPath over the object, give the resources; `matching`, JMESPath over a resource, gives a
    selector of the labels of the object. At most one of `name` and `matching` is set; without
    both, an object is about all resources in the namespaces.
    """

    gvk: GVK
    selector: LabelSelector = LabelSelector()
    when: str | None = None
    name: str | None = None
    namespace: str | None = None
    matching: str | None = None


@dataclass(frozen=True, slots=True)
class TriggerTargets:
    """The resources that an object is about: those of `namespaces`, which may be ALL_NAMESPACES.

    If `names` is set, only those with these names; if `labels` is set, only those that select
    such labels.
    """

    namespaces: frozenset[str]
    names: frozenset[str] | None = None
    labels: Mapping[str, str] | None = None


FieldPath: TypeAlias = tuple[str, ...]
"""The path of a field in an object: `("spec", "port")`."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion of another version of a kind into that of its watch, the hub, and back.

    `to_hub` has the fields that only the hub has, `from_hub` those that only `version` has: by
    path, as JMESPath over the object that is converted. None marks a field without a
    counterpart in the other version. All other fields are the same in both.
    """

    version: str
    to_hub: Mapping[FieldPath, str | None]
    from_hub: Mapping[FieldPath, str | None]


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The Kubernetes Jobs that the runs of a watch are; see `execution.job` in docs/jobs.md.

    `pod` is a Pod template (`metadata`, `spec`) that the others are added to. `ttl` is how long
    finished Jobs are kept.
    """

    image: str
    namespace: str = ""
    """Namespace of the Jobs; empty: the operator's own."""
    service_account_name: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    volume_mounts: tuple[Json, ...] = ()
    ttl: timedelta = timedelta(minutes=5)
    pod: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of watches.yaml, complete and checked: paths exist, durations are parsed.

    `reconcile_period` is None where the file does not set it (the flag decides), zero where a
    flag or annotation turned periodic runs off. `when` is a JMESPath expression over the
    resource, `timeout` the time after which a run is ended; both are None unless set.
    `supersede` lets a newer spec or a deletion end the current run, `kstatus` adds the
    conditions of kstatus. Events of `references` start a reconcile of the resources that name them,
    those of `triggers` one of the resources that these are about.
    `conversions` are the other served versions of the kind.
    `block_upgrade` is a JMESPath expression over the resource: while a resource for which it is
    true runs, OLM does not upgrade the operator.
    `ownership` is what runs may write although it has other owners; it does not concern the kinds
    of `ownership_exceptions`.
    `drift` is what happens to objects that other clients have changed.
    `versions` are those in which the kind is watched, in the order of the file, if there are
    several: each resource belongs to one of them.
    `native_types` is whether templates give the types of their expressions; where it is None,
    Ansible's own settings decide.
    `allow_vars` are names of fields or variables that a spec may set though Ansible acts on them.
    `top_level_fields` are fields beside the spec that become variables as those of the spec do.
    `schedule` is when resources also run by the clock.
    `wake_on` are fields of other objects whose changes start a reconcile, `status` is what is
    written to the status beside the conditions of the runner.
    `job` makes runs Kubernetes Jobs; where it is None, runs are processes of this machine.
    `prune` is None where objects that a role no longer writes are kept.
    `field_manager` is that of runs which write by server-side apply, empty if tasks decide.
    """

    gvk: GVK
    content: RunContent
    vars: Mapping[str, Any] = field(default_factory=dict)
    finalizer: Finalizer | None = None
    deselection: Deselection | None = None
    selector: LabelSelector = LabelSelector()
    blacklist: frozenset[GVK] = frozenset()
    max_runner_artifacts: int = 20
    reconcile_period: timedelta | None = None
    manage_status: bool = True
    watch_dependent_resources: bool = True
    watch_cluster_scoped_resources: bool = False
    watch_annotations_changes: bool = False
    snake_case_parameters: bool = True
    gather_facts: bool = True
    mark_unsafe: bool = False
    native_types: bool | None = None
    when: str | None = None
    timeout: timedelta | None = None
    supersede: bool = False
    kstatus: bool = False
    ready_when: tuple[str, ...] = ()
    """Types of the conditions that Ready of `kstatus` needs."""
    references: tuple[Reference, ...] = ()
    triggers: tuple[ObjectTrigger, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    block_upgrade: str | None = None
    ownership: Ownership = Ownership.IGNORE
    ownership_exceptions: frozenset[GVK] = frozenset()
    drift: Drift = Drift.ENFORCE
    versions: tuple[str, ...] = ()
    finalizer_versions: tuple[str, ...] = ()
    """Those of `versions` whose watch has a finalizer of the same name."""
    for_tests: bool = False
    """Whether it is of `operator_runner.testing`, which alone reconciles resources of tests."""
    allow_vars: frozenset[str] = frozenset()
    top_level_fields: tuple[str, ...] = ()
    schedule: Schedule | None = None
    wake_on: tuple[WakeOn, ...] = ()
    status: DeclaredStatus | None = None
    job: JobTemplate | None = None
    prune: Prune | None = None
    field_manager: str = ""

    @property
    def judges_dependents(self) -> bool:
        """Whether the status shows the readiness of the objects that a resource owns."""
        shows = self.kstatus or (self.status is not None and self.status.uses_readiness)
        return shows and self.manage_status

    @property
    def contents(self) -> tuple[RunContent, ...]:
        """All that runs for the kind: its own content first, then those of its clean-ups."""
        cleanups = (self.finalizer, self.deselection)
        return self.content, *(
            each.content for each in cleanups if each is not None and each.content is not None
        )

    def content_for(self, *, cleanup: bool) -> RunContent:
        """Return what to run; a finalizer without content runs the watch's own, with its vars."""
        if cleanup and self.finalizer is not None and self.finalizer.content is not None:
            return self.finalizer.content
        return self.content


@dataclass(frozen=True, slots=True)
class ReservedNames:
    """Names of variables that mean something to Ansible, as it is installed here.

    Ansible or one of its plugins takes a setting from a variable of `acted_on`, sets it itself, or
    has a template function of the name. `keywords` are words of playbooks: a variable of such a
    name has no effect on Ansible.
    """

    acted_on: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()


class Trigger(enum.Enum):
    """Cause of a reconcile; the value is the word in logs and metric labels."""

    START = "start"
    SPEC = "spec"
    ANNOTATION = "annotation"
    DELETION = "deletion"
    DEPENDENT = "dependent"
    REFERENCE = "reference"
    TRIGGER = "trigger"
    RETRY = "retry"
    REQUEUE = "requeue_after"
    PERIOD = "period"
    PROJECT = "project"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a reconcile, with a detail for display: a field, an object, a count.

    `about` is the object of the event, None if it cannot be a reaction to what the last run wrote.
    `state_key` identifies the state of the resource in the event, which distinguishes an edit by
    its own role from an edit by others.
    """

    trigger: Trigger
    detail: str = ""
    about: ObjectRef | None = None
    state_key: str = field(default="", repr=False)

    def __str__(self) -> str:
        """`dependent: Deployment default/web deleted`."""
        return f"{self.trigger.value}: {self.detail}" if self.detail else self.trigger.value


CREATED = Cause(Trigger.SPEC, "created")
"""The cause of the first run of a resource that was created while it was watched."""


def describe(causes: Iterable[Cause]) -> str:
    """Format causes: `spec: spec.size; dependent: Deployment default/web deleted`."""
    return "; ".join(dict.fromkeys(str(cause) for cause in causes))


@dataclass(frozen=True, slots=True)
class RunRequest:
    """All that an executor needs for one run. `kubeconfig` is the file's text with the run's token.

    `timeout` is None for no deadline. `verbosity` is the number of v in -vvv (0..7).
    `max_artifacts` counts runs whose artifacts are kept for this resource (0 keeps all).
    `causes` are all that led to the run. `native_types`, `job`, `field_manager` and `gather_facts`
    are those of the watch. `uid` is that of the resource, and `state_key` identifies its desired
    state and the kind of the run: a Job that was started for the same state can be adopted.
    `dry_run` runs the play in check mode; tasks that act on the cluster run all the same.
    `environment` are further variables of the processes of the run. `requested_at` is a time of the
    monotonic clock: the run uses no older state of files that are loaded for all runs.
    """

    run_id: str
    ref: ObjectRef
    content: RunContent
    extra_vars: Json
    kubeconfig: str = field(repr=False)
    verbosity: int
    max_artifacts: int
    timeout: timedelta | None
    causes: tuple[Cause, ...] = ()
    native_types: bool | None = None
    job: JobTemplate | None = None
    uid: str = ""
    state_key: str = ""
    dry_run: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    field_manager: str = ""
    gather_facts: bool = True
    requested_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task that failed and was neither ignored nor rescued; `path` is `file:line` if known.

    `reason` is a word in CamelCase. `code` is that of an answer of the API, or of a command.
    `unserved` is the kind that the API server does not serve.
    """

    task: str
    message: str
    path: str = ""
    reason: str = "TaskFailed"
    code: int | None = None
    unserved: GVK | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Ansible's recap for the host localhost, as counts of tasks.

    `reports` are those of `changed` that only report on the resource: metrics, its status, Events
    and requeue requests by the modules of operator_sdk.util.
    """

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failures: int = 0
    reports: int = 0

    @property
    def changes(self) -> int:
        """Tasks that changed anything else."""
        return max(self.changed - self.reports, 0)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of a run. Successful only with final stats, exit status 0 and no failure.

    `failures` also holds the reason of a run that could not start or was ended early.
    `requeue_after` is the period that a task requested with requeue_after.
    `started` and `finished` are the times of the play, without the wait until Ansible is loaded.
    `timed_out` is True for a run that was ended at its deadline.
    `load_failed` is True if Ansible could not load the play: a syntax error, an unknown module, a
    missing role. A retry fails in the same way until a file changes.
    `awaited` is what the run has met instead of failing: the operator runs it again.
    `incomplete` is why the run may not have written all that its resource asks for although it
    succeeded, empty if it has. `retry_after` is when it is repeated, None for the regular period.
    """

    stats: Stats | None
    failures: tuple[TaskFailure, ...] = ()
    requeue_after: timedelta | None = None
    finished: datetime | None = None
    timed_out: bool = False
    load_failed: bool = False
    started: datetime | None = None
    incomplete: str = ""
    retry_after: timedelta | None = None
    awaited: TaskFailure | None = None

    @property
    def successful(self) -> bool:
        """True if the play ran to its end and nothing failed."""
        return self.stats is not None and not self.failures

    @property
    def is_complete(self) -> bool:
        """Whether the run has written all that its resource asks for."""
        return self.successful and not self.incomplete and self.requeue_after is None

    @property
    def seconds(self) -> float | None:
        """The duration of the play, the only one that is shown to users; None if unknown."""
        if self.started is None or self.finished is None:
            return None
        return round((self.finished - self.started).total_seconds(), 3)


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of an object that a run has changed.

    `before` and `after` are digests of its values, empty where the object does not have the field.
    `at` is the time of the API server's response, in seconds since the epoch. `old` and `new` are
    the values as short texts, empty where there is none, None if they may be secret.
    """

    ref: ObjectRef
    path: str
    before: bytes
    after: bytes
    at: float
    old: str | None = field(default=None, repr=False, compare=False)
    new: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class RunApiRequest:
    """A request of a run to the API server, without query and body.

    `at` is its start in seconds since the epoch, `seconds` the time until the response began.
    `refusal` is why the proxy did not forward it, or why the API server did not answer; else empty.
    """

    method: str
    path: str
    status: int
    at: float
    seconds: float
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run, in order. `kind` is ansible-runner's name, `data` its `event_data`."""

    kind: str
    data: Json
    stdout: str = ""
    is_remote: bool = False
    """Whether the run is on another machine, whose clock its times are of."""


@dataclass(frozen=True, slots=True)
class EventSpec:
    """A Kubernetes Event to emit: `reason` and `action` in CamelCase, `note` is human-readable.

    `warning` selects the type Warning instead of Normal. `cause` is what led to the Event, empty
    if unknown; `duration_seconds` is None where nothing was timed, `run_id` empty without a run.
    """

    reason: str
    note: str
    warning: bool = False
    action: str = "Reconcile"
    cause: str = ""
    duration_seconds: float | None = None
    run_id: str = ""


def is_certainly_older(version: str, other: str) -> bool:
    """Return whether a resourceVersion was written before the other; False if that is unknown.

    Those of one kind compare as numbers since Kubernetes 1.35.
    """
    return version.isdigit() and other.isdigit() and int(version) < int(other)


def may_be_older(version: str, other: str) -> bool:
    """Return whether a version may have been written before the other; equal ones were not."""
    if version.isdigit() and other.isdigit():
        return int(version) < int(other)
    return version != other
