"""Operators whose windows move over an image: pooling and convolutions."""

import numpy as np

from .case import Array, case, given, microsoft, normal, u8, weight

STEM = (1, 64, 112, 112)

POOLING = [
    case("MaxPool/resnet-stem", normal(*STEM), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case(
        "MaxPool/f16-resnet-stem", normal(*STEM, dtype="float16"), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    case("MaxPool/2x2", normal(*STEM), kernel_shape=[2, 2], strides=[2, 2]),
    case("MaxPool/yolo-sppf", normal(1, 256, 20, 20), kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]),
    case("MaxPool/1d", normal(1, 64, 4000), kernel_shape=[3], strides=[2]),
    case("MaxPool/3d", normal(1, 32, 16, 56, 56), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
    case("AveragePool/3x3", normal(*STEM), kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
    case("AveragePool/7x7", normal(1, 512, 14, 14), kernel_shape=[7, 7], strides=[7, 7]),
    case("LpPool/2x2", normal(1, 64, 56, 56), kernel_shape=[2, 2], strides=[2, 2]),
    case("GlobalAveragePool/mobilenetv2", normal(1, 1280, 7, 7)),
    case("GlobalMaxPool/28", normal(1, 512, 28, 28)),
    case("GlobalLpPool/28", normal(1, 512, 28, 28)),
    microsoft("NhwcMaxPool/u8-3x3", u8(1, 56, 56, 64), kernel_shape=[3, 3]),
]


def corners() -> Array:
    """Where a maximum lies: in the first element of each 2x2 window of 32 planes of 64x64."""
    plane, row, column = np.ogrid[:32, :32, :32]
    places: Array = (plane * 64 * 64 + row * 2 * 64 + column * 2)[None].astype(np.int64)
    return places


CONVOLUTIONS = [
    case("Conv/1-channel-5x5", normal(1, 1, 256, 256), weight(16, 1, 5, 5), pads=[2, 2, 2, 2]),
    case("Conv/11x11", normal(1, 16, 128, 128), weight(16, 16, 11, 11), pads=[5, 5, 5, 5]),
    case("Conv/to-1-channel", normal(1, 64, 256, 256), weight(1, 64, 3, 3), pads=[1, 1, 1, 1]),
    case("Conv/to-3-channels-9x9", normal(1, 64, 128, 128), weight(3, 64, 9, 9), pads=[4, 4, 4, 4]),
    case("Conv/batch-64-of-8x8", normal(64, 16, 8, 8), weight(16, 16, 3, 3), pads=[1, 1, 1, 1]),
    case("Conv/dilation-4", normal(1, 64, 64, 64), weight(64, 64, 3, 3), pads=[4, 4, 4, 4], dilations=[4, 4]),
    case("Conv/weights-vary", normal(1, 64, 28, 28), normal(64, 64, 3, 3), pads=[1, 1, 1, 1]),
    case("Conv/1x7", normal(1, 64, 64, 64), weight(64, 64, 1, 7), pads=[0, 3, 0, 3]),
    case("Conv/convnext-stem", normal(1, 3, 224, 224), weight(96, 3, 4, 4), strides=[4, 4]),
    case("Conv/vit-patches", normal(1, 3, 224, 224), weight(768, 3, 16, 16), strides=[16, 16]),
    case("Conv/1d-frames-of-audio", normal(1, 1, 16000), weight(64, 1, 400), strides=[160]),
    case("Conv/1d-dilation-8", normal(1, 64, 4000), weight(64, 64, 3), pads=[8, 8], dilations=[8]),
    case("Conv/1d-depthwise-31", normal(1, 256, 500), weight(256, 1, 31), pads=[15, 15], group=256),
    case("Conv/f16", normal(1, 64, 56, 56, dtype="float16"), weight(64, 64, 3, 3, dtype="float16"), pads=[1, 1, 1, 1]),
    case(
        "DeformConv/28", normal(1, 64, 28, 28), weight(64, 64, 3, 3), normal(1, 18, 28, 28), kernel_shape=[3, 3],
        pads=[1, 1, 1, 1], opset=22,
    ),
    microsoft(
        "FusedConv/relu", normal(1, 64, 28, 28), weight(64, 64, 3, 3), weight(64), pads=[1, 1, 1, 1], activation="Relu"
    ),
]  # fmt: skip

BACK = [
    case("ConvTranspose/dcgan", normal(1, 128, 16, 16), weight(128, 64, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("ConvTranspose/unet", normal(1, 128, 112, 112), weight(128, 64, 2, 2), strides=[2, 2]),
    case("MaxUnpool/2x2", normal(1, 32, 32, 32), given(corners), kernel_shape=[2, 2], strides=[2, 2]),
]

CASES = [*POOLING, *CONVOLUTIONS, *BACK]
