"""Authorization of metrics readers, with fake responses of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import structlog.testing
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from operator_runner.core.errors import Forbidden
from operator_runner.core.model import Json
from operator_runner.kube.authorization import Reviews, require_permission
from operator_runner.telemetry.runs.access import AUDIENCE, TOKEN_HEADER


@dataclass
class Answers(Reviews):
    """Responses of the API server: the users of tokens, and their permissions."""

    users: dict[str, str] = field(
        default_factory=lambda: {"good": "alice", "poor": "bob", "own": "operator"}
    )
    allowed: set[str] = field(default_factory=lambda: {"alice"})
    broken: set[str] = field(default_factory=set)
    asked: int = 0

    async def user_of(self, token: str, audience: str = "") -> Json | None:
        self.asked += 1
        if audience:
            token = token.removesuffix(f" for {audience}")
        if "users" in self.broken:
            raise Forbidden("tokenreviews is forbidden", 403)
        name = self.users.get(token)
        return None if name is None else {"username": name}

    async def own_name(self) -> str:
        return "operator"

    async def may(self, user: Json, verb: str, path: str) -> bool:
        if "rights" in self.broken:
            raise Forbidden("subjectaccessreviews is forbidden", 403)
        return user["username"] in self.allowed and (verb, path) in {
            ("get", "/metrics"),
            ("get", "/operator-runner/api/v1/runs"),
        }


class Scraper:
    """Asks through the middleware at a time that the test sets."""

    def __init__(self, answers: Answers) -> None:
        self.now = 1000.0
        self._check = require_permission(answers, lambda: self.now)

    async def ask(
        self, authorization: str | None, method: str = "GET", path: str = "/metrics"
    ) -> tuple[int, str]:
        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text="metrics")

        headers = {} if authorization is None else {"Authorization": authorization}
        answer = await self._check(make_mocked_request(method, path, headers), metrics)
        assert isinstance(answer, web.Response)
        return answer.status, str(answer.text)


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer good", (200, "metrics")),
        ("bearer  good ", (200, "metrics")),
        ("Bearer poor", (403, "Authorization denied for user bob\n")),
        ("Bearer invented", (401, "Unauthorized\n")),
        ("Bearer ", (401, "Unauthorized\n")),
        ("Basic Z29vZDo=", (401, "Unauthorized\n")),
        (None, (401, "Unauthorized\n")),
    ],
)
async def test_responses_match_controller_runtime(
    authorization: str | None, expected: tuple[int, str]
) -> None:
    """The texts are those of controller-runtime; without a token no review is sent."""
    answers = Answers()
    assert await Scraper(answers).ask(authorization) == expected
    assert answers.asked == (expected[0] != 401 or authorization == "Bearer invented")


async def test_verb_and_path_count() -> None:
    """Permission to read one path does not include writing it, or reading another."""
    scraper = Scraper(Answers())
    assert (await scraper.ask("Bearer good"))[0] == 200
    assert (await scraper.ask("Bearer good", "POST"))[0] == 403
    assert (await scraper.ask("Bearer good", path="/other"))[0] == 403


async def test_decisions_are_kept_for_a_while() -> None:
    """Reviews are cached for a minute; changed permissions take effect after that."""
    answers = Answers()
    scraper = Scraper(answers)
    for token, seconds, after in (("good", 60, 403), ("poor", 10, 200)):
        before = (await scraper.ask(f"Bearer {token}"))[0]
        answers.allowed ^= {answers.users[token]}
        asked = answers.asked
        scraper.now += seconds - 1
        assert (await scraper.ask(f"Bearer {token}"))[0] == before
        assert answers.asked == asked
        scraper.now += 1
        assert (await scraper.ask(f"Bearer {token}"))[0] == after


@pytest.mark.parametrize(
    ("broken", "text"),
    [("users", "Authentication failed\n"), ("rights", "Authorization for user alice failed\n")],
)
async def test_where_the_api_does_not_answer(broken: str, text: str) -> None:
    """Access is denied, the log has the missing permission, and the next scrape retries."""
    answers = Answers(broken={broken})
    scraper = Scraper(answers)
    with structlog.testing.capture_logs() as logs:
        assert await scraper.ask("Bearer good") == (500, text)
    assert "`create` on tokenreviews.authentication.k8s.io" in logs[0]["hint"]
    answers.broken.clear()
    assert (await scraper.ask("Bearer good"))[0] == 200


async def test_invented_tokens_do_not_pile_up() -> None:
    """However many tokens come, the decisions that are kept stay few; the newest are."""
    answers = Answers()
    scraper = Scraper(answers)
    await scraper.ask("Bearer good")
    for number in range(1000):
        await scraper.ask(f"Bearer {number}")
    asked = answers.asked
    await scraper.ask("Bearer 999")
    assert answers.asked == asked
    await scraper.ask("Bearer good")
    assert answers.asked == asked + 1


async def ask_api(headers: dict[str, str], answers: Answers | None) -> int:
    """Return the status of a request to the API, whose key is `key`."""

    async def runs(_: web.Request) -> web.Response:
        return web.Response()

    check = require_permission(answers, api_key="key")
    answer = await check(make_mocked_request("GET", "/api/v1/runs", headers), runs)
    return answer.status


@pytest.mark.parametrize("answers", [None, Answers()])
async def test_the_api_takes_its_key_and_is_never_open(answers: Answers | None) -> None:
    """Whatever protects the metrics: runs have more in them."""
    assert await ask_api({}, answers) == 401
    assert await ask_api({"Authorization": "Bearer other"}, answers) == 401
    assert await ask_api({"Authorization": "Bearer key"}, answers) == 200


async def test_a_token_for_the_api_alone_needs_permission_for_it() -> None:
    """The API server's proxy drops Authorization, so that it comes in a header of its own."""
    for user, status in (("good", 200), ("own", 200), ("poor", 403), ("unknown", 401)):
        headers = {TOKEN_HEADER: f"{user} for {AUDIENCE}"}
        assert await ask_api(headers, Answers()) == status
        assert await ask_api(headers, None) == 401
