"""Run tasks in the play's own process where a worker would only wait for a module.

ansible-core forks a worker for each task and host, so that hosts run in parallel and plugins
cannot change the play's process. With one host there is nothing to run in parallel, and actions of
ansible-core and kubernetes.core are safe: they template arguments and run a module in its own
fork. Plugins for templates that have no memory are safe as well. Every other task gets a worker.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible
from ansible._internal import _task
from ansible.executor import task_queue_manager, task_result
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_queue_manager import DisplaySend, FinalQueue
from ansible.module_utils._internal import _datatag
from ansible.plugins import loader as loaders
from ansible.plugins.strategy import StrategySentinel, results_thread_main
from ansible.utils.display import Display

from operator_runner.ansible.forkserver.plugins_of_tasks import calls_plugins_with_memory
from operator_runner.ansible.patches.replacing import replace, wrap

_CORE = Path(ansible.__file__).parent
_TRUSTED_COLLECTIONS = ("ansible_collections/kubernetes/core/", "ansible_collections/operator_sdk/")
_UNCHANGING = (
    *(_datatag._AnsibleTaggedStr, _datatag._AnsibleTaggedInt, _datatag._AnsibleTaggedFloat),
    *_datatag._known_tag_types,
)
"""Types of values that cannot be changed, and take long to copy: texts with tags, and tags."""
_WITH_A_WORKER = {"add_host", "group_by", "pause"}
"""Actions that need their worker: since ansible-core 2.21, two wait for the play meanwhile."""


_rpc_host: Any = getattr(task_queue_manager, "_rpc_host", None)
"""Since ansible-core 2.21: has the server in the play's process that workers connect to."""
_RESULT = getattr(_task, "POLYMORPHIC_RESULT_EXPRESSION", None)
"""Since ansible-core 2.21, `register: name` is this expression: the whole result of the task."""
_ENDED = SimpleNamespace(is_alive=lambda: False, close=lambda: None, exitcode=0, pid=None)
"""What the strategy reads of a worker whose task has ended."""
_display = Display()


def install() -> None:
    """Run tasks in this process, without workers, if the results are the same."""
    replace("ansible.plugins.strategy:WorkerProcess", _Worker)
    wrap("ansible.plugins.strategy:results_thread_main", _handle_results)
    wrap("ansible.utils.multiprocessing:context.parent_process", _parent_process)
    if _rpc_host is not None:
        # Most plays have no worker; the first one starts the server instead of the play.
        later = SimpleNamespace(shared_instance=lambda: None)
        host = SimpleNamespace(LocalManager=later)
        replace("ansible.executor.task_queue_manager:_rpc_host", host)


def is_in_play() -> bool:
    """Return whether a task runs in this process, the play's."""
    return _Queue.current is not None


class _Worker:
    """The worker of a task, which starts a process only if the task needs one."""

    def __init__(self, **work: Any) -> None:
        self._work = work
        self._process: Any = _ENDED

    def start(self) -> None:
        """Run the task, in this process or in another one."""
        work = SimpleNamespace(**self._work)
        if _needs_no_worker(work):
            _run(work)
        else:
            if _rpc_host is not None:
                _rpc_host.LocalManager.shared_instance()
            self._process = WorkerProcess(**self._work)
            self._process.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def _handle_results(original: Callable[[Any], None], strategy: Any) -> None:
    """Be the thread of a strategy that handles results; tasks in this process need the strategy."""
    _Queue.strategy = strategy
    _has_strategy.set()
    try:
        original(strategy)
    finally:
        _has_strategy.clear()


def _parent_process(original: Callable[[], Any]) -> Any:
    return _Queue.current or original()


_has_strategy = threading.Event()


class _Queue:
    """The queue for messages and the result of a task that runs in this process.

    They are handled at once, as by the thread that reads the queue of workers. A result is a copy
    in any case, as from a worker.
    """

    current: _Queue | None = None
    """The queue that messages are sent to instead of being displayed."""
    strategy: Any = None
    """The strategy of the current play."""
    send_callback = FinalQueue.send_callback
    send_display = FinalQueue.send_display
    send_task_result = FinalQueue.send_task_result

    def put(self, message: Any) -> None:
        """Have the strategy handle a message or a result; see FinalQueue."""
        _has_strategy.wait()
        with _messages_to(None):
            if isinstance(message, DisplaySend):
                # In another thread: ansible-runner keeps data for the event of a message by thread.
                delivery = _Delivery(self.strategy, message)
                thread = threading.Thread(target=results_thread_main, args=(delivery,))
                thread.start()
                thread.join()
            else:
                Context().run(results_thread_main, _Delivery(self.strategy, _copy(message)))


