#!/usr/bin/env python3
"""Derives the polynomial coefficients of src/kernels/prelude_math*.h. Needs mpmath.

fit() minimises the squares of error times weight(x) over Chebyshev nodes, which is within a small factor of the minimax
polynomial. Coefficients are rounded to the format one after the other,
lowest power first, and the ones not yet rounded are fitted again each time, so that they take up the rounding errors.
Prints each table as hexadecimal floats with the largest weighted error left, as a power of two.

    tools/fit_polynomials.py [name...]
"""

import sys

import mpmath as mp

mp.mp.dps = 60


def to_format(c, bits):
    """c rounded to a significand of `bits` bits (24: float, 53: double)."""
    if c == 0:
        return mp.mpf(0)
    m, e = mp.frexp(c)
    return mp.ldexp(mp.nint(mp.ldexp(m, bits)), e - bits)


def hexfloat(c, bits):
    text = float(c).hex()
    mantissa, exponent = text.split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent + ("f" if bits == 24 else "")


def fit(f, lo, hi, degree, bits, weight=lambda x: mp.mpf(1), exact=0, fixed=()):
    """Coefficients of sum c_k x^k near f on [lo, hi]. The first `exact` coefficients are not rounded to `bits` but to
    2 * bits. fixed: leading coefficients given."""
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    coefficients = [mp.mpf(c) for c in fixed]
    count = 4 * (degree + 2)
    nodes = [(lo + hi) / 2 + (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    values = [(x, weight(x), f(x)) for x in nodes]
    for start in range(len(coefficients), degree + 1):
        n = degree + 1 - start
        rows = mp.matrix(count, n)
        rhs = mp.matrix(count, 1)
        for i, (x, w, y) in enumerate(values):
            rhs[i] = (y - sum((c * x**k for k, c in enumerate(coefficients)), mp.mpf(0))) * w
            for j in range(n):
                rows[i, j] = w * x ** (start + j)
        solution = mp.lu_solve(rows.T * rows, rows.T * rhs)
        coefficients.append(to_format(solution[0], 2 * bits if start < exact else bits))
    worst = mp.mpf(0)
    for i in range(2001):
        x = lo + (hi - lo) * i / 2000
        if x == 0:
            continue
        value = sum((c * x**k for k, c in enumerate(coefficients)), mp.mpf(0))
        worst = max(worst, abs((value - f(x)) * weight(x)))
    return coefficients, worst


def odd_tail(f, sign=1):
    """(f(x) - x) / x^3 as a function of z = x^2, for odd f with f'(0) = 1. sign -1 for z = -x^2."""

    def g(z):
        x = mp.sqrt(sign * z)
        return mp.re((f(x) - x) / x**3)

    return g


TABLES = {}


def table(name, bits):
    def add(make):
        TABLES[name] = (bits, make)
        return make

    return add


LN2 = mp.log(2)


def exp_tail(r):
    with mp.workdps(90):
        return (mp.exp(r) - 1 - r) / r**2


for bits, degree, _log_degree, s, c in ((24, 4, 7, 3, 2), (53, 10, 0, 7, 6)):
    half = LN2 / 2 * mp.mpf("1.0001")
    # exp(r) = 1 + r + r^2 q(r); the error counts relative to r, so that expm1 can use it.
    table(f"exp{bits}", bits)(
        lambda half=half, degree=degree, bits=bits: fit(exp_tail, -half, half, degree, bits, weight=lambda r: abs(r))
    )
    # sin(r) = r + r^3 s(r^2), cos(r) = 1 - r^2/2 + r^4 c(r^2).
    edge = (mp.pi / 4 * mp.mpf("1.001")) ** 2
    table(f"sin{bits}", bits)(
        lambda edge=edge, s=s, bits=bits: fit(odd_tail(mp.sin), 1e-12, edge, s, bits, weight=lambda z: z)
    )
    table(f"cos{bits}", bits)(
        lambda edge=edge, c=c, bits=bits: fit(
            lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, 1e-8, edge, c, bits, weight=lambda z: z**2
        )
    )


@table("exp2_24", 24)
def _():
    # 2^r = 1 + r q(r), |r| <= 1/2
    return fit(lambda r: (mp.power(2, r) - 1) / r, -0.5001, 0.5001, 5, 24, weight=lambda r: abs(r))


@table("log24", 24)
def _():
    # log(1 + f) = f - f^2/2 + f^3 p(f), 1 + f in [sqrt(1/2), sqrt(2)]
    g = lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3
    return fit(g, mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1, 7, 24, weight=lambda f: abs(f**3 / mp.log1p(f)))


@table("asin24", 24)
def _():
    return fit(odd_tail(mp.asin), 1e-12, 0.2502, 4, 24, weight=lambda z: z)


@table("atan24", 24)
def _():
    return fit(odd_tail(mp.atan), 1e-12, (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001"), 4, 24, weight=lambda z: z)


@table("tanh24", 24)
def _():
    return fit(odd_tail(mp.tanh), 1e-12, 0.625**2, 4, 24, weight=lambda z: z)


@table("sinh24", 24)
def _():
    return fit(odd_tail(mp.sinh), 1e-12, 1.0, 3, 24, weight=lambda z: z)


@table("erf24", 24)
def _():
    # erf(x) = x + x p(x^2), |x| <= 1
    return fit(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 1e-12, 1.0, 6, 24)


@table("erf_tail24", 24)
def _():
    # erf(x) = 1 - exp(-p(x)), 1 <= x <= 4; the error of erf is erfc(x) times that of p.
    return fit(lambda x: -mp.log(mp.erfc(x)), 0.99, 4.0, 8, 24, weight=lambda x: mp.erfc(x) / mp.erf(x))


@table("sin_half24", 24)
def _():
    # Up to pi/2 and what the rounding of x / pi adds, |x| < 2^17.
    return fit(odd_tail(mp.sin), 1e-12, mp.mpf("1.59") ** 2, 3, 24, weight=lambda z: z)


@table("half_sin", 24)
def _():
    return fit(odd_tail(mp.sin), 1e-12, mp.mpf("1.59") ** 2, 2, 24, weight=lambda z: z)


@table("half_log2_erfc", 24)
def _():
    # log2(1 - erf(a)) = -a p(a), for results of 16 bits. Errors of 1 - erf are ln 2 (1 - erf) times those of the logarithm; what they
    # weigh beyond 2.4 is less than what the fit leaves before.
    return fit(lambda a: -mp.log(mp.erfc(a), 2) / a, 1e-9, 2.4, 4, 24, weight=lambda a: a * mp.erfc(a) * LN2)


def erfcx(x):
    return mp.exp(x**2) * mp.erfc(x)


def erfcx_table(name, bits, k, largest, degree):
    # erfc(x) = exp(-x^2) p(v) / (x + k), v = (x - k) / (x + k), 0 <= x <= largest. Source of the mapping: Shepherd and
    # Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x" (1981).
    k = mp.mpf(k)

    def make():
        x = lambda v: k * (1 + v) / (1 - v)
        f = lambda v: erfcx(x(v)) * (x(v) + k)
        return fit(f, -1, (largest - k) / (largest + k), degree, bits, weight=lambda v: 1 / f(v))

    TABLES[name] = (bits, make)


erfcx_table("erfcx24", 24, 1.5, 10.5, 10)
erfcx_table("erfcx53", 53, 2, 27.5, 24)


# log2((1 + s) / (1 - s)) = s (c + z (p + z q(z))), z = s^2; c = 2 / log 2 and p = c / 3, each in two parts, are no part of it.
@table("log2_pair", 24)
def _():
    c = 2 / LN2
    series = lambda z: mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z))) / mp.sqrt(z) / LN2
    g = lambda z: ((series(z) - c) / z - c / 3) / z
    return fit(g, 1e-8, mp.mpf("0.17158") ** 2, 2, 24, weight=lambda z: z**2)


# In double, for results in float: log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2) and 2^r = 1 + r q(r).
@table("log_short", 53)
def _():
    g = lambda z: (mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z))) - 2 * mp.sqrt(z)) / mp.sqrt(z) ** 3
    return fit(g, 1e-10, (mp.mpf("0.17158")) ** 2, 4, 53, weight=lambda z: z / 2)


