"""Prints the polynomial coefficients of src/math.rs (erf, and tanh of f32), lowest degree first.

Chebyshev interpolation in double precision, converted to powers of a variable
scaled to [-1, 1], where the conversion is well conditioned; for the far part of
f32 weighted least squares (Lawson's iteration). Needs numpy.
"""
import math
import numpy as np
from numpy.polynomial import chebyshev as cheb


def fit(name, f, degree, lo, hi):
    def scaled(u):
        return [f(lo + (v + 1) * (hi - lo) / 2) for v in u]

    poly = cheb.cheb2poly(cheb.chebinterpolate(scaled, degree))
    worst = 0.0
    for i in range(20001):
        x = lo + (hi - lo) * i / 20000
        u = (x - lo) * 2 / (hi - lo) - 1
        acc = 0.0
        for c in poly[::-1]:
            acc = acc * u + c
        worst = max(worst, abs(acc - f(x)) / abs(f(x)))
    print(f"// {name}: degree {degree}, worst relative error {worst:.1e}")
    print("[" + ", ".join(repr(float(c)) for c in poly) + "]")


def small(z):
    """erf(x) / x as a function of z = x^2."""
    if z < 1e-6:
        return 2 / math.sqrt(math.pi) * (1 - z / 3 + z * z / 10)
    x = math.sqrt(z)
    return math.erf(x) / x


def tail(t):
    """erfc(x) * exp(x^2) as a function of t = 1 / (1 + x / 2)."""
    x = 2 / t - 2
    return math.erfc(x) * math.exp(x * x)


def far(x):
    """-ln erfc(x)."""
    return -math.log(math.erfc(x))


def fit_far(degree, lo, hi):
    """The largest relative error of 1 - e^-p, which weights those of p, is made least."""
    u = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    x = lo + (hi - lo) * (u + 1) / 2
    wanted = np.array([far(v) for v in x])
    part = np.array([math.erfc(v) / math.erf(v) for v in x])
    powers, weights, best = np.vander(u, degree + 1, increasing=True), part.copy(), None
    for _ in range(200):
        poly = np.linalg.lstsq(powers * weights[:, None], wanted * weights, rcond=None)[0]
        error = np.abs(powers @ poly - wanted) * part
        if best is None or error.max() < best[0]:
            best = (error.max(), poly)
        weights *= np.sqrt(0.05 + error / error.max())
    print(f"// FAR_F32: degree {degree}, worst relative error {best[0]:.1e}")
    print("[" + ", ".join(repr(float(c)) for c in best[1]) + "]")


def near_tanh(z):
    """tanh(x) / x as a function of z = x^2."""
    if z < 1e-8:
        return 1 - z / 3
    x = math.sqrt(z)
    return math.tanh(x) / x


fit("NEAR_F32", small, 5, 0, 1)
fit_far(5, 1, 4.2)
fit("SMALL_F64", small, 14, 0, 1)
fit("TAIL_F64", tail, 20, 1 / (1 + 6.0 / 2), 1 / 1.5)
fit("TANH_F32", near_tanh, 5, 0, 0.625**2)
