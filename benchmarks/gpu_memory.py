"""Memory-bound kernels on a GPU: minimum bytes to move per second, compared with the driver's own copy on the device.

    python benchmarks/gpu_memory.py cuda            # or hip, hip:1; sim:gfx942 only tests that it runs
    python benchmarks/gpu_memory.py cuda softmax    # cases whose names contain this
    python benchmarks/gpu_memory.py cuda --mb 64    # megabytes of the largest input (default: 512)

Times are those of single kernels (Model.profile, the fastest of a few runs), including one launch and one wait, which dominate at small
sizes."""

import argparse
import ctypes
import time

import ml_dtypes
import numpy as np
import onnx.parser
import sardonyx

TYPES = {"float": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def copy_speed(device, size):
    """Bytes read and written per second by the driver's copy from device memory to device memory."""
    cuda = device.startswith("cuda")
    lib = ctypes.CDLL("libcuda.so.1" if cuda else "libamdhip64.so")
    names = ("cuMemAlloc_v2", "cuMemcpyDtoDAsync_v2", "cuCtxSynchronize", "cuMemFree_v2") if cuda else (
        "hipMalloc", "hipMemcpyDtoDAsync", "hipDeviceSynchronize", "hipFree")  # fmt: skip
    malloc, copy, wait, free = (getattr(lib, n) for n in names)

    def check(code):
        if code != 0:
            raise RuntimeError(f"the driver's error {code}")

    ordinal = int(device.partition(":")[2] or 0)
    if cuda:
        context = ctypes.c_void_p()
        check(lib.cuInit(0))
        check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal))
        check(lib.cuCtxSetCurrent(context))
    else:
        check(lib.hipSetDevice(ordinal))
    a, b = ctypes.c_void_p(), ctypes.c_void_p()
    check(malloc(ctypes.byref(a), ctypes.c_size_t(size)))
    check(malloc(ctypes.byref(b), ctypes.c_size_t(size)))
    best, repeats = 0.0, 10
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            check(copy(b, a, ctypes.c_size_t(size), None))
        check(wait())
        best = max(best, 2 * size * repeats / (time.perf_counter() - start))
    check(free(a))
    check(free(b))
    return best


def cases(size):
    """name, model, dims, element type, tensors of x's size that must move. `size`: bytes of x."""
    for dtype, t in TYPES.items():
        n = size // t.itemsize
        rows = lambda m, n=n: {"n": n // m, "m": m}
        x, v = f"{dtype}[n, m] x", f"{dtype}[m] v"
        y = f"{dtype}[n, m] y"
        chain = "a = Mul (x, z) b = Sigmoid (a) c = Mul (a, b) y = Add (c, x)"
        yield f"copy {dtype}", f"g ({x}) => ({y}) {{ y = Neg (x) }}", rows(4096), dtype, 2
        yield f"chain {dtype}", f"g ({x}, {dtype}[n, m] z) => ({y}) {{ {chain} }}", rows(4096), dtype, 3
        yield f"bias relu {dtype}", f"g ({x}, {v}) => ({y}) {{ a = Add (x, v) y = Relu (a) }}", rows(1024), dtype, 2
        yield f"odd rows {dtype}", f"g ({x}, {v}) => ({y}) {{ a = Add (x, v) y = Relu (a) }}", rows(1001), dtype, 2
        for m in (64, 197, 1024, 4096, 32768):
            yield f"softmax {m} {dtype}", f"g ({x}) => ({y}) {{ y = Softmax (x) }}", rows(m), dtype, 2
            fixed = f"g ({dtype}[n, {m}] x) => ({dtype}[n, {m}] y) {{ y = Softmax (x) }}"
            yield f"softmax fixed {m} {dtype}", fixed, rows(m), dtype, 2
        for m in (768, 4096):
            norm = f"g ({dtype}[n, {m}] x, {dtype}[{m}] v) => ({dtype}[n, {m}] y) {{ y = LayerNormalization (x, v) }}"
            yield f"layer norm {m} {dtype}", norm, rows(m), dtype, 2
        sums = "g ({}) => ({}[k] y) {{ a = Constant <value = int64[1] {{{}}}> () y = ReduceSum <keepdims = 0> (x, a) }}"
        for m in (16, 1024, 65536):
            yield f"sum rows {m} {dtype}", sums.format(x, dtype, 1), rows(m), dtype, 1
        yield f"sum columns {dtype}", sums.format(f"{dtype}[n, 4096] x", dtype, 0), rows(4096), dtype, 1
        yield f"sum all {dtype}", f"g ({x}) => ({dtype} y) {{ y = ReduceSum <keepdims = 0> (x) }}", rows(4096), dtype, 1
        yield (
            f"argmax {dtype}",
            f"g ({x}) => (int64[n] y) {{ y = ArgMax <axis = 1, keepdims = 0> (x) }}",
            rows(4096),
            dtype,
            1,
        )
        yield f"transpose {dtype}", f"g ({x}) => ({dtype}[m, n] y) {{ y = Transpose (x) }}", rows(4096), dtype, 2
        window = "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"
        pool = f"g ({dtype}[n, 64, 112, 112] x) => ({dtype}[n, 64, 56, 56] y) {{ y = MaxPool <{window}> (x) }}"
        yield f"max pool {dtype}", pool, {"n": max(1, n // (64 * 112 * 112))}, dtype, 1.25
        for m, k in ((1024, 10), (50257, 50)):
            top = f"g ({x}) => ({dtype}[n, {k}] y, int64[n, {k}] i) {{ k = Constant <value = int64[1] {{{k}}}> () y, i = TopK (x, k) }}"
            yield f"top {k} of {m} {dtype}", top, rows(m), dtype, 1
        scan = f"g ({x}) => ({y}) {{ a = Constant <value = int64 {{1}}> () y = CumSum (x, a) }}"
        if dtype != "bfloat16":
            yield f"running sum {dtype}", scan, rows(4096), dtype, 2


def measure(text, dims, dtype, device, runs):
    model = sardonyx.compile(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'), device=device
    )
    generator = np.random.default_rng(0)
    feed, x_bytes = {}, 0
    for info in model.inputs:
        shape = [dims[d] if d in dims else int(d) for d in map(str, info.shape)]
        feed[info.name] = np.resize(generator.standard_normal(1 << 16, np.float32), shape).astype(TYPES[dtype])
        x_bytes = max(x_bytes, feed[info.name].nbytes)
    return min(sum(s.seconds for s in model.profile(feed)[1]) for _ in range(runs)), x_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--mb", type=float, default=512)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    size = int(options.mb * 1e6)
    best = 0.0 if options.device.startswith("sim") else copy_speed(options.device, size)
    print(f"{'driver copy':32} {'':>10} {best / 1e9:9.0f} GB/s")
    for name, text, dims, dtype, tensors in cases(size):
        if options.name not in name:
            continue
        seconds, x_bytes = measure(text, dims, dtype, options.device, options.runs)
        speed = tensors * x_bytes / seconds
        share = f"{100 * speed / best:6.0f} %" if best else ""
        print(f"{name:32} {seconds * 1e6:8.0f} us {speed / 1e9:9.0f} GB/s {share}", flush=True)


if __name__ == "__main__":
    main()
