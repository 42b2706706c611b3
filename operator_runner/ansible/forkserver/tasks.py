"""Run tasks in the play's own process where a worker would only wait for a module.

ansible-core forks a worker for each task and host, so that hosts run in parallel and plugins
cannot change the play's process. With one host there is nothing to run in parallel, and actions of
ansible-core and kubernetes.core are safe: they template arguments and run a module in its own
fork. Every other task gets a worker.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import ansible
from ansible._internal import _task
from ansible.executor import task_result
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_queue_manager import DisplaySend, FinalQueue
from ansible.module_utils._internal import _datatag
from ansible.plugins import loader as loaders
from ansible.plugins.strategy import StrategySentinel, results_thread_main
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.display import Display

from operator_runner.ansible.forkserver.module_process_reuse import CLIENT_DEFAULTS, current_umask
from operator_runner.ansible.patches.replacing import replace, replaced, wrap

_CORE = Path(ansible.__file__).parent
_TRUSTED_COLLECTIONS = ("ansible_collections/kubernetes/core/", "ansible_collections/operator_sdk/")
_KNOWN_NAMESPACES = {
    *("amazon", "ansible", "awx", "azure", "cloud", "community", "containers", "google"),
    *("kubernetes", "openshift", "operator_sdk", "redhat"),
}
"""Namespaces of collections whose plugins for templates are functions without memory."""
_UNCHANGING = (
    *(_datatag._AnsibleTaggedStr, _datatag._AnsibleTaggedInt, _datatag._AnsibleTaggedFloat),
    *_datatag._known_tag_types,
)
"""Types of values that cannot be changed, and take long to copy: texts with tags, and tags."""
_WITH_A_WORKER = {"add_host", "group_by", "pause"}
"""Actions that need their worker: since ansible-core 2.21, two wait for the play meanwhile."""


def install() -> None:
    """Run tasks in this process, without workers, if the results are the same."""
    wrap("ansible.executor.process.worker:WorkerProcess.start", _start_or_run)
    wrap("ansible.executor.process.worker:WorkerQueue.__init__", _open_later)
    replace(
        "ansible.utils.display:Display._final_q",
        property(lambda _: _display_queue.queue, _display_queue.set),
    )
    wrap("ansible.utils.multiprocessing:context.parent_process", _parent_process)
    wrap("ansible.plugins.strategy:StrategyBase.__init__", _init_strategy)


def is_in_play() -> bool:
    """Return whether this thread runs a task in the play's process, alone and to its end.

    While another thread handles messages of the task, it needs the streams of the play.
    """
    queue = _display_queue.queue
    return isinstance(queue, _Queue) and not queue.is_used


def may_be_interrupted() -> bool:
    """Return whether a timeout may end the task of this thread, which runs in the play's process.

    It could do so while what the task changes in the process is put back.
    """
    queue = _display_queue.queue
    return isinstance(queue, _Queue) and queue.has_timeout


def _start_or_run(start: Callable[..., None], worker: Any) -> None:
    if _needs_no_worker(worker):
        _run(worker)
    else:
        worker.worker_queue.open()
        start(worker)


def _open_later(original: Callable[..., None], queue: Any, *args: Any, **kwargs: Any) -> None:
    """Open no queue yet: most workers are never started, and need none."""
    queue.open = functools.partial(original, queue, *args, **kwargs)


def _parent_process(original: Callable[[], Any]) -> Any:
    return _display_queue.queue or original()


def _init_strategy(original: Callable[..., None], strategy: Any, *args: Any, **kwargs: Any) -> None:
    original(strategy, *args, **kwargs)
    _Queue.strategy = strategy


class _DisplayQueue(threading.local):
    """The queue that this thread sends messages to instead of displaying them, as a worker does.

    The thread that handles results displays messages of tasks in order.
    """

    queue: Any = None

    def set(self, _display: Display, queue: Any) -> None:
        """Take the place of the attribute of Display that workers set."""
        self.queue = queue

    @contextlib.contextmanager
    def redirected(self, queue: Any) -> Iterator[None]:
        """Send messages to the queue within the block; None displays them."""
        outer, self.queue = self.queue, queue
        try:
            yield
        finally:
            self.queue = outer


_display_queue = _DisplayQueue()


class _Queue:
    """The queue for messages and the result of one task.

    Without a need for the queue, they are handled at once, as by the thread that reads it. A result
    is a copy in any case, as from a worker.
    """

    strategy: Any = None
    """The strategy of the current play."""
    send_callback = FinalQueue.send_callback
    send_display = FinalQueue.send_display
    send_task_result = FinalQueue.send_task_result

    def __init__(self, queue: Any, task: Any) -> None:
        self._queue = queue
        self.has_timeout = bool(task.timeout)
        # A timeout could interrupt the handling of a message.
        self.is_used = self.has_timeout
        """Whether the thread that reads the queue may have to handle messages of this task."""

    def __getattr__(self, name: str) -> Any:
        self.is_used = True
        return getattr(self._queue, name)

    def put(self, message: Any) -> None:
        """Have the strategy handle a message or a result; see FinalQueue."""
        if self.is_used:
            self._queue.put(message)
        elif isinstance(message, DisplaySend):
            # In another thread: ansible-runner keeps data for the event of a message by thread.
            delivery = _Delivery(self.strategy, message)
            thread = threading.Thread(target=results_thread_main, args=(delivery,))
            thread.start()
            thread.join()
        else:
            delivery = _Delivery(self.strategy, _copy(message))
            with _display_queue.redirected(None):
                Context().run(results_thread_main, delivery)


class _Delivery:
    """A strategy whose queue holds one message."""

    def __init__(self, strategy: Any, message: Any) -> None:
        self._strategy = strategy
        self._messages = [StrategySentinel(), message]

    @property
    def _final_q(self) -> Any:
        return self

    def get(self) -> Any:
        """Return the message, then the end; see FinalQueue."""
        return self._messages.pop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)


_kept: ContextVar[list[Any]] = ContextVar("kept")
"""Objects that a copy shares with its original."""


def _fetch(index: int) -> Any:
    return _kept.get()[index]


def _copy(result: Any) -> Any:
    """Copy a result as a queue does, by its serialization, but for what never changes."""
    kept: list[Any] = []

    def keep(value: Any) -> tuple[Callable[[int], Any], tuple[int]]:
        kept.append(value)
        return _fetch, (len(kept) - 1,)

    buffer = io.BytesIO()
    pickler = ForkingPickler(buffer)
    pickler.dispatch_table.update(dict.fromkeys(_UNCHANGING, keep))
    pickler.dump(result)
    token = _kept.set(kept)
    try:
        return ForkingPickler.loads(buffer.getbuffer())
    finally:
        _kept.reset(token)


def _needs_no_worker(worker: Any) -> bool:
    task = worker._task
    return (
        len(worker._variable_manager._inventory.hosts) <= 1
        and not task.async_val
        and not task.delegate_to
        and _is_trusted(task)
        and not _has_plugins_of_its_own()
    )


def _is_trusted(task: Any) -> bool:
    """Return whether the task's action is one that does not change its process."""
    found = loaders.action_loader.find_plugin_with_context(
        task.action, collection_list=task.collections
    )
    if not found.resolved:
        return True  # the action `normal`, of ansible-core
    path = Path(found.plugin_resolved_path)
    if path.stem in _WITH_A_WORKER:
        return False
    return path.is_relative_to(_CORE) or any(name in str(path) for name in _TRUSTED_COLLECTIONS)


