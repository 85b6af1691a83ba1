"""What llm_engine.py measures of the engine's steps: their time, their bound, and whether their tokens are right."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np

PAGE = 64


class Bound:
    """The least seconds of a step, by its bytes and its operations."""

    def __init__(self, spec: dict[str, Any], weights: int, bandwidth: float, peak: float):
        self.spec, self.weights, self.bandwidth, self.peak = spec, weights, bandwidth, peak
        h, d = spec["hidden"], spec["head_size"]
        columns = (2 * spec["heads"] + 2 * spec["kv_heads"]) * d + 3 * spec["intermediate"]
        self.token_gemms = 2 * h * columns * spec["layers"]
        self.result_gemms = 2 * h * spec["vocabulary"]
        self.row = 2 * 2 * spec["kv_heads"] * d * spec["layers"]  # bytes of a token's keys and values, float16
        self.score = 4 * spec["heads"] * d * spec["layers"]

    def seconds(self, pieces: list[tuple[int, int, int]]) -> float:
        """pieces: past tokens, new tokens and results of each sequence."""
        rows = work = 0.0
        for past, new, results in pieces:
            rows += past + 2 * new  # read and written
            work += new * self.token_gemms + results * self.result_gemms
            work += new * (past + (new + 1) / 2) * self.score
        return max((self.weights + rows * self.row) / self.bandwidth, work / self.peak)


class Recorder:
    """Times the parts of the engine's thread."""

    def __init__(self, engine: Any, bound: Bound):
        self.engine, self.bound = engine, bound
        self.clear()
        self._kept = [(engine, n, getattr(engine, n)) for n in ("_next_pieces", "_step", "_show", "_take")]
        self._kept.append((engine._decoder, "start", engine._decoder.start))
        plan, step, show, take, start = (f for *_, f in self._kept)

        def timed(name: str, function: Any) -> Any:
            def call(*arguments: Any) -> Any:
                begun = time.perf_counter()
                try:
                    return function(*arguments)
                finally:
                    self.parts[name] += time.perf_counter() - begun

            return call

        def planned() -> Any:
            begun = time.perf_counter()
            pieces = plan()
            if pieces:  # otherwise the engine waits
                self.parts["plan"] += time.perf_counter() - begun
            return pieces

        def stepped(pieces: Any) -> None:
            self.bounds += bound.seconds([(p.start, p.count, p.results) for p in pieces])
            self.steps += 1
            begun = time.perf_counter()
            step(pieces)
            self.parts["steps"] += time.perf_counter() - begun

        def started(pieces: Any, kind: Any, single: bool) -> Any:
            begun = time.perf_counter()
            wait = start(pieces, kind, single)
            middle = time.perf_counter()
            self.parts["start"] += middle - begun

            def waited() -> Any:
                before = time.perf_counter()
                chosen = wait()
                now = time.perf_counter()
                self.parts["wait"] += now - before
                tokens = sum(p.count for p in pieces)
                name = f"{1 << (tokens - 1).bit_length()} tokens" + (" of one" if single else "")
                self.launches[name].append(
                    (middle - begun, now - begun, bound.seconds([(p.start, p.count, p.results) for p in pieces]))
                )
                return chosen

            return waited

        engine._next_pieces, engine._step = planned, stepped
        engine._show, engine._take = timed("show", show), timed("take", take)
        engine._decoder.start = started
        # A step reads the results of the one before it, so "wait" is the time in which the thread has nothing to do.

    def stop(self) -> None:
        for owner, name, function in self._kept:
            setattr(owner, name, function)

    def clear(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self.launches: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        self.bounds, self.steps = 0.0, 0

    def summary(self, seconds: float) -> dict[str, Any]:
        launches = {}
        for name, times in sorted(self.launches.items(), key=lambda x: int(x[0].split()[0])):
            start, whole, bound = np.array(times).T
            launches[name] = {
                "count": len(times),
                "seconds": whole.sum(),
                "start_ms": float(np.median(start)) * 1e3,
                "whole_ms": float(np.median(whole)) * 1e3,
                "whole_ms_max": float(whole.max()) * 1e3,
                "bound_ms": float(np.median(bound)) * 1e3,
            }
        shares = {n: t / seconds for n, t in self.parts.items()}
        return {"bound_share": self.bounds / seconds, "steps": self.steps, "parts": shares, "launches": launches}


def run(engine: Any, trace: list[tuple[list[int], int]], clients: int, seconds: float) -> dict[str, Any]:
    """Keeps `clients` requests in the engine. Answers are in the order of the trace, as many as were asked for."""
    from sardonyx.llm.engine_request import EndEvent

    requests: list[Any] = []
    times: list[list[float]] = []
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def submit() -> None:
        prompt, count = trace[len(requests)]
        k, own = len(requests), [time.perf_counter()]
        times.append(own)
        request = engine.submit(prompt, max_new_tokens=count, ignore_eos=True)

        def deliver(event: Any, wakes: Any) -> None:
            own.append(time.perf_counter())
            if isinstance(event, EndEvent):
                ended.put(k)

        request._deliver = deliver
        requests.append(request)

    begun = time.perf_counter()
    for _ in range(min(clients, len(trace))):
        submit()
    left = len(requests)
    full = 0.0
    while left:
        k = ended.get()
        if requests[k].error:
            raise requests[k].error
        left -= 1
        if len(requests) < len(trace) and time.perf_counter() - begun < seconds:
            submit()
            left += 1
        elif not full:
            full = time.perf_counter()
    end = time.perf_counter()
    gaps = np.concatenate([np.diff(t[1:-1]) for t in times] or [np.zeros(1)])
    during = sum(1 for t in times for x in t[1:-1] if x < full)
    return {
        "answers": [r.answer for r in requests],
        "requests": len(requests),
        "tokens": sum(len(r.answer) for r in requests),
        "prompt_tokens": sum(r.prompt_tokens for r in requests),
        "seconds": end - begun,
        "tokens_per_second": sum(len(r.answer) for r in requests) / (end - begun),
        "full_tokens_per_second": during / max(full - begun, 1e-9),
        "first_ms_p50": float(np.percentile([t[1] - t[0] for t in times], 50)) * 1e3,
        "gap_ms_p50": float(np.percentile(gaps, 50)) * 1e3 if len(gaps) else 0.0,
        "gap_ms_p99": float(np.percentile(gaps, 99)) * 1e3 if len(gaps) else 0.0,
    }


def check(engine: Any, trace: Any, answers: Any, tie: float, seconds: float) -> tuple[int, int, int]:
    """Tokens that are ties, tokens that are wrong, and answers that were not checked, because time ran out."""
    from sardonyx.llm.paged_sampling import StepKind
    from sardonyx.llm.scheduler import Piece

    ties = wrong = 0
    until = time.perf_counter() + seconds
    order = np.random.default_rng(1).permutation(len(answers)).tolist()
    for at, k in enumerate(order):
        if time.perf_counter() > until:
            return ties, wrong, len(order) - at
        prompt, answer = trace[k][0], answers[k]
        text = [*prompt, *answer]
        pages = list(range(1, 1 - (-len(text) // PAGE)))
        request = SimpleNamespace(tokens=text, pages=pages, adapter=0, prompt_tokens=len(prompt), search=None, slot=-1)
        choices: list[int] = []
        for begin in range(0, len(text) - 1, 2048):  # in parts, of which the last ones give choices
            end = min(begin + 2048, len(text) - 1)
            giving = max(0, end - max(begin, len(prompt) - 1))
            piece: Any = Piece(request, begin, end - begin, results=giving)  # type: ignore[arg-type]
            chosen = engine._decoder.start([piece], StepKind(), True)()
            choices += chosen.tokens[:giving]
        for j in [j for j, (x, y) in enumerate(zip(answer, choices)) if x != y]:
            event = next(engine.stream(text[: len(prompt) + j], max_new_tokens=1, logprobs=20, ignore_eos=True))
            best, near = event.top[0][1], dict(event.top)
            if best - near.get(answer[j], -np.inf) < tie:
                ties += 1
            else:
                wrong += 1
                print(f"  WRONG: request {k}, token {j} is {answer[j]}; best {event.top[:3]}", flush=True)
            if time.perf_counter() > until:
                return ties, wrong, len(order) - at
    return ties, wrong, 0


def compare(engine: Any, trace: Any, wanted: Any, found: Any, tie: float) -> dict[str, Any]:
    """Answers of `found` that are those wanted. Where another one first differs, both tokens must be ties by the engine's own
    log-probabilities."""
    equal = ties = wrong = 0
    for (prompt, _), a, b in zip(trace, wanted, found):
        first = next((j for j, (x, y) in enumerate(zip(a, b)) if x != y), None)
        if first is None:
            equal += len(a) == len(b)
            wrong += len(a) != len(b)
            continue
        event = next(engine.stream([*prompt, *a[:first]], max_new_tokens=1, logprobs=20, ignore_eos=True))
        near = dict(event.top)
        if all(event.top[0][1] - near.get(x[first], -np.inf) < tie for x in (a, b)):
            ties += 1
        else:
            wrong += 1
            print(f"  WRONG: at {first} {a[first]} and {b[first]}; best {event.top[:3]}", flush=True)
    return {"answers": min(len(wanted), len(found)), "equal": equal, "ties": ties, "wrong": wrong}


def kill(engine: Any, trace: Any, tie: float) -> dict[str, Any]:
    """Answers to the trace's requests, all at once, while each process is killed once, and without; how long it took until
    tokens came again."""
    processes = len(engine._decoder._ranks.alive)

    def more(tokens: int) -> None:
        now = engine.statistics()
        least, until = now.new_tokens + tokens, time.perf_counter() + 120
        while now.new_tokens < least and now.running + now.waiting and time.perf_counter() < until:
            time.sleep(0.005)
            now = engine.statistics()

    def answers(kills: bool) -> tuple[list[list[int]], list[float]]:
        requests = [engine.submit(p, max_new_tokens=n, ignore_eos=True) for p, n in trace]
        pauses = []
        for rank in range(processes) if kills else ():
            more(4 * len(trace))
            os.kill(engine._decoder._ranks.alive[rank].process.pid, signal.SIGKILL)
            begun = time.perf_counter()
            more(len(trace))
            pauses.append(time.perf_counter() - begun)
        for r in requests:
            tokens = [event.token for event in r if hasattr(event, "token")]
            if r.error or tokens != r.answer:
                raise r.error or RuntimeError(f"a caller got {len(tokens)} tokens of {len(r.answer)}")
        return [r.answer for r in requests], pauses

    wanted, _ = answers(False)
    found, pauses = answers(True)
    lost = sum(len(a) != n for a, (_, n) in zip(found, trace))
    row = {"killed": len(pauses), "pauses_s": pauses, "lost": lost, **compare(engine, trace, wanted, found, tie)}
    print(
        f"  {row['killed']} processes killed: {row['equal']} of {row['answers']} answers are those without kills, "
        f"{row['ties']} differ from a tie on, {row['wrong']} are wrong, {lost} incomplete; tokens came again after "
        f"{', '.join(f'{p:.1f}' for p in pauses)} s",
        flush=True,
    )
    return row


def show(clients: int, row: dict[str, Any]) -> None:
    print(
        f"  {clients} clients: {row['tokens_per_second']:.0f} tokens/s ({row['full_tokens_per_second']:.0f} while full), "
        f"{row['requests']} requests in {row['seconds']:.1f} s, bound {100 * row['bound_share']:.0f} %, "
        f"first token {row['first_ms_p50']:.1f} ms, between tokens p50 {row['gap_ms_p50']:.2f} ms, "
        f"p99 {row['gap_ms_p99']:.2f} ms; of {row['tokens']} tokens {row['ties']} ties, {row['wrong']} wrong "
        f"({row['unchecked']} answers unchecked); warmed in {row['warm_seconds']:.1f} s"
    )
    for key, what in (("same_as_one_by_one", "one client"), ("same_as_the_first_run", "the first run")):
        if key in row:
            c = row[key]
            print(
                f"    {c['equal']} of {c['answers']} answers are those of {what}, {c['ties']} differ from a tie on, "
                f"{c['wrong']} are wrong"
            )
    print("    thread: " + ", ".join(f"{n} {100 * s:.0f} %" for n, s in row["parts"].items()))
    for name, x in row["launches"].items():
        print(
            f"    {name:>18}: {x['count']:5} launches, {x['seconds']:6.2f} s; median {x['whole_ms']:.2f} ms "
            f"until read (max {x['whole_ms_max']:.1f}), starting {x['start_ms']:.2f}; bound {x['bound_ms']:.2f}",
            flush=True,
        )


def _fake(tokens: int, past: int) -> Any:
    """A request whose pages are some that the engine's requests do not have now."""
    pages = list(range(1, 2 + (past + tokens) // PAGE))
    return SimpleNamespace(
        tokens=[5] * (past + tokens), pages=pages, adapter=0, prompt_tokens=past + tokens, search=None, slot=-1
    )


def device_times(engine: Any, bound: Bound, profile: bool) -> dict[str, Any]:
    """Captured graphs, and prompts of several sizes. The engine must have no requests."""
    from sardonyx.llm.paged_sampling import StepKind
    from sardonyx.llm.scheduler import Piece

    decoder, found = engine._decoder, dict[str, Any]()
    graphs = list(decoder.runs.kept.items()) if decoder.device != "host" else []
    for key, kept in graphs:
        side = kept.side()
        past = side.values["past"]
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            for _ in range(20):
                side.run()
            side.run.wait()
            times.append((time.perf_counter() - begun) / 20 * 1e3)
        kept.release(side)
        if key[1] == "both":
            kind, _, size, count = key
            work = [(int(p), 1, 1) for p in past[:size]] + [(int(past[size]), count, 1)]  # as if it were one prompt
            name = f"{size} x 1 and {count}{', logprobs' * kind.logprobs}"
        else:
            kind, single, size, columns, count, results = key
            work = [(int(p), count, results) for p in past]
            name = f"{size} x {count}, {columns} pages{', logprobs' * kind.logprobs}{', one' * single}"
        least = bound.seconds(work) * 1e3
        found[name] = {"ms": min(times), "bound_ms": least, "past": float(past.mean())}
        print(
            f"    graph of {name}: {min(times):.3f} ms ({past.mean():.0f} tokens of context); bound {least:.3f}, "
            f"{100 * least / min(times):.0f} %",
            flush=True,
        )
    for tokens, past in ((64, 0), (256, 0), (300, 0), (512, 0), (1024, 0), (2048, 0), (2048, 2048)):
        if 1 + (past + tokens) // PAGE >= decoder.pages:
            continue
        piece: Any = Piece(_fake(tokens, past), past, tokens, results=1)
        times = []
        for _ in range(6):
            begun = time.perf_counter()
            decoder.start([piece], StepKind(), True)()
            times.append((time.perf_counter() - begun) * 1e3)
        least = bound.seconds([(past, tokens, 1)]) * 1e3
        found[f"prompt {tokens} after {past}"] = {"first_ms": times[0], "ms": min(times[1:]), "bound_ms": least}
        print(
            f"    prompt of {tokens} after {past}: {times[0]:.2f} ms the first time, then {min(times[1:]):.2f}; "
            f"bound {least:.2f}, {100 * least / min(times[1:]):.0f} %",
            flush=True,
        )
    if profile:
        for tokens, past, sequences in ((1, 512, 1), (1, 512, 64), (1, 512, 256), (1024, 0, 1)):
            if sequences > engine._scheduler.most or 1 + (past + tokens) // PAGE >= decoder.pages:
                continue
            pieces: list[Any] = [Piece(_fake(tokens, past), past, tokens, results=1) for _ in range(sequences)]
            found[f"kernels {tokens} x {sequences}"] = _kernels(decoder, pieces, tokens > 1)
    return found


def _kernels(decoder: Any, pieces: list[Any], single: bool) -> list[tuple[str, float, int]]:
    """The steps that take the most time, those of all layers together."""
    from sardonyx.llm.paged_sampling import StepKind

    given = [(p.request, 0) for p in pieces]
    inputs, outputs = decoder.inputs.whole(pieces, given, StepKind()), decoder.tensors.outputs()
    inputs |= decoder.tensors.inputs(StepKind())
    model = decoder.program(StepKind(), single)
    model._run(inputs, on_device=True, outputs=outputs, profile=True)
    _, listed = model._run(inputs, on_device=True, outputs=outputs, profile=True)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for what, origin, seconds in listed:
        name = f"{what} | " + "".join("N" if c.isdigit() else c for c in origin)
        while "NN" in name:
            name = name.replace("NN", "N")
        sums[name][0] += seconds * 1e3
        sums[name][1] += 1
    top = sorted(((n, t, c) for n, (t, c) in sums.items()), key=lambda x: -x[1])
    print(
        f"    kernels of {len(pieces)} x {pieces[0].count} tokens: {sum(t for _, t, _ in top):.2f} ms in {len(listed)}"
    )
    for name, ms, count in top[:14]:
        print(f"      {ms:8.3f} ms {count:4} {name[:150]}", flush=True)
    return [(n, t, int(c)) for n, t, c in top[:40]]
