"""Completion in bash, zsh and fish, and in kubectl for its plugin.

The scripts are those of click. It completes the value of `--option=VALUE` without the option, and
zsh and fish would replace the whole word by that; bash would take `=` for a word of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

_BREAKS = re.compile(r"[=:]+")
"""Words that bash makes of these characters, because of COMP_WORDBREAKS."""
_NO_FILES, _FILES, _DIRECTORIES = 4, 0, 16
"""Directives of cobra, which end the completions that kubectl reads."""


def install() -> None:
    """Make these classes those of click."""
    for each in (_Bash, _Zsh, _Fish):
        add_completion_class(each)


class _Bash(BashComplete):
    """Joins the words that bash separates at `=` and `:`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete arguments and the incomplete one."""
        args, incomplete = super().get_completion_args()
        *args, incomplete = joined([*args, incomplete])
        return args, incomplete


def joined(words: Sequence[str]) -> list[str]:
    """Return words of bash as the program would get them: `--output`, `=`, `json` are one.

    An empty last word remains one, unless it follows such a character.
    """
    found: list[str] = []
    continues = False
    for word in words:
        is_break = _BREAKS.fullmatch(word) is not None
        if found and (is_break or continues):
            found[-1] += word
        else:
            found.append(word)
        continues = is_break
    return found


class _Zsh(ZshComplete):
    """Leaves `--option=` as it is."""

    def source(self) -> str:
        """Return the script."""
        values = f"{self.func_name}_values"
        # For file names; `compadd -U` replaces the whole word in any case.
        return (
            f"{super().source()}\n"
            f"{values}() {{\n    compset -P '--*='\n    {self.func_name}\n}}\n"
            f"compdef {values} {self.prog_name}\n"
        )

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what can be in place of the incomplete word."""
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if option.startswith("--") and equals:
            for item in found:
                item.value = f"{option}={item.value}"
        return found


class _Fish(FishComplete):
    """Puts `--option=` before each value."""

    def source(self) -> str:
        """Return the script."""
        values = f"{self.func_name}_values"
        return (
            f"{super().source()}\n"
            f"function {values};\n"
            "    set -l option (string match --regex -- '^--[^=]*=' (commandline -t));\n"
            f"    for each in ({self.func_name});\n"
            '        echo "$option$each";\n'
            "    end;\n"
            "end;\n\n"
            f"complete --erase --command {self.prog_name};\n"
            f"complete --no-files --command {self.prog_name} --arguments '({values})';\n"
        )


def print_for_kubectl(command: click.Command, words: Sequence[str]) -> None:
    """Print what can be the last one of `words`, the arguments of a command, in cobra's format."""
    *args, incomplete = words or [""]
    program = ShellComplete(command, {}, "kubectl operator-runner", "")
    directive = _NO_FILES
    for item in program.get_completions(args, incomplete):
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
        else:
            directive = _DIRECTORIES if item.type == "dir" else _FILES
    click.echo(f":{directive}")