@contextlib.contextmanager
def _messages_to(queue: _Queue | None) -> Iterator[None]:
    """Send messages to the queue within the block, as a worker does; None displays them."""
    outer = _Queue.current
    _send_messages_to(queue)
    try:
        yield
    finally:
        _send_messages_to(outer)


def _send_messages_to(queue: _Queue | None) -> None:
    # Display accepts a queue only in a process that has a parent.
    _Queue.current = _Queue.current or queue
    _display.set_queue(queue)
    _Queue.current = queue


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


def _needs_no_worker(work: Any) -> bool:
    task = work.task
    return (
        len(work.variable_manager._inventory.hosts) <= 1
        and not task.async_val
        and not task.delegate_to
        and not task.timeout  # which could interrupt the play instead of the task
        and _is_trusted(task)
        and not calls_plugins_with_memory(work)
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


def _run(work: Any) -> None:
    """Do the work of a worker in this process; see WorkerProcess.run."""
    task = work.task.copy(exclude_parent=True, exclude_tasks=True)
    task._parent = work.task._parent
    queue = _Queue()
    execute = _execute if hasattr(_task.TaskContext, "create") else _execute_until_core_2_20
    with process_as_it_was(), _messages_to(queue):
        execute(work, task, queue)


def _execute(work: Any, task: Any, queue: _Queue) -> None:
    host, variables = work.host, dict(work.task_vars)
    with _task.TaskContext.create(task=task, task_vars=variables, host_name=host.name):
        task.squash()
        result = _executed(work, queue)
        _register(result, task)
        task.ignore_errors = result.ignore_errors
        task.ignore_unreachable = result.ignore_unreachable
        queue.send_task_result(host, task, result)


def _register(result: Any, task: Any) -> None:
    """Set the variable that a task registers.

    ansible-core passes the result through a template for it, value by value: a tenth of the play's
    CPU time in a run of the nginx role. `transform` returns plain data as it is.
    """
    context = _task.TaskContext.current()
    names = task.register
    if names and not context.is_loop and all(each is _RESULT for each in names.values()):
        with contextlib.suppress(Exception):  # ansible-core makes it an error of the task
            value = context.task_templar.transform(context.latest_result)
            result.registered_values = dict.fromkeys(names, value)
            return
    result.finalize_registered_values()


def _execute_until_core_2_20(work: Any, task: Any, queue: _Queue) -> None:
    with _task.TaskContext(task):
        result = _executed(work, queue, task, work.task_vars)
    fields = task.dump_attrs()
    queue.send_task_result(
        task_result._RawTaskResult(
            host=work.host, task=task, return_data=result, task_fields=fields
        )
    )


def _executed(work: Any, queue: _Queue, *task_and_variables: Any) -> Any:
    """Return the result of the task, which ansible-core 2.21 takes from its context."""
    return TaskExecutor(
        work.host,
        *task_and_variables,
        work.play_context,
        work.loader,
        work.shared_loader_obj,
        queue,
        work.variable_manager,
    ).run()


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Undo changes of the process by templates, which would have ended with a worker."""
    cwd, environment = os.getcwd(), _environment()  # noqa: PTH109
    umask = current_umask()
    _forget_client_defaults()
    try:
        yield
    finally:
        _forget_client_defaults()
        os.umask(umask)
        os.chdir(cwd)
        if _environment() != environment:
            os.environ.clear()
            os.environb.update(environment)


def _environment() -> dict[bytes, bytes]:
    """Return a copy of what is behind `os.environ`, which decodes each name and value."""
    data: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return data.copy()


def current_umask() -> int:
    """Return the umask of this process, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _forget_client_defaults() -> None:
    """Forget the configuration that the Kubernetes client takes from the last kubeconfig.

    Later clients would inherit its certificates.
    """
    loaded = sys.modules.get("kubernetes.client.configuration")
    if loaded is not None:
        loaded.Configuration.set_default(None)
