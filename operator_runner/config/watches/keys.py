"""The keys of watches.yaml, for both the loader and the JSON schema."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

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
    """A key: name as documented, shape of its value, and a line about it for an editor."""

    name: str
    shape: Shape
    about: str
    default: bool | int | str | None = None
    """Default of a flag, number or choice."""
    keys: tuple[Key, ...] = ()
    """The keys of a MAP, of each of the MAPS, or of the map of a FLAG_OR_MAP."""
    required: bool = False
    """Whether a map without it, or with an empty one, is refused."""
    choices: tuple[str, ...] = ()
    """The words of a CHOICE."""


_GROUP = Key("group", Shape.TEXT, "API group; empty is the core group.")
_VERSION = Key("version", Shape.TEXT, "API version, such as v1alpha1.")
_KIND = Key("kind", Shape.TEXT, "Kind in CamelCase.")
_GVK = (_GROUP, replace(_VERSION, required=True), replace(_KIND, required=True))
_ROLE = Key("role", Shape.TEXT, "Role to run: a name, a path or namespace.collection.role.")
_PLAYBOOK = Key("playbook", Shape.TEXT, "Playbook to run; it wins over a role.")
_VARS = Key("vars", Shape.ANYTHING, "Extra vars; they win over the fields of the spec.")

_SELECTOR = (
    Key("matchLabels", Shape.LABELS, "Labels that a resource must have."),
    Key(
        "matchExpressions",
        Shape.MAPS,
        "What must be true of the labels of a resource.",
        keys=(
            Key("key", Shape.TEXT, "Key of a label.", required=True),
            Key("operator", Shape.TEXT, "Comparison of the label with the values.", required=True),
            Key("values", Shape.TEXTS, "Values for In and NotIn."),
        ),
    ),
)
_FINALIZER = (
    Key("name", Shape.TEXT, "Name of the finalizer, such as example.com/cleanup.", required=True),
    _ROLE,
    _PLAYBOOK,
    Key("vars", Shape.ANYTHING, "Extra vars of the clean-up; they win over those of the watch."),
)
_DESELECTION = (
    Key(
        "name",
        Shape.TEXT,
        "Name of the annotation of resources that have been run, such as example.com/reported.",
        required=True,
    ),
    _ROLE,
    _PLAYBOOK,
    Key("vars", Shape.ANYTHING, "Extra vars of this run; they win over those of the watch."),
)

_REFERENCE = (
    *_GVK,
    Key(
        "name",
        Shape.TEXT,
        "JMESPath over the resource: the name of the object, or several.",
    ),
    Key("selector", Shape.TEXT, "JMESPath over the resource: the label selector of the objects."),
    Key(
        "namespace",
        Shape.TEXT,
        "JMESPath over the resource, if it is not the resource's own; '*': all.",
    ),
)

_SCHEDULE = (
    Key(
        "cron",
        Shape.TEXT,
        "Cron schedule such as 0 4 * * *, or JMESPath over the resource.",
        required=True,
    ),
    Key("timeZone", Shape.TEXT, "Zone such as Europe/Berlin, or JMESPath; UTC if absent."),
    Key(
        "startingDeadline",
        Shape.TEXT,
        "Age at which a tick is missed: a duration, or JMESPath for seconds or a duration.",
    ),
    Key("suspend", Shape.TEXT, "true, or JMESPath over the resource: no ticks while it is true."),
)

_TRIGGER = (
    *_GVK,
    Key("selector", Shape.MAP, "Labels of the objects.", keys=_SELECTOR),
    Key("when", Shape.TEXT, "JMESPath over the object: only objects for which it is true."),
    Key("name", Shape.TEXT, "JMESPath over the object: the name of the resource, or several."),
    Key(
        "namespace",
        Shape.TEXT,
        "JMESPath over the object: namespaces of the resources, if not its own; '*': all.",
    ),
    Key(
        "matching",
        Shape.TEXT,
        "JMESPath over a resource: a label selector that the labels of the object match.",
    ),
)

_CONVERSION = (
    Key(
        "version",
        Shape.TEXT,
        "Another version of the kind; it converts into the version of the watch, the hub.",
        required=True,
    ),
    Key(
        "toHub",
        Shape.EXPRESSIONS,
        "Fields that only the hub has: JMESPath over an object of this version.",
    ),
    Key(
        "fromHub",
        Shape.EXPRESSIONS,
        "Fields that only this version has: JMESPath over an object of the hub.",
    ),
)

_WAKE_ON = (
    *_GVK,
    Key(
        "fields",
        Shape.EXPRESSION_LIST,
        "JMESPath over the object: a change of one of these values runs the role.",
        required=True,
    ),
)

_STATUS = (
    Key(
        "fields",
        Shape.EXPRESSIONS,
        "Top-level fields of the status: JMESPath over resource, dependents and others.",
    ),
    Key(
        "conditions",
        Shape.MAPS,
        "Conditions of the status: JMESPath over resource, dependents and others.",
        keys=(
            Key("type", Shape.TEXT, "Type of the condition in CamelCase.", required=True),
            Key(
                "status",
                Shape.TEXT,
                "JMESPath: True, False, or Unknown for null.",
            ),
            Key(
                "ready",
                Shape.TEXT,
                "Instead of status: `dependents` for whether these are ready, and why not.",
            ),
            Key(
                "failed",
                Shape.FLAG,
                "Instead of status: true while the last run has failed, with its reason.",
                default=False,
            ),
            Key("reason", Shape.TEXT, "JMESPath: the reason in CamelCase."),
            Key("message", Shape.TEXT, "JMESPath: the human-readable message."),
        ),
    ),
)

_JOB = (
    Key("image", Shape.TEXT, "Ansible execution environment that runs the play.", required=True),
    Key("namespace", Shape.TEXT, "Namespace of the Jobs; by default that of the operator."),
    Key("serviceAccountName", Shape.TEXT, "ServiceAccount of the Pods; plays do not use it."),
    Key("resources", Shape.ANYTHING, "Requests and limits of the container."),
    Key("nodeSelector", Shape.LABELS, "Labels of nodes that can run the Pods."),
    Key("tolerations", Shape.OBJECTS, "Tolerations of the Pods."),
    Key("volumes", Shape.OBJECTS, "Volumes of the Pods."),
    Key("volumeMounts", Shape.OBJECTS, "Mounts of volumes in the container."),
    Key("ttl", Shape.DURATION, "How long finished Jobs are kept; 5m if absent."),
    Key(
        "template",
        Shape.ANYTHING,
        "Pod template, `metadata` and `spec`, that the rest is added to.",
    ),
)
_EXECUTION = (Key("job", Shape.MAP, "Each run is a Kubernetes Job.", keys=_JOB),)

ENTRY_KEYS = (
    *_GVK,
    _ROLE,
    _PLAYBOOK,
    _VARS,
    # To keep the artifacts of all runs there is the annotation.
    Key(
        "maxRunnerArtifacts",
        Shape.NUMBER,
        "Runs of one resource whose artifacts are kept; 0 means the default.",
        default=20,
    ),
    Key("reconcilePeriod", Shape.DURATION, "Also run this often; 0s: that of --reconcile-period."),
    Key(
        "manageStatus",
        Shape.FLAG,
        "Write conditions to the status; off by default for built-in kinds.",
        default=True,
    ),
    Key(
        "watchDependentResources",
        Shape.FLAG,
        "Run when an object that the role created changes.",
        default=True,
    ),
    Key(
        "watchClusterScopedResources",
        Shape.FLAG,
        "Watch cluster-scoped objects that the role created, too.",
        default=False,
    ),
    Key(
        "snakeCaseParameters",
        Shape.FLAG,
        "Fields of the spec are extra vars in snake case.",
        default=True,
    ),
    Key(
        "gatherFacts",
        Shape.FLAG,
        "A role gathers facts of the host first.",
        default=True,
    ),
    Key(
        "watchAnnotationsChanges",
        Shape.FLAG,
        "Run when an annotation of the resource changes.",
        default=False,
    ),
    Key(
        "markUnsafe",
        Shape.FLAG,
        "Never evaluate text of the resource as a template.",
        default=False,
    ),
    Key(
        "nativeTypes",
        Shape.FLAG,
        "Templates return native types; false: text, as with ansible-core 2.18.",
    ),
    Key(
        "allowVars",
        Shape.NAMES,
        "Fields of the spec that become extra vars although Ansible reserves their names.",
    ),
    Key(
        "topLevelFields",
        Shape.NAMES,
        "Fields outside the spec, such as data, that become extra vars too.",
    ),
    Key(
        "blacklist",
        Shape.MAPS,
        "Kinds that the role creates and that are not watched.",
        keys=(_GROUP, _VERSION, _KIND),
    ),
    Key("selector", Shape.MAP, "Labels of the resources that are reconciled.", keys=_SELECTOR),
    Key("finalizer", Shape.MAP, "Clean-up before a resource is deleted.", keys=_FINALIZER),
    Key("when", Shape.TEXT, "JMESPath over the resource: reconcile only where it is true."),
    Key(
        "deselection",
        Shape.MAP,
        "Runs once when selector and when no longer match a resource that has been run.",
        keys=_DESELECTION,
    ),
    Key("timeout", Shape.DURATION, "A run that takes longer is ended and is a failure."),
    Key(
        "supersede",
        Shape.FLAG,
        "An edit or a deletion ends the current run and starts another one.",
        default=False,
    ),
    Key(
        "profile",
        Shape.CHOICE,
        "Defaults; strict: markUnsafe, nativeTypes, kstatus and `ownership: refuse`.",
        default=Profile.COMPATIBLE.value,
        choices=tuple(Profile),
    ),
    Key(
        "kstatus",
        Shape.FLAG,
        "Write the conditions Ready, Reconciling and Stalled.",
        default=False,
    ),
    Key(
        "blockUpgrade",
        Shape.TEXT,
        "true, or JMESPath over the resource: OLM does not upgrade during a run.",
    ),
    Key(
        "references",
        Shape.MAPS,
        "Kinds of objects that a resource names or selects; it is run again when they change.",
        keys=_REFERENCE,
    ),
    Key("schedule", Shape.MAP, "Times at which resources run.", keys=_SCHEDULE),
    Key(
        "triggers",
        Shape.MAPS,
        "Kinds of objects that resources neither own nor name, but are run for.",
        keys=_TRIGGER,
    ),
    Key(
        "readyWhen",
        Shape.EXPRESSION_LIST,
        "Declared conditions that Ready of kstatus needs; Available if absent and declared.",
    ),
    Key(
        "define",
        Shape.EXPRESSIONS,
        "Named JMESPath; other expressions of the entry use it as define.NAME.",
    ),
    Key(
        "wakeOn",
        Shape.MAPS,
        "Fields of dependents and references, such as those of their status, that run the role.",
        keys=_WAKE_ON,
    ),
    Key(
        "status",
        Shape.MAP,
        "Fields and conditions that are written to the status at the end of each run.",
        keys=_STATUS,
    ),
    Key(
        "conversion",
        Shape.MAPS,
        "Other versions of the kind; the conversion webhook serves them.",
        keys=_CONVERSION,
    ),
    Key("execution", Shape.MAP, "Where runs happen; by default in the operator.", keys=_EXECUTION),
    Key(
        "ownership",
        Shape.CHOICE,
        "Writes of a run to objects that do not belong to its resource.",
        default=Ownership.IGNORE.value,
        choices=tuple(policy.value for policy in Ownership),
    ),
    Key(
        "ownershipExceptions",
        Shape.MAPS,
        "Kinds that ownership does not concern.",
        keys=(_GROUP, _VERSION, _KIND),
    ),
    Key(
        "drift",
        Shape.CHOICE,
        "Objects that differ from what an unchanged resource asks for: written, reported or left.",
        default=Drift.ENFORCE.value,
        choices=tuple(policy.value for policy in Drift),
    ),
    Key(
        "prune",
        Shape.FLAG_OR_MAP,
        "Delete objects that a successful run of the role no longer writes.",
        default=False,
        keys=(
            Key(
                "kinds",
                Shape.NAMES,
                f"Kinds that are deleted too: {', '.join(PROTECTED_KINDS)}.",
            ),
            Key(
                "propagation",
                Shape.CHOICE,
                "Deletion of the dependents of a deleted object.",
                default=Prune().propagation,
                choices=("Background", "Foreground"),
            ),
        ),
    ),
    Key(
        "apply",
        Shape.CHOICE,
        "How tasks of kubernetes.core.k8s write: as their options say, or by server-side apply.",
        default="task",
        choices=("task", SERVER_SIDE),
    ),
    Key(
        "skipUnchanged",
        Shape.FLAG,
        "Ignored with a warning: no run is skipped.",
        default=False,
    ),
)
