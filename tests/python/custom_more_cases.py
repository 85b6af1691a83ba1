"""Further operators of custom_kernels/ beside numpy: block reductions, optimizers, scans, ranks by votes."""

from typing import Any

import numpy as np
from custom_cases import Case


def group_norm(rng: np.random.Generator, dtype: Any, rtol: float) -> Case:
    groups, size = 4, 301
    x = rng.standard_normal((2, 3 * groups, size)).astype(dtype)
    gamma, beta = (rng.standard_normal(3 * groups).astype(dtype) for _ in range(2))
    wide = x.astype(np.float64).reshape(2, groups, -1)
    rstd = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    y = ((wide - wide.mean(-1, keepdims=True)) * rstd).reshape(x.shape)
    y = y * gamma[:, None].astype(np.float64) + beta[:, None].astype(np.float64)
    results = {"y": y.astype(dtype), "rstd": rstd.ravel().astype(np.float32)}
    return Case("GroupNorm", {"x": x, "gamma": gamma, "beta": beta}, results, {"groups": groups}, rtol=rtol, atol=rtol)


def adamw(rng: np.random.Generator, n: int, mode: int) -> Case:
    p, g, m, v = (rng.standard_normal(n).astype(np.float32) for _ in range(4))
    m, v = m / 10, abs(v) / 10
    p0, g0, m0, v0 = (a.astype(np.float64) for a in (p, g, m, v))
    if mode == 0:
        g0 = g0 + 0.01 * p0
    m0, v0 = 0.9 * m0 + 0.1 * g0, 0.999 * v0 + 0.001 * g0 * g0
    step = (m0 / (1 - 0.9**3)) / (np.sqrt(v0 / (1 - 0.999**3)) + 1e-8) + (0.01 * p0 if mode == 1 else 0)
    results = {"p_new": p0 - 0.1 * step, "m_new": m0, "v_new": v0}
    # 1 - 0.999^3 in float loses three digits.
    return Case("AdamW", {"p": p, "g": g, "m": m, "v": v}, {k: a.astype(np.float32) for k, a in results.items()}, {"mode": mode}, rtol=1e-4, atol=1e-5)  # fmt: skip


def selective_scan(rng: np.random.Generator, length: int, dtype: Any, rtol: float) -> Case:
    b, d, s = 2, 3, 4
    u, dt, z = (rng.standard_normal((b, d, length)).astype(dtype) for _ in range(3))
    before, after = (rng.standard_normal((b, s, length)).astype(dtype) for _ in range(2))
    a, skip = -abs(rng.standard_normal((d, s))).astype(np.float32), rng.standard_normal(d).astype(np.float32)
    wide = [x.astype(np.float64) for x in (u, dt, z, before, after)]
    step, state, y = np.log1p(np.exp(wide[1])), np.zeros((b, d, s)), np.zeros(u.shape)
    for t in range(length):
        state = state * np.exp(step[:, :, t, None] * a)
        state += wide[3][:, None, :, t] * (step[:, :, t] * wide[0][:, :, t])[..., None]
        y[:, :, t] = (state * wide[4][:, None, :, t]).sum(-1) + skip * wide[0][:, :, t]
    y *= wide[2] / (1 + np.exp(-wide[2]))
    inputs = {"u": u, "dt": dt, "A": a, "B": before, "C": after, "D": skip, "z": z}
    return Case("SelectiveScan", inputs, {"y": y.astype(dtype)}, rtol=rtol, atol=rtol)


def radix_rank(rng: np.random.Generator) -> Case:
    keys = rng.integers(0, 2**32, 1000, dtype=np.uint32)
    digits = keys >> 8 & 15
    before = [(digits[i // 128 * 128 : i] == digits[i]).sum() for i in range(len(keys))]
    counts = np.bincount(digits, minlength=16).astype(np.uint32)
    return Case("RadixRank", {"keys": keys}, {"counts": counts, "ranks": np.array(before, np.uint32)})


def sort_pairs(rng: np.random.Generator) -> Case:
    keys = rng.permutation(300).reshape(3, 100).astype(np.int32) - 50
    at = np.argsort(keys, 1)
    results = {"sorted": np.take_along_axis(keys, at, 1), "places": at.astype(np.int16)}
    results |= {"sums": keys.sum(1).astype(np.float32), "lanes": np.full(3, 43, np.int32)}  # 43: every third of 128
    return Case("SortPairs", {"keys": keys}, results)


def more_cases(rng: np.random.Generator) -> list[Case]:
    found = [group_norm(rng, np.float32, 1e-5), group_norm(rng, np.float16, 2e-3), adamw(rng, 1024, 0)]
    found += [adamw(rng, 1027, 1), selective_scan(rng, 300, np.float32, 1e-5)]
    return [*found, selective_scan(rng, 100, np.float16, 3e-3), radix_rank(rng), sort_pairs(rng)]
