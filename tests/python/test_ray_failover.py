"""sardonyx.ray.failover: answers whose replicas die anywhere are those of one that lives. Without a cluster; serve_kill.py kills processes of one."""

import asyncio
import json

import pytest

for package in ("ray", "ray.serve", "fastapi", "prometheus_client"):
    pytest.importorskip(package, reason=f"sardonyx.ray needs the package {package}")

from ray.exceptions import ActorDiedError, RayTaskError  # noqa: E402
from sardonyx.ray.failover import Front  # noqa: E402

TEXTS = ["The sky is blue, ", "because \u00e9\u4e2d of ", "\n\n", "light."]
HEADERS = {
    True: [(b"content-type", b"text/event-stream; charset=utf-8")],
    False: [(b"content-type", b"application/json")],
}


def line(content):
    return f"data: {json.dumps(content)}\n\n".encode()


def events(kind, parts, number, **own):
    """A stream of two choices of `kind` (chat or text), as one run of the request gives it."""
    head = {"id": f"run-{number}", "created": number, "model": "m", "usage": None}
    found = []
    for k in (0, 1):
        if kind == "chat":
            found.append(
                line(
                    {
                        **head,
                        "choices": [{"index": k, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
                    }
                )
            )
    for t in parts:
        for k in (0, 1):
            text = t.upper() if k else t
            choice = {"delta": {"content": text}} if kind == "chat" else {"text": text}
            found.append(
                line({**head, "choices": [{"index": k, "finish_reason": None, "logprobs": None, **own, **choice}]})
            )
    for k in (0, 1):
        choice = {"delta": {}} if kind == "chat" else {"text": ""}
        found.append(line({**head, "choices": [{"index": k, "finish_reason": "stop", **choice}]}))
    return [*found, line({**head, "choices": [], "usage": {"completion_tokens": 8}}), b"data: [DONE]\n\n"]


def run(runs, tries=3, body=b"{}"):
    """The messages to the client, of replicas that give these messages, or raise what is in their place."""
    scopes, sent, left = [], [], iter(runs)

    async def ask(scope, given):
        assert given == body
        scopes.append(scope)
        for message in next(left):
            if isinstance(message, Exception):
                raise message
            yield message

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/x", "query_string": b"", "headers": []}
    asyncio.run(Front(ask, tries)(scope, receive, send))
    assert len({s["sardonyx.seed"] for s in scopes}) == 1
    return sent


def messages(stream, parts):
    start = {"type": "http.response.start", "status": 200, "headers": HEADERS[stream]}
    return [
        start,
        *({"type": "http.response.body", "body": p, "more_body": True} for p in parts),
        {"type": "http.response.body", "body": b""},
    ]


def texts_of(sent):
    """Each choice's text, how it ended, and the ids of a stream."""
    assert [m["type"] for m in sent].count("http.response.start") == 1
    whole = b"".join(m.get("body", b"") for m in sent[1:])
    texts, reasons, ids, roles = {}, {}, set(), []
    for part in whole.decode().split("\n\n"):
        if part.startswith("data: {"):
            content = json.loads(part[6:])
            if "error" in content:
                return content["error"]["message"]
            ids.add((content["id"], content["created"]))
            for c in content["choices"]:
                roles += [c["index"]] * ("role" in c.get("delta", {}))
                texts[c["index"]] = texts.get(c["index"], "") + (
                    c.get("text") or c.get("delta", {}).get("content") or ""
                )
                assert c["index"] not in reasons, "a chunk after the end"
                if c["finish_reason"]:
                    reasons[c["index"]] = c["finish_reason"]
    assert whole.endswith(b"data: [DONE]\n\n") and whole.count(b"[DONE]") == 1
    return texts, reasons, ids, roles


def died():
    return ActorDiedError()


@pytest.mark.parametrize("kind", ["chat", "text"])
def test_streams_go_on_where_they_were(kind):
    """Replicas die after any number of messages, whose borders are anywhere; the second run has other chunks."""
    whole = "".join(TEXTS)
    first = b"".join(events(kind, TEXTS, 1))
    again = [events(kind, [whole[k : k + 5] for k in range(0, len(whole), 5)], 2), events(kind, [whole], 3)]
    for size in (7, 61, 1000):
        parts = [first[k : k + size] for k in range(0, len(first), size)]
        for count in range(0, len(parts) + 2, 5):
            second = messages(True, again[0])
            runs = [[*messages(True, parts)[:count], died()], [*second[: count + 3], died()], messages(True, again[1])]
            texts, reasons, ids, roles = texts_of(run(runs))
            assert texts == {0: whole, 1: whole.upper()} and reasons == {0: "stop", 1: "stop"}
            assert len(ids) == 1 and roles == ([0, 1] if kind == "chat" else [])


def test_whole_answers_are_sent_once():
    for count in range(4):
        runs = [[*messages(False, [b'{"a":', b"1}"])[:count], died()], messages(False, [b'{"a":1}'])]
        sent = run(runs)
        assert b"".join(m.get("body", b"") for m in sent[1:]) == b'{"a":1}' and sent[0]["status"] == 200


def test_what_can_not_go_on_ends_with_an_error():
    first = events("text", TEXTS, 1)
    other = events("text", ["The sea"], 2)
    assert "another text" in texts_of(run([[*messages(True, first)[:4], died()], messages(True, other)]))
    short = events("text", TEXTS[:1], 2)
    assert "another text" in texts_of(run([[*messages(True, first)[:6], died()], messages(True, short)]))
    logged = events("text", TEXTS, 1, logprobs={"tokens": ["a"]})
    assert "log-probabilities" in texts_of(run([[*messages(True, logged)[:4], died()]]))
    busy = [{"type": "http.response.start", "status": 429, "headers": HEADERS[False]}]
    assert "refuses" in texts_of(run([[*messages(True, first)[:4], died()], busy]))
    assert "have ended" in texts_of(run([[*messages(True, first)[:3], died()]] * 2, tries=2))
    sent = run([[died()]] * 2, tries=2)
    assert sent[0]["status"] == 503 and b"ask again" in sent[1]["body"]
    with pytest.raises(RayTaskError):  # of the request, not of a replica
        run([[RayTaskError("answer", "trace", ValueError("wrong"))]])
