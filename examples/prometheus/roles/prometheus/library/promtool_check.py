"""Check configurations and rules with promtool, all of them by one process for each of the two."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: promtool_check
short_description: Check configurations and rules of Prometheus with promtool
options:
  configurations:
    description: Texts of configuration files by names of your choice. Only their syntax is checked.
    type: dict
    default: {}
  rules:
    description: Texts of rules files by names of your choice.
    type: dict
    default: {}
requirements: [promtool]
"""

RETURN = r"""
rejected:
  description: The message of promtool for each text that is invalid, by its name.
  type: dict
  returned: always
"""

_ARGUMENTS = {"configurations": ["config", "--syntax-only"], "rules": ["rules", "--lint=none"]}
_SECONDS = 120


def check(command: list[str], texts: dict[str, str]) -> dict[str, str]:
    """Return the messages about invalid texts by their names. Raises RuntimeError."""
    if not texts:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        files = {f"{number}.yaml": name for number, name in enumerate(texts)}
        for file, name in files.items():
            Path(folder, file).write_text(texts[name])
        done = subprocess.run(
            [*command, *files],
            cwd=folder,
            # Both in one stream: the order connects a failure with its file.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    found = failures(done.stdout)
    if done.returncode and not found:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.strip()[-1000:]}")
    return {files[file]: message for file, message in found.items()}


def failures(output: str) -> dict[str, str]:
    """Return the messages in the output of `promtool check`, on one line each, by file."""
    found = {}
    for section in f"\n{output}".split("\nChecking ")[1:]:
        file, _, rest = section.partition("\n")
        _, failed, message = rest.partition("FAILED:")
        if failed:
            for prefix in (f"parsing YAML file {file}: ", f"{file}: "):
                message = message.replace(prefix, "")
            found[file] = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    return found


def main() -> None:
    """Run the module."""
    options = {name: {"type": "dict", "default": {}} for name in _ARGUMENTS}
    module = AnsibleModule(options, supports_check_mode=True)
    promtool = module.get_bin_path("promtool", required=True)
    rejected: dict[str, str] = {}
    for option, arguments in _ARGUMENTS.items():
        try:
            rejected |= check([promtool, "check", *arguments], module.params[option])
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            module.fail_json(msg=f"promtool cannot check the {option}: {error}")
    module.exit_json(changed=False, rejected=rejected)


if __name__ == "__main__":
    main()
