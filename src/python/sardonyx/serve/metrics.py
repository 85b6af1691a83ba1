"""Prometheus metrics of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ..llm import Engine, Request

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class _Engines:
    """Reads the engines' statistics when metrics are asked for."""

    def __init__(self, engines: Mapping[str, Engine]):
        self._engines = engines

    def collect(self) -> Iterator[Any]:
        gauges = {
            "running": ("sardonyx_requests_running", "Requests that take part in steps"),
            "waiting": ("sardonyx_requests_waiting", "Requests in the queue"),
            "pages": ("sardonyx_cache_pages", "Pages of the KV cache"),
            "used_pages": ("sardonyx_cache_pages_used", "Pages of running requests"),
            "cache_bytes": ("sardonyx_cache_bytes", "Memory of the KV cache"),
        }
        counters = {
            "steps": ("sardonyx_steps", "Runs of the model"),
            "prompt_tokens": ("sardonyx_prompt_tokens", "Tokens of prompts that were computed"),
            "kept_tokens": ("sardonyx_kept_tokens", "Tokens of prompts that were found in the cache"),
            "new_tokens": ("sardonyx_new_tokens", "Generated tokens"),
            "guessed_tokens": ("sardonyx_guessed_tokens", "Tokens that speculation has guessed"),
            "right_guesses": ("sardonyx_right_guesses", "Guessed tokens that were right"),
            "restored_tokens": ("sardonyx_restored_tokens", "Tokens that were copied back from host memory"),
            "preemptions": ("sardonyx_preemptions", "Times that a request lost its pages"),
        }
        found = {name: e.statistics() for name, e in self._engines.items()}
        for field, (name, text) in gauges.items():
            family = GaugeMetricFamily(name, text, labels=["model"])
            for model, statistics in found.items():
                family.add_metric([model], getattr(statistics, field))
            yield family
        for field, (name, text) in counters.items():
            total = CounterMetricFamily(name, text, labels=["model"])
            for model, statistics in found.items():
                total.add_metric([model], getattr(statistics, field))
            yield total


class Metrics:
    """Of one server, in a registry of its own."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.registry = CollectorRegistry()
        own = {"registry": self.registry}
        self.http = Counter("sardonyx_http_requests", "Answers by status", ["path", "status"], **own)
        self.grpc = Counter("sardonyx_grpc_requests", "Answers over gRPC by status", ["method", "status"], **own)
        self.open = Gauge("sardonyx_http_requests_open", "Requests that are being answered", **own)
        self.first = Histogram(
            "sardonyx_first_token_seconds", "From the request to its first token", ["model"], buckets=_SECONDS, **own
        )
        self.between = Histogram(
            "sardonyx_token_seconds", "Mean time between an answer's tokens", ["model"], buckets=_SECONDS, **own
        )
        self.total = Histogram(
            "sardonyx_request_seconds", "From the request to its end", ["model"], buckets=_SECONDS, **own
        )
        self.finished = Counter("sardonyx_requests_ended", "Requests by how they ended", ["model", "finished"], **own)
        self.inferences = Counter("sardonyx_inferences", "Requests to other models", ["model"], **own)
        self.batches = Counter("sardonyx_batches", "Runs of other models", ["model"], **own)
        self.registry.register(_Engines(engines))

    def ended(self, model: str, request: Request) -> None:
        """Counts a request of an engine, which may just be ending."""
        self.finished.labels(model, request.finished or "cancelled").inc()
        if request.first is None or not request.finished:
            return
        self.first.labels(model).observe(request.first)
        self.total.labels(model).observe(request.total)
        rest = len(request.answer) - 1
        if rest > 0:
            self.between.labels(model).observe((request.total - request.first) / rest)

    def text(self) -> bytes:
        return bytes(generate_latest(self.registry))
