"""Discover what the API server serves, before a run, for this run and later ones.

kubernetes.core caches its discovery in files. A run could change those that it passes on, so they
are written by a process in which nothing of a run is loaded, to a directory that runs cannot
access; see `temp_dirs`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from typing import Any

from operator_runner.ansible.forkserver.forks import begin_process, fork, use_environment

_LONGEST_SECONDS = 30


def discover(task: dict[str, Any], environment: dict[str, str]) -> bool:
    """Write the cache files of API versions in a process of its own; return whether it could.

    `task` has `directory` and `versions`, such as apps/v1; `environment` is that of the run, with
    its kubeconfig.
    """
    pid = fork()
    if not pid:
        status = 1
        with contextlib.suppress(BaseException):
            begin_process()
            signal.alarm(_LONGEST_SECONDS)
            _discover(task, environment)
            status = 0
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def _discover(task: dict[str, Any], environment: dict[str, str]) -> None:
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as clients

    os.chdir("/")
    use_environment(environment)
    tempfile.tempdir = task["directory"]
    client = clients.get_api_client(kubeconfig=environment["K8S_AUTH_KUBECONFIG"]).client
    for version in task["versions"]:
        # One that is no longer served is not found.
        client.resources.search(api_version=version)
