"""The registry of patches. Pure data: importing it loads no library that is patched.

Each patch names the symbols that it replaces and the private functions that it calls, with the
signatures it was written for (see `selection`), and can be left out on its own. A name that it
imports does not fit either where it is missing. Warm runs, whose patches read further attributes
of ansible-core's objects, have a tested version in any case (`core.ansible_core`). Gains are user
and system time; ADR 28 has how they were measured. `structural` patches have no
gain of their own: other patches, or the fork itself, depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ABSENT = "absent"
"""Signature of a name that the library does not define; the patch adds it."""
LOADED_BY_PLAY = "ansible_runner.display_callback"
"""Package that only a play may import: signatures are read from its source."""
_FORKSERVER = "operator_runner.ansible.forkserver"
_LOADER = "ansible.plugins.loader"
_ACTION = "ansible.plugins.action:ActionBase"
_STRATEGY = "ansible.plugins.strategy"
_TASK = "ansible._internal._task"
_DISPLAY = "ansible.utils.display:Display"
_COLLECTION_LOADER = (
    "ansible.utils.collection_loader._collection_finder:_AnsibleCollectionPkgLoaderBase"
)
_ENGINE = "ansible._internal._templating._engine:TemplateEngine"
_MARKERS = "ansible._internal._templating._jinja_common"
_JINJA_PLUGINS = "ansible._internal._templating._jinja_plugins"
_BITS = "ansible._internal._templating._jinja_bits"
_INTERNAL = "ansible.module_utils._internal"
_DATATAG = f"{_INTERNAL}._datatag"
_PROFILES = f"{_INTERNAL}._json._profiles"
_CORE = "ansible_collections.kubernetes.core.plugins.module_utils"
_DISPLAY_PLUGIN = f"{LOADED_BY_PLAY}.callback.awx_display:EventContext"


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of libraries that is applied as a whole or not at all.

    A symbol is `module:attribute.path`, as `pkgutil.resolve_name` takes it, with its signature
    according to `selection.signature_of`; those of several versions are joined by ` or `.
    """

    name: str
    """Its switch in OPERATOR_RUNNER_DISABLE_PATCHES, and its name in warnings."""
    install: str
    """Address of the function that applies it."""
    reason: str
    gain: str
    replaces: Mapping[str, str] = field(default_factory=dict)
    """Symbols that it replaces, with their signatures."""
    uses: Mapping[str, str] = field(default_factory=dict)
    """Private symbols that it only calls; they may have further parameters with defaults."""
    requires: tuple[str, ...] = ()
    """Patches without which it is not applied."""
    is_essential: bool = False
    """Whether results would differ without it: it cannot be switched off, and plays run cold, or
    not at all, where it does not match."""
    gives_speed: bool = False
    """Whether warm runs gain nothing without it: plays run cold where it does not match."""