def _has_plugins_of_its_own() -> bool:
    """Whether templates may call plugins of a role, a playbook, a setting, or a project."""
    for loader in (loaders.filter_loader, loaders.test_loader, loaders.lookup_loader):
        for folder in loader._get_paths(subdirs=False):
            if not folder.startswith(str(_CORE)) and os.path.isdir(folder):  # noqa: PTH112
                return True
    finder = AnsibleCollectionConfig.collection_finder
    return any(_has_collections_of_its_own(path) for path in finder._n_collection_paths)


@functools.cache
def _has_collections_of_its_own(folder: str) -> bool:
    """Whether there are collections with plugins for templates, of unknown namespaces."""
    if Path(folder, "ansible_collections", "ansible_release.py").exists():
        return False  # the distribution `ansible`
    return any(
        namespace not in _KNOWN_NAMESPACES
        for kind in ("filter", "lookup", "test")
        for namespace in (
            path.parts[-4] for path in Path(folder).glob(f"ansible_collections/*/*/plugins/{kind}")
        )
    )


def _run(worker: Any) -> None:
    """Do the work of the worker in this process; see WorkerProcess.run."""
    task = worker._task.copy(exclude_parent=True, exclude_tasks=True)
    task._parent = worker._task._parent
    queue = _Queue(worker._final_q, task)
    execute = _execute if hasattr(_task.TaskContext, "create") else _execute_until_core_2_20
    with (
        process_as_it_was(),
        replaced({CLIENT_DEFAULTS: None}),
        _display_queue.redirected(queue),
    ):
        execute(worker, task, queue)


def _execute(worker: Any, task: Any, queue: _Queue) -> None:
    host, variables = worker._host, dict(worker._task_vars)
    with _task.TaskContext.create(task=task, task_vars=variables, host_name=host.name):
        task.squash()
        result = _executed(worker, queue)
        result.finalize_registered_values()
        task.ignore_errors = result.ignore_errors
        task.ignore_unreachable = result.ignore_unreachable
        queue.send_task_result(host, task, result)


def _execute_until_core_2_20(worker: Any, task: Any, queue: _Queue) -> None:
    with _task.TaskContext(task):
        result = _executed(worker, queue, task, worker._task_vars)
    fields = task.dump_attrs()
    queue.send_task_result(
        task_result._RawTaskResult(
            host=worker._host, task=task, return_data=result, task_fields=fields
        )
    )


def _executed(worker: Any, queue: _Queue, *task_and_variables: Any) -> Any:
    """Return the result of the worker's task, which ansible-core 2.21 takes from its context."""
    return TaskExecutor(
        worker._host,
        *task_and_variables,
        worker._play_context,
        worker._loader,
        worker._shared_loader_obj,
        queue,
        worker._variable_manager,
    ).run()


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Undo changes of the process by templates, which would have ended with a worker."""
    cwd, environment = os.getcwd(), _environment()  # noqa: PTH109
    umask = current_umask()
    try:
        yield
    finally:
        os.umask(umask)
        os.chdir(cwd)
        if _environment() != environment:
            os.environ.clear()
            os.environb.update(environment)


def _environment() -> dict[bytes, bytes]:
    """Return a copy of what is behind `os.environ`, which decodes each name and value."""
    data: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return data.copy()