@table("exp2_short", 53)
def _():
    return fit(lambda r: (mp.power(2, r) - 1) / r, -0.5001, 0.5001, 6, 53, weight=lambda r: abs(r))


# Double.
def log_series(z):
    return (mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z))) / mp.sqrt(z) - 2) / z


LOG_EDGE = mp.mpf("0.17158") ** 2


@table("log53", 53)
def _():
    # log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)
    return fit(log_series, 1e-10, LOG_EDGE, 6, 53, weight=lambda z: z / 2)


@table("pow53", 53)
def _():
    # log((1 + s) / (1 - s)) = 2 s (1 + z/3 + z^2 p(z)), z = s^2
    return fit(lambda z: (log_series(z) / 2 - mp.mpf(1) / 3) / z, 1e-10, LOG_EDGE, 7, 53, weight=lambda z: z**2)


@table("asin53", 53)
def _():
    return fit(odd_tail(mp.asin), 1e-12, 0.2501, 12, 53, weight=lambda z: z)


@table("atan53", 53)
def _():
    return fit(odd_tail(mp.atan), 1e-12, (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001"), 10, 53, weight=lambda z: z)


@table("sinh53", 53)
def _():
    return fit(odd_tail(mp.sinh), 1e-12, 1.0, 6, 53, weight=lambda z: z)


@table("erf53", 53)
def _():
    return fit(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 1e-12, 1.0, 12, 53)


@table("erf_tail53", 53)
def _():
    return fit(lambda x: -mp.log(mp.erfc(x)), 0.99, 6.0, 17, 53, weight=lambda x: mp.erfc(x) / mp.erf(x))


def main():
    for name in sys.argv[1:] or TABLES:
        bits, make = TABLES[name]
        coefficients, worst = make()
        print(f"{name}: largest error 2^{mp.nstr(mp.log(worst, 2), 4)}")
        print("  " + ", ".join(hexfloat(c, bits) for c in coefficients))


if __name__ == "__main__":
    main()
