"""Attention on an NVIDIA GPU, compared with PyTorch's scaled_dot_product_attention.

    python benchmarks/attention.py prepare FOLDER --cli build/bin/sardonyx [--arch sm_90a]  anywhere; needs onnx
    python benchmarks/attention.py compare FOLDER --cli build/bin/sardonyx                  on a GPU; needs torch

`prepare` writes program files: each case once with one attention and once with a chain of them, where the output of one
is the query of the next. The time of one is the difference divided by the number of additional ones, so that copies of inputs
and outputs are not measured. `compare` checks the result of one attention against PyTorch's in float32, then times the two
engines in turns and prints medians.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

CHAIN = 40
#: name: batch, query heads, key heads, queries, keys, head size, causal
CASES = {
    "16x4096x128": (1, 16, 16, 4096, 4096, 128, False),
    "16x4096x128 causal": (1, 16, 16, 4096, 4096, 128, True),
    "8x12x512x64": (8, 12, 12, 512, 512, 64, False),
    "1x12x128x64": (1, 12, 12, 128, 128, 64, False),
    "decode 32/8x128, 4096 keys": (1, 32, 8, 1, 4096, 128, False),
    "decode 8x32/8x128, 4096 keys": (8, 32, 8, 1, 4096, 128, False),
}


def file_of(folder: pathlib.Path, name: str, count: int) -> pathlib.Path:
    return folder / f"{name.replace(' ', '_').replace('/', '-').replace(',', '')}_{count}.sdx"


def prepare(folder: pathlib.Path, cli: str, arch: str) -> None:
    from onnx import TensorProto, helper, save

    folder.mkdir(parents=True, exist_ok=True)
    for name, (b, h, hk, s, t, d, causal) in CASES.items():
        for count in (1, CHAIN):
            nodes = []
            for k in range(count):
                inputs = ["q" if k == 0 else f"y{k - 1}", "k", "v"]
                output = "y" if k == count - 1 else f"y{k}"
                nodes.append(helper.make_node("Attention", inputs, [output], is_causal=int(causal)))

            def info(n: str, heads: int, rows: int, b: int = b, d: int = d) -> object:
                return helper.make_tensor_value_info(n, TensorProto.FLOAT16, [b, heads, rows, d])

            graph = helper.make_graph(
                nodes, "g", [info("q", h, s), info("k", hk, t), info("v", hk, t)], [info("y", h, s)]
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
            with tempfile.TemporaryDirectory() as temporary:
                source = pathlib.Path(temporary) / "model.onnx"
                save(model, source)
                out = file_of(folder, name, count)
                subprocess.run([cli, "compile", source, "--arch", arch, "-o", out], check=True, capture_output=True)


def run_ours(cli: str, program: pathlib.Path, device: str, runs: int) -> float:
    """Median seconds of a run."""
    command = [cli, "perf", program, "--device", device, "--runs", str(runs), "--warmup", "3", "--json", "-"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(out)["latency_seconds"]["p50"])


def our_result(cli: str, program: pathlib.Path, device: str, tensors: dict[str, np.ndarray]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        command = [cli, "run", program, "--device", device, "-o", f"y={folder / 'y.npy'}"]
        for n, x in tensors.items():
            np.save(folder / f"{n}.npy", x)
            command += ["--input", f"{n}={folder / f'{n}.npy'}"]
        subprocess.run(command, check=True, capture_output=True)
        return np.load(folder / "y.npy")


def compare(folder: pathlib.Path, cli: str, device: str, turns: int) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name, (b, h, hk, s, t, d, causal) in CASES.items():
        random = np.random.default_rng(0)
        tensors = {
            n: random.standard_normal((b, heads, rows, d)).astype(np.float16)
            for n, heads, rows in (("q", h, s), ("k", hk, t), ("v", hk, t))
        }
        q, k, v = (torch.from_numpy(x).cuda() for x in tensors.values())
        with sdpa_kernel(SDPBackend.MATH):
            want = scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal, enable_gqa=h != hk)
        got = our_result(cli, file_of(folder, name, 1), device, tensors)
        error = float(np.abs(got.astype(np.float32) - want.cpu().numpy()).max())

        def torch_seconds(q=q, k=k, v=v, causal=causal, h=h, hk=hk) -> float:
            # keys and values of groups are repeated outside of what is measured only if the backend can't share them
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
                for _ in range(3):
                    scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != hk)
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(CHAIN):
                    scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != hk)
                end.record()
                end.synchronize()
            return start.elapsed_time(end) / 1e3 / CHAIN

        ours, theirs = [], []
        for _ in range(turns):
            theirs.append(torch_seconds())
            times = [run_ours(cli, file_of(folder, name, n), device, 20) for n in (1, CHAIN)]
            ours.append((times[1] - times[0]) / (CHAIN - 1))
        us, them = statistics.median(ours), statistics.median(theirs)
        operations = 4 * b * h * s * t * d * (0.5 if causal else 1)
        print(
            f"{name:30} ours {us * 1e3:8.4f} ms {operations / us / 1e12:6.1f} TFLOP/s   torch {them * 1e3:8.4f} ms "
            f"{operations / them / 1e12:6.1f} TFLOP/s   ratio {us / them:5.2f}   largest error {error:.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cli", default="build/bin/sardonyx")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.folder, options.cli, options.arch)
    else:
        compare(options.folder, options.cli, options.device, options.turns)


if __name__ == "__main__":
    main()
