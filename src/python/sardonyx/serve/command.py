"""The command line of serving: `sardonyx serve FOLDER`, or python -m sardonyx.serve."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ..compiling import compile
from ..errors import Error, FileError, InvalidArgumentError
from ..llm import Engine, TextEncoder
from ..llm.encoder import find_encoder
from ..options import add_flags, options_of_flags
from .limits import Limits
from .memory import freeze_objects, use_one_arena

COMPILE_OPTIONS = ("device", "precision", "threads", "cache_dir")

_LIMITS = {
    "body": "bytes of a request's body",
    "body_time": "seconds for a body to arrive",
    "header_time": "seconds for a connection's first request to begin",
    "request_time": "seconds for an answer",
    "tokens": "new tokens of an answer (default: the model's limit)",
    "choices": "answers to one request",
    "texts": "texts of a request for embeddings or scores",
    "batch_delay": "other models: seconds that a request may wait for others, to run as one batch",
    "batch": "other models: rows of a batch",
    "queue": "other models: waiting requests",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise InvalidArgumentError(f"{message}; `{self.prog} --help` shows how it is used")


def _add_engine_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--cache-memory",
        type=int,
        default=0,
        metavar="MIB",
        help="memory of a language model's KV cache (default: enough for --max-sequences sequences, but at most half of the device's memory)",
    )
    p.add_argument(
        "--swap-memory",
        type=int,
        default=0,
        metavar="MIB",
        help="host memory to which the cache's pages of preempted requests are copied (default: 0, they are computed again)",
    )
    p.add_argument(
        "--cache-type",
        choices=("int8", "fp8"),
        default="",
        help="keys and values in 8 bits, with a scale for each row of a head (default: the model's type)",
    )
    p.add_argument(
        "--unpacked-weights",
        action="store_true",
        help="on GPUs, weights of 4 and 8 bits are kept in 16 bits too: faster prompts, more memory",
    )
    p.add_argument(
        "--page-tokens", type=int, default=64, metavar="N", help="tokens of a page of the cache (default: 64)"
    )
    p.add_argument(
        "--max-sequences", type=int, default=64, metavar="N", help="requests that run concurrently (default: 64)"
    )
    p.add_argument(
        "--max-waiting",
        type=int,
        default=1024,
        metavar="N",
        help="queued requests; further ones get the status 429 (default: 1024)",
    )
    p.add_argument(
        "--devices",
        metavar="A,B",
        help="several devices that divide the language model among them: 0,1 (the first two GPUs) or cuda:0,cuda:1",
    )
    p.add_argument(
        "--pipeline-parallel-size",
        "-pp",
        type=int,
        default=1,
        metavar="N",
        help="divide the layers into N stages, each with as many successive --devices, which divide it further (tensor "
        "parallelism; default: 1)",
    )
    p.add_argument(
        "--transport",
        choices=("auto", "library", "host"),
        default="auto",
        help="how --devices exchange tensors (default: auto)",
    )
    p.add_argument("--step-tokens", type=int, default=512, metavar="N", help="maximum tokens of a step (default: 512)")
    p.add_argument(
        "--adapter",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="serve a LoRA adapter (PEFT's folder) of the language model under this name; may be repeated",
    )


def _parser() -> argparse.ArgumentParser:
    p = _Parser(
        prog="sardonyx serve",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Serves models over HTTP: language models and encoders of texts with an OpenAI-compatible API, other\n"
        "models with the Open Inference Protocol v2.",
        epilog="Examples:\n"
        "  sardonyx serve smollm2\n"
        "  sardonyx serve chat=smollm2 resnet=resnet50.onnx --device hip --host 0.0.0.0 --api-keys keys.txt\n\n"
        "docs/serving.md has more.",
    )
    p.add_argument(
        "models",
        nargs="+",
        metavar="[NAME=]FOLDER",
        help="a language model's folder (with genai_config.json), an encoder's folder (with model.onnx and tokenizer.json), "
        "an .onnx file, or a folder with .onnx files",
    )
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    p.add_argument("--port", type=int, default=8000, help="port; 0: any free one (default: 8000)")
    p.add_argument(
        "--grpc-port",
        type=int,
        metavar="N",
        help="serve the Open Inference Protocol over gRPC at this port too; 0: any free one (default: no gRPC)",
    )
    p.add_argument(
        "--api-keys", metavar="FILE", help="accept only requests with one of the keys in this file, one per line"
    )
    p.add_argument("--certificate", metavar="FILE", help="TLS certificate, for HTTPS; needs --key")
    p.add_argument("--key", metavar="FILE", help="the certificate's private key")
    p.add_argument(
        "--grace",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds for running requests to finish at shutdown (default: 60)",
    )
    _add_engine_flags(p)
    guesses = p.add_argument_group("speculative decoding of language models")
    guesses.add_argument(
        "--guess-ngram", type=int, metavar="N", help="guess that a text goes on as after its last N tokens before"
    )
    guesses.add_argument(
        "--draft", metavar="FOLDER", help="guess with a smaller language model that has the same tokens"
    )
    guesses.add_argument("--guess-tokens", type=int, metavar="N", help="tokens that are guessed at a time (default: 4)")
    group = p.add_argument_group("limits")
    for f in dataclasses.fields(Limits):
        default: Any = f.default
        shown = "" if f.name == "tokens" else f" (default: {default})"
        group.add_argument(
            f"--limit-{f.name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar="S" if isinstance(default, float) else "N",
            help=_LIMITS[f.name] + shown,
        )
    add_flags(p, COMPILE_OPTIONS)
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing when the server is ready")
    return p


def _keys(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            keys = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"'{path}' could not be read: {error}") from None
    keys = [k for k in keys if k and not k.startswith("#")]
    if not keys:
        raise InvalidArgumentError(f"'{path}' has no API key: it needs one per line")
    return keys


def _found(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Folders of language models, folders of encoders, and files of other models, by name."""
    languages: dict[str, str] = {}
    encoders: dict[str, str] = {}
    plain: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name:
            name, path = "", argument
        stem = os.path.basename(os.path.abspath(path))
        if os.path.isfile(os.path.join(path, "genai_config.json")):
            files, target = {name or stem: path}, languages
        elif find_encoder(path):
            files, target = {name or stem: path}, encoders
        elif os.path.isdir(path):
            inside = sorted(f for f in os.listdir(path) if f.endswith(".onnx"))
            if not inside:
                raise FileError(f"'{path}' has neither genai_config.json nor a file *.onnx")
            if name and len(inside) > 1:
                raise InvalidArgumentError(f"'{path}' has {len(inside)} models, which cannot all be named '{name}'")
            files, target = {name or f[: -len(".onnx")]: os.path.join(path, f) for f in inside}, plain
        elif os.path.isfile(path):
            files, target = {name or os.path.splitext(stem)[0]: path}, plain
        else:
            raise FileError(f"there is no file or folder '{path}'")
        for key, file in files.items():
            if key in languages or key in plain or key in encoders:
                raise InvalidArgumentError(f"two models are named '{key}'; give names: NAME={file}")
            target[key] = file
    return languages, encoders, plain


