"""Prints the polynomial coefficients of src/math.rs (erf), lowest degree first.

Chebyshev interpolation in double precision, converted to powers of a variable
scaled to [-1, 1], where the conversion is well conditioned. Needs numpy.
"""
import math
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


fit("SMALL_F32", small, 7, 0, 1)
fit("TAIL_F32", tail, 8, 1 / (1 + 4.2 / 2), 1 / 1.5)
fit("SMALL_F64", small, 14, 0, 1)
fit("TAIL_F64", tail, 20, 1 / (1 + 6.0 / 2), 1 / 1.5)
