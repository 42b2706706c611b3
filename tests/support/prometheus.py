"""A real Prometheus on loopback: Debian's package, unpacked into the user's cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from operator_runner.devcluster import network
from operator_runner.devcluster.locations import cache_folder
from tests.support.debian import one_apt
from tests.support.waiting import eventually

Json = dict[str, Any]

JOB = "nginx-operator"
"""What config/prometheus/monitor.yaml has the scraped operator be called."""
_PACKAGE = "prometheus"


def programs() -> Path:
    """Return the folder with `prometheus` and `promtool`, as installed or else from the package.

    The package is not installed: that would start a server on the machine.
    """
    if (installed := shutil.which("prometheus")) and shutil.which("promtool"):
        return Path(installed).parent
    unpacked = cache_folder(os.environ) / _PACKAGE
    if not unpacked.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        work = unpacked.with_suffix(f".{os.getpid()}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            (archive,) = _download(work)
            subprocess.run(["dpkg-deb", "--extract", archive, work / "root"], check=True)
            (work / "root").rename(unpacked)
        except OSError:
            # Another process may have been faster.
            if not unpacked.exists():
                raise
        finally:
            shutil.rmtree(work)
    return unpacked / "usr" / "bin"


def _download(folder: Path) -> list[Path]:
    """Download the package by apt-get, after an update of the lists if it is not found."""
    command = ["apt-get", "download", "--quiet", _PACKAGE]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        with one_apt():
            subprocess.run(["apt-get", "update", "--quiet"], check=True)
        subprocess.run(command, cwd=folder, check=True)
    return list(folder.glob("*.deb"))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    command = [programs() / "promtool", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Client:
    """The HTTP API of a Prometheus."""

    def __init__(self, address: str) -> None:
        """`address` is host:port."""
        self.address = address

    def query(self, expression: str) -> list[Json]:
        """Return what an expression gives now: `metric` and `value` of each series."""
        found = self._request("query", query=expression)
        return [] if found is None else list(found["result"])

    def query_range(self, expression: str, begin: float, end: float, step: float) -> list[Json]:
        """Return `metric` and `values` (time, value) of each series, times in epoch seconds."""
        found = self._request(
            "query_range", query=expression, start=str(begin), end=str(end), step=str(step)
        )
        return [] if found is None else list(found["result"])

    def alerts(self) -> dict[str, str]:
        """Return the state (pending, firing) of each alert that is not quiet, by its name."""
        found = self._request("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"]: alert["state"] for alert in found["alerts"]}

    def rules(self) -> list[Json]:
        """Return the loaded rules, each with its health and last error."""
        found = self._request("rules") or {"groups": []}
        return [rule for group in found["groups"] for rule in group["rules"]]

    def targets(self) -> list[Json]:
        """Return the active targets, each with its `scrapePool`, `labels` and `health`."""
        found = self._request("targets", state="active") or {"activeTargets": []}
        return list(found["activeTargets"])

    def metadata(self) -> dict[str, Json]:
        """Return type and help of each metric that was scraped."""
        return dict(self._request("metadata") or {})

    def _request(self, what: str, **parameters: str) -> Any:
        """Return the data of an answer; None while it is starting. Fails if it is refused."""
        encoded = urllib.parse.urlencode(parameters)
        try:
            url = f"http://{self.address}/api/v1/{what}?{encoded}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                    return None
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except (OSError, HTTPException):
            return None


class Prometheus(Client):
    """One Prometheus with its data in a folder, which scrapes one target every second."""

    def __init__(self, folder: Path, target: str, rules: str = "groups: []", **labels: str) -> None:
        """Prepare; nothing is started. `target` is host:port, `rules` the text of a rules file."""
        self._folder = folder
        (port,) = network.free_ports("127.0.0.1", 1)
        super().__init__(f"127.0.0.1:{port}")
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        (folder / "rules.yml").write_text(rules)
        scrape = {"job_name": JOB, "static_configs": [{"targets": [target], "labels": labels}]}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def start(self) -> Prometheus:
        """Start it and wait until it has scraped the target."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    programs() / "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        eventually(lambda: self.query("up == 1"), details=self.log)
        return self

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=180)
            self._process = None

    def log(self) -> str:
        """Return its log."""
        return (self._folder / "log").read_text()
