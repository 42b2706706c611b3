"""From the file to watches: read, expand the environment, parse, check; and a summary of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.config.watches.document import Diagnostics, Location, expand, parse
from operator_runner.config.watches.entry import EntryReader
from operator_runner.config.watches.lookup import Lookup
from operator_runner.config.watches.selection import with_watched_versions
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Deselection, Finalizer, RunContent, Watch


@dataclass(frozen=True, slots=True)
class Loaded:
    """The watches of a file, and warnings for its author."""

    watches: tuple[Watch, ...]
    warnings: tuple[str, ...]


def load(
    path: Path,
    environ: Mapping[str, str],
    *,
    roles_path: str = "",
    collections_path: str = "",
    mark_unsafe: bool = False,
) -> Loaded:
    """Read a watches file; raises ConfigError with every problem and every warning in it.

    Relative paths of roles and playbooks start at the working directory; those that only the
    image has are found where the Dockerfile beside `path` copies them from. `roles_path` and
    `collections_path` (of the flags) replace ANSIBLE_ROLES_PATH and ANSIBLE_COLLECTIONS_PATH.
    `mark_unsafe` is what watches without markUnsafe have.
    """
    report = Diagnostics(str(path))
    source = expand(_read(path), environ)
    root = parse(source, report)
    lookup = Lookup.of(environ, roles_path, collections_path, path.absolute().parent)
    reader = EntryReader(report, lookup, mark_unsafe=mark_unsafe, variables=environ)
    watches: tuple[Watch, ...] = ()
    match root.value if root is not None else None:
        case tuple() as items:
            watches = with_watched_versions(reader.read(items))
        case None if not report.problems:
            report.warning(Location(1), "no watches; add an entry for each kind")
        case None:
            pass
        case _:
            report.problem(
                Location(1),
                "expected a list of watches; begin each with a dash, as in `- version: v1`",
            )
    if report.problems:
        raise ConfigError(*report.problems, warnings=report.warnings)
    return Loaded(watches, tuple(report.warnings))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; start in the project's directory, or name the file"
            " (run takes it as --watches-file)"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror or error}") from error


def summarize(watches: Sequence[Watch]) -> Iterator[str]:
    """Yield, for each kind, its role or playbook, its finalizer and its deselection.

    Example: `shop.example.com/v1, Kind=Web: role /opt/ansible/roles/web`.
    """
    for watch in watches:
        parts = [_content(watch.content)]
        if watch.finalizer is not None:
            parts.append(f"finalizer {watch.finalizer.name}: {_cleanup(watch.finalizer)}")
        if watch.deselection is not None:
            name = watch.deselection.annotation
            parts.append(f"deselection {name}: {_cleanup(watch.deselection)}")
        yield f"{watch.gvk}: {'; '.join(parts)}"


def _content(content: RunContent) -> str:
    word = "playbook" if content.role is None else "role"
    return f"{word} {content.path}"


def _cleanup(cleanup: Finalizer | Deselection) -> str:
    content = "the same" if cleanup.content is None else _content(cleanup.content)
    with_vars = f" with {', '.join(cleanup.vars)}" if cleanup.vars else ""
    return f"{content}{with_vars}"
