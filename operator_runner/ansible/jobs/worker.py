"""The program of a Job's container: run `ansible-runner worker` and send its output.

A Secret adds it to any image, so it uses only the standard library of Python 3.9. Its
arguments are the directory of the Secret (`token`, `ca.crt`, `settings.json`) and a directory for
the private data dir. All connections to the operator go through a relay on loopback, which waits
while the operator restarts. See docs/adr/0038-runs-as-jobs.md for the protocol.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

RUN = "/operator-runner.dev/run"
INPUT, OUTPUT = RUN + "/input", RUN + "/output"
OFFSET_HEADER, UID_HEADER = "Operator-Runner-Offset", "Operator-Runner-Resource-Uid"
ADDRESS_HEADER = "Operator-Runner-Address"
_MISDIRECTED = 421
_CHUNK_BYTES = 64 * 1024
_RETRY_SECONDS = 0.5
_SEARCH_SECONDS = 2.0
"""Longest interval of the search for the replica that has the run."""
_REPLY_SECONDS = 5.0
"""Time limit for a replica to report whether it has the run: it may be frozen."""
_REQUEST_SECONDS = 10.0
"""A request for output ends after this time, so that a lost connection is noticed."""
_READ_SECONDS = 20.0
"""Time limit for the next bytes of the operator: it may be frozen."""
_KEEPALIVE_SECONDS, _LOST_SECONDS = 15, 60
"""Interval of probes, and time without an acknowledgement after which a connection is closed."""
_EXIT_SECONDS = 5.0
"""Time limit for ansible-runner to exit after its last output."""
_GIVE_UP_SECONDS = 3600.0
"""The run is ended after this time without contact with the operator."""


_REFUSED_SECONDS = 30.0
"""A run that has ended waits this long for an operator that accepts its token."""


class TokenRefused(OSError):
    """The operator does not have the run: it has ended, or its Job is not adopted."""


class RunEnded(Exception):
    """The operator has received the whole output, or has cancelled the run."""


class OperatorConnection:
    """Requests to the operator with the run's token."""

    def __init__(self, folder: Path, port: int) -> None:
        self._token = (folder / "token").read_text()
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._port = port
        self._contact = time.monotonic()
        self._refused_since: float | None = None

    def fetch(self, target: Path) -> None:
        """Write the input of the run to a file."""

        def attempt() -> None:
            with self._request("GET", INPUT) as answer, target.open("wb") as file:
                shutil.copyfileobj(answer, file)

        self._repeat(attempt)

    def send(self, spool: Spool) -> None:
        """Send the output as it is written, until the operator has all of it."""

        def attempt() -> None:
            try:
                with self._request("GET", OUTPUT) as answer:
                    offset = int(answer.headers[OFFSET_HEADER])
            except TokenRefused:
                # The operator was killed before it had answered the last request.
                if spool.has_ended and self._is_refused_for(_REFUSED_SECONDS):
                    raise RunEnded from None
                raise
            while not spool.is_complete(offset):
                body, headers = spool.follow(offset), {OFFSET_HEADER: str(offset)}
                with self._request("POST", OUTPUT, body, headers) as answer:
                    offset = int(answer.headers[OFFSET_HEADER])

        self._repeat(attempt)

    def _repeat(self, attempt: Callable[[], None]) -> None:
        """Call a function until the operator has answered all of its requests."""
        while True:
            try:
                attempt()
            except (OSError, http.client.HTTPException) as error:
                self._wait(error)
            else:
                return

    def _request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=_READ_SECONDS, context=self._context
        )
        authorization = {"Authorization": f"Bearer {self._token}", "Connection": "close"}
        connection.request(
            method, path, body, {**authorization, **(headers or {})}, encode_chunked=False
        )
        answer = connection.getresponse()
        if answer.status == http.client.GONE:
            raise RunEnded
        if answer.status == http.client.UNAUTHORIZED:
            if self._refused_since is None:
                self._refused_since = time.monotonic()
            raise TokenRefused(f"{method} {path}: {answer.status} {answer.read(300)!r}")
        self._refused_since = None
        if answer.status != http.client.OK:
            raise OSError(f"{method} {path}: {answer.status} {answer.read(300)!r}")
        self._contact = time.monotonic()
        return answer

    def _is_refused_for(self, seconds: float) -> bool:
        since = self._refused_since
        return since is not None and time.monotonic() - since >= seconds

    def _wait(self, error: Exception) -> None:
        if time.monotonic() - self._contact > _GIVE_UP_SECONDS:
            sys.exit(f"no contact with the operator for {_GIVE_UP_SECONDS:g} s: {error}")
        time.sleep(_RETRY_SECONDS)


