"""Decide whether a command acts on the cluster of its run alone. Pure.

Only what is parsed here is accepted: words, quotes, `;`, `|`, `&&`, `||` and newlines. Expansions,
redirections, comments and escapes can hide a program, so that such a command is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_TOKEN = re.compile(
    r"""
    [ \t]+
    | (?P<end> && | \|\| | [;|\n] )
    | (?P<word> (?: '[^']*' | "[^"$`\\]*" | [\w@%+=:,./~^*?\[\]{}-] )+ )
    """,
    re.VERBOSE | re.ASCII,
)
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_EXPANDED = re.compile(r"[*?\[{]")
"""Starts of patterns and, in bash, of alternatives: their results are unknown."""
_CONTINUED = "\\\n"
_DIRECTORIES = frozenset({".", "/bin", "/usr/bin", "/usr/local/bin"})
_SHELLS = frozenset({"", "/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash"})
_SCHEME = re.compile(r"([a-zA-Z][\w+.-]*)://")
_URLS = re.compile(rf"(?:^|,){_SCHEME.pattern}")
"""Among files that are separated by commas."""
_GLOBAL_VALUES = frozenset({"-n", "-v", "--as", "--namespace", "--request-timeout", "--v"})
"""Flags before the subcommand whose value may be the next word."""
_GLOBAL_SWITCHES = frozenset({"--debug", "--warnings-as-errors"})
_HOST_FLAGS = (
    *("--cache-dir", "--dependency-update", "--edit", "--enable-", "--log-", "--output-dir"),
    *("--plugin", "--post-renderer", "--profile", "--registry-config", "--repository-"),
)
"""Starts of flags that write files, or run programs."""
_CONNECTION = (
    *("--certificate-authority", "--client-", "--kube-", "--kubeconfig", "--password"),
    *("--tls-server-name", "--token", "--username"),
)
"""Starts of flags that select another connection than that of the run."""
_CONNECTION_NAMES = frozenset({"--cluster", "--context", "--server"})
_SWITCHES = "ARhiqtw"
"""Short flags of kubectl without a value: further flags can follow in the same word."""
_KUSTOMIZE_FLAGS = frozenset({"--load-restrictor", "--reorder"})
_LOCAL_PATH = re.compile(r"(?!.*(?://|[:@?]))(?:[^./]*|\.{1,2}|)(?:/.*)?")
"""Not `example.com/repository`, nor another form of a remote one."""
_HELM_SCHEMES = frozenset({"http", "https", "oci"})
"""Schemes of charts and values; other ones run plugins."""

_KUBECTL = frozenset(
    {
        *("annotate", "api-resources", "api-versions", "apply", "autoscale", "create", "delete"),
        *("describe", "events", "explain", "expose", "get", "kustomize", "label", "logs", "patch"),
        *("replace", "rollout", "scale", "set", "taint", "version", "wait"),
    }
)
_AUTH = frozenset({"can-i", "reconcile", "whoami"})
_HELM = frozenset(
    {
        *("get", "history", "install", "list", "ls", "rollback", "show", "status", "template"),
        *("uninstall", "delete", "upgrade", "version"),
    }
)


def is_cluster_command(text: str, executable: str = "") -> bool:
    """Return whether a command only runs clients of the cluster of its run.

    None of them may run another program, write a file or connect to another cluster.
    `executable` is the shell, empty for the default one.
    """
    if executable not in _SHELLS:
        return False
    commands = _parsed(text.replace(_CONTINUED, ""))
    return bool(commands) and all(map(_is_accepted, commands))


@dataclass(frozen=True, slots=True)
class _ShellWord:
    """A word as it is written, and its value without quotes."""

    raw: str
    value: str


def _parsed(text: str) -> list[list[_ShellWord]]:
    """Return the words of each command, empty if a part of the text is not understood."""
    commands: list[list[_ShellWord]] = [[]]
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return []
        position = found.end()
        if found["end"]:
            commands.append([])
        elif found["word"]:
            value = _QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", found["word"])
            commands[-1].append(_ShellWord(found["word"], value))
    return [each for each in commands if each]


def _is_accepted(words: Sequence[_ShellWord]) -> bool:
    if any(map(_is_expanded, words)):
        return False
    program = PurePosixPath(words[0].value)
    check = _CHECKS.get(program.name)
    if check is None or str(program.parent) not in _DIRECTORIES or words[0].value.startswith("./"):
        return False
    values = [each.value for each in words[1:]]
    return check(values) and not any(map(_has_effect_on_host, values))


def _is_expanded(word: _ShellWord) -> bool:
    """Return whether the shell may make flags or several commands of a word."""
    plain = _QUOTED.sub("''", word.raw)
    found = _EXPANDED.search(plain)
    if found is None:
        return False
    before = plain[: found.start()]
    return not before or (before.startswith("-") and "=" not in before)


def _has_effect_on_host(word: str) -> bool:
    name = word.partition("=")[0].replace("_", "-")
    return name.startswith((*_HOST_FLAGS, *_CONNECTION)) or name in _CONNECTION_NAMES


def _is_kubectl(words: Sequence[str]) -> bool:
    arguments = list(_after_global_flags(words))
    subcommand, first = (*arguments, "", "")[:2]
    if subcommand == "auth":
        allowed = first in _AUTH
    elif subcommand == "kustomize":
        return _is_kustomization(arguments[1:])
    else:
        allowed = subcommand in _KUBECTL and first != "edit-last-applied"
    return allowed and not any(map(_selects_server, words)) and not _reads_remote(words)


def _is_oc(words: Sequence[str]) -> bool:
    arguments = list(_after_global_flags(words))
    if arguments[:1] == ["process"]:
        return not any(map(_selects_server, words)) and not _reads_remote(words)
    return _is_kubectl(words)


def _is_helm(words: Sequence[str]) -> bool:
    arguments = list(_after_global_flags(words))
    schemes = {found.lower() for word in words for found in _SCHEME.findall(word)}
    return bool(arguments) and arguments[0] in _HELM and schemes <= _HELM_SCHEMES


def _is_kustomize(words: Sequence[str]) -> bool:
    return words[:1] == ["version"] or (words[:1] == ["build"] and _is_kustomization(words[1:]))


_CHECKS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "kubectl": _is_kubectl,
    "oc": _is_oc,
    "helm": _is_helm,
    "kustomize": _is_kustomize,
}


def _after_global_flags(words: Sequence[str]) -> Iterator[str]:
    """Yield the subcommand and its arguments; nothing after an unknown flag."""
    rest = iter(words)
    for word in rest:
        if word in _GLOBAL_VALUES:
            next(rest, None)
        elif not word.startswith("-"):
            yield word
            yield from rest
        elif word.partition("=")[0] not in _GLOBAL_VALUES | _GLOBAL_SWITCHES:
            return


def _is_kustomization(words: Sequence[str]) -> bool:
    """Return whether these arguments name a directory of this host, and no file to write."""
    for word in words:
        is_known = word.partition("=")[0] in _KUSTOMIZE_FLAGS and "=" in word
        if not is_known and (word.startswith("-") or not _LOCAL_PATH.fullmatch(word)):
            return False
    return True


def _short_flag(word: str) -> tuple[str, str]:
    """Return the flag of kubectl with a value in a word such as `-Rfa.yaml`, and that value."""
    if not word.startswith("-") or word.startswith("--"):
        return "", ""
    rest = word[1:].lstrip(_SWITCHES)
    return rest[:1], rest[1:].removeprefix("=")


def _selects_server(word: str) -> bool:
    return _short_flag(word)[0] == "s"


def _reads_remote(words: Sequence[str]) -> bool:
    """Return whether kubectl reads a manifest or a kustomization from another host."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        flag, short_value = _short_flag(word)
        is_file = flag == "f" or name == "--filename"
        if is_file and _URLS.search(value or short_value):
            return True
        if not word.startswith("-") and _URLS.search(word):
            return True
        is_kustomization = flag == "k" or name == "--kustomize"
        if is_kustomization and not _LOCAL_PATH.fullmatch(value or short_value or after):
            return True
    return False
