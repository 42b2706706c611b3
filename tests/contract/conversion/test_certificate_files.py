"""Certificates in files, as cert-manager and the kubelet write them."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
from pathlib import Path

import aiohttp
import pytest

from operator_runner.conversion.certificates import CertificateFiles, ServingCertificate
from operator_runner.conversion.server import serve_conversions
from operator_runner.net.certificates import CertificateBundle, CertificateLifetimes, renew
from tests.contract.conversion.conftest import until


def _make() -> CertificateBundle:
    now = dt.datetime.now(dt.UTC)
    return renew(None, ["127.0.0.1"], now, is_published=False, lifetimes=CertificateLifetimes())


def _write(folder: Path, made: CertificateBundle) -> None:
    """Write a new directory and turn the links to it, as the kubelet does."""
    version = folder / f"..{os.urandom(4).hex()}"
    version.mkdir()
    (version / "tls.crt").write_bytes(made.certificate)
    (version / "tls.key").write_bytes(made.key)
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").replace(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


async def _send_review(port: int, trusted: CertificateBundle) -> int:
    context = ssl.create_default_context(cadata=trusted.authorities.decode())
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"https://127.0.0.1:{port}/convert", ssl=context, data=b"{}") as answer,
    ):
        return answer.status


async def _until_trusted(port: int, trusted: CertificateBundle) -> None:
    async with asyncio.timeout(180):
        while True:
            try:
                assert await _send_review(port, trusted) == 400
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)
            else:
                return


async def test_files_are_waited_for_and_loaded_again_when_they_change(tmp_path: Path) -> None:
    """The server shows the newest pair that fits; a broken one changes nothing."""
    serving = ServingCertificate()
    files = CertificateFiles(tmp_path, serving)
    server = await serve_conversions({}, 0, serving.context, lambda *_: None)
    task = asyncio.create_task(files.run())
    try:
        first, second = _make(), _make()
        with pytest.raises(aiohttp.ClientError):
            await _send_review(server.port, first)
        _write(tmp_path, first)
        await _until_trusted(server.port, first)
        assert files.missing() is None

        _write(tmp_path, CertificateBundle(b"", b"", second.certificate, first.key))
        with pytest.raises(ValueError, match="do not match"):
            serving.load(second.certificate, first.key)
        assert await _send_review(server.port, first) == 400

        _write(tmp_path, second)
        await _until_trusted(server.port, second)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop()


async def test_missing_files_are_reported_with_their_path(tmp_path: Path) -> None:
    """Readiness names the flag, the directory and the file."""
    files = CertificateFiles(tmp_path / "none", ServingCertificate())
    task = asyncio.create_task(files.run())

    async def is_reported() -> bool:
        return "No such file" in (files.missing() or "")

    await until(is_reported)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert f"--webhook-cert-dir={tmp_path}/none: " in (files.missing() or "")
