"""Operators that only move elements, to places that do not depend on data."""

from .case import case, fixed, flags, integers, normal, u8

MAP = (1, 256, 64, 64)

TRANSPOSES = [
    case("Transpose/to-nhwc", normal(*MAP), perm=[0, 2, 3, 1]),
    case("Transpose/to-nchw", normal(1, 64, 64, 256), perm=[0, 3, 1, 2]),
    case("Transpose/vit-heads", normal(1, 197, 12, 64), perm=[0, 2, 1, 3]),
    case("Transpose/f16-vit-heads", normal(1, 197, 12, 64, dtype="float16"), perm=[0, 2, 1, 3]),
    case("Transpose/matrix", normal(2048, 2048), perm=[1, 0]),
    case("Transpose/last-axes", normal(12, 197, 64), perm=[0, 2, 1]),
    case("Transpose/swin-windows", normal(1, 8, 7, 8, 7, 96), perm=[0, 1, 3, 2, 4, 5]),
    case("Transpose/reversed", normal(32, 48, 64, 40), perm=[3, 2, 1, 0]),
    case("Transpose/f64-reversed", normal(100, 64, 100, dtype="float64"), perm=[2, 1, 0]),
    case("Transpose/u8-image-to-planes", u8(224, 224, 3), perm=[2, 0, 1]),
    case("Transpose/u8-planes-to-image", u8(3, 720, 1280), perm=[1, 2, 0]),
    case("Transpose/bool-matrix", flags(1000, 1000), perm=[1, 0]),
    case("Transpose/i64-matrix", integers(9, 1000, 1000), perm=[1, 0]),
    case("DepthToSpace/dcr", normal(*MAP), blocksize=2),
    case("DepthToSpace/crd", normal(*MAP), blocksize=2, mode="CRD"),
    case("SpaceToDepth/2", normal(1, 64, 128, 128), blocksize=2),
]

PARTS = [
    case("Concat/channels", normal(1, 128, 64, 64), normal(1, 128, 64, 64), axis=1),
    case("Concat/rows", normal(1, 64, 64, 64), normal(1, 64, 64, 64), axis=3),
    case("Concat/f16", normal(1, 64, 64, 64, dtype="float16"), normal(1, 64, 64, 64, dtype="float16"), axis=1),
    case("Concat/bool", flags(1000, 500), flags(1000, 500), axis=1),
    case("Split/rows", normal(1, 64, 64, 128), axis=3, num_outputs=2, outputs=2),
    case("Split/channels", normal(*MAP), axis=1, num_outputs=4, outputs=4),
    case("Slice/border", normal(*MAP), fixed([1, 1]), fixed([63, 63]), fixed([2, 3])),
    case("Slice/every-other", normal(*MAP), fixed([0, 0]), fixed([64, 64]), fixed([2, 3]), fixed([2, 2])),
    case("Slice/backwards", normal(*MAP), fixed([63]), fixed([-65]), fixed([3]), fixed([-1])),
    case("Slice/u8-every-other-row", u8(1, 3, 512, 512), fixed([0]), fixed([512]), fixed([2]), fixed([2])),
    case("Trilu/scores", normal(12, 512, 512)),
]

COPIES = [
    case("Pad/zeros", normal(*MAP), fixed([0, 0, 1, 1, 0, 0, 1, 1])),
    case("Pad/u8-zeros", u8(1, 3, 512, 512), fixed([0, 0, 8, 8, 0, 0, 8, 8])),
    *(
        case(f"Pad/{mode}", normal(1, 64, 128, 128), fixed([0, 0, 3, 3, 0, 0, 3, 3]), mode=mode)
        for mode in ["reflect", "edge", "wrap"]
    ),
    case("CenterCropPad/imagenet", normal(1, 3, 256, 256), fixed([224, 224]), axes=[2, 3]),
    case("Tile/2x2", normal(1, 64, 64, 64), fixed([1, 2, 2, 2])),
    case("Tile/i64", integers(9, 100, 100), fixed([4, 4])),
    case("Expand/channels", normal(1, 256, 1, 1), fixed(MAP)),
    case("Expand/inner", normal(8, 1, 64, 1), fixed([8, 64, 64, 64])),
    case("Flatten/map", normal(*MAP)),
]

CASES = [*TRANSPOSES, *PARTS, *COPIES]
