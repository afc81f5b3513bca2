"""Operators that add up or compare along axes: reductions, softmax, normalisations, running sums, order."""

from .case import case, each, fixed, integers, microsoft, normal, positive, u8, weight

MAP = (1, 256, 64, 64)
# The tokens of ViT-B, and the scores of its heads.
TOKENS = (8, 197, 768)
SCORES = (12, 197, 197)

REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceLogSum"

REDUCE = [
    one
    for what, axes in [("image", [2, 3]), ("channels", [1]), ("row", [3]), ("batch-channels", [0, 1])]
    for one in each(REDUCTIONS, what, positive(*MAP), fixed(axes), keepdims=0)
] + [
    case("ReduceMean/f16-image", normal(*MAP, dtype="float16"), fixed([2, 3])),
    case("ReduceSum/f64-row", normal(256, 4096, dtype="float64"), fixed([1])),
    case("ReduceSum/i64-row", integers(99, 256, 4096), fixed([1])),
    case("ReduceMax/i32-row", integers(99, 256, 4096, dtype="int32"), fixed([1])),
    case("ReduceMax/u8-row", u8(256, 4096), fixed([1])),
]

ARG = [
    *each("ArgMax ArgMin", "channels", normal(*MAP), axis=1),
    *each("ArgMax ArgMin", "row", normal(*MAP), axis=3),
    case("ArgMax/vocabulary", normal(64, 32000), axis=1),
    case("ArgMax/i32", integers(999, 1000, 500, dtype="int32"), axis=1),
]

SOFTMAXES = "Softmax LogSoftmax Hardmax"

SOFTMAX = [
    *each(SOFTMAXES, "imagenet", normal(64, 1000), axis=1),
    *each(SOFTMAXES, "segmentation", normal(1, 21, 128, 128), axis=1),
    *each(SOFTMAXES, "vit-scores", normal(*SCORES), axis=2),
    *each(SOFTMAXES, "scores-512", normal(8, 512, 512), axis=2),
    case("Softmax/f16-vit-scores", normal(*SCORES, dtype="float16"), axis=-1),
    case("Softmax/f64-imagenet", normal(64, 1000, dtype="float64")),
    case("NegativeLogLikelihoodLoss/imagenet", normal(512, 1000), integers(1000, 512)),
    case("SoftmaxCrossEntropyLoss/imagenet", normal(512, 1000), integers(1000, 512)),
]

NORMALISATIONS = [
    case("LayerNormalization/vit", normal(*TOKENS), normal(768), normal(768), axis=-1),
    case(
        "LayerNormalization/f16-vit", normal(*TOKENS, dtype="float16"), weight(768, dtype="float16", scale=1),
        weight(768, dtype="float16", scale=1), axis=-1,
    ),
    case("RMSNormalization/vit", normal(*TOKENS), normal(768), opset=23),
    case("GroupNormalization/diffusion", normal(2, 320, 64, 64), normal(320), normal(320), num_groups=32),
    case("InstanceNormalization/style", normal(1, 64, 128, 128), normal(64), normal(64)),
    case(
        "BatchNormalization/resnet-stem", normal(1, 64, 112, 112), normal(64), normal(64), normal(64), positive(64)
    ),
    case("LpNormalization/rows", normal(512, 768), axis=-1, p=2),
    case("LRN/alexnet", normal(1, 96, 55, 55), size=5),
    case("MeanVarianceNormalization/resnet-stem", normal(1, 64, 112, 112)),
    microsoft(
        "SkipLayerNormalization/bert", normal(1, 128, 768), normal(1, 128, 768), normal(768), normal(768), normal(768)
    ),
    microsoft("SkipSimplifiedLayerNormalization/bert", normal(1, 128, 768), normal(1, 128, 768), normal(768)),
    microsoft(
        "EmbedLayerNormalization/bert", integers(30000, 1, 128, dtype="int32"), integers(2, 1, 128, dtype="int32"),
        weight(30522, 768), weight(512, 768), weight(2, 768), weight(768), weight(768), outputs=2,
    ),
]  # fmt: skip

RUNNING = [
    case("CumSum/rows", normal(256, 4096), fixed(1)),
    case("CumSum/columns", normal(4096, 256), fixed(0)),
    case("CumSum/i64-rows", integers(10, 64, 2048), fixed(1)),
    case("CumSum/i64-columns", integers(9, 1000, 1000), fixed(0)),
]

ORDER = [
    case("TopK/imagenet-5", normal(64, 1000), fixed([5]), outputs=2),
    case("TopK/vocabulary-40", normal(1, 32000), fixed([40]), outputs=2),
    case("TopK/all", normal(16, 1000), fixed([1000]), outputs=2),
    case("TopK/channels", normal(1, 100, 64, 64), fixed([3]), axis=1, outputs=2),
    case("TopK/i64", integers(99999, 64, 1000), fixed([5]), outputs=2),
]

CASES = [*REDUCE, *ARG, *SOFTMAX, *NORMALISATIONS, *RUNNING, *ORDER]
