"""Debian's Chromium without a window, controlled through its DevTools protocol.

Clicks and keys are input events of the browser, as those of a mouse and a keyboard.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.support.debian import program
from tests.support.waiting import eventually

Json = dict[str, Any]
PACKAGE = "chromium"
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}
_SHIFT = 8
_SECONDS = 120.0
"""Longest time for a response of the browser."""


class Page:
    """One tab of the browser."""

    def __init__(self, url: str) -> None:
        """Connect to the tab with this address of its protocol."""
        self._socket = websocket.create_connection(url, timeout=_SECONDS, suppress_origin=True)
        self._last = 0
        self.errors: list[str] = []
        """Uncaught errors, and what the browser logs as one: also violations of a policy."""
        for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, method: str, **params: Any) -> Json:
        """Call a method of the protocol; return its result."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._last:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: Json) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                entry = message["params"]["entry"]
                # A failed request is shown by the page.
                if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(json.dumps(entry))

    def open(self, url: str) -> None:
        """Navigate to a URL."""
        result = self.send("Page.navigate", url=url)
        assert not result.get("errorText"), f"{url}: {result['errorText']}"

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """Return the text of an element as it is rendered, empty if there is none."""
        found = f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
        return str(self.evaluate(found))

    def wait_for_text(self, text: str, selector: str = "body") -> str:
        """Wait until an element has this text; return all of its text."""
        return eventually(lambda: self.text(selector), lambda found: text in found)

    def rows(self, selector: str) -> list[list[str]]:
        """Return the texts of the cells of a table that are shown."""
        found = self.evaluate(
            f"Array.from(document.querySelectorAll({json.dumps(selector + ' tbody tr')}),"
            " row => Array.from(row.cells, cell => cell.innerText.trim()))"
        )
        return list(found)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the middle of the first element that is shown, and that has this text."""
        find = (
            f"Array.from(document.querySelectorAll({json.dumps(selector)}))"
            f".find(e => e.getClientRects().length && e.innerText.includes({json.dumps(text)}))"
        )
        eventually(lambda: self._hit(find))
        self.evaluate("document.removeEventListener('click', window.aim, true)")

    def _hit(self, find: str) -> bool:
        """Click on an element; return False if it is missing, or was moved before the click.

        Rows that a page adds move others: a click that misses has no effect.
        """
        box = self.evaluate(
            f"(() => {{ const e = {find}; if (!e) return null;"
            " e.scrollIntoView({block: 'center'});"
            " document.removeEventListener('click', window.aim, true); window.hits = 0;"
            " window.aim = event => { if (e.contains(event.target)) window.hits += 1;"
            " else { event.preventDefault(); event.stopPropagation(); } };"
            " document.addEventListener('click', window.aim, true);"
            " const box = e.getClientRects()[0];"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        if box is None:
            return False
        for type_ in ("mousePressed", "mouseReleased"):
            where = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=type_, **where)
        return bool(self.evaluate("window.hits > 0"))

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        found = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        found["modifiers"] = _SHIFT if shift else 0
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **found, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **found)

    def type(self, text: str) -> None:
        """Type a text into the element with the focus."""
        self.send("Input.insertText", text=text)

    def tab_to(self, text: str) -> None:
        """Press Tab until an element that begins with this text, or with this label, has focus."""
        seen = []
        for _ in range(200):
            self.press("Tab")
            seen.append(str(self.evaluate("window.focused()")))
            if seen[-1].startswith(text):
                return
        raise AssertionError(f"no element {text!r} takes the focus: {seen}")

    def emulate(self, *, dark: bool = False, width: int = 1280, height: int = 800) -> None:
        """Set the preferred colours and the size of the window."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def accessibility_tree(self) -> list[Json]:
        """Return the nodes that assistive technology gets."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [each for each in nodes if not each.get("ignored")]

    def screenshot(self, file: Path) -> None:
        """Write a picture of the window."""
        shot = self.send("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(scratch: Path) -> Iterator[Page]:
    """Start a browser with a profile in `scratch`; give its tab."""
    command = [
        program(PACKAGE),
        "--headless=new",
        "--remote-debugging-port=0",
        f"--user-data-dir={scratch / 'profile'}",
        "--no-first-run",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
        # Its sandbox does not start as root.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        "about:blank",
    ]
    with (scratch / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        page = Page(_tab(scratch))
        try:
            yield page
        finally:
            page.close()
    finally:
        process.terminate()
        process.wait(60)


def _tab(scratch: Path) -> str:
    """Wait for the browser; return the address of its first tab."""
    active = scratch / "profile" / "DevToolsActivePort"

    def details() -> str:
        return (scratch / "chromium.log").read_text(errors="replace")

    eventually(active.exists, details=details)
    port = eventually(active.read_text, lambda text: text.strip(), details=details).split()[0]

    def tabs() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
            found = json.load(answer)
        return [each["webSocketDebuggerUrl"] for each in found if each["type"] == "page"]

    return eventually(tabs, details=details)[0]
