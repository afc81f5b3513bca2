"""Operators of quantised models.

A result that lies between two bytes may become either: runtimes multiply scales in different orders.
"""

from __future__ import annotations

from typing import Any

from .case import Case, Operand, case, constant, fixed, i8, microsoft, normal, positive, u8

MAP = (1, 256, 64, 64)
SMALL = (1, 64, 64, 64)

MIDDLE = fixed(128, "uint8")
ZERO_I8 = fixed(0, "int8")


def scale(value: float) -> Operand:
    return fixed(value, "float32")


CONVERSIONS = [
    case("QuantizeLinear/map", normal(*MAP), scale(0.05), fixed(100, "uint8"), off_by=1),
    case("DequantizeLinear/map", u8(*MAP), scale(0.05), fixed(100, "uint8")),
    case("DequantizeLinear/rows", i8(512, 512), constant(positive(512)), fixed([0] * 512, "int8"), axis=0),
    case("DynamicQuantizeLinear/map", normal(*MAP), outputs=3, off_by=1),
]


def convolution(what: str, image: Operand, weights: Operand, result_scale: float, **attributes: Any) -> Case:
    operands = [image, scale(0.02), MIDDLE, constant(weights), scale(0.01), ZERO_I8, scale(result_scale), MIDDLE]
    return case(f"QLinearConv/{what}", *operands, off_by=1, **attributes)


CONVOLUTIONS = [
    convolution("resnet-3x3", u8(1, 64, 56, 56), i8(64, 64, 3, 3), 0.3, pads=[1, 1, 1, 1]),
    convolution("depthwise", u8(1, 144, 56, 56), i8(144, 1, 3, 3), 0.1, pads=[1, 1, 1, 1], group=144),
    convolution("1x1", u8(1, 256, 28, 28), i8(64, 256, 1, 1), 0.3),
    convolution("resnext-groups", u8(1, 128, 28, 28), i8(128, 4, 3, 3), 0.1, pads=[1, 1, 1, 1], group=32),
    case("ConvInteger/3x3", u8(1, 64, 28, 28), constant(u8(64, 64, 3, 3)), MIDDLE, pads=[1, 1, 1, 1]),
]

# What the products of this file have in common with BERT-base.
ROWS, WIDTH = 128, 768

PRODUCTS = [
    case(
        "QLinearMatMul/bert", u8(ROWS, WIDTH), scale(0.02), MIDDLE, constant(i8(WIDTH, WIDTH)), scale(0.01), ZERO_I8,
        scale(0.5), MIDDLE, off_by=1,
    ),
    case(
        "QLinearMatMul/heads", u8(12, 128, 64), scale(0.02), MIDDLE, u8(12, 64, 128), scale(0.01), MIDDLE, scale(0.5),
        MIDDLE, off_by=1,
    ),
    case("MatMulInteger/bert", u8(ROWS, WIDTH), constant(u8(WIDTH, WIDTH))),
    case("MatMulInteger/bert-hidden", u8(ROWS, WIDTH), constant(i8(WIDTH, 3072)), MIDDLE, ZERO_I8),
    microsoft("DynamicQuantizeMatMul/bert", normal(ROWS, WIDTH), constant(i8(WIDTH, WIDTH)), scale(0.01), ZERO_I8),
    microsoft(
        "MatMulIntegerToFloat/bert", u8(ROWS, WIDTH), constant(i8(WIDTH, WIDTH)), scale(0.01), scale(0.01), MIDDLE, ZERO_I8
    ),
]  # fmt: skip

# Of com.microsoft, on bytes with a scale and a zero point before and after.
BYTES = [
    *(
        microsoft(
            f"{operator}/map", u8(*SMALL), scale(0.02), MIDDLE, u8(*SMALL), scale(0.03), MIDDLE, scale(0.04), MIDDLE, off_by=1
        )
        for operator in ["QLinearAdd", "QLinearMul"]
    ),
    microsoft("QLinearSigmoid/map", u8(*SMALL), scale(0.05), MIDDLE, scale(0.004), fixed(0, "uint8"), off_by=1),
    microsoft("QLinearLeakyRelu/map", u8(*SMALL), scale(0.05), MIDDLE, scale(0.05), MIDDLE, alpha=0.1, off_by=1),
    microsoft(
        "QLinearGlobalAveragePool/mobilenetv2", u8(1, 1280, 7, 7), scale(0.05), MIDDLE, scale(0.05), MIDDLE, off_by=1
    ),
    microsoft(
        "QLinearAveragePool/3x3", u8(1, 64, 56, 56), scale(0.05), MIDDLE, scale(0.05), MIDDLE, kernel_shape=[3, 3], off_by=1
    ),
    microsoft(
        "QLinearConcat/channels", scale(0.05), MIDDLE, u8(1, 64, 28, 28), scale(0.05), MIDDLE, u8(1, 64, 28, 28),
        scale(0.04), MIDDLE, axis=1, off_by=1,
    ),
]  # fmt: skip

CASES = [*CONVERSIONS, *CONVOLUTIONS, *PRODUCTS, *BYTES]
