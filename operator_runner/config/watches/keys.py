"""The keys of watches.yaml, for both the loader and the JSON schema."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import partial

from operator_runner.core.model import NOT_DESIRED, Drift, Ownership, Profile, Prune

SERVER_SIDE = "server-side"
"""Word of the key `apply`."""

NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_-]*"
"""Pattern of a field whose variable can be used in a template, or of the variable."""

PROTECTED_KINDS = ("CustomResourceDefinition", "Namespace", "PersistentVolumeClaim")
"""Kinds whose deletion deletes data of users; `prune` deletes them only if it names them."""
STANDARD_FIELDS = (*NOT_DESIRED, "spec")
"""Top-level fields that `topLevelFields` cannot name."""


class Shape(enum.Enum):
    """Kind of the value of a key. For all of them null is the same as a missing key."""

    TEXT = enum.auto()
    FLAG = enum.auto()
    NUMBER = enum.auto()
    """A whole number."""
    DURATION = enum.auto()
    """Text as Go writes durations."""
    ANYTHING = enum.auto()
    """A map with anything in it."""
    OBJECTS = enum.auto()
    """A list of maps with anything in them."""
    LABELS = enum.auto()
    """A map of text to text."""
    TEXTS = enum.auto()
    """A list of text."""
    NAMES = enum.auto()
    """A list of names of fields or variables."""
    MAP = enum.auto()
    """A map with keys of its own."""
    MAPS = enum.auto()
    """A list of such maps."""
    EXPRESSIONS = enum.auto()
    """A map of fields to JMESPath, or null for fields without a counterpart."""
    EXPRESSION_LIST = enum.auto()
    """A list of JMESPath."""
    CHOICE = enum.auto()
    """One of several words."""
    FLAG_OR_MAP = enum.auto()
    """True, false, or a map with keys of its own, which is true."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key: name as documented, a line about it for an editor, and the shape of its value."""

    name: str
    about: str
    shape: Shape
    default: bool | int | str | None = None
    """Default of a flag, number or choice."""
    keys: tuple[Key, ...] = ()
    """The keys of a MAP, of each of the MAPS, or of the map of a FLAG_OR_MAP."""
    required: bool = False
    """Whether a map without it, or with an empty one, is refused."""
    choices: tuple[str, ...] = ()
    """The words of a CHOICE."""


_text = partial(Key, shape=Shape.TEXT)
_flag = partial(Key, shape=Shape.FLAG, default=False)
_number = partial(Key, shape=Shape.NUMBER)
_duration = partial(Key, shape=Shape.DURATION)
_anything = partial(Key, shape=Shape.ANYTHING)
_objects = partial(Key, shape=Shape.OBJECTS)
_labels = partial(Key, shape=Shape.LABELS)
_texts = partial(Key, shape=Shape.TEXTS)
_names = partial(Key, shape=Shape.NAMES)
_map = partial(Key, shape=Shape.MAP)
_maps = partial(Key, shape=Shape.MAPS)
_expressions = partial(Key, shape=Shape.EXPRESSIONS)
_expression_list = partial(Key, shape=Shape.EXPRESSION_LIST)
_choice = partial(Key, shape=Shape.CHOICE)
_flag_or_map = partial(Key, shape=Shape.FLAG_OR_MAP, default=False)

_GROUP = _text("group", "API group; empty is the core group.")
_VERSION = _text("version", "API version, such as v1alpha1.")
_KIND = _text("kind", "Kind in CamelCase.")
_GVK = (_GROUP, replace(_VERSION, required=True), replace(_KIND, required=True))
_ROLE = _text("role", "Role to run: a name, a path or namespace.collection.role.")
_PLAYBOOK = _text("playbook", "Playbook to run; it wins over a role.")
_VARS = _anything("vars", "Extra vars; they win over the fields of the spec.")

_SELECTOR = (
    _labels("matchLabels", "Labels that a resource must have."),
    _maps(
        "matchExpressions",
        "What must be true of the labels of a resource.",
        keys=(
            _text("key", "Key of a label.", required=True),
            _text("operator", "Comparison of the label with the values.", required=True),
            _texts("values", "Values for In and NotIn."),
        ),
    ),
)
_FINALIZER = (
    _text("name", "Name of the finalizer, such as example.com/cleanup.", required=True),
    _ROLE,
    _PLAYBOOK,
    _anything("vars", "Extra vars of the clean-up; they win over those of the watch."),
)
_DESELECTION = (
    _text(
        "name",
        "Name of the annotation of resources that have been run, such as example.com/reported.",
        required=True,
    ),
    _ROLE,
    _PLAYBOOK,
    _anything("vars", "Extra vars of this run; they win over those of the watch."),
)