def _adapter(text: str) -> tuple[str, str]:
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise InvalidArgumentError(f"--adapter is '{text}'; it must be NAME=FOLDER")
    return name, folder


def let_threads_alternate() -> None:
    """Python's threads give way to each other after half a millisecond instead of five: an engine's thread, which waits for
    the interpreter after each step, takes less than a millisecond for a step."""
    sys.setswitchinterval(5e-4)


def _serve(a: argparse.Namespace) -> None:
    from . import create_app, make_server  # refused if packages are missing

    use_one_arena()
    if bool(a.certificate) != bool(a.key):
        raise InvalidArgumentError("--certificate and --key are needed together")
    for flag, port in (("--port", a.port), ("--grpc-port", a.grpc_port or 0)):
        if not 0 <= port < 1 << 16:
            raise InvalidArgumentError(f"{flag} is {port}; it must be from 0 to 65535")
    limits = Limits(**{f.name: getattr(a, f"limit_{f.name}") for f in dataclasses.fields(Limits)})
    for f in dataclasses.fields(Limits):
        if getattr(limits, f.name) < 0 or not getattr(limits, f.name) < 1 << 62:
            raise InvalidArgumentError(f"--limit-{f.name.replace('_', '-')} is {getattr(limits, f.name)}")
    keys = _keys(a.api_keys)
    languages, encoder_folders, plain = _found(a.models)
    options = options_of_flags(a, COMPILE_OPTIONS)
    if a.devices and (a.device or len(languages) != 1 or encoder_folders or plain):
        raise InvalidArgumentError("--devices is for one language model, without --device")
    if a.pipeline_parallel_size != 1 and not a.devices:
        raise InvalidArgumentError("--pipeline-parallel-size needs --devices")
    # No request waits for a kernel: readiness is announced once all are compiled.
    encoders = {name: TextEncoder(folder, **options) for name, folder in encoder_folders.items()}
    for encoder in encoders.values():
        encoder.model.wait()
    models = {name: compile(file, **{**options, "compile_ahead": True}) for name, file in plain.items()}
    adapters = dict(_adapter(text) for text in a.adapter)
    if adapters and len(languages) != 1:
        raise InvalidArgumentError(f"--adapter needs one language model; there are {len(languages)}")
    flags = {"ngram": a.guess_ngram, "draft": a.draft, "tokens": a.guess_tokens}
    speculation = {k: v for k, v in flags.items() if v is not None} or None
    engines: dict[str, Engine] = {}
    for name, folder in languages.items():
        engines[name] = Engine(
            folder,
            devices=a.devices.split(",") if a.devices else None,
            transport=a.transport,
            pipeline_parallel_size=a.pipeline_parallel_size,
            cache_memory=a.cache_memory << 20,
            swap_memory=a.swap_memory << 20,
            cache_type=a.cache_type,
            unpacked_weights=a.unpacked_weights,
            page_tokens=a.page_tokens,
            max_sequences=a.max_sequences,
            max_waiting=a.max_waiting,
            step_tokens=a.step_tokens,
            speculation=speculation,
            adapters=adapters,
            **options,
        )
        engines[name].prepare()

    def started(address: str) -> None:
        if not a.quiet:
            print(f"serving {', '.join((*languages, *adapters, *encoders, *plain))} at {address}", flush=True)
            if server.grpc_port is not None:
                print(f"gRPC at {a.host}:{server.grpc_port}", flush=True)

    app = create_app(engines, models, encoders=encoders, limits=limits, keys=keys)
    server = make_server(
        app,
        host=a.host,
        port=a.port,
        grpc_port=a.grpc_port,
        grace=a.grace,
        certificate=a.certificate,
        key=a.key,
        started=started,
    )
    let_threads_alternate()
    freeze_objects()
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again at the end
        signal.signal(number, lambda *_: None)
    try:
        server.run()
    except OSError as error:
        raise FileError(str(error)) from None
    if not server.started:
        raise FileError(f"cannot listen on {a.host}, port {a.port}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    try:
        _serve(_parser().parse_args(arguments))
        return 0
    except Error as error:
        print(f"sardonyx: {'; '.join(str(error).splitlines())}", file=sys.stderr)
        return error.code
    except SystemExit as error:  # uvicorn's, when it cannot listen; --help
        if error.code not in (0, None):
            print("sardonyx: the server could not start", file=sys.stderr)
            return FileError.code
        return 0
    except KeyboardInterrupt:
        return 130
