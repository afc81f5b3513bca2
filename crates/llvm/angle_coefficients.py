"""Prints the polynomial coefficients of src/angles.rs for f32, lowest degree first.

The largest error relative to the function is made least by least squares, whose weights are
raised where the error is large (Lawson's iteration). Needs numpy.
"""
import numpy as np
from numpy.polynomial import chebyshev as cheb
from numpy.polynomial import polynomial as poly


def in_squares(coefficients, last):
    """Of powers of u = 2 z / last - 1 those of z."""
    found = np.zeros(1)
    for c in coefficients[::-1]:
        found = poly.polyadd(poly.polymul(found, [-1, 2 / last]), [c])
    return found


def fit(name, f, series, degree, last):
    """f(x) = x + x^3 P(x^2) up to x^2 = `last`; `series` begins P's power series."""
    z = np.linspace(0, last, 8001)[1:]
    x = np.sqrt(z)
    wanted = np.where(z < 1e-4, poly.polyval(z, series), (f(x) - x) / (x * z))
    rows = cheb.chebvander(2 * z / last - 1, degree)
    # The part of the result that an error of P is.
    part, weights, best = x * z / f(x), np.ones_like(z), None
    for _ in range(200):
        scale = part * weights
        found = np.linalg.lstsq(rows * scale[:, None], wanted * scale, rcond=None)[0]
        error = np.abs(rows @ found - wanted) * part
        if best is None or error.max() < best[0]:
            best = error.max(), found
        weights *= np.sqrt(0.02 + error / error.max())
    print(f"// {name}: degree {degree}, worst relative error {best[0]:.1e}")
    print("[" + ", ".join(repr(float(c)) for c in in_squares(cheb.cheb2poly(best[1]), last)) + "]")


fit("ASIN_F32", np.arcsin, [1 / 6, 3 / 40, 15 / 336], 4, 0.25)
fit("ATAN_F32", np.arctan, [-1 / 3, 1 / 5, -1 / 7], 7, 1)