_REFERENCE = (
    *_GVK,
    _text("name", "JMESPath over the resource: the name of the object, or several."),
    _text("selector", "JMESPath over the resource: the label selector of the objects."),
    _text("namespace", "JMESPath over the resource, if it is not the resource's own; '*': all."),
)

_SCHEDULE = (
    _text("cron", "Cron schedule such as 0 4 * * *, or JMESPath over the resource.", required=True),
    _text("timeZone", "Zone such as Europe/Berlin, or JMESPath; UTC if absent."),
    _text(
        "startingDeadline",
        "Age at which a tick is missed: a duration, or JMESPath for seconds or a duration.",
    ),
    _text("suspend", "true, or JMESPath over the resource: no ticks while it is true."),
)

_TRIGGER = (
    *_GVK,
    _map("selector", "Labels of the objects.", keys=_SELECTOR),
    _text("when", "JMESPath over the object: only objects for which it is true."),
    _text("name", "JMESPath over the object: the name of the resource, or several."),
    _text(
        "namespace",
        "JMESPath over the object: namespaces of the resources, if not its own; '*': all.",
    ),
    _text(
        "matching",
        "JMESPath over a resource: a label selector that the labels of the object match.",
    ),
)

_CONVERSION = (
    _text(
        "version",
        "Another version of the kind; it converts into the version of the watch, the hub.",
        required=True,
    ),
    _expressions("toHub", "Fields that only the hub has: JMESPath over an object of this version."),
    _expressions(
        "fromHub", "Fields that only this version has: JMESPath over an object of the hub."
    ),
)

_WAKE_ON = (
    *_GVK,
    _expression_list(
        "fields",
        "JMESPath over the object: a change of one of these values runs the role.",
        required=True,
    ),
)

_STATUS = (
    _expressions(
        "fields", "Top-level fields of the status: JMESPath over resource, dependents and others."
    ),
    _maps(
        "conditions",
        "Conditions of the status: JMESPath over resource, dependents and others.",
        keys=(
            _text("type", "Type of the condition in CamelCase.", required=True),
            _text("status", "JMESPath: True, False, or Unknown for null."),
            _text(
                "ready", "Instead of status: `dependents` for whether these are ready, and why not."
            ),
            _flag(
                "failed", "Instead of status: true while the last run has failed, with its reason."
            ),
            _text("reason", "JMESPath: the reason in CamelCase."),
            _text("message", "JMESPath: the human-readable message."),
        ),
    ),
)

_JOB = (
    _text("image", "Ansible execution environment that runs the play.", required=True),
    _text("namespace", "Namespace of the Jobs; by default that of the operator."),
    _text("serviceAccountName", "ServiceAccount of the Pods; plays do not use it."),
    _anything("resources", "Requests and limits of the container."),
    _labels("nodeSelector", "Labels of nodes that can run the Pods."),
    _objects("tolerations", "Tolerations of the Pods."),
    _objects("volumes", "Volumes of the Pods."),
    _objects("volumeMounts", "Mounts of volumes in the container."),
    _duration("ttl", "How long finished Jobs are kept; 5m if absent."),
    _anything("template", "Pod template, `metadata` and `spec`, that the rest is added to."),
)
_EXECUTION = (_map("job", "Each run is a Kubernetes Job.", keys=_JOB),)

