"""Prints the polynomial coefficients of src/math.rs (erf, and tanh of f32), lowest degree first.

For f64 Chebyshev interpolation in double precision, converted to powers of a variable
scaled to [-1, 1], where the conversion is well conditioned. Needs numpy.
"""
import math
import numpy as np
from numpy.polynomial import chebyshev as cheb
from numpy.polynomial import polynomial as poly


def fit(name, f, degree, lo, hi):
    def scaled(u):
        return [f(lo + (v + 1) * (hi - lo) / 2) for v in u]

    powers = cheb.cheb2poly(cheb.chebinterpolate(scaled, degree))
    worst = 0.0
    for i in range(20001):
        x = lo + (hi - lo) * i / 20000
        u = (x - lo) * 2 / (hi - lo) - 1
        acc = 0.0
        for c in powers[::-1]:
            acc = acc * u + c
        worst = max(worst, abs(acc - f(x)) / abs(f(x)))
    print(f"// {name}: degree {degree}, worst relative error {worst:.1e}")
    print("[" + ", ".join(repr(float(c)) for c in powers) + "]")


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


def fit_fraction(name, f, degrees, last):
    """The largest relative error of x P(x^2) / Q(x^2) up to `last` is made least: in each round P - f Q of the weights
    that level the error, over the Q of the round before (Loeb's and Lawson's iterations)."""
    x = np.linspace(0, last, 6001)[1:]
    wanted = np.array([f(v) / v for v in x])
    u = 2 * (x / last) ** 2 - 1
    powers = [cheb.chebvander(u, d) for d in degrees]
    weights, below, best = np.ones_like(u), np.ones_like(u), None
    for _ in range(60):
        scale = weights / (wanted * below)
        rows = np.hstack([powers[0], -wanted[:, None] * powers[1][:, 1:]])
        found = np.linalg.lstsq(rows * scale[:, None], wanted * scale, rcond=None)[0]
        parts = found[: degrees[0] + 1], np.concatenate([[1], found[degrees[0] + 1 :]])
        above, below = (p @ c for p, c in zip(powers, parts))
        error = np.abs(above / below / wanted - 1)
        if (below > 0).all() and (best is None or error.max() < best[0]):
            best = error.max(), parts
        weights *= np.sqrt(0.02 + error / error.max())
    print(f"// {name}: degrees {degrees}, worst relative error {best[0]:.1e}")
    both = [in_squares(cheb.cheb2poly(c), last) for c in best[1]]
    for c in both:
        print("[" + ", ".join(repr(float(v / both[1][0])) for v in c) + "]")


def in_squares(coefficients, last):
    """Of powers of u = 2 (x / last)^2 - 1 those of x^2."""
    found = np.zeros(1)
    for c in coefficients[::-1]:
        found = poly.polyadd(poly.polymul(found, [-1, 2 / last**2]), [c])
    return found


fit_fraction("ERF_F32", math.erf, (5, 5), 3.92)
fit_fraction("TANH_F32", math.tanh, (4, 4), 9.02)
fit("SMALL_F64", small, 14, 0, 1)
fit("TAIL_F64", tail, 20, 1 / (1 + 6.0 / 2), 1 / 1.5)
