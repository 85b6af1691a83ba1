"""The command line of language models: `sardonyx generate` and `sardonyx convert-gguf`, or python -m sardonyx.llm.

Answers go to stdout as they come; an error is one line on stderr, with the error's kind as the exit code.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from ..command_line import Parser, exit_code, write_json
from ..errors import InvalidArgumentError
from ..options import add_flags, options_of_flags
from .chat_template import Message
from .convert import PRECISIONS, convert_gguf
from .language_model import Generation, LanguageModel

COMPILE_OPTIONS = ("device", "precision", "threads", "cache_dir")  # of LanguageModel


def _parser() -> argparse.ArgumentParser:
    top = Parser(prog="sardonyx")
    commands = top.add_subparsers(dest="command", required=True)
    raw = argparse.RawDescriptionHelpFormatter
    g = commands.add_parser(
        "generate",
        formatter_class=raw,
        description="Answers prompts with a language model: a folder in onnxruntime-genai's format, for example from `sardonyx convert-gguf`.",
        epilog="Examples:\n"
        "  sardonyx generate smollm2 --chat\n"
        '  sardonyx generate smollm2 --prompt "What is the capital of France?"\n'
        "  sardonyx generate llama-70b --devices 0,1 --prompt ...\n"
        "  sardonyx generate smollm2 --device hip --temperature 0.7 --top-p 0.9 --seed 1 --prompt ...\n"
        "  sardonyx generate smollm2 --raw --num-beams 4 < text.txt\n\n"
        "Without --prompt and --chat the prompt is read from stdin. docs/language-models.md has more.",
    )
    g.add_argument("folder", metavar="FOLDER", help="with genai_config.json, the model and tokenizer.json")
    g.add_argument("--prompt", metavar="TEXT", help="the prompt: a user message, if the model has a chat template")
    g.add_argument("--raw", action="store_true", help="the prompt is text to continue, without the chat template")
    g.add_argument("--chat", action="store_true", help="a conversation: each line of stdin is answered")
    g.add_argument("--system", metavar="TEXT", help="the system message")
    g.add_argument("--max-new-tokens", type=int, metavar="N", help="maximum length of the answer (default: 256)")
    g.add_argument("--greedy", action="store_true", help="always take the most likely token")
    g.add_argument("--temperature", type=float, metavar="T", help="sample with logits divided by T")
    g.add_argument("--top-k", type=int, metavar="K", help="sample from the K most likely tokens; 0: all")
    g.add_argument(
        "--top-p", type=float, metavar="P", help="sample from the most likely tokens whose probabilities add up to P"
    )
    g.add_argument(
        "--min-p", type=float, metavar="P", help="sample from tokens at least P times as likely as the most likely one"
    )
    g.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="above 1: makes tokens that have occurred less likely"
    )
    g.add_argument("--num-beams", type=int, metavar="N", help="beam search with N beams")
    g.add_argument("--length-penalty", type=float, metavar="X", help="for beam search: above 0 favours long answers")
    g.add_argument("--stop", action="append", metavar="TEXT", help="ends the answer; may be given several times")
    g.add_argument("--seed", type=int, metavar="N", help="for sampling: the same seed gives the same answer")
    g.add_argument("--ignore-eos", action="store_true", help="do not stop at the model's end token")
    g.add_argument("--no-stream", action="store_true", help="print the answer when it is complete")
    g.add_argument("--json", metavar="FILE", help="write the answers, their tokens and times")
    g.add_argument("--stats", action="store_true", help="show times on stderr even if it is not a terminal")
    add_flags(g, COMPILE_OPTIONS)
    g.add_argument(
        "--devices",
        metavar="NAME,...",
        help="several devices that divide the model among them: 0,1 (the first two GPUs) or cuda:0,cuda:1",
    )
    g.add_argument(
        "--transport",
        default="auto",
        metavar="NAME",
        help="how they exchange tensors: auto (the default), library (NCCL or RCCL) or host (shared memory)",
    )
    g.add_argument("-q", "--quiet", action="store_true", help="show no times")
    c = commands.add_parser(
        "convert-gguf",
        formatter_class=raw,
        description="Makes a model folder for `sardonyx generate` and onnxruntime-genai from a GGUF file of the Llama "
        "family: llama (also Mistral, SmolLM2), qwen2, qwen3, phi3, gemma.",
        epilog="Example:\n  sardonyx convert-gguf SmolLM2-135M-Instruct.Q4_1.gguf smollm2 --precision int4\n\n"
        "In int4 and int8, weights of the types Q4_0, Q4_1 and Q8_0 keep their values; others are quantised again.",
    )
    c.add_argument("file", metavar="FILE", help="a .gguf file")
    c.add_argument("folder", metavar="FOLDER", help="created if it does not exist")
    c.add_argument("--precision", default="int4", choices=list(PRECISIONS), help="type of the weights (default: int4)")
    c.add_argument(
        "--activations",
        choices=("fp32", "fp16", "bf16"),
        help="type of everything else, with int8 and int4 weights (default: fp16)",
    )
    c.add_argument("--block", type=int, default=32, choices=(32, 128), help="elements that share a scale (default: 32)")
    c.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    return top


def _options(a: argparse.Namespace) -> dict[str, Any]:
    names = (
        "max_new_tokens",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "num_beams",
        "length_penalty",
    )
    options = {name: getattr(a, name) for name in (*names, "seed") if getattr(a, name) is not None}
    if a.stop:
        options["stop"] = tuple(a.stop)
    if a.ignore_eos:
        options["ignore_eos"] = True
    sampling = any(getattr(a, name) is not None for name in ("temperature", "top_k", "top_p", "min_p", "seed"))
    if a.greedy:
        options["do_sample"] = False
    elif sampling:
        options["do_sample"] = True
    return options


def _describe(answer: Generation) -> str:
    s = answer.statistics
    kept = f" ({s.kept_tokens} in the cache)" if s.kept_tokens else ""
    rate = f", {s.tokens_per_second:.1f} tokens/s after it" if s.tokens_per_second else ""
    return (
        f"[prompt {s.prompt_tokens} tokens{kept}, first token after {s.first_token:.2f} s; {s.new_tokens} tokens{rate}]"
    )


class _Session:
    def __init__(self, a: argparse.Namespace):
        self._arguments, self._options = a, _options(a)
        if a.devices and a.device:
            raise InvalidArgumentError("give --device or --devices, not both")
        devices = a.devices.split(",") if a.devices else None
        self._model = LanguageModel(
            a.folder, devices=devices, transport=a.transport, **options_of_flags(a, COMPILE_OPTIONS)
        )
        self._records: list[dict[str, Any]] = []

    def answer(self, prompt: str | list[Message]) -> Generation:
        a = self._arguments
        show = None if a.no_stream else lambda part: print(part, end="", flush=True)
        result = self._model.generate(prompt, on_text=show, **self._options)
        print(result.text if a.no_stream else "", flush=True)
        if a.stats or (sys.stderr.isatty() and not a.quiet):
            print(_describe(result), file=sys.stderr)
        statistics = {**dataclasses.asdict(result.statistics), "tokens_per_second": result.statistics.tokens_per_second}
        self._records.append({**dataclasses.asdict(result), "statistics": statistics})
        return result

    def one(self) -> None:
        a = self._arguments
        prompt = a.prompt if a.prompt is not None else sys.stdin.read()
        if a.raw or not self._model.has_chat_template:
            if a.system:
                raise InvalidArgumentError(
                    "--system needs the model's chat template: leave out --raw, or take another model"
                )
            self.answer(prompt)
            return
        messages = [{"role": "system", "content": a.system}] if a.system else []
        self.answer([*messages, {"role": "user", "content": prompt.strip("\n")}])

    def chat(self) -> None:
        a = self._arguments
        messages: list[Message] = [{"role": "system", "content": a.system}] if a.system else []
        terminal = sys.stdin.isatty()
        while True:
            if terminal:
                print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                return
            if not line.strip():
                continue
            messages.append({"role": "user", "content": line.strip()})
            messages.append({"role": "assistant", "content": self.answer(messages).text.strip()})

    def write(self) -> None:
        if self._arguments.json:
            write_json(self._arguments.json, self._records)


def _generate(a: argparse.Namespace) -> None:
    if a.chat and (a.prompt is not None or a.raw):
        raise InvalidArgumentError("--chat reads messages from stdin: leave out --prompt and --raw")
    session = _Session(a)
    if a.chat:
        session.chat()
    else:
        session.one()
    session.write()


def _convert(a: argparse.Namespace) -> None:
    def progress(done: int, total: int) -> None:
        print(f"\rlayer {done} of {total}" + ("\n" if done == total else ""), end="", file=sys.stderr, flush=True)

    shown = progress if sys.stderr.isatty() and not a.quiet else None
    convert_gguf(a.file, a.folder, precision=a.precision, activations=a.activations, block=a.block, progress=shown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""

    def command() -> None:
        a = _parser().parse_args(arguments)
        if a.command == "generate":
            _generate(a)
        else:
            _convert(a)

    return exit_code(command)