ENTRY_KEYS = (
    *_GVK,
    _ROLE,
    _PLAYBOOK,
    _VARS,
    # To keep the artifacts of all runs there is the annotation.
    _number(
        "maxRunnerArtifacts",
        "Runs of one resource whose artifacts are kept; 0 means the default.",
        default=20,
    ),
    _duration("reconcilePeriod", "Also run this often; 0s: that of --reconcile-period."),
    _flag(
        "manageStatus",
        "Write conditions to the status; off by default for built-in kinds.",
        default=True,
    ),
    _flag(
        "watchDependentResources", "Run when an object that the role created changes.", default=True
    ),
    _flag(
        "watchClusterScopedResources", "Watch cluster-scoped objects that the role created, too."
    ),
    _flag("snakeCaseParameters", "Fields of the spec are extra vars in snake case.", default=True),
    _flag("gatherFacts", "A role gathers facts of the host first.", default=True),
    _flag("watchAnnotationsChanges", "Run when an annotation of the resource changes."),
    _flag("markUnsafe", "Never evaluate text of the resource as a template."),
    _flag(
        "nativeTypes",
        "Templates return native types; false: text, as with ansible-core 2.18.",
        default=None,
    ),
    _names(
        "allowVars",
        "Fields of the spec that become extra vars although Ansible reserves their names.",
    ),
    _names("topLevelFields", "Fields outside the spec, such as data, that become extra vars too."),
    _maps(
        "blacklist",
        "Kinds that the role creates and that are not watched.",
        keys=(_GROUP, _VERSION, _KIND),
    ),
    _map("selector", "Labels of the resources that are reconciled.", keys=_SELECTOR),
    _map("finalizer", "Clean-up before a resource is deleted.", keys=_FINALIZER),
    _text("when", "JMESPath over the resource: reconcile only where it is true."),
    _map(
        "deselection",
        "Runs once when selector and when no longer match a resource that has been run.",
        keys=_DESELECTION,
    ),
    _duration("timeout", "A run that takes longer is ended and is a failure."),
    _flag("supersede", "An edit or a deletion ends the current run and starts another one."),
    _choice(
        "profile",
        "Defaults; strict: markUnsafe, nativeTypes, kstatus and `ownership: refuse`.",
        default=Profile.COMPATIBLE.value,
        choices=tuple(Profile),
    ),
    _flag("kstatus", "Write the conditions Ready, Reconciling and Stalled."),
    _text(
        "blockUpgrade", "true, or JMESPath over the resource: OLM does not upgrade during a run."
    ),
    _maps(
        "references",
        "Kinds of objects that a resource names or selects; it is run again when they change.",
        keys=_REFERENCE,
    ),
    _map("schedule", "Times at which resources run.", keys=_SCHEDULE),
    _maps(
        "triggers",
        "Kinds of objects that resources neither own nor name, but are run for.",
        keys=_TRIGGER,
    ),
    _expression_list(
        "readyWhen",
        "Declared conditions that Ready of kstatus needs; Available if absent and declared.",
    ),
    _expressions("define", "Named JMESPath; other expressions of the entry use it as define.NAME."),
    _maps(
        "wakeOn",
        "Fields of dependents and references, such as those of their status, that run the role.",
        keys=_WAKE_ON,
    ),
    _map(
        "status",
        "Fields and conditions that are written to the status at the end of each run.",
        keys=_STATUS,
    ),
    _maps(
        "conversion",
        "Other versions of the kind; the conversion webhook serves them.",
        keys=_CONVERSION,
    ),
    _map("execution", "Where runs happen; by default in the operator.", keys=_EXECUTION),
    _choice(
        "ownership",
        "Writes of a run to objects that do not belong to its resource.",
        default=Ownership.IGNORE.value,
        choices=tuple(policy.value for policy in Ownership),
    ),
    _maps(
        "ownershipExceptions",
        "Kinds that ownership does not concern.",
        keys=(_GROUP, _VERSION, _KIND),
    ),
    _choice(
        "drift",
        "Objects that differ from what an unchanged resource asks for: written, reported or left.",
        default=Drift.ENFORCE.value,
        choices=tuple(policy.value for policy in Drift),
    ),
    _flag_or_map(
        "prune",
        "Delete objects that a successful run of the role no longer writes.",
        keys=(
            _names("kinds", f"Kinds that are deleted too: {', '.join(PROTECTED_KINDS)}."),
            _choice(
                "propagation",
                "Deletion of the dependents of a deleted object.",
                default=Prune().propagation,
                choices=("Background", "Foreground"),
            ),
        ),
    ),
    _choice(
        "apply",
        "How tasks of kubernetes.core.k8s write: as their options say, or by server-side apply.",
        default="task",
        choices=("task", SERVER_SIDE),
    ),
    _flag("skipUnchanged", "Ignored with a warning: no run is skipped."),
)
