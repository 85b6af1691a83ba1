"""Ends the processes of an engine while requests run."""

import os
import signal


def tokens_with_kills(engine, prompts, count):
    """The tokens that callers receive of answers of `count` tokens, while each of two processes is killed once. Answers that
    are read as a whole are the same."""
    requests = [engine.submit(p, max_new_tokens=count, ignore_eos=True) for p in prompts]
    events = [iter(r) for r in requests]
    tokens = [[next(e).token for _ in range(5)] for e in events]
    for rank in (1, 0):
        os.kill(engine._decoder._ranks.alive[rank].process.pid, signal.SIGKILL)
        for e, t in zip(events, tokens):
            t += [next(e).token for _ in range(5)]
    for e, t in zip(events, tokens):
        t += [event.token for event in e if hasattr(event, "token")]
    assert [r.answer for r in requests] == tokens
    return tokens
