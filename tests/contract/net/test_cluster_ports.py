"""Ports for the parts of clusters: simultaneous clusters get different ones."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from operator_runner.devcluster import network

LOOPBACK = "127.0.0.1"
TRY = f"""
import socket, sys
from operator_runner.devcluster import network
sys.exit(0 if network._reserve({LOOPBACK!r}, int(sys.argv[1])) else 3)
"""


def test_a_program_listens_on_a_port_that_was_chosen_for_it() -> None:
    """The reservation does not answer: clients reach the program."""
    [port] = network.free_ports(LOOPBACK, 1)
    with (
        socket.create_server((LOOPBACK, port)) as program,
        socket.create_connection((LOOPBACK, port)),
    ):
        program.accept()[0].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))


def test_another_process_does_not_choose_the_same_port() -> None:
    """Its own program will listen only seconds later."""
    [port] = network.free_ports(LOOPBACK, 1)
    assert subprocess.run([sys.executable, "-c", TRY, str(port)], check=False).returncode == 3