class Spool:
    """The output of ansible-runner in a file, from which it can be sent again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._size = 0
        self._ended = False
        self._grown = threading.Condition()

    def fill(self, source: Any) -> None:
        """Copy a pipe until its end."""
        while chunk := os.read(source.fileno(), _CHUNK_BYTES):
            self._file.write(chunk)
            self._file.flush()
            with self._grown:
                self._size += len(chunk)
                self._grown.notify_all()
        self._file.close()
        with self._grown:
            self._ended = True
            self._grown.notify_all()

    @property
    def has_ended(self) -> bool:
        """Whether ansible-runner has written its last output."""
        with self._grown:
            return self._ended

    def is_complete(self, offset: int) -> bool:
        """Return whether `offset` is the end of all output."""
        with self._grown:
            return self._ended and offset >= self._size

    def follow(self, offset: int) -> Iterator[bytes]:
        """Yield the bytes from `offset` on as they come, for a limited time."""
        end = time.monotonic() + _REQUEST_SECONDS
        with self._path.open("rb") as file:
            file.seek(offset)
            while (left := end - time.monotonic()) > 0 and not self.is_complete(file.tell()):
                if chunk := file.read(_CHUNK_BYTES):
                    yield chunk
                    continue
                self._wait_for_more(file.tell(), left)

    def _wait_for_more(self, position: int, seconds: float) -> None:
        with self._grown:
            self._grown.wait_for(lambda: self._ended or self._size > position, seconds)


class SingleReplica:
    """The address of the only operator that serves Jobs."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def connect(self) -> socket.socket:
        """Return a connection to the operator; after a pause raise OSError if there is none."""
        try:
            return _connection_to(self._address)
        except OSError:
            # The operator restarts, or this is a replica that does not lead.
            time.sleep(_RETRY_SECONDS)
            raise


