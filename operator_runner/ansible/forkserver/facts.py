"""Cache facts that rarely change, for all runs.

ansible-core's module `setup` calls forty collectors, some of which start programs or look up
names: half a second. The fork server keeps the results of slow and steady collectors. A separate
process gathers them (`fact_gathering`), and each fork inherits them. A module that gathers facts
uses a result only if its dependencies are unchanged: the files that it is read from, the host's
name, the network's addresses and routes, the block devices, the user and its capabilities, PATH
and locale of the task. Otherwise it gathers the facts itself. It always gathers time, uptime,
load, memory, mounts and their free space, environment, user and custom facts.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import psutil

from operator_runner.ansible.patches.replacing import replace, wrap

LONGEST_SECONDS = 3600.0
"""Age at which facts are gathered again, even if their dependencies are unchanged."""

_OF_THE_HOST = (
    *("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/machine-id"),
    *("/var/lib/dbus/machine-id", "/etc/localtime"),
)
_OF_THE_DISTRIBUTION = (
    *("/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version"),
    *("/etc/redhat-release", "/etc/centos-release", "/etc/system-release", "/etc/alpine-release"),
    *("/etc/SuSE-release", "/etc/arch-release", "/etc/oracle-release", "/etc/altlinux-release"),
    *("/etc/gentoo-release", "/etc/slackware-version", "/etc/coreos/update.conf", "/etc/issue"),
)
_OF_THE_MACHINE = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_ROUTES = ("/proc/net/route", "/proc/net/if_inet6")
_IPV6_ROUTES = "/proc/net/ipv6_route"
_ENVIRONMENT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LC_CTYPE", "HOSTALIASES")
_SHORT_SLEEPS = 20
_sleeps = itertools.count()
"""Numbers of the sleeps of this process."""
_FACTS = "ansible.module_utils.facts"
_LINUX = f"{_FACTS}.hardware.linux"
_OWN = ("process", "programs")
"""Signals that all cached facts depend on."""
_CAPABILITIES = ("Uid:", "Gid:", "Groups:", "Cap")


@dataclass(frozen=True, slots=True)
class FactCache:
    """Results of collectors and programs, their time, and the signals that they depend on."""

    results: dict[str, str] = field(default_factory=dict)
    """Results as JSON, by the name of the collector or the command."""
    signals: dict[str, Any] = field(default_factory=dict)
    gathered_at: float = float("-inf")
    """Seconds of the monotonic clock, which all processes of a machine share."""

    @classmethod
    def of(cls, text: bytes) -> Self:
        """Return the cache that `as_json` has encoded."""
        return cls(**json.loads(text))

    def as_json(self) -> bytes:
        """Encode the cache for another process."""
        return json.dumps(asdict(self)).encode()

    @property
    def is_old(self) -> bool:
        """Whether the facts have to be gathered again."""
        return time.monotonic() - self.gathered_at > LONGEST_SECONDS


class CacheMissError(BaseException):
    """Cached facts are not sufficient. Not an Exception, so that collectors do not catch it."""


@dataclass(slots=True)
class CachedGathering:
    """A gathering of facts from the cache alone."""

    failed: bool = False
    """Whether a fact was not cached; a collector may have caught the error."""


class _State:
    """The state of this process: inherited facts, and facts that it records."""

    cache = FactCache()
    recorded: dict[str, str] | None = None
    signals: dict[str, Any] | None = None
    attempt: CachedGathering | None = None
    is_at_hardware = False
    """Whether the facts of the hardware are being gathered."""

    def unchanged(self, names: tuple[str, ...]) -> bool:
        """Return whether the sources of facts that these signals describe are unchanged."""
        if self.signals is None:
            self.signals = all_signals()
        return all(self.signals[name] == self.cache.signals.get(name) for name in names)


_state = _State()


def inherit(cache: FactCache) -> None:
    """Use these facts in this process and its forks."""
    _state.cache = cache


def record() -> dict[str, str]:
    """Gather everything in this process; return the map that gets the results."""
    _state.cache, _state.recorded = FactCache(), {}
    return _state.recorded


def are_cached() -> bool:
    """Whether there are facts to use."""
    return bool(_state.cache.results) and not _state.cache.is_old


@contextlib.contextmanager
def cached_only() -> Iterator[CachedGathering]:
    """Within this block, refuse facts that are not in the cache."""
    _state.attempt, _state.signals = CachedGathering(), None
    try:
        yield _state.attempt
    finally:
        _state.attempt = _state.signals = None


def refuse() -> NoReturn:
    """Record that cached facts are not sufficient. Raises CacheMissError."""
    if _state.attempt is not None:
        _state.attempt.failed = True
    raise CacheMissError


def system_signals() -> dict[str, Any]:
    """Return what facts depend on that is the same for all processes of runs, as JSON has it."""
    return {
        "host": [*os.uname(), *_states(_OF_THE_HOST)],
        "distribution": _states(_OF_THE_DISTRIBUTION),
        "machine": [*_states(_OF_THE_MACHINE), _text("/proc/sys/kernel/random/boot_id")],
        "network": [_interfaces(), [_text(path) for path in _ROUTES], _ipv6_routes()],
        "devices": [_names("/sys/block"), _text("/proc/partitions")],
        "programs": _states(tuple(os.environ.get("PATH", "").split(os.pathsep))),
    }


def all_signals() -> dict[str, Any]:
    """Return what facts depend on, the process itself included."""
    status = _text("/proc/self/status").splitlines()
    return {
        **system_signals(),
        "process": [
            [line for line in status if line.startswith(_CAPABILITIES)],
            [os.environ.get(name) for name in _ENVIRONMENT],
            _root(),
        ],
    }


def install() -> None:
    """Make the module `setup` use cached facts, in this process and its forks."""
    wrap(f"{_FACTS}.collector:BaseFactCollector.collect_with_namespace", _collect)
    wrap(f"{_LINUX}:LinuxHardware.get_device_facts", _device_facts)
    wrap("ansible.module_utils.basic:AnsibleModule.run_command", _run_command)
    # It waits a tenth of a second for mounts, also for those that have answered.
    replace(f"{_LINUX}:time", SimpleNamespace(**{**vars(time), "sleep": _sleep}))


_SIGNALS_OF_COLLECTORS: Mapping[str, tuple[str, ...]] = {
    "PlatformFactCollector": ("host",),
    "DistributionFactCollector": ("host", "distribution"),
    "LSBFactCollector": ("distribution",),
    "ChrootFactCollector": ("machine",),
    "LinuxVirtualCollector": ("machine",),
    "SystemCapabilitiesFactCollector": (),
    "SystemdFactCollector": ("machine",),
    "LinuxNetworkCollector": ("network", "host"),
}
"""Collectors whose facts are cached, and what these depend on."""


_SIGNALS_OF_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "locale": (),
    **dict.fromkeys(("lsblk", "udevadm", "vgs", "lvs", "pvs", "dmsetup"), ("devices",)),
}
"""Programs of the collector of hardware whose output is cached, and what it depends on."""


def _collect(
    original: Callable[..., Any], collector: Any, module: Any = None, collected_facts: Any = None
) -> Any:
    kind = type(collector)
    name = kind.__name__ if kind.__module__.startswith(f"{_FACTS}.") else ""
    gather = functools.partial(original, collector, module, collected_facts)
    if name in _SIGNALS_OF_COLLECTORS:
        return _cached_or_gathered(name, _SIGNALS_OF_COLLECTORS[name], gather)
    _state.is_at_hardware = name == "LinuxHardwareCollector"
    try:
        return gather()
    finally:
        _state.is_at_hardware = False


def _device_facts(original: Callable[..., Any], hardware: Any) -> Any:
    return _cached_or_gathered("devices", ("devices",), functools.partial(original, hardware))


def _run_command(original: Callable[..., Any], module: Any, args: Any, **options: Any) -> Any:
    run = functools.partial(original, module, args, **options)
    if _state.is_at_hardware:
        words = args.split() if isinstance(args, str) else args
        program = os.path.basename(words[0])  # noqa: PTH119
        if program in _SIGNALS_OF_PROGRAMS:
            return _cached_or_gathered(" ".join(words), _SIGNALS_OF_PROGRAMS[program], run)
        if program == "findmnt" and (mounts := _mounts()) is not None:
            return 0, mounts, ""
    if _state.attempt is not None:
        refuse()
    return run()


def _mounts() -> str | None:
    """Return what `findmnt` prints; None if names of mounts have special characters.

    A run has mounts of its own, which cannot be cached.
    """
    lines = []
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        source = after.split()[1]
        lines.append(f"{point} {source}" + (f"[{root}]" if root != "/" else ""))
    text = "\n".join(lines).replace("\\040", " ")
    return None if "\\" in text else text


def _sleep(seconds: float) -> None:
    """Wait little at first: a mount answers at once, or hangs."""
    time.sleep(min(seconds, 0.0002 if next(_sleeps) < _SHORT_SLEEPS else 0.002))


def _cached_or_gathered(key: str, signals: tuple[str, ...], gather: Callable[[], Any]) -> Any:
    """Return a cached result if its signals are unchanged, else what `gather` returns."""
    text = _state.cache.results.get(key)
    if text is not None and not _state.cache.is_old and _state.unchanged((*signals, *_OWN)):
        return json.loads(text)
    if _state.attempt is not None:
        refuse()
    before = warnings()
    result = gather()
    if _state.recorded is not None and warnings() == before:
        with contextlib.suppress(TypeError):
            # A set within is a list, which the module makes of it too.
            _state.recorded[key] = json.dumps(result, default=sorted)
    return result


def warnings() -> int:
    """Return how many warnings and deprecations the module has to report."""
    from ansible.module_utils.common import warnings

    return len(warnings.get_warnings()) + len(warnings.get_deprecations())


def _states(paths: tuple[str, ...]) -> list[list[int] | None]:
    return [_state_of(path) for path in paths]


def _state_of(path: str) -> list[int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (thirty of these for each run)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123 (twenty of these for each run)
            return file.read()
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _root() -> list[int]:
    found = os.stat("/")  # noqa: PTH116
    return [found.st_dev, found.st_ino]


def _interfaces() -> list[Any]:
    """Return addresses, flags and MTU of all interfaces."""
    addresses = psutil.net_if_addrs()
    return [
        [name, [list(map(str, each)) for each in addresses[name]], _link(name)]
        for name in sorted(addresses)
    ]


def _ipv6_routes() -> list[list[str]]:
    """Return routes without their reference and use counts, which change with connections."""
    rows = map(str.split, _text(_IPV6_ROUTES).splitlines())
    return [[*row[:6], *row[8:]] for row in rows]


def _link(name: str) -> list[str]:
    return [_text(f"/sys/class/net/{name}/{part}") for part in ("flags", "mtu", "operstate")]
