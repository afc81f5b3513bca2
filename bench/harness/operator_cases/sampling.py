"""Operators that sample images between their elements, and transforms of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Array, Case, Operand, case, fixed, given, microsoft, normal, u8, uniform

NEAREST: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
SMOOTH = [
    ("linear-half-pixel", "linear", "half_pixel"),
    ("cubic-half-pixel", "cubic", "half_pixel"),
    ("linear-align-corners", "linear", "align_corners"),
]


def doubled(what: str, image: Operand, **attributes: Any) -> Case:
    return case(f"Resize/{what}", image, None, fixed([1, 1, 2, 2], "float32"), **attributes)


def sized(what: str, image: Operand, size: list[int], **attributes: Any) -> Case:
    return case(f"Resize/{what}", image, None, None, fixed(size), mode="linear", **attributes)


RESIZES = [
    doubled("nearest", normal(1, 64, 64, 64), **NEAREST),
    doubled("yolo-upsample", normal(1, 256, 32, 32), **NEAREST),
    doubled("f16-nearest", normal(1, 64, 64, 64, dtype="float16"), **NEAREST),
    doubled("u8-nearest", u8(1, 3, 512, 512), **NEAREST),
    *(
        doubled(what, normal(1, 64, 64, 64), mode=mode, coordinate_transformation_mode=transform)
        for what, mode, transform in SMOOTH
    ),
    sized("antialias-to-224", normal(1, 3, 720, 1280), [1, 3, 224, 224], antialias=1),
    sized("linear-by-2.37", normal(1, 32, 100, 100), [1, 32, 237, 237]),
    case(
        "Resize/u8-linear-to-224", u8(1, 3, 720, 1280), None, None, fixed([1, 3, 224, 224]), mode="linear", off_by=1
    ),
]


def regular() -> Array:
    """Places of 128x128 samples at even distances."""
    along = np.linspace(-1, 1, 128, dtype=np.float32)
    return np.stack(np.meshgrid(along, along), axis=-1)[None]


def regions(count: int, size: float) -> Operand:
    """Corners of boxes inside an image."""
    return Operand(lambda rng: np.sort(rng.uniform(0, size, (count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32))


def zeros(count: int, dtype: str) -> Operand:
    return given(lambda: np.zeros(count, dtype))


SAMPLES = [
    *(
        case(f"GridSample/{mode}", normal(1, 32, 64, 64), uniform(-1, 1, 1, 128, 128, 2), mode=mode)
        for mode in ["linear", "nearest", "cubic"]
    ),
    case("GridSample/linear-regular", normal(1, 32, 64, 64), given(regular), mode="linear"),
    microsoft("GridSample/linear", normal(1, 32, 64, 64), uniform(-1, 1, 1, 64, 64, 2)),
    case("AffineGrid/128", normal(4, 2, 3), fixed([4, 3, 128, 128])),
    case(
        "RoiAlign/100-boxes", normal(1, 256, 50, 50), regions(100, 49), zeros(100, "int64"), output_height=7,
        output_width=7, sampling_ratio=2, spatial_scale=1.0,
    ),
    microsoft(
        "CropAndResize/50-boxes", normal(1, 64, 50, 50), regions(50, 1), zeros(50, "int32"), fixed([14, 14], "int32")
    ),
]  # fmt: skip

SIGNALS = [
    case("DFT/512", normal(16, 512, 1), fixed(512), fixed(1), onesided=1),
    # Without the attribute onnx infers a shape of both sides, though its default is one.
    case(
        "STFT/second-of-audio", normal(1, 16000, 1), fixed(160), fixed(np.hanning(400), "float32"), fixed(400), onesided=1
    ),
    case("Col2Im/3x3", normal(1, 576, 3136), fixed([56, 56]), fixed([3, 3]), pads=[1, 1, 1, 1]),
]

CASES = [*RESIZES, *SAMPLES, *SIGNALS]