PATCHES: tuple[Patch, ...] = (
    Patch(
        name="play-fork",
        install=f"{_FORKSERVER}.supervisor:install_terminal",
        replaces={
            "ansible_runner.runner:pexpect": "module",
            "ansible.cli:init_plugin_loader": "(prefix_collections_path=None)",
        },
        reason="ansible-runner starts the play through pexpect; here the play is a fork, in "
        "which the plugin loader is initialised.",
        gain="structural: the fork of the play, and plugins loaded once",
        is_essential=True,
    ),
    Patch(
        name="compiled-templates",
        install=f"{_FORKSERVER}.compiled_templates:install",
        replaces={
            f"{_BITS}:AnsibleEnvironment.compile": "(self, source, name=None, filename=None, "
            "raw=False, defer_init=False)",
            f"{_BITS}:AnsibleEnvironment.compile_expression": "(self, source, *args, **kwargs)",
        },
        uses={
            f"{_BITS}:_TemplateCompileContext.current": "(optional=False)",
            f"{_BITS}:_TEMPLATE_OVERRIDE_FIELD_NAMES": "tuple",
        },
        reason="The same template or condition is compiled once, not each time that a task meets "
        "it.",
        gain="a sixth of a run of the nginx role (ADR 8)",
    ),
    Patch(
        name="deep-copies",
        install=f"{_FORKSERVER}.results:install_deep_copies",
        replaces={
            f"{_DATATAG}:AnsibleTaggedObject.__deepcopy__": ABSENT,
            f"{_DATATAG}:t": "module",
        },
        reason="Each include of a role and each `template` copies tagged values, tag by tag, and "
        "each task reads the tags of cached facts, with an evaluation of their types.",
        gain="9 % of the CPU time of a run of 190 tasks (ADR 28)",
    ),
    Patch(
        name="immortal-objects",
        install=f"{_FORKSERVER}.immortal:install",
        reason="A fork does not copy the pages of loaded objects that it only reads (ADR 45).",
        gain="a third of the page faults and 40 % of the memory of a run (ADR 45)",
    ),
    Patch(
        name="plugin-lookups",
        install=f"{_FORKSERVER}.plugins:install_lookups",
        replaces={
            f"{_LOADER}:PluginLoader.all": "(self, *args, **kwargs)",
            f"{_LOADER}:PluginLoader._find_fq_plugin": "(self, fq_name, extension, "
            "plugin_load_context, ignore_deprecated=False) or (self, fq_name, extension, "
            "plugin_load_context)",
            f"{_LOADER}:Jinja2Loader.get_with_context": "(self, name, *args, **kwargs)",
        },
        uses={
            f"{_LOADER}:PluginLoader._get_paths_with_context": "(self, subdirs=True)",
            f"{_LOADER}:Jinja2Loader._ensure_non_collection_wrappers": "(self, *args, **kwargs)",
        },
        reason="The plugin of each task is looked for a dozen times, in meta data and folders, "
        "and each of Jinja's own filters and tests in all plugins of ansible-core.",
        gain="4 % of the CPU time of a run of 190 tasks, 5 % of one of the nginx role (ADR 28)",
    ),
    Patch(
        name="module-forks",
        install=f"{_FORKSERVER}.modules:install",
        replaces={
            # In the process of a module, and in that of the play while it runs a module:
            "ansible.module_utils:__path__": "list",
            f"{_INTERNAL}:is_controller": "bool",
            f"{_INTERNAL}:import_controller_module": "(module_name, /)",
            f"{_INTERNAL}._traceback:_is_traceback_enabled": "(event)",
            # In the processes of the play:
            f"{_ACTION}._configure_module": "(self, module_name, module_args, task_vars)",
            "ansible.plugins.connection.local:Connection.exec_command": "(self, cmd, "
            "in_data=None, sudoable=True)",
        },
        uses={
            f"{_INTERNAL}._traceback:_is_module_traceback_enabled": "(event)",
            f"{_INTERNAL}._ansiballz._loader:run_module": "(*, json_params, profile, module_fqn, "
            "modlib_path, extensions, init_globals=None)",
            "ansible.executor.module_common:_BuiltModule": "(*, b_module_data, module_style, "
            "shebang, serialization_profile)",
        },
        reason="A module is a fork: no interpreter to start, no imports, no zip file to unpack.",
        gain="about 1 s of CPU time for each module",
        gives_speed=True,
    ),
    Patch(
        name="temporary-directories",
        install=f"{_FORKSERVER}.modules:install_temporary_directories",
        replaces={
            f"{_ACTION}._make_tmp_path": "(self, remote_user=None)",
            f"{_ACTION}._remove_tmp_path": "(self, tmp_path, force=False)",
        },
        reason="ansible-core starts four shells to make and remove a local directory.",
        gain="19 % of the CPU time of a run that writes ten files (ADR 28)",
    ),
    Patch(
        name="tasks-in-play",
        install=f"{_FORKSERVER}.tasks:install",
        replaces={
            f"{_STRATEGY}:WorkerProcess": "(*, final_q, task_vars, host, task, "
            "play_context, loader, variable_manager, shared_loader_obj, worker_id, cliargs)",
            f"{_STRATEGY}:results_thread_main": "(strategy)",
            "ansible.utils.multiprocessing:context.parent_process": "()",
            "ansible.executor.task_queue_manager:_rpc_host": "absent or module",
        },
        uses={
            f"{_TASK}:TaskContext.create": "absent or (task, task_vars, host_name)",
            f"{_TASK}:TaskContext.latest_result": "absent or property",
            f"{_TASK}:POLYMORPHIC_RESULT_EXPRESSION": "absent or _AnsibleTaggedStr",
            "ansible.executor.task_executor:TaskExecutor": "(host, task, job_vars, play_context, "
            "loader, shared_loader_obj, final_q, variable_manager) or (host, play_context, "
            "loader, shared_loader_obj, final_q, variable_manager)",
            "ansible.executor.task_result:_RawTaskResult": "(host, task, return_data, "
            "task_fields) or absent",
        },
        reason="With one host a worker only waits for the module; the play waits itself, without "
        "queues.",
        gain="two thirds of the CPU time of a run of 190 tasks (ADR 28)",
        requires=("module-forks",),
        gives_speed=True,
    ),
    Patch(
        name="modules-in-play",
        install=f"{_FORKSERVER}.modules_in_play:install",
        replaces={
            "atexit:register": "builtin_function_or_method",
            "kubernetes.config.kube_config:yaml": "module",
            "kubernetes.dynamic.discovery:LazyDiscoverer.search": "(self, **kwargs)",
            f"{_CORE}.k8sdynamicclient:k8s_apply": "(resource, definition, **kwargs) or "
            "(resource, definition) or absent",
            f"{_CORE}.apply:apply_object": "(resource, definition, server_side=False) or "
            "(resource, definition) or absent",
            f"{_CORE}.k8s.service:K8sService.retrieve": "(self, resource, definition) or absent",
        },
        uses={"kubernetes.dynamic.discovery:LazyDiscoverer._write_cache": "(self)"},
        reason="A module that only sends requests runs in the play's process instead of one of "
        "its own, and keeps its client; the kubeconfig is parsed by libyaml, a server-side apply "
        "needs no read of its own, and a kind that is missing is looked for in its API version "
        "only.",
        gain="a fifth of the memory and a tenth of the CPU time of a run (ADR 50)",
        requires=("module-forks", "tasks-in-play"),
    ),
    Patch(
        name="plain-results",
        install=f"{_FORKSERVER}.results:install",
        replaces={
            f"{_ENGINE}.transform": "(self, variable)",
            "ansible.utils.vars:transform_to_native_types": "(value, redact=True)",
        },
        reason="Results of plain data need no copies for errors and encrypted texts.",
        gain="a fifth of the play's CPU time in a run of the nginx role (ADR 8)",
    ),
    Patch(
        name="events-in-output",
        install=f"{_FORKSERVER}.events:install",
        replaces={
            f"{_LOADER}:PluginLoader._load_module_source": "(self, *, python_module_name, path)",
            f"{_DISPLAY_PLUGIN}.dump_begin": "(self, fileobj)",
        },
        uses={f"{_DISPLAY_PLUGIN}.get_begin_dict": "(self)"},
        reason="An event reaches ansible-runner in the play's output, not by a file of its own.",
        gain="5 % of the CPU time of a run of 190 tasks (ADR 28)",
    ),
    Patch(
        name="caller-frames",
        install=f"{_FORKSERVER}.results:install_caller_frames",
        replaces={f"{_INTERNAL}._stack:caller_frame": "()"},
        reason="A deprecation needs one frame of the stack; ansible-core describes all of them.",
        gain="a sixth of the CPU time of a run of 190 tasks, eight with `template` (ADR 28)",
    ),
    Patch(
        name="text-types",
        install="operator_runner.ansible.templating.text_templates:install",
        replaces={
            f"{_BITS}:AnsibleEnvironment.concat": "(nodes)",
            f"{_ENGINE}._post_render_mutation": "(self, template, result, options)",
            f"{_ENGINE}.evaluate_expression": "(self, expression, *, local_variables=None, "
            "escape_backslashes=True, _render_jinja_const_template=False)",
            f"{_JINJA_PLUGINS}:JinjaPluginIntercept.__getitem__": "(self, key)",
            "ansible.plugins.lookup.template:LookupModule.run": "(self, terms, variables=None, "
            "**kwargs)",
            "ansible.plugins.action.set_fact:ActionModule.run": "(self, tmp=None, task_vars=None)",
        },
        uses={
            f"{_BITS}:_flatten_nodes": "(nodes)",
            f"{_BITS}:_finalize_template_result": "(o, mode)",
        },
        reason="Templates return ansible-core 2.18 types unless native types are on (ADR 18). "
        "The lookup `template` does not copy the values of all variables.",
        gain="structural: the results of roles; applied in cold runs too",
        is_essential=True,
    ),
    Patch(
        name="data-maps",
        install="operator_runner.ansible.data_maps:install",
        replaces={
            f"{_DATATAG}:AnsibleSerializable._TYPE_KEY": "str",
            f"{_PROFILES}:AnsibleProfileJSONEncoder.default": "(self, o)",
            f"{_PROFILES}:AnsibleProfileJSONDecoder.object_hook": "(self, pairs)",
        },
        uses={"ansible._internal._json._profiles._cache_persistence:Encoder.profile_name": "str"},
        reason="A map of data with Ansible's type key was a template (ADR 17); in cold runs too.",
        gain="structural: resource writers run no commands through cached facts",
        is_essential=True,
    ),
    Patch(
        name="existing-projects",
        install="operator_runner.ansible.existing_projects:install",
        replaces={
            "ansible.template:Templar.do_template": "(self, data, "
            "preserve_trailing_newlines=True, escape_backslashes=True, fail_on_undefined=True, "
            "overrides=None, disable_lookups=Ellipsis, convert_data=Ellipsis)",
            f"{_COLLECTION_LOADER}._get_candidate_paths": "(self, path_list)",
            "ansible.playbook.task:Task._post_validate_environment": "(self, attr, value, templar)",
            "ansible.playbook.role.definition:RoleDefinition._load_role_path": "(self, role_name)",
        },
        uses={
            f"{_BITS}:_TEMPLATE_OVERRIDE_FIELD_NAMES": "tuple",
            f"{_BITS}:TemplateOverrides.DEFAULT": "TemplateOverrides",
        },
        reason="Collections that projects pin were written for ansible-core 2.18 (ADR 55), and "
        "playbooks name roles where the image has them; in cold runs too.",
        gain="structural: objects of templates are rendered",
        is_essential=True,
    ),
    Patch(
        name="dry-run-tasks",
        install="operator_runner.ansible.dry_run_tasks:install",
        replaces={"ansible.playbook.task:Task.post_validate": "(self, templar)"},
        reason="In a dry run, tasks that act on the cluster run although the play is in check "
        "mode, and commands in containers do not (ADR 40); in cold runs too.",
        gain="structural: the writes of a dry run reach the proxy",
    ),
    Patch(
        name="task-prompts",
        install="operator_runner.ansible.task_prompts:install",
        replaces={
            f"{_DISPLAY}.prompt": "(msg, private=False)",
            f"{_DISPLAY}.prompt_until": "(self, msg, private=False, "
            "seconds=None, interrupt_input=None, complete_input=None)",
            f"{_DISPLAY}.do_var_prompt": "(self, varname, private=True, "
            "prompt=None, encrypt=None, confirm=False, salt_size=None, salt=None, default=None, "
            "unsafe=False)",
            f"{_STRATEGY}:Debugger.cmdloop": "(self)",
        },
        reason="ansible-runner has the terminal of a play, so that any question would wait for "
        "ever; in cold runs too.",
        gain="structural: an error reaches the status",
    ),
    Patch(
        name="template-error-lines",
        install="operator_runner.ansible.templating.error_locations:install",
        replaces={
            f"{_MARKERS}:Marker.__init__": "(self, hint=None, obj=Ellipsis, name=None, "
            "exc=Ellipsis, *args, _no_template_source=False, **kwargs)",
            f"{_MARKERS}:UndefinedMarker._undefined_message": "property",
            f"{_BITS}:create_template_error": "(ex, variable, is_expression)",
        },
        uses={
            f"{_TASK}:TaskContext.current": "(optional=False)",
            "ansible._internal._templating._utils:TemplateContext.current": "(optional=False)",
        },
        reason="Errors in templates name file, line and the nearest variable; in cold runs too.",
        gain="structural: the messages of failed tasks",
    ),
)


def switchable_names(patches: Iterable[Patch] = PATCHES) -> tuple[str, ...]:
    """Return the names in OPERATOR_RUNNER_DISABLE_PATCHES that switch a patch off."""
    return tuple(patch.name for patch in patches if not patch.is_essential)


def unknown_names(names: Iterable[str], patches: Iterable[Patch]) -> list[str]:
    """Return a message for each name that switches no patch off."""
    switchable = switchable_names(patches)
    known = ", ".join(sorted(switchable))
    return [
        f"unknown patch {name!r} in OPERATOR_RUNNER_DISABLE_PATCHES: expected names of {known}"
        for name in names
        if name not in switchable
    ]