class Replicas:
    """The replicas behind an address, of which one has the run: the owner of the resource.

    Each connection is preceded by a request that asks for the owner, because the next connection
    to the address may be one to another replica, and because the owner changes while the replicas
    are scaled, updated or fail.
    """

    def __init__(self, address: tuple[str, int], folder: Path, uid: str) -> None:
        self._address = address
        self._owner: tuple[str, int] | None = None
        self._headers = {
            "Authorization": "Bearer " + (folder / "token").read_text(),
            UID_HEADER: uid,
            "Connection": "close",
        }
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._lock = threading.Lock()
        self._pause = 0.0
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def connect(self) -> socket.socket:
        """Return a connection to the owner; after a pause raise OSError if there is none."""
        # One search at a time, or the connections that wait would flood the other replicas.
        with self._lock:
            owner = self._search()
            if owner is None:
                self._pause = min(2 * self._pause + 0.1, _SEARCH_SECONDS)
                time.sleep(self._pause)
                raise OSError("no replica has the run")
            self._pause = 0.0
            if owner != self._owner:
                self._owner = owner
                self._close_connections()
            connection = _connection_to(owner)
            self._connections.add(connection)
            return connection

    def _search(self) -> tuple[str, int] | None:
        if self._owner is not None and (owner := self._ask(self._owner)) is not None:
            return owner
        return self._ask(self._address)

    def _ask(self, address: tuple[str, int]) -> tuple[str, int] | None:
        """Return the address of the replica that replies, None if it does not have the run."""
        try:
            plain = socket.create_connection(address, timeout=_REPLY_SECONDS)
            with plain, self._context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                connection = http.client.HTTPConnection("127.0.0.1")
                connection.sock = secure
                connection.request("GET", RUN, headers=self._headers)
                reply = connection.getresponse()
                if reply.status == _MISDIRECTED:
                    return None
                host, _, port = reply.headers.get(ADDRESS_HEADER, "").rpartition(":")
                return (host, int(port)) if host else address
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def _close_connections(self) -> None:
        """Close the connections to the former owner, which may be frozen."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()


def relay(connect: Callable[[], socket.socket]) -> int:
    """Listen on loopback and connect each client to the operator; return the port.

    `connect` returns a connection to it; it raises OSError to be called again.
    """
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)

    def accept() -> NoReturn:
        while True:
            client, _ = listening.accept()
            _start_thread(_serve, client, connect)

    _start_thread(accept)
    return int(listening.getsockname()[1])


def _serve(client: socket.socket, connect: Callable[[], socket.socket]) -> None:
    end = time.monotonic() + _GIVE_UP_SECONDS
    while True:
        try:
            server = connect()
            break
        except OSError:
            if time.monotonic() > end:
                client.close()
                return
    server.settimeout(None)
    _start_thread(_pump, server, client)
    _pump(client, server)


def _connection_to(address: tuple[str, int]) -> socket.socket:
    """Return a connection that fails soon after the node of the operator has failed."""
    connection = socket.create_connection(address, timeout=_READ_SECONDS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _LOST_SECONDS)
    return connection


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            each.close()


def _start_thread(function: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def _write_kubeconfig(path: Path, folder: Path, port: int, namespace: str) -> None:
    """Write a kubeconfig for the relay; JSON is YAML."""
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(folder / "ca.crt"),
        "proxy-url": "",
    }
    name = "operator-runner"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": (folder / "token").read_text()}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)


def _command(data: Path) -> list[str]:
    program = shutil.which("ansible-runner")
    start = [program] if program else [sys.executable, "-m", "ansible_runner"]
    return [*start, "worker", "--private-data-dir", str(data)]


def main() -> None:
    """Run the play and exit with the status of ansible-runner."""
    folder, data = Path(sys.argv[1]), Path(sys.argv[2])
    settings = json.loads((folder / "settings.json").read_text())
    address, uid = (settings["host"], settings["port"]), settings.get("uid")
    operator_address = SingleReplica(address) if uid is None else Replicas(address, folder, uid)
    port = relay(operator_address.connect)
    scratch = Path(tempfile.mkdtemp(dir=data))
    kubeconfig = scratch / "kubeconfig"
    _write_kubeconfig(kubeconfig, folder, port, settings["namespace"])
    operator = OperatorConnection(folder, port)
    operator.fetch(scratch / "input")
    private = scratch / "run"
    private.mkdir(mode=0o700)
    names = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")
    environment = {**os.environ, **dict.fromkeys(names, str(kubeconfig))}
    environment.setdefault("HOME", str(scratch))
    try:
        getpass.getuser()
    except (KeyError, OSError):
        # ansible-core does so too, but not for the error that Python raises since 3.13.
        environment["LOGNAME"] = f"uid={os.getuid()}"
    with (scratch / "input").open("rb") as stdin:
        worker = subprocess.Popen(
            _command(private),
            stdin=stdin,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def end(*_: object) -> NoReturn:
        os.killpg(worker.pid, signal.SIGTERM)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    spool = Spool(scratch / "output")
    _start_thread(spool.fill, worker.stdout)
    try:
        operator.send(spool)
    except RunEnded:
        try:
            worker.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            end()
    sys.exit(worker.wait())


if __name__ == "__main__":
    main()
