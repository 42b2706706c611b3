"""Views that are pushed to pages."""

from __future__ import annotations

import asyncio

from operator_runner.tools.ui.server import Feed

LONG_SECONDS = 600


async def test_a_new_reader_gets_all_views_and_then_those_that_change() -> None:
    """In the order of their changes."""
    feed = Feed()
    feed.publish("runs", {"items": []})
    feed.publish("queue", {"items": []})
    first = await feed.newer(0, LONG_SECONDS)
    assert [each.name for each in first] == ["runs", "queue"]
    feed.publish("runs", {"items": [1]})
    [changed] = await feed.newer(first[-1].version, LONG_SECONDS)
    assert (changed.name, changed.text) == ("runs", '{"items": [1]}')


async def test_an_unchanged_view_wakes_no_reader() -> None:
    """The reader waits for the next change, and then gets that one alone."""
    feed = Feed()
    feed.publish("runs", {"items": []})
    waiting = asyncio.create_task(feed.newer(1, LONG_SECONDS))
    await asyncio.sleep(0)
    feed.publish("runs", {"items": []})
    feed.publish("queue", {"items": []})
    assert [each.name for each in await waiting] == ["queue"]


async def test_a_slow_reader_gets_the_last_version_only() -> None:
    """Nothing is queued for it."""
    feed = Feed()
    for number in range(1000):
        feed.publish("runs", {"items": [number]})
    assert [each.text for each in await feed.newer(1, LONG_SECONDS)] == ['{"items": [999]}']


async def test_silence_is_reported() -> None:
    """The list is empty, and the caller sends a sign of life."""
    assert await Feed().newer(0, 0) == []
