"""Products of matrices, contractions, attention and recurrent networks."""

import numpy as np

from .case import Case, case, constant, fixed, given, integers, microsoft, normal, u8, uniform, weight

MATRICES = [
    case("MatMul/vectors", normal(4096), normal(4096)),
    case("MatMul/heads-of-32", normal(64, 8, 32, 32), normal(64, 8, 32, 32)),
    case("MatMul/tall", normal(10000, 16), normal(16, 16)),
    case("MatMul/matrices-by-vectors", normal(64, 128, 256), normal(64, 256, 1)),
    case("MatMul/i32", integers(9, 128, 128, dtype="int32"), integers(9, 128, 128, dtype="int32")),
    case("MatMul/f64", normal(256, 256, dtype="float64"), normal(256, 256, dtype="float64")),
    case("MatMul/f16-bert", normal(128, 768, dtype="float16"), weight(768, 768, dtype="float16")),
    case("Gemm/both-transposed", normal(512, 256), weight(1024, 512), weight(1024), transA=1, transB=1),
    case("Gemm/f64", normal(128, 256, dtype="float64"), normal(256, 256, dtype="float64")),
    case("Gemm/f16-row", normal(1, 768, dtype="float16"), weight(768, 3072, dtype="float16")),
    case("Det/16x16", normal(100, 16, 16)),
    microsoft("FusedMatMul/scores", normal(12, 128, 64), normal(12, 128, 64), transB=1, alpha=0.125),
    microsoft("Inverse/4x4", normal(64, 4, 4)),
]

CONTRACTIONS = [
    case("Einsum/scores", normal(2, 128, 12, 64), normal(2, 128, 12, 64), equation="bqhd,bkhd->bhqk"),
    case("Einsum/values", normal(2, 12, 128, 128), normal(2, 128, 12, 64), equation="bhqk,bkhd->bqhd"),
    case("Einsum/outer", normal(64, 128), normal(64, 256), equation="bi,bj->bij"),
    case("Einsum/diagonal", normal(64, 100, 100), equation="bii->bi"),
    case("Einsum/bilinear", normal(32, 64), normal(64, 48, 64), normal(32, 48), equation="bi,ijk,bj->bk"),
]

# The heads of ViT-B, and of one new token of a language model after 512.
VIT = (1, 12, 197, 64)
PAST = (1, 8, 512, 64)

ATTENTION = [
    case("Attention/vit", normal(*VIT), normal(*VIT), normal(*VIT), opset=23),
    case("Attention/shared-heads", normal(1, 32, 1, 64), normal(*PAST), normal(*PAST), opset=23),
    case(
        "RotaryEmbedding/vit", normal(*VIT), normal(197, 32), normal(197, 32), given(lambda: np.arange(197)[None]), opset=23
    ),
    microsoft("MultiHeadAttention/vit", normal(1, 197, 768), normal(1, 197, 768), normal(1, 197, 768), num_heads=12),
    microsoft("Attention/bert", normal(1, 128, 768), weight(768, 2304, scale=0.02), weight(2304), num_heads=12),
    microsoft(
        "GroupQueryAttention/token-513", normal(1, 1, 2048), normal(1, 1, 512), normal(1, 1, 512), normal(*PAST),
        normal(*PAST), fixed([[512]], "int32"), fixed(513, "int32"), num_heads=32, kv_num_heads=8, outputs=3,
    ),
    microsoft(
        "RotaryEmbedding/vit", normal(*VIT), given(lambda: np.arange(197)[None]), normal(200, 32), normal(200, 32)
    ),
    microsoft(
        "MoE/8-experts", normal(16, 256), normal(16, 8), weight(8, 512, 256), None, weight(8, 256, 512), k=2
    ),
]  # fmt: skip


def packed(what: str, m: int, k: int, n: int, bits: int) -> Case:
    """A product of m rows with an n x k matrix of few bits, in blocks of 32."""
    blocks = k // 32
    return microsoft(
        f"MatMulNBits/{what}", normal(m, k), constant(u8(n, blocks, 32 * bits // 8)),
        constant(uniform(0.001, 0.02, n * blocks)), K=k, N=n, bits=bits, block_size=32,
    )  # fmt: skip


PACKED = [
    packed("4-bits-row", 1, 4096, 4096, 4),
    packed("4-bits-64-rows", 64, 2048, 2048, 4),
    packed("8-bits-row", 1, 2048, 2048, 8),
]


def recurrent(operator: str, gates: int, what: str, batch: int, direction: str) -> Case:
    """50 steps of a layer of 128 inputs and 128 states."""
    directions = 2 if direction == "bidirectional" else 1
    weights = [weight(directions, gates * 128, 128, scale=0.1) for _ in range(2)]
    return case(f"{operator}/{what}", normal(50, batch, 128), *weights, hidden_size=128, direction=direction)


RECURRENT = [
    recurrent(operator, gates, what, batch, direction)
    for operator, gates in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]
    for what, batch, direction in [
        ("batch-1", 1, "forward"),
        ("batch-16", 16, "forward"),
        ("both-directions", 1, "bidirectional"),
    ]
]

CASES = [*MATRICES, *CONTRACTIONS, *ATTENTION, *PACKED, *RECURRENT]
