#!/usr/bin/env python3
"""Writes what ONNX Runtime computes for single nodes: `fused.txt`, `movement.txt`, `older.txt`, `written_out.txt` and
`contributed.txt` beside this file.

usage: write.py [FILE...]

Needs onnxruntime==1.31.1 (1.32.0 for `contributed.txt`), onnx and numpy==2.4.6. Without names of files it writes all.
Operators that the runtime has for other devices only are computed here by their definitions in its documentation.
Every case is one node. In the file, a line
`case NAME DOMAIN OPERATOR` begins a case, and these lines follow:

    attr NAME KIND VALUES            KIND is i, f, s, is or fs
    in|const NAME TYPE SHAPE VALUES  operands in order; a `const` is an initializer of the model
    skip                             an operand that is left out
    out NAME TYPE SHAPE VALUES       results in order; `skip` for one that is left out

SHAPE is `2x3`, or `-` without axes. A result `nan` is one that the operator leaves open, such as
those of padding.
"""

import math
import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": "f32", "int32": "i32", "int64": "i64", "uint8": "u8", "int8": "i8", "int16": "i16", "bool": "bool"}
LINES = []


class Const:
    """An operand that is an initializer of the model."""

    def __init__(self, value):
        self.value = value


class Seeded:
    """Operands of one case, seeded with its name."""

    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def f(self, *shape, scale=1.0):
        """Multiples of 1/16, which are exact and short."""
        return (np.round(self.rng.normal(size=shape) * scale * 16) / 16).astype(np.float32)

    def u8(self, *shape, lo=0, hi=256):
        return self.rng.integers(lo, hi, size=shape).astype(np.uint8)

    def i8(self, *shape, lo=-127, hi=128):
        """Weights with bytes from 0 to 255 stay below 64: beyond, the runtime's sums of products
        saturate on machines without VNNI."""
        return self.rng.integers(lo, hi, size=shape).astype(np.int8)


def f32(values):
    return np.array(values, np.float32)


def i32(values):
    return np.array(values, np.int32)


def i64(values):
    return np.array(values, np.int64)


def u8(values):
    return np.array(values, np.uint8)


def i8(values):
    return np.array(values, np.int8)


def tensor_line(kind, name, x):
    x = np.asarray(x)
    shape = "x".join(map(str, x.shape)) or "-"
    text = (lambda v: f"{float(v):.8g}") if x.dtype == np.float32 else (lambda v: str(int(v)))
    return " ".join([kind, name, TYPES[str(x.dtype)], shape, *map(text, x.ravel())])


def attr_line(name, v):
    if isinstance(v, (list, tuple)):
        kind = "fs" if any(isinstance(e, float) for e in v) else "is"
        return " ".join(["attr", name, kind, *map(str, v)])
    return f"attr {name} {({int: 'i', float: 'f', str: 's'})[type(v)]} {v}"


def case(name, op, operands, results=1, domain="com.microsoft", version=17, open_parts=(), **attributes):
    """`operands` of a seed; a None is left out. `results` is a number, or says which are wanted.
    `open_parts` are pairs of a result and an index of what the operator leaves open in it."""
    values = operands(Seeded(name))
    wanted = [True] * results if isinstance(results, int) else results
    inputs, initializers, feeds, names, lines = [], [], {}, [], []
    for i, v in enumerate(values):
        if v is None:
            names.append("")
            lines.append("skip")
            continue
        own = f"x{i}"
        names.append(own)
        if isinstance(v, Const):
            initializers.append(numpy_helper.from_array(np.asarray(v.value), own))
            lines.append(tensor_line("const", own, v.value))
        else:
            v = np.asarray(v)
            kind = helper.np_dtype_to_tensor_dtype(v.dtype)
            inputs.append(helper.make_tensor_value_info(own, kind, v.shape))
            feeds[own] = v
            lines.append(tensor_line("in", own, v))
    outs = [f"y{i}" if w else "" for i, w in enumerate(wanted)]
    node = helper.make_node(op, names, outs, domain=domain, **attributes)
    shown = [helper.make_empty_tensor_value_info(o) for o in outs if o]
    graph = helper.make_graph([node], "g", inputs, shown, initializers)
    sets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    results = iter(session.run(None, feeds))
    LINES.append(f"case {name} {domain or 'ai.onnx'} {op}" + (f" {version}" if version != 17 else ""))
    LINES.extend(attr_line(k, v) for k, v in attributes.items())
    LINES.extend(lines)
    got = [next(results) if o else None for o in outs]
    for i, index in open_parts:
        got[i] = got[i].copy()
        got[i][index] = np.nan
    for own, y in zip(outs, got):
        LINES.append(tensor_line("out", own, y) if own else "skip")


def defined(name, op, operands, formula, **attributes):
    """A case whose results a formula of the operands gives: of an operator that the runtime has not for this device."""
    values = operands(Seeded(name))
    LINES.append(f"case {name} com.microsoft {op}")
    LINES.extend(attr_line(k, v) for k, v in attributes.items())
    given = []
    for i, v in enumerate(values):
        if v is None:
            LINES.append("skip")
            given.append(None)
            continue
        own = v.value if isinstance(v, Const) else v
        LINES.append(tensor_line("const" if isinstance(v, Const) else "in", f"x{i}", own))
        given.append(np.asarray(own))
    wide = [g.astype(np.float64) if g is not None and g.dtype == np.float32 else g for g in given]
    results = formula(*wide)
    for i, y in enumerate(results if isinstance(results, list) else [results]):
        y = np.asarray(y)
        LINES.append(tensor_line("out", f"y{i}", y.astype(np.float32) if y.dtype == np.float64 else y))


def activations():
    for op in ["BiasGelu", "FastGelu"]:
        case(f"{op}_bias", op, lambda s: [s.f(2, 3, 4, scale=2.0), s.f(4)])
    case("FastGelu_alone", "FastGelu", lambda s: [s.f(2, 5, scale=2.0)])
    case("Gelu", "Gelu", lambda s: [s.f(2, 5, scale=2.0)])
    case("QuickGelu", "QuickGelu", lambda s: [s.f(2, 5, scale=2.0)])
    case("QuickGelu_alpha", "QuickGelu", lambda s: [s.f(2, 5, scale=2.0)], alpha=0.75)
    case("QuickGelu_alpha_negative", "QuickGelu", lambda s: [s.f(2, 5)], alpha=-1.25)


def products():
    case("FusedMatMul", "FusedMatMul", lambda s: [s.f(2, 3), s.f(3, 4)])
    case("FusedMatMul_alpha", "FusedMatMul", lambda s: [s.f(2, 3), s.f(3, 4)], alpha=0.5)
    for a in (0, 1):
        for b in (0, 1):
            shape = lambda s, a=a, b=b: [s.f(2, *((3, 2) if a else (2, 3))), s.f(2, *((4, 3) if b else (3, 4)))]
            case(f"FusedMatMul_trans_{a}{b}", "FusedMatMul", shape, transA=a, transB=b, alpha=-1.5)
    case("FusedMatMul_broadcast", "FusedMatMul", lambda s: [s.f(2, 2, 3), s.f(4, 3)], transB=1)
    case("FusedMatMul_vector_a", "FusedMatMul", lambda s: [s.f(3), s.f(3, 4)], transA=1)
    case("FusedMatMul_vector_b", "FusedMatMul", lambda s: [s.f(2, 3), s.f(3)], transB=1)
    acts = [("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", dict(activation_alpha=0.25)), 
            ("HardSigmoid", dict(activation_alpha=0.25, activation_beta=0.375)), ("Softsign", {}), ("Softplus", {}),
            ("Elu", dict(activation_alpha=0.5)), ("ThresholdedRelu", dict(activation_alpha=0.5)),
            ("ParametricSoftplus", dict(activation_alpha=0.5, activation_beta=0.75)),
            ("ScaledTanh", dict(activation_alpha=0.5, activation_beta=0.75))]
    for act, more in acts:
        name = f"FusedGemm_{act}" + ("_given" if more else "")
        case(name, "FusedGemm", lambda s: [s.f(2, 3), s.f(3, 4), s.f(4)], activation=act, **more)
    case("FusedGemm_trans", "FusedGemm", lambda s: [s.f(3, 2), s.f(4, 3), s.f(2, 1)], activation="Relu",
         transA=1, transB=1, alpha=0.5, beta=-2.0)
    case("FusedGemm_without_c", "FusedGemm", lambda s: [s.f(2, 3), s.f(3, 4)], activation="Tanh")
    acts = [("", {}), ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", dict(activation_params=[0.25])),
            ("Clip", dict(activation_params=[-0.25, 0.75])), ("HardSigmoid", dict(activation_params=[0.25, 0.375]))]
    for act, more in acts:
        given = dict(activation=act, **more) if act else {}
        case(f"FusedConv_{act or 'none'}", "FusedConv", lambda s: [s.f(1, 2, 4, 4), s.f(3, 2, 3, 3), s.f(3)],
             pads=[1, 1, 1, 1], **given)
    case("FusedConv_sum", "FusedConv", lambda s: [s.f(1, 2, 4, 4), s.f(2, 2, 3, 3), s.f(2), s.f(1, 2, 2, 2)],
         activation="Relu", strides=[2, 2], pads=[1, 1, 1, 1])
    case("FusedConv_sum_without_bias", "FusedConv",
         lambda s: [s.f(1, 2, 4, 4), s.f(2, 1, 3, 3), None, s.f(1, 2, 2, 2)], activation="LeakyRelu",
         activation_params=[0.5], group=2, strides=[2, 2], pads=[1, 1, 1, 1])


def norms():
    n = "SkipLayerNormalization"
    case(f"{n}_all", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4), s.f(4), s.f(4)], [True, False, False, True], epsilon=0.01)
    case(f"{n}_gamma", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4)])
    case(f"{n}_beta", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4), s.f(4)])
    case(f"{n}_bias", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4), None, s.f(4)], [True, False, False, True])
    case(f"{n}_skip_broadcast", n, lambda s: [s.f(2, 3, 4), s.f(1, 3, 4), s.f(4), s.f(4)], [True, False, False, True])
    case(f"{n}_skip_flat", n, lambda s: [s.f(2, 3, 4), s.f(3, 4), s.f(4), s.f(4)])
    case(f"{n}_two_axes", n, lambda s: [s.f(3, 4), s.f(3, 4), s.f(4), s.f(4)])
    case(f"{n}_small", n, lambda s: [s.f(2, 4, scale=0.02), s.f(2, 4, scale=0.02), s.f(4), s.f(4)])
    n = "SkipSimplifiedLayerNormalization"
    case(f"{n}_all", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4), s.f(4)], [True, False, False, True], epsilon=0.01)
    case(f"{n}_gamma", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(4)])
    case(f"{n}_skip_flat", n, lambda s: [s.f(2, 3, 4), s.f(3, 4), s.f(4)])
    n = "SimplifiedLayerNormalization"
    case(f"{n}", n, lambda s: [s.f(2, 3, 4), s.f(4)], domain="", epsilon=0.01)
    case(f"{n}_default", n, lambda s: [s.f(2, 3, 4), s.f(4)], domain="", axis=-1, stash_type=1)
    case(f"{n}_statistics", n, lambda s: [s.f(2, 3, 4), s.f(4)], 2, domain="", epsilon=0.01)
    case(f"{n}_two_axes", n, lambda s: [s.f(2, 3, 4), s.f(3, 4)], 2, domain="", axis=1)
    n = "EmbedLayerNormalization"
    ids, seg = i32([[1, 4, 0], [2, 2, 3]]), i32([[0, 0, 1], [1, 0, 1]])
    tables = lambda s: [s.f(5, 4), s.f(6, 4), s.f(2, 4), s.f(4), s.f(4)]
    case(f"{n}_plain", n, lambda s: [ids, seg, *tables(s)], 2)
    case(f"{n}_mask", n, lambda s: [ids, seg, *tables(s), i32([[1, 1, 0], [1, 1, 1]])], 2, epsilon=0.01)
    case(f"{n}_left_mask", n, lambda s: [ids, seg, *tables(s), i32([[0, 1, 1], [0, 0, 1]])], 2)
    case(f"{n}_positions", n, lambda s: [ids, seg, *tables(s), None, i32([[5, 1, 0], [2, 3, 4]])], 3)
    case(f"{n}_positions_shared", n, lambda s: [ids, seg, *tables(s), None, i32([[5, 1, 0]])], 3)

    def no_segments(s):
        word, place, _, scale, shift = tables(s)
        return [ids, None, word, place, None, scale, shift]
    case(f"{n}_no_segments", n, no_segments, [True, True, True])


def masks(batch, total, rows):
    """Masks of every accepted form, for scores of so many rows and columns."""
    pad_left = np.ones((batch, total), np.int32)
    pad_left[0, :1] = 0
    pad_more = np.ones((batch, total), np.int32)
    pad_more[0, :2] = 0
    pad_right = np.ones((batch, total), np.int32)
    pad_right[-1, -2:] = 0
    holes = np.ones((batch, total), np.int32)
    holes[:, 1::2] = 0
    none = np.ones((batch, total), np.int32)
    none[0] = 0
    square = np.ones((batch, rows, total), np.int32)
    square[:, :, 1] = 0
    square[0, 0] = 0
    return {"left": pad_left, "left2": pad_more, "right": pad_right, "holes": holes, "all": none,
            "square": square, "lengths": i32([total - 2] * (batch - 1) + [total - 1]), "no_length": i32([0] * batch)}


def multi_head():
    n = "MultiHeadAttention"
    for causal in (0, 1):
        for name, mask in masks(1, 5, 5).items():
            width = 16 if name in ("left", "left2") else 4
            case(f"{n}_{name}_causal{causal}", n, lambda s: [*(s.f(1, 5, width) for _ in range(3)), None, mask],
                 num_heads=2, unidirectional=causal)
        more = dict(num_heads=2, unidirectional=causal)
        qkv = lambda s, rows=4, keys=4: [s.f(2, rows, 4), s.f(2, keys, 4), s.f(2, keys, 4)]
        case(f"{n}_plain_causal{causal}", n, qkv, **more)
        case(f"{n}_bias_causal{causal}", n, lambda s: [*qkv(s), s.f(12)], **more)
        case(f"{n}_scale_causal{causal}", n, qkv, scale=0.25, **more)
        case(f"{n}_filter_causal{causal}", n, lambda s: [*qkv(s), None, masks(2, 4, 4)["left2"]], mask_filter_value=-2.0, **more)
        case(f"{n}_added_causal{causal}", n, lambda s: [*qkv(s), None, None, s.f(2, 2, 4, 4)], **more)
        case(f"{n}_added_broadcast_causal{causal}", n, lambda s: [*qkv(s), None, None, s.f(1, 1, 4, 4)], **more)
        case(f"{n}_added_mask_causal{causal}", n,
             lambda s: [*qkv(s), None, masks(2, 4, 4)["left"], s.f(1, 2, 4, 4)], **more)
        case(f"{n}_mask_3b_causal{causal}", n, lambda s: [*qkv(s), None, i32([4, 3, 0, 4, 8, 0, 4, 8])], **more)
        for low in (-3.4028234663852886e38, -1e30):
            case(f"{n}_low{low:.0e}_causal{causal}", n, lambda s: [*qkv(s), None, masks(2, 4, 4)["left2"]], mask_filter_value=low, **more)
        case(f"{n}_added_never_causal{causal}", n,
             lambda s: [*qkv(s), None, None, np.where(np.eye(4) > 0, -np.inf, 0).astype(np.float32)[None, None]], **more)
        case(f"{n}_more_keys_causal{causal}", n, lambda s: qkv(s, 2, 5), **more)
        case(f"{n}_fewer_keys_causal{causal}", n, lambda s: qkv(s, 5, 2), **more)
        past = lambda s, rows=2: [s.f(2, rows, 4), s.f(2, rows, 4), s.f(2, rows, 4), None, None, None, s.f(2, 2, 3, 2), s.f(2, 2, 3, 2)]
        case(f"{n}_past_causal{causal}", n, past, 3, **more)
        for form in ("left", "left2", "right", "holes", "square", "lengths"):
            def with_past(s, form=form):
                x = past(s)
                x[4] = masks(2, 5, 2)[form]
                return x
            case(f"{n}_past_{form}_causal{causal}", n, with_past, 3, **more)

        def biased_past(s):
            x = past(s)
            x[3] = s.f(12)
            x[5] = s.f(1, 2, 2, 5)
            return x
        case(f"{n}_past_bias_causal{causal}", n, biased_past, 3, **more)
        case(f"{n}_wide_values_causal{causal}", n, lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(2, 3, 6)], **more)
        case(f"{n}_cross_bias_all_causal{causal}", n, lambda s: [s.f(2, 3, 4), s.f(2, 2, 3, 2), s.f(2, 2, 3, 2), s.f(12)], **more)
        case(f"{n}_cross_causal{causal}", n, lambda s: [s.f(2, 3, 4), s.f(2, 2, 3, 2), s.f(2, 2, 3, 2)], **more)


def attention():
    n = "Attention"
    for causal in (0, 1):
        more = dict(num_heads=2, unidirectional=causal)
        xwb = lambda s, rows=4: [s.f(2, rows, 3), s.f(3, 12), s.f(12)]
        case(f"{n}_plain_causal{causal}", n, xwb, **more)
        case(f"{n}_scale_causal{causal}", n, xwb, scale=0.25, **more)
        case(f"{n}_filter_causal{causal}", n, lambda s: [*xwb(s), masks(2, 4, 4)["left2"]], mask_filter_value=-2.0, **more)
        for name, mask in masks(2, 4, 4).items():
            case(f"{n}_{name}_causal{causal}", n, lambda s: [*xwb(s), mask], **more)
        case(f"{n}_ends_starts_causal{causal}", n, lambda s: [*xwb(s), i32([4, 3, 1, 0])], **more)
        case(f"{n}_ends_starts_left_causal{causal}", n, lambda s: [*xwb(s), i32([4, 4, 2, 1])], **more)
        case(f"{n}_mask_1_causal{causal}", n, lambda s: [*xwb(s), i32([[0], [1]])], **more)
        case(f"{n}_mask_11_causal{causal}", n, lambda s: [*xwb(s), i32([[0]])], **more)
        case(f"{n}_mask_3b_causal{causal}", n, lambda s: [*xwb(s), i32([4, 3, 0, 4, 8, 0, 4, 8])], **more)
        for low in (-3.4028234663852886e38, -1e30):
            case(f"{n}_low{low:.0e}_causal{causal}", n, lambda s: [*xwb(s), masks(2, 4, 4)["left2"]], mask_filter_value=low, **more)
        case(f"{n}_added_causal{causal}", n, lambda s: [*xwb(s), None, None, s.f(2, 2, 4, 4)], **more)
        case(f"{n}_added_mask_causal{causal}", n, lambda s: [*xwb(s), masks(2, 4, 4)["left"], None, s.f(1, 1, 4, 4)], **more)
        case(f"{n}_sizes_causal{causal}", n, lambda s: [s.f(2, 3, 3), s.f(3, 14), s.f(14)], qkv_hidden_sizes=[4, 4, 6], **more)
        past = lambda s: [s.f(2, 2, 3), s.f(3, 12), s.f(12), None, s.f(2, 2, 2, 3, 2)]
        case(f"{n}_past_causal{causal}", n, past, 2, **more)
        for form in ("left", "left2", "right", "holes", "square", "lengths"):
            def with_past(s, form=form):
                x = past(s)
                x[3] = masks(2, 5, 2)[form]
                return x
            case(f"{n}_past_{form}_causal{causal}", n, with_past, 2, **more)
        case(f"{n}_present_causal{causal}", n, xwb, 2, **more)
        n8 = "QAttention"
        q = lambda s, rows=4: [s.u8(2, rows, 5), Const(s.i8(5, 12, lo=-63, hi=64)), Const(s.f(12)), Const(f32(0.015625)), Const(f32(0.03125))]
        zeros = [Const(u8(117)), Const(i8(3))]
        case(f"{n8}_plain_causal{causal}", n8, lambda s: [*q(s), None, *zeros], **more)
        case(f"{n8}_no_zeros_causal{causal}", n8, q, **more)
        case(f"{n8}_scale_causal{causal}", n8, lambda s: [*q(s), None, *zeros], scale=0.25, **more)
        for name, mask in masks(2, 4, 4).items():
            case(f"{n8}_{name}_causal{causal}", n8, lambda s: [*q(s), mask, *zeros], **more)
        case(f"{n8}_past_causal{causal}", n8, lambda s: [*q(s, 2), None, *zeros, s.f(2, 2, 2, 3, 2)], 2, **more)
        case(f"{n8}_past_left_causal{causal}", n8,
             lambda s: [*q(s, 2), masks(2, 5, 2)["left2"], *zeros, s.f(2, 2, 2, 3, 2)], 2, **more)
        def by_column(s):
            x = q(s)
            x[4] = Const(np.abs(s.f(12, scale=0.1)) + f32(0.015625))
            return [*x, None, Const(u8(117)), Const(s.i8(12, lo=-5, hi=5))]
        case(f"{n8}_by_column_causal{causal}", n8, by_column, **more)


def grouped():
    n = "GroupQueryAttention"
    more, few = dict(num_heads=4, kv_num_heads=2), dict(num_heads=2, kv_num_heads=1)
    four = dict(heads=(4, 2))

    def operands(lasts, total, held=0, rows=None, angles=0, packed=False, heads=(2, 1), size=8, rest=()):
        """Of `rows` new rows behind a buffer of `held`."""
        rows = rows or total - held

        def draw(s):
            batch = len(lasts)
            widths = [heads[0] * size, heads[1] * size, heads[1] * size]
            qkv = [s.f(batch, rows, sum(widths)), None, None] if packed else [s.f(batch, rows, w) for w in widths]
            past = [s.f(batch, heads[1], held, size) if held else None for _ in range(2)]
            turned = [s.f(8, angles), s.f(8, angles)] if angles else [None, None]
            own = [part(s) if callable(part) else part for part in rest]
            return [*qkv, *past, i32(lasts), Const(i32(total)), *turned, *own]
        return draw

    def behind(row):
        """The caches of the second sequence behind its last key."""
        return [(i, np.s_[1, :, row:]) for i in (1, 2)]

    case(f"{n}_prompt", n, operands([3, 3], 4, **four), 3, **more)
    case(f"{n}_prompt_ragged", n, operands([3, 1], 4, **four), 3,
         open_parts=[(0, np.s_[1, 2:]), (1, np.s_[1, :, 2:]), (2, np.s_[1, :, 2:])], **more)
    for w in (1, 2, 3):
        case(f"{n}_window{w}", n, operands([3], 4), 3, local_window_size=w, **few)
    case(f"{n}_scale", n, operands([3], 4), 3, scale=0.25, **few)
    case(f"{n}_softcap", n, operands([3], 4), 3, softcap=1.5, **few)
    case(f"{n}_smooth", n, operands([3], 4), 3, smooth_softmax=1, **few)
    case(f"{n}_packed", n, operands([3], 4, packed=True), 3, **few)
    case(f"{n}_token", n, operands([4, 4], 5, 4), 3, **few)
    case(f"{n}_token_ragged", n, operands([4, 2], 5, 4, **four), 3, open_parts=behind(3), **more)
    case(f"{n}_token_window", n, operands([4, 2], 5, 4), 3, open_parts=behind(3), local_window_size=2, **few)
    case(f"{n}_token_buffer", n, operands([4, 3], 5, 6, rows=1), 3,
         open_parts=[(i, np.s_[0, :, 5:]) for i in (1, 2)] + behind(4), **few)
    case(f"{n}_rows_behind_past", n, operands([4], 5, 3), 3, **few)
    case(f"{n}_rows_behind_past_window", n, operands([4], 5, 3), 3, local_window_size=2, **few)
    case(f"{n}_not_causal", n, operands([3], 4), 3, causal=0, **few)
    case(f"{n}_causal", n, operands([3], 4), 3, causal=1, **few)
    turned = dict(size=16, angles=8)
    for inter in (0, 1):
        rot = dict(do_rotary=1, rotary_interleaved=inter, **few)
        case(f"{n}_rotary{inter}", n, operands([2], 3, **turned), 3, **rot)
        case(f"{n}_rotary{inter}_token", n, operands([3, 1], 4, 3, **turned), 3, open_parts=behind(2), **rot)
        case(f"{n}_rotary{inter}_packed", n, operands([2], 3, packed=True, **turned), 3, **rot)
    positions = [i64([[2, 3, 5], [1, 2, 3]])]
    case(f"{n}_positions", n, operands([2, 2], 3, rest=positions, **turned), 3, do_rotary=1, **few)
    positions = [i64([[5], [1]])]
    case(f"{n}_positions_token", n, operands([3, 3], 4, 3, rest=positions, **turned), 3, do_rotary=1, **few)
    case(f"{n}_added", n, operands([3], 4, rest=[None, lambda s: s.f(1, 1, 4, 4)]), 3, **few)
    case(f"{n}_added_heads", n, operands([3, 3], 4, **four, rest=[None, lambda s: s.f(2, 4, 4, 4)]), 3, **more)
    case(f"{n}_added_token", n, operands([4, 2], 5, 4, rest=[None, lambda s: s.f(1, 1, 1, 5)]), 3,
         open_parts=behind(3), **few)
    case(f"{n}_sink", n, operands([3], 4, rest=[None, None, lambda s: s.f(2)]), 3, **few)

    angles = lambda s, half=4: [s.f(8, half), s.f(8, half)]
    n = "RotaryEmbedding"
    for inter in (0, 1):
        case(f"{n}_{inter}_first", n, lambda s: [s.f(2, 3, 16), i64([2]), *angles(s)], interleaved=inter)
        case(f"{n}_{inter}_positions", n, lambda s: [s.f(2, 3, 16), i64([[0, 1, 2], [4, 7, 1]]), *angles(s)], interleaved=inter)
        case(f"{n}_{inter}_heads", n, lambda s: [s.f(2, 2, 3, 8), i64([[0, 1, 2], [4, 7, 1]]), *angles(s)], interleaved=inter)
        case(f"{n}_{inter}_part", n, lambda s: [s.f(2, 3, 16), i64([[0, 1, 2], [4, 7, 1]]), *angles(s, 2)], interleaved=inter,
             num_heads=2, rotary_embedding_dim=4)
        case(f"{n}_{inter}_part_heads", n, lambda s: [s.f(2, 2, 3, 8), i64([1]), *angles(s, 2)], interleaved=inter,
             num_heads=2, rotary_embedding_dim=4)


def standard_attention():
    n = "Attention"
    for opset in (23, 24):
        for causal in (0, 1):
            own = dict(domain="", version=opset, is_causal=causal)
            name = f"standard{opset}_causal{causal}"
            qkv = lambda s, rows=4, keys=4: [s.f(1, 2, rows, 2), s.f(1, 2, keys, 2), s.f(1, 2, keys, 2)]
            case(f"{name}_plain", n, qkv, **own)
            case(f"{name}_more_keys", n, lambda s: qkv(s, 2, 4), **own)
            case(f"{name}_fewer_keys", n, lambda s: qkv(s, 4, 2), **own)
            b = lambda rows=4, keys=4, lost=1: np.arange(keys)[None, :].repeat(rows, 0) >= lost
            case(f"{name}_bool_left", n, lambda s: [*qkv(s), b()], **own)
            case(f"{name}_bool_left2", n, lambda s: [*qkv(s), b(lost=2)], **own)
            case(f"{name}_bool_all", n, lambda s: [*qkv(s), np.arange(16).reshape(4, 4) >= 4], **own)
            case(f"{name}_float", n, lambda s: [*qkv(s), s.f(4, 4)], **own)
            case(f"{name}_float_heads", n, lambda s: [*qkv(s), s.f(1, 2, 4, 4)], **own)
            case(f"{name}_float_never", n, lambda s: [*qkv(s), np.where(b(), 0, -np.inf).astype(np.float32)], **own)
            past = lambda s: [*qkv(s, 2, 2), None, s.f(1, 2, 3, 2), s.f(1, 2, 3, 2)]
            case(f"{name}_past", n, past, 3, **own)
            def past_mask(s):
                x = past(s)
                x[3] = b(2, 5, 2)
                return x
            case(f"{name}_past_bool", n, past_mask, 3, **own)
            case(f"{name}_groups", n, lambda s: [s.f(1, 4, 3, 2), s.f(1, 2, 3, 2), s.f(1, 2, 3, 2)], **own)
            case(f"{name}_flat", n, lambda s: [s.f(2, 3, 8), s.f(2, 3, 4), s.f(2, 3, 4)], q_num_heads=4, kv_num_heads=2,
                 softcap=1.5, scale=0.5, **own)


def weights(s, sign, *shape):
    return s.u8(*shape) if sign == "u8" else s.i8(*shape, lo=-63, hi=64)


def quantized():
    s8 = lambda v: Const(f32(v))
    for sign, zeros, dt in (("u8", (117, 3, 101), u8), ("i8", (-5, 3, 1), i8)):
        draw = lambda s, *shape, sign=sign: getattr(s, sign)(*shape)
        za, zb, zy = (Const(dt(z)) for z in zeros)
        for op in ("QLinearAdd", "QLinearMul"):
            ys = 0.0625 if op == "QLinearAdd" else 0.109375
            case(f"{op}_{sign}", op, lambda s: [draw(s, 2, 5), s8(0.03), za, draw(s, 2, 5), s8(0.05), zb, s8(ys), zy])
            case(f"{op}_{sign}_broadcast", op, lambda s: [draw(s, 2, 5), s8(0.03), za, draw(s, 5), s8(0.05), zb, s8(ys), zy])
        case(f"QLinearSigmoid_{sign}", "QLinearSigmoid", lambda s: [draw(s, 24), s8(0.04), za, s8(0.00390625), Const(dt(0))])
        case(f"QLinearLeakyRelu_{sign}", "QLinearLeakyRelu", lambda s: [draw(s, 24), s8(0.04), za, s8(0.03), zy], alpha=0.25)
        case(f"QLinearLeakyRelu_{sign}_default", "QLinearLeakyRelu", lambda s: [draw(s, 24), s8(0.04), za, s8(0.03), zy])
        for axis, opset in ((-1, 13), (0, 13), (1, 11), (0, 11)):
            low = Const(dt(0 if sign == "u8" else -128))
            case(f"QLinearSoftmax_{sign}_axis{axis}_opset{opset}", "QLinearSoftmax",
                 lambda s: [draw(s, 3, 4), s8(0.04), za, s8(0.00390625), low], axis=axis, opset=opset)
        case(f"QLinearConcat_{sign}", "QLinearConcat",
             lambda s: [s8(0.05), zy, draw(s, 2, 3), s8(0.03), za, draw(s, 2, 2), s8(0.06), zb], axis=1)
        case(f"QLinearConcat_{sign}_negative_axis", "QLinearConcat",
             lambda s: [s8(0.05), zy, draw(s, 2, 3), s8(0.03), za, draw(s, 1, 3), s8(0.06), zb], axis=-2)
        case(f"QLinearWhere_{sign}", "QLinearWhere",
             lambda s: [np.arange(10).reshape(2, 5) % 3 == 0, draw(s, 2, 5), s8(0.03), za, draw(s, 2, 5), s8(0.06), zb, s8(0.05), zy])
        case(f"QLinearWhere_{sign}_broadcast", "QLinearWhere",
             lambda s: [np.array([[True], [False]]), draw(s, 5), s8(0.03), za, draw(s, 2, 5), s8(0.06), zb, s8(0.05), zy])
        pool = lambda s: [draw(s, 1, 2, 4, 4), s8(0.03), za, s8(0.0217), zy]
        case(f"QLinearAveragePool_{sign}", "QLinearAveragePool", pool, kernel_shape=[2, 2], strides=[2, 2])
        for count in (0, 1):
            case(f"QLinearAveragePool_{sign}_pads{count}", "QLinearAveragePool", pool, kernel_shape=[3, 3], strides=[2, 2],
                 pads=[1, 1, 1, 1], count_include_pad=count)
        case(f"QLinearAveragePool_{sign}_ceil", "QLinearAveragePool", pool, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        case(f"QLinearGlobalAveragePool_{sign}", "QLinearGlobalAveragePool", pool)
        case(f"QLinearGlobalAveragePool_{sign}_last", "QLinearGlobalAveragePool",
             lambda s: [draw(s, 1, 4, 4, 2), s8(0.03), za, s8(0.0217), zy], channels_last=1)
        case(f"QuantizeLinear_{sign}", "QuantizeLinear", lambda s: [s.f(3, 4, scale=3.0), s8(0.03), za])
        case(f"QuantizeLinear_{sign}_axis", "QuantizeLinear",
             lambda s: [s.f(3, 4), s8([0.03, 0.02, 0.01]), Const(dt([1, 2, 3]))], axis=0)
        case(f"DequantizeLinear_{sign}", "DequantizeLinear", lambda s: [draw(s, 3, 4), s8(0.03), za])
        case(f"DequantizeLinear_{sign}_axis", "DequantizeLinear",
             lambda s: [draw(s, 3, 4), s8([0.03, 0.02, 0.01, 0.05]), Const(dt([1, 2, 3, 4]))], axis=1)
        for bsign, bz in (("u8", u8(9)), ("i8", i8(-4))):
            name = f"{sign}_{bsign}"
            weight = lambda s, *shape: Const(weights(s, bsign, *shape))
            if sign == "u8":
                case(f"MatMulIntegerToFloat_{name}", "MatMulIntegerToFloat",
                     lambda s: [draw(s, 2, 3), weight(s, 3, 4), s8(0.03), s8(0.02), za, Const(bz), Const(s.f(4))])
            if (sign, bsign) == ("i8", "u8"):  # neither this one nor QGemm takes these types
                continue
            case(f"MatMulIntegerToFloat_{name}_no_zeros", "MatMulIntegerToFloat",
                 lambda s: [draw(s, 2, 3), weight(s, 3, 4), s8(0.03), s8(0.02)])
            case(f"MatMulIntegerToFloat_{name}_columns", "MatMulIntegerToFloat",
                 lambda s: [draw(s, 2, 2, 3), weight(s, 3, 4), s8(0.03), s8([0.02, 0.01, 0.03, 0.04]), za,
                            Const(np.array([1, 2, 3, 4], bz.dtype)), Const(s.f(4))])
            case(f"QGemm_{name}", "QGemm",
                 lambda s: [draw(s, 2, 3), s8(0.03), za, weight(s, 3, 4), s8(0.02), Const(bz), Const(i32([100, -200, 300, 0])), s8(0.05), zy])
            case(f"QGemm_{name}_float", "QGemm",
                 lambda s: [draw(s, 2, 3), s8(0.03), za, weight(s, 3, 4), s8(0.02), Const(bz), Const(i32([100, -200, 300, 0]))], alpha=0.5)
            case(f"QGemm_{name}_trans", "QGemm",
                 lambda s: [draw(s, 3, 2), s8(0.03), za, weight(s, 4, 3), s8(0.02), Const(bz), None, s8(0.05), zy], transA=1, transB=1, alpha=0.5)
            case(f"QGemm_{name}_columns", "QGemm",
                 lambda s: [draw(s, 2, 3), s8(0.03), za, weight(s, 3, 4), s8([0.02, 0.01, 0.03, 0.04]),
                            Const(np.array([1, 2, 3, 4], bz.dtype)), Const(i32([100, -200, 300, 0])), s8(0.05), zy])
    for bsign, bz in (("u8", u8(9)), ("i8", i8(-4))):
        case(f"DynamicQuantizeMatMul_{bsign}", "DynamicQuantizeMatMul",
             lambda s: [s.f(2, 3), Const(weights(s, bsign, 3, 4)), s8(0.02), Const(bz), Const(s.f(4))])
        case(f"DynamicQuantizeMatMul_{bsign}_no_zero", "DynamicQuantizeMatMul",
             lambda s: [s.f(2, 3), Const(weights(s, bsign, 3, 4)), s8(0.02)])
        case(f"DynamicQuantizeMatMul_{bsign}_columns", "DynamicQuantizeMatMul",
             lambda s: [s.f(2, 2, 3), Const(weights(s, bsign, 3, 4)), s8([0.02, 0.01, 0.03, 0.04]), Const(np.array([1, 2, 3, 4], bz.dtype))])
    for bits in (4, 8, 2):
        for terms, block in ((32, 16), (40, 16), (48, 32)):
            blocks, size = -(-terms // block), block * bits // 8
            packed = lambda s: [s.f(2, terms), Const(s.u8(3, blocks, size)), Const(np.abs(s.f(3 * blocks, scale=0.1)) + f32(0.015625))]
            own = dict(K=terms, N=3, bits=bits, block_size=block)
            name = f"MatMulNBits_{bits}bits_{terms}x{block}"
            case(name, "MatMulNBits", packed, **own)
            zb = -(-blocks * bits // 8)
            case(f"{name}_zeros", "MatMulNBits", lambda s: [*packed(s), Const(s.u8(3 * zb))], **own)
            if bits != 8:
                case(f"{name}_float_zeros", "MatMulNBits", lambda s: [*packed(s), Const(np.abs(s.f(3 * blocks, scale=4.0)))], **own)
        case(f"{name}_bias", "MatMulNBits", lambda s: [*packed(s), None, None, Const(s.f(3))], **own)


def experts():
    def scales(s, *shape):
        return Const(np.abs(s.f(*shape, scale=0.1)) + f32(0.015625))

    n = "GatherBlockQuantized"
    for bits in (4, 8):
        width = 32 * bits // 8
        table = lambda s: [Const(s.u8(5, width)), i64([[4, 0], [0, 2]]), scales(s, 5, 2)]
        own = dict(block_size=16, bits=bits, quantize_axis=1, gather_axis=0)
        case(f"{n}_{bits}bits", n, table, **own)
        case(f"{n}_{bits}bits_zeros", n, lambda s: [*table(s), Const(s.u8(5, 2 * bits // 8))], **own)
    layers = lambda s, width=6: [s.f(4, 8), s.f(4, 3), *(Const(s.f(3, *z, scale=0.5)) for z in ((width, 8), (width,), (8, 6), (8,)))]
    for act in ("relu", "silu", "gelu", "identity"):
        for normalised in (0, 1):
            case(f"MoE_{act}_{normalised}", "MoE", layers, k=2, activation_type=act, normalize_routing_weights=normalised)
    case("MoE_swiglu_limit", "MoE", lambda s: layers(s, 12), k=2, activation_type="swiglu", swiglu_fusion=1,
         activation_alpha=1.75, activation_beta=1.0, swiglu_limit=1.5, normalize_routing_weights=1)
    for normalised in (0, 1):
        packed = lambda s: [s.f(4, 32), s.f(4, 3), Const(s.u8(3, 32, 16)), scales(s, 3, 32), None, Const(s.u8(3, 32, 16)), scales(s, 3, 32)]
        case(f"QMoE_{normalised}", "QMoE", packed, k=2, activation_type="identity", expert_weight_bits=4, normalize_routing_weights=normalised)
    case("QMoE_8bits_swiglu", "QMoE", lambda s: [s.f(4, 32, scale=0.1), s.f(4, 3), Const(s.u8(3, 64, 32)), scales(s, 3, 64), Const(s.f(3, 64)),
                                                 Const(s.u8(3, 32, 32)), scales(s, 3, 32), Const(s.f(3, 32))], k=2,
         activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.75, activation_beta=1.0, swiglu_limit=7.0, expert_weight_bits=8)
    case("GatherND_microsoft", "GatherND", lambda s: [s.f(3, 4), i64([[1, 2], [0, 3]])])
    case("TransposeMatMul", "TransposeMatMul", lambda s: [s.f(4, 3), s.f(4, 5)], transA=1)
    for metric in ("euclidean", "sqeuclidean"):
        case(f"CDist_{metric}", "CDist", lambda s: [s.f(3, 4), s.f(5, 4)], metric=metric)
    for axis in (0, 1, -1):
        case(f"ExpandDims_{axis}", "ExpandDims", lambda s: [s.f(3, 4), Const(np.array(axis, np.int32))])
    for align, outside in ((0, "zeros"), (1, "border"), (0, "reflection")):
        case(f"GridSample_{align}_{outside}", "GridSample", lambda s: [s.f(1, 2, 4, 5), s.f(1, 3, 2, 2)], align_corners=align, padding_mode=outside)
        case(f"GridSample_cubic_{align}_{outside}", "GridSample", lambda s: [s.f(1, 2, 4, 5), s.f(1, 3, 2, 2)], domain="", version=20,
             mode="cubic", align_corners=align, padding_mode=outside)
    for size in (1, 2, 3, 4):
        case(f"Inverse_{size}", "Inverse", lambda s: [s.f(2, size, size) + 4 * np.eye(size, dtype=np.float32)])
    for strides in (1, 2):
        case(f"NhwcMaxPool_{strides}", "NhwcMaxPool", lambda s: [s.u8(2, 4, 5, 3)], kernel_shape=[2, 3], strides=[strides] * 2, pads=[0, 1, 1, 0])
    case("Pad_microsoft", "Pad", lambda s: [s.f(2, 3), Const(i64([0, 1, 1, 0])), Const(f32([9.0]))], mode="constant")
    case("Pad_microsoft_reflect", "Pad", lambda s: [s.f(2, 3), Const(i64([0, 1, 1, 0]))], mode="reflect")
    for last, shape in ((0, (1, 2, 5, 4)), (1, (1, 5, 4, 2))):
        case(f"QLinearConv_{last}", "QLinearConv", lambda s: [s.u8(*shape), Const(f32(0.03)), Const(u8(7)), Const(s.i8(3, 2, 3, 2, lo=-63, hi=64)),
                                                              Const(f32([0.02, 0.01, 0.03])), Const(i8([0, 0, 0])), Const(f32(0.4)), Const(u8(99)),
                                                              Const(i32([100, -200, 300]))], channels_last=last, pads=[1, 0, 1, 1])
    case("Range_microsoft", "Range", lambda s: [Const(f32(1.0)), Const(f32(7.0)), Const(f32(2.5))])
    case("Range_microsoft_by_one", "Range", lambda s: [Const(i64(3)), Const(i64(7))])
    case("Unique_microsoft", "Unique", lambda s: [Const(f32([3, 1, 2]))], results=3)
    order = Const(i32([1, 0, 2, 1, 0, 2, 0, 1] * 6))
    case("MatMulNBits_order", "MatMulNBits", lambda s: [s.f(2, 48), Const(s.u8(3, 3, 8)), scales(s, 9), None, order], K=48, N=3, bits=4, block_size=16)
    case("RotaryEmbedding_scale", "RotaryEmbedding",
         lambda s: [s.f(2, 3, 16), i64([2]), Const(np.cos(s.f(8, 4))), Const(np.sin(s.f(8, 4)))], scale=2.0)
    case("Trilu_microsoft", "Trilu", lambda s: [s.f(3, 4), Const(i64(1))], upper=0)


def movement():
    """Places that are negative, or beyond the ends."""
    standard = dict(domain="")
    starts, ends = [-20, -6, -5, -4, -1, 0, 3, 4, 9], [-20, -5, -4, -2, 0, 3, 4, 9]
    for step in (-3, -1, 1, 2):
        for a in starts:
            for b in ends:
                where = [Const(i64([v])) for v in (a, b, 0, step)]
                case(f"Slice_{a}_{b}_{step}", "Slice", lambda s: [np.arange(4, dtype=np.float32), *where], **standard)
    for mode in ("constant", "reflect", "edge", "wrap"):
        for before, after in ((-1, 0), (0, -2), (-1, -1), (-1, 2), (2, -1), (-2, 3), (3, -2), (-2, -2), (-3, 1)):
            left, most = 4 + min(before, 0) + min(after, 0), max(before, after, 0)
            if mode != "constant" and (left == 0 or mode == "reflect" and most >= left):
                continue  # refused by the runtime
            pads = Const(i64([before, after]))
            case(f"Pad_{mode}_{before}_{after}", "Pad", lambda s: [s.f(2, 4), pads, Const(f32(0.5)), Const(i64([-1]))], mode=mode,
                 domain="", version=19)
    x = lambda s: s.f(2, 3, 4)
    for axis in (-3, -1, 0, 2):
        size = (2, 3, 4)[axis]
        parts = Const(i64([1, 0, size - 1]))
        case(f"Split_{axis}", "Split", lambda s: [x(s), parts], 3, axis=axis, **standard)
        case(f"Gather_{axis}", "Gather", lambda s: [x(s), i64([[-1, 0], [-size, size - 1]])], axis=axis, **standard)
        index = i64(np.arange(-size, 0)).reshape([-1 if d == axis % 3 else 1 for d in range(3)])
        index = np.broadcast_to(index, (2, 3, 4)).copy()
        case(f"GatherElements_{axis}", "GatherElements", lambda s: [x(s), index], axis=axis, **standard)
        case(f"ScatterElements_{axis}", "ScatterElements", lambda s: [x(s), index[:1, :1, :1], s.f(1, 1, 1)], axis=axis, **standard)
        case(f"Concat_{axis}", "Concat", lambda s: [x(s), x(s)], axis=axis, **standard)
        case(f"Flatten_{axis}", "Flatten", lambda s: [x(s)], axis=axis, **standard)
        case(f"Unsqueeze_{axis}", "Unsqueeze", lambda s: [x(s), Const(i64([axis, 1]))], **standard)
        case(f"Hardmax_{axis}", "Hardmax", lambda s: [x(s)], axis=axis, **standard)
        case(f"ArgMax_{axis}", "ArgMax", lambda s: [x(s)], axis=axis, select_last_index=1, **standard)
        case(f"TopK_{axis}", "TopK", lambda s: [x(s), Const(i64([2]))], 2, axis=axis, largest=0, **standard)
        case(f"Compress_{axis}", "Compress", lambda s: [x(s), Const(np.array([False, True]))], axis=axis, **standard)
        case(f"OneHot_{axis}", "OneHot", lambda s: [i64([[-1, 0], [-4, 5]]), Const(i64([4])), Const(f32([0.25, 2]))], axis=min(axis, 1), **standard)
        for reverse in (0, 1):
            for exclusive in (0, 1):
                case(f"CumSum_{axis}_{reverse}{exclusive}", "CumSum", lambda s: [x(s), Const(i64(axis))], reverse=reverse,
                     exclusive=exclusive, **standard)
    case("Split_parts", "Split", lambda s: [s.f(7)], 3, axis=-1, num_outputs=3, domain="", version=18)
    case("Split_equal", "Split", lambda s: [s.f(2, 6)], 3, axis=-1, **standard)
    case("Squeeze_negative", "Squeeze", lambda s: [s.f(1, 3, 1, 1), Const(i64([-1, -4]))], **standard)
    case("Unsqueeze_ends", "Unsqueeze", lambda s: [s.f(2, 3), Const(i64([-1, -4]))], **standard)
    case("GatherND", "GatherND", lambda s: [x(s), i64([[-1, -3], [0, -1]])], **standard)
    case("GatherND_batch", "GatherND", lambda s: [x(s), i64([[-1], [-3]])], batch_dims=1, **standard)
    case("ScatterND", "ScatterND", lambda s: [x(s), i64([[-1, -3], [0, -1]]), s.f(2, 4)], **standard)
    for bounds in ((5, -1, -2), (5, 0, -2), (5, 1, -2), (-1, -7, -3), (0, 5, -1), (5, 0, 1), (-5, 4, 4), (3, 3, 1)):
        case("Range_" + "_".join(map(str, bounds)), "Range", lambda s: [Const(i64(v)) for v in bounds], **standard)
        halves = [Const(f32(v / 2)) for v in bounds]
        case("Range_halves_" + "_".join(map(str, bounds)), "Range", lambda s: halves, **standard)
    for start in (-9, -3, -1, 0, 2, 3, 9):
        case(f"Shape_{start}", "Shape", lambda s: [x(s)], start=start, **standard)
        for end in (-9, -2, 0, 1, 3, 9):
            case(f"Shape_{start}_{end}", "Shape", lambda s: [x(s)], start=start, end=end, **standard)
    for batch, time in ((0, 1), (1, 0)):
        lengths = i64([1, 3] if batch == 0 else [2, 1, 2])
        case(f"ReverseSequence_{batch}", "ReverseSequence", lambda s: [s.f(2, 3, 2), lengths], batch_axis=batch, time_axis=time, **standard)
    for k in (-9, -2, -1, 0, 1, 3, 9):
        for upper in (0, 1):
            case(f"Trilu_{k}_{upper}", "Trilu", lambda s: [s.f(3, 4), Const(i64(k))], upper=upper, **standard)
        case(f"EyeLike_{k}", "EyeLike", lambda s: [s.f(3, 4)], k=k, **standard)
    for shape in ([2, 6], [5, 3], [3, 2], [6, 7], [1, 1]):
        case("CenterCropPad_" + "_".join(map(str, shape)), "CenterCropPad", lambda s: [s.f(4, 5), Const(i64(shape))], domain="", version=18)
    case("CenterCropPad_axis", "CenterCropPad", lambda s: [s.f(4, 5), Const(i64([2]))], axes=[-1], domain="", version=18)
    for shape in ([0, -1], [-1, 0, 2], [4, 0, -1], [0, 0, 0], [-1]):
        case("Reshape_" + "_".join(map(str, shape)), "Reshape", lambda s: [x(s), Const(i64(shape))], **standard)
    for shape in ([1], [2, 1, 1, 1], [3, 1], [4, 2, 3, 4]):
        case("Expand_" + "_".join(map(str, shape)), "Expand", lambda s: [x(s), Const(i64(shape))], **standard)
    case("Transpose", "Transpose", lambda s: [x(s)], **standard)
    for axes in ([-1], [0, -1], [-2, -3]):
        case("ReduceSum_" + "_".join(map(str, axes)), "ReduceSum", lambda s: [x(s), Const(i64(axes))], keepdims=0, **standard)
    for mode in ("DCR", "CRD"):
        case(f"DepthToSpace_{mode}", "DepthToSpace", lambda s: [s.f(1, 8, 2, 3)], blocksize=2, mode=mode, **standard)
    case("SpaceToDepth", "SpaceToDepth", lambda s: [s.f(1, 2, 4, 6)], blocksize=2, **standard)


def bitsandbytes():
    for kind in (0, 1):
        for inputs, maps, block in ((6, 5, 16), (32, 3, 16), (7, 3, 64)):
            count = inputs * maps
            case(
                f"MatMulBnb4_{kind}_{inputs}", "MatMulBnb4",
                lambda s: [s.f(2, 3, inputs), Const(s.u8((count + 1) // 2)), Const(np.abs(s.f(-(-count // block))) + f32(0.5))],
                K=inputs, N=maps, block_size=block, quant_type=kind,
            )


def recurrent():
    for kind in ("u8", "i8"):
        for columns in (False, True):
            for directions, word in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
                bytes_of = lambda s, *shape: Const(getattr(s, kind)(*shape))
                shape = (directions, 16) if columns else (directions,)
                zeros = lambda: Const(np.full(shape, 128 if kind == "u8" else 0, np.uint8 if kind == "u8" else np.int8))
                steps = lambda s: Const(f32(s.rng.integers(1, 9, size=shape) / 1024))
                # In one row, so that a state is quantised by its own range in either case.
                case(
                    f"DynamicQuantizeLSTM_{kind}_{word}" + ("_columns" if columns else ""), "DynamicQuantizeLSTM",
                    lambda s: [s.f(3, 1, 5), bytes_of(s, directions, 5, 16), bytes_of(s, directions, 4, 16), Const(s.f(directions, 32)),
                               None, s.f(directions, 1, 4, scale=0.25), s.f(directions, 1, 4, scale=0.25), None,
                               steps(s), zeros(), steps(s), zeros()],
                    results=3, hidden_size=4, direction=word,
                )


def resized():
    # The runtime cuts i8 to 0 between the axes.
    for kind in ("u8", "i32"):
        for mode in ("linear", "cubic"):
            for scales in ([1.0, 1.0, 0.5, 0.625], [1.0, 1.0, 0.75, 0.25], [1.0, 1.0, 0.5, 1.0], [1.0, 1.0, 2.0, 0.5]):
                case(
                    f"Resize_{kind}_{mode}_" + "_".join(map(str, scales[2:])), "Resize",
                    lambda s: [s.u8(1, 2, 8, 8) if kind == "u8" else 1000 * s.i8(1, 2, 8, 8).astype(np.int32), None, Const(f32(scales))],
                    mode=mode, antialias=1, domain="", version=19,
                )


def regions():
    def boxes(s, count):
        corners = np.sort(s.rng.integers(-40, 200, size=(count, 2, 2)), axis=1) / 8
        corners = corners.reshape(count, 4)
        return corners.astype(np.float32)

    for mode in ("avg", "max"):
        for places in ("half_pixel", "output_half_pixel"):
            for sign, word in ((1, "positive"), (-1, "negative"), (0, "both")):
                def operands(s):
                    image = s.f(2, 2, 11, 9)
                    image = image if sign == 0 else sign * np.abs(image)
                    return [image, boxes(s, 6), i64(s.rng.integers(0, 2, size=6))]

                case(
                    f"RoiAlign_{mode}_{places}_{word}", "RoiAlign", operands,
                    mode=mode, coordinate_transformation_mode=places, output_height=3, output_width=2, sampling_ratio=0,
                    spatial_scale=0.5, domain="", version=16,
                )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return x / 2 * (1 + erf(x / np.sqrt(2)))


def softmax(x, axis=-1):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def state_space():
    def operands(s, queries, states, decay, beta, past=True, rows=3):
        size, values = 4, 3
        return [
            s.f(2, rows, queries * size), s.f(2, rows, states * size, scale=0.3), s.f(2, rows, states * values),
            s.f(2, states, size, values) if past else None,
            None if decay is None else -np.abs(s.f(2, rows, states * (size if decay else 1))),
            None if beta is None else np.abs(s.f(2, rows, states if beta else 1, scale=0.5)),
        ]

    for rule, decay, beta in (
        ("linear", None, None), ("gated", True, None), ("gated", False, None), ("delta", None, True),
        ("delta", None, False), ("gated_delta", True, True), ("gated_delta", False, False),
    ):
        for queries, states in ((2, 2), (4, 2), (3, 1)):
            case(
                f"LinearAttention_{rule}_{decay}_{beta}_{queries}_{states}", "LinearAttention",
                lambda s: operands(s, queries, states, decay, beta), 2,
                q_num_heads=queries, kv_num_heads=states, update_rule=rule,
            )
    case("LinearAttention_step", "LinearAttention", lambda s: operands(s, 2, 2, True, True, rows=1), 2, q_num_heads=2, kv_num_heads=2)
    case("LinearAttention_first", "LinearAttention", lambda s: operands(s, 2, 2, True, True, past=False), 2, q_num_heads=2, kv_num_heads=2, scale=0.75)
    case("LinearAttentionGate", "LinearAttentionGate", lambda s: [s.f(2, 3, 4), s.f(4), -np.abs(s.f(4)), s.f(2, 3, 4)], 2)
    case("LinearAttentionGate_decay", "LinearAttentionGate", lambda s: [s.f(2, 3, 4, scale=20.0), s.f(4), -np.abs(s.f(4))])
    for activation in ("none", "silu"):
        for taps in (1, 2, 4):
            for past in (False, True):
                case(
                    f"CausalConvWithState_{activation}_{taps}_{past}", "CausalConvWithState",
                    lambda s: [s.f(2, 3, 5), s.f(3, 1, taps), s.f(3), s.f(2, 3, taps - 1) if past and taps > 1 else None], 2,
                    activation=activation,
                )
    case("CausalConvWithState_dilated", "CausalConvWithState", lambda s: [s.f(2, 3, 7), s.f(3, 1, 3), None, s.f(2, 3, 4)], 2, dilation=2)
    case("CausalConvWithState_last", "CausalConvWithState", lambda s: [s.f(2, 5, 3), s.f(3, 1, 3), s.f(3), s.f(2, 2, 3)], 2, channels_last=1)


def gates():
    case("GatedAdd", "GatedAdd", lambda s: [s.f(2, 3, 4), s.f(2, 3, 4), s.f(2, 3, 1)])
    for activation in ("silu", "swish", "sigmoid"):
        case(f"GatedRMSNorm_{activation}", "GatedRMSNorm", lambda s: [s.f(2, 3, 8), s.f(4), s.f(2, 3, 8)], activation=activation)
    case("GatedRMSNorm_epsilon", "GatedRMSNorm", lambda s: [s.f(2, 4), s.f(4), s.f(2, 4)], epsilon=0.5)
    case("ScaledSiLU", "ScaledSiLU", lambda s: [s.f(2, 5)], alpha=1.75)
    case("ScaledSiLU_plain", "ScaledSiLU", lambda s: [s.f(2, 5)])
    case("ScaledSiLU_given", "ScaledSiLU", lambda s: [s.f(2, 5), f32(0.75)])
    for scale in (None, (6,), (2, 3), (3,)):
        for count in (0, 2):
            word = "none" if scale is None else "x".join(map(str, scale))
            shape = (2, 2, 3) if count == 0 else (2, 6)
            case(f"BranchwiseRMSNorm_{word}_{count}", "BranchwiseRMSNorm", lambda s: [s.f(*shape)] + ([s.f(*scale)] if scale else []), **({"num_branches": 2} if count else {}))
    for mix in ((2, 3), (2, 3, 1), (2, 3, 4)):
        word = "x".join(map(str, mix))
        case(f"HyperConnectionPreMix_{word}", "HyperConnectionPreMix", lambda s: [s.f(2, 3, 4), s.f(*mix)], reduction_scale=0.5)
        for mixed in (False, True):
            case(f"HyperConnectionPostMix_{word}_{mixed}", "HyperConnectionPostMix", lambda s: [s.f(2, 3, 4), s.f(2, 4), s.f(*mix)] + ([s.f(2, 3, 3)] if mixed else []))
    case("HyperConnectionPreMix_flat", "HyperConnectionPreMix", lambda s: [s.f(2, 12), s.f(2, 12)], num_branches=3)
    case("HyperConnectionPostMix_flat", "HyperConnectionPostMix", lambda s: [s.f(2, 12), s.f(2, 4), s.f(2, 3)], num_branches=3)
    case("EngramGate", "EngramGate", lambda s: [s.f(1, 3, 2, 4), s.f(1, 3, 2, 4), s.f(1, 3, 4), s.f(2, 4), s.f(2, 4)])
    case("EngramGate_normed", "EngramGate", lambda s: [s.f(1, 3, 2, 4), s.f(1, 3, 2, 4), s.f(1, 3, 4), s.f(2, 4), s.f(2, 4), s.f(2, 4)], 2)

    def swiglu(gate, up=None, alpha=1.0, beta=0.0, limit=0.0):
        if up is None:
            gate, up = np.split(gate, 2, axis=-1)
        if limit > 0:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate * sigmoid(alpha * gate) * (up + beta)

    defined("SwiGLU", "SwiGLU", lambda s: [s.f(2, 5), s.f(2, 5)], swiglu)
    defined("SwiGLU_packed", "SwiGLU", lambda s: [s.f(2, 6)], swiglu)
    defined(
        "SwiGLU_limit", "SwiGLU", lambda s: [s.f(2, 8, scale=3.0)], lambda x: swiglu(x, None, 1.5, 1.0, 2.0),
        activation_alpha=1.5, activation_beta=1.0, limit=2.0,
    )


def positions():
    def angles(s, places, half):
        turn = s.f(places, half)
        return [np.cos(turn), np.sin(turn)]

    for layout, sections in ((0, [2, 1, 1]), (0, [1, 0, 3]), (1, [2, 1, 1]), (1, [4, 0, 0])):
        for interleaved in (0, 1):
            case(
                f"MRotaryEmbedding_{layout}_{sections[0]}_{interleaved}", "MRotaryEmbedding",
                lambda s: [s.f(2, 3, 16), i64(s.rng.integers(0, 9, size=(3, 2, 3))), *angles(s, 9, 4)],
                mrope_section=sections, mrope_layout=layout, interleaved=interleaved, num_heads=2,
            )
    case(
        "MRotaryEmbedding_heads", "MRotaryEmbedding",
        lambda s: [s.f(2, 2, 3, 8), i64(s.rng.integers(0, 9, size=(3, 2, 3))), *angles(s, 9, 4)], mrope_section=[2, 1, 1],
    )
    case(
        "MRotaryEmbedding_part", "MRotaryEmbedding",
        lambda s: [s.f(2, 3, 24), i64(s.rng.integers(0, 9, size=(3, 2, 3))), *angles(s, 9, 4)],
        mrope_section=[1, 2, 1], num_heads=2, rotary_embedding_dim=8,
    )

    def buckets(table, length, farthest, both):
        count, heads = table.shape
        by_heads = table.reshape(heads, count)
        # As transformers' `_relative_position_bucket`, with logarithms of f32.
        distance = np.arange(length)[None, :] - np.arange(length)[:, None]
        first = np.zeros_like(distance)
        if both:
            count //= 2
            first = (distance > 0) * count
            distance = np.abs(distance)
        else:
            distance = -np.minimum(distance, 0)
        exact = count // 2
        with np.errstate(divide="ignore"):
            share = np.log(distance.astype(np.float32) / np.float32(exact)) / np.float32(np.log(farthest / exact))
        far = np.where(distance < exact, 0, exact + share * (count - exact)).astype(np.int64)
        places = first + np.where(distance < exact, distance, np.minimum(far, count - 1))
        return by_heads[:, places][None]

    for both in (0, 1):
        for length, count, farthest in ((5, 8, 16), (40, 32, 128)):
            defined(
                f"RelativePositionBias_{both}_{length}", "RelativePositionBias",
                lambda s: [s.f(count, 2), Const(i64([length])), Const(i64([length]))],
                lambda table, q, k: buckets(table, length, farthest, both), max_distance=farthest, is_bidirectional=both,
            )

    def gated(query, bias, scores, weight, own, factor):
        heads = (query + bias).reshape(2, 3, 2, 4).transpose(0, 2, 1, 3)
        sums = (heads @ weight + own).reshape(2, 2, 3, 2, -1).sum(-1)
        u, r = np.split(sigmoid(sums), 2, axis=-1)
        return (u * (r * factor - 1) + 2) * scores

    defined(
        "GatedRelativePositionBias", "GatedRelativePositionBias",
        lambda s: [s.f(2, 3, 8), s.f(8), s.f(1, 2, 3, 3), s.f(4, 8), s.f(8), s.f(1, 2, 1, 1)], gated, num_heads=2,
    )

    def gemma(angles, q, q_rot, k, k_rot):
        c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return [q * c + q_rot * s, k * c + k_rot * s]

    defined("GemmaRotaryEmbedding", "GemmaRotaryEmbedding", lambda s: [s.f(2, 3, 4), *(s.f(2, 2, 3, 4) for _ in range(4))], gemma)


def images():
    def normal(x, gamma, beta, groups, last, silu, epsilon=1e-5):
        y = np.moveaxis(x, -1, 1) if last else x
        apart = y.reshape(y.shape[0], groups, -1)
        mean, variance = apart.mean(-1, keepdims=True), apart.var(-1, keepdims=True)
        y = ((apart - mean) / np.sqrt(variance + epsilon)).reshape(y.shape) * gamma[:, None, None] + beta[:, None, None]
        y = y * sigmoid(y) if silu else y
        return np.moveaxis(y, 1, -1) if last else y

    for last in (0, 1):
        shape = (2, 3, 2, 4) if last else (2, 4, 3, 2)
        for silu in (0, 1):
            attributes = dict(groups=2, channels_last=last, activation=silu)
            defined(
                f"GroupNorm_{last}_{silu}", "GroupNorm", lambda s: [s.f(*shape), s.f(4), s.f(4)],
                lambda x, g, b: normal(x, g, b, 2, last, silu), **attributes,
            )
    attributes = dict(groups=2, channels_last=1, activation=1, epsilon=0.25)
    for skip in ((2, 3, 2, 4), (2, 1, 1, 4), (2, 4)):
        for bias in (False, True):
            def skipped(x, gamma, beta, skip, bias=None):
                total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + (0 if bias is None else bias)
                return [normal(total, gamma, beta, 2, True, True, 0.25), total]

            defined(
                f"SkipGroupNorm_{len(skip)}_{skip[1]}_{bias}", "SkipGroupNorm",
                lambda s: [s.f(2, 3, 2, 4), s.f(4), s.f(4), s.f(*skip)] + ([s.f(4)] if bias else []), skipped, **attributes,
            )
    defined("BiasAdd", "BiasAdd", lambda s: [s.f(2, 3, 4), s.f(4), s.f(2, 3, 4)], lambda x, b, skip: x + b + skip)
    defined("BiasDropout", "BiasDropout", lambda s: [s.f(2, 3, 4), s.f(4), s.f(2, 3, 4)], lambda x, b, r: [x + b + r, np.ones(x.shape, bool)])
    defined("BiasDropout_ratio", "BiasDropout", lambda s: [s.f(2, 3), s.f(3), None, Const(f32(0.5))], lambda x, b, r, q: x + b)

    def split(x, bias):
        left, right = np.split(x + bias, 2, axis=-1)
        return left * gelu(right)

    defined("BiasSplitGelu", "BiasSplitGelu", lambda s: [s.f(2, 3, 8), s.f(8)], split)
    defined(
        "BiasSoftmax_inner", "BiasSoftmax", lambda s: [s.f(2, 2, 3, 4), s.f(2, 1, 1, 4)],
        lambda x, b: softmax(x + b), axis=3, is_inner_broadcast=1,
    )
    defined(
        "BiasSoftmax_outer", "BiasSoftmax", lambda s: [s.f(2, 2, 3, 4), s.f(1, 1, 3, 4)],
        lambda x, b: softmax((x + b).reshape(4, 12)).reshape(x.shape), axis=2, is_inner_broadcast=0,
    )

    def conv(x, w, b, stride, pad, groups):
        x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        batch, height, width, _ = x.shape
        count, own, rows, columns = w.shape
        y = np.zeros((batch, (height - rows) // stride + 1, (width - columns) // stride + 1, count))
        for m in range(count):
            first = m // (count // groups) * own
            for r in range(y.shape[1]):
                for c in range(y.shape[2]):
                    part = x[:, r * stride:r * stride + rows, c * stride:c * stride + columns, first:first + own]
                    y[:, r, c, m] = np.einsum("bhwk,khw->b", part, w[m]) + b[m]
        return y

    for op in ("NhwcConv", "NhwcFusedConv"):
        for groups in (1, 2):
            defined(
                f"{op}_{groups}", op, lambda s: [s.f(2, 5, 4, 4), s.f(6, 4 // groups, 3, 3), s.f(6)],
                lambda x, w, b: conv(x, w, b, 2, 1, groups), strides=[2, 2], pads=[1, 1, 1, 1], group=groups,
            )
    defined(
        "NhwcFusedConv_sum", "NhwcFusedConv", lambda s: [s.f(1, 4, 3, 2), s.f(3, 2, 2, 2), s.f(3), s.f(1, 3, 2, 3)],
        lambda x, w, b, z: np.maximum(conv(x, w, b, 1, 0, 1) + z, 0), activation="Relu",
    )
    for mode in ("bilinear", "nearest"):
        for size in ([3, 4], [1, 2], [5, 1]):
            def operands(s):
                boxes = s.rng.integers(-1, 10, size=(4, 4)) / 8
                return [s.f(2, 3, 6, 5), f32(boxes), i32(s.rng.integers(0, 2, size=4)), Const(i32(size))]

            case(f"CropAndResize_{mode}_{size[0]}", "CropAndResize", operands, mode=mode, extrapolation_value=-2.5)

            def of_one_image(s):
                boxes = s.rng.integers(-1, 10, size=(3, 4)) / 8
                return [s.f(1, 9, 4, 5), f32(boxes), i32([0, 0, 0]), Const(i32(size))]

            name = f"CropAndResize_{mode}_{size[0]}_one_image"
            case(name, "CropAndResize", of_one_image, mode=mode, extrapolation_value=-2.5)
    case("ConvTransposeWithDynamicPads", "ConvTransposeWithDynamicPads", lambda s: [s.f(1, 2, 4, 5), s.f(2, 3, 3, 2), Const(i64([1, 0, 0, 1])), s.f(3)], strides=[2, 2])
    for dim, size, step in ((-1, 2, 1), (0, 3, 2), (1, 2, 3), (1, 5, 1)):
        case(f"UnfoldTensor_{dim}_{size}_{step}", "UnfoldTensor", lambda s: [s.f(4, 5, 3)], dim=dim, size=size, step=step)


def transforms():
    def pairs(x):
        return np.stack([x.real, x.imag], -1)

    defined("Rfft", "Rfft", lambda s: [s.f(2, 3, 8)], lambda x: pairs(np.fft.rfft(x)), signal_ndim=1, onesided=1, normalized=0)
    defined("Rfft_6", "Rfft", lambda s: [s.f(6)], lambda x: pairs(np.fft.rfft(x)))
    defined(
        "Irfft", "Irfft", lambda s: [pairs(np.fft.rfft(s.f(2, 3, 8))).astype(np.float32)],
        lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1]), signal_ndim=1,
    )
    compound = lambda x: x[..., 0] + 1j * x[..., 1]
    defined("ComplexMul", "ComplexMul", lambda s: [s.f(2, 3, 2), s.f(2, 3, 2)], lambda a, b: pairs(compound(a) * compound(b)))
    defined("ComplexMulConj", "ComplexMulConj", lambda s: [s.f(2, 3, 2), s.f(3, 2)], lambda a, b: pairs(compound(a) * compound(b).conj()))
    for word, value in (("nan", np.nan), ("inf", -np.inf), ("finite", 1.0)):
        for only in ("", "isnan_only", "isinf_only"):
            def operands(s):
                x = s.f(2, 3)
                x[1, 2] = value
                return [s.f(4), Const(x)] if word != "nan" else [s.f(4), Const(x), s.f(1)]

            def finite(*parts):
                good = {"": np.isfinite, "isnan_only": lambda x: ~np.isnan(x), "isinf_only": lambda x: ~np.isinf(x)}[only]
                return np.array(all(good(p).all() for p in parts))

            if word == "nan":
                continue
            defined(f"IsAllFinite_{word}_{only or 'both'}", "IsAllFinite", operands, finite, **({only: 1} if only else {}))
    defined("TorchEmbedding", "TorchEmbedding", lambda s: [s.f(5, 3), i64([[0, 4, 2], [1, 1, 3]]), Const(i64(1))], lambda t, i, p: t[i])
    tanh_gelu = lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    defined("GemmFastGelu", "GemmFastGelu", lambda s: [s.f(2, 3, 4), s.f(4, 5), s.f(5)], lambda x, w, b: tanh_gelu(x @ w + b))
    defined("GemmFastGelu_plain", "GemmFastGelu", lambda s: [s.f(3, 4), s.f(4, 5)], lambda x, w: tanh_gelu(x @ w))
    defined(
        "FusedMatMulActivation", "FusedMatMulActivation", lambda s: [s.f(2, 4, 3), s.f(5, 3)],
        lambda a, b: np.maximum(0.5 * (a @ b.T), 0), activation="Relu", alpha=0.5, transB=1,
    )


def bytes_beside():
    case("MatMulInteger16", "MatMulInteger16", lambda s: [s.rng.integers(-999, 999, size=(2, 3)).astype(np.int16), s.rng.integers(-999, 999, size=(3, 4)).astype(np.int16)])

    def embed(s, segments, mask, kind):
        table = lambda *shape: Const(getattr(s, kind)(*shape))
        scale = lambda: Const(f32(s.rng.integers(1, 32) / 512))
        zero = lambda: Const(np.array(s.rng.integers(0, 128), np.uint8 if kind == "u8" else np.int8))
        own = lambda v: v() if segments else None
        return [
            i32(s.rng.integers(0, 9, size=(2, 4))), i32(s.rng.integers(0, 2, size=(2, 4))) if segments else None,
            table(9, 6), table(5, 6), own(lambda: table(2, 6)), table(6), table(6),
            i32([[1, 1, 1, 0], [1, 1, 0, 0]]) if mask else None,
            scale(), scale(), own(scale), scale(), scale(), zero(), zero(), own(zero), zero(), zero(),
        ]

    for kind in ("u8", "i8"):
        for segments in (False, True):
            for mask in (False, True):
                case(f"QEmbedLayerNormalization_{kind}_{segments}_{mask}", "QEmbedLayerNormalization", lambda s: embed(s, segments, mask, kind), 2)

    def mean(x, scale, zero, own_scale, own_zero):
        y = ((x.astype(np.float64) - zero) * scale).mean(axis=(0, 2), keepdims=True)
        return np.clip(np.round(y / own_scale) + own_zero, 0, 255).astype(np.uint8)

    defined(
        "QLinearReduceMean", "QLinearReduceMean",
        lambda s: [s.u8(2, 3, 4), Const(f32(0.03125)), Const(u8(120)), Const(f32(0.015625)), Const(u8(100))], mean,
        axes=[0, -1], keepdims=1,
    )
    defined("ReduceSumInteger", "ReduceSumInteger", lambda s: [s.i8(2, 3, 4)], lambda x: x.sum(axis=1, dtype=np.int32), axes=[1], keepdims=0)
    defined("ReduceSumInteger_kept", "ReduceSumInteger", lambda s: [s.u8(2, 3, 4)], lambda x: x.sum(axis=(0, 2), dtype=np.int32, keepdims=True), axes=[2, 0], keepdims=1)
    defined(
        "MulInteger", "MulInteger", lambda s: [s.u8(2, 3), Const(u8(7)), s.u8(3), Const(u8(131))],
        lambda a, z, b, w: (a.astype(np.int32) - z) * (b.astype(np.int32) - w),
    )
    defined("MulInteger_plain", "MulInteger", lambda s: [s.i8(2, 3), None, s.i8(2, 1)], lambda a, z, b: a.astype(np.int32) * b)


def decoding():
    def attend(q, k, v, heads, bias=0.0):
        """[batch, rows, heads * size] and keys of [batch, heads, rows, size]."""
        batch, rows, width = q.shape
        q = q.reshape(batch, rows, heads, -1).transpose(0, 2, 1, 3)
        weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(width / heads) + bias)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, rows, -1)

    apart = lambda x, heads: x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    defined(
        "MultiHeadAttention_packed", "MultiHeadAttention", lambda s: [s.f(2, 3, 2, 3, 4)],
        lambda x: attend(x[..., 0, :].reshape(2, 3, 8), *(x[..., i, :].transpose(0, 2, 1, 3) for i in (1, 2)), 2), num_heads=2,
    )
    defined(
        "MultiHeadAttention_packed_keys", "MultiHeadAttention", lambda s: [s.f(2, 3, 8), s.f(2, 5, 2, 2, 4)],
        lambda q, x: attend(q, *(x[..., i, :].transpose(0, 2, 1, 3) for i in (0, 1)), 2), num_heads=2,
    )
    name = "DecoderMaskedMultiHeadAttention"
    case(f"{name}_cross", name, lambda s: [s.f(2, 1, 8), s.f(2, 2, 5, 4), s.f(2, 2, 5, 4)], num_heads=2)
    case(f"{name}_cross_bias", name, lambda s: [s.f(2, 1, 8), s.f(2, 2, 5, 4), s.f(2, 2, 5, 4), *[None] * 7, s.f(24)], num_heads=2)
    case(f"{name}_cross_mask", name, lambda s: [s.f(2, 1, 8), s.f(2, 2, 5, 4), s.f(2, 2, 5, 4), i32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])], num_heads=2)
    row = lambda s: [s.f(2, 1, 8) for _ in range(3)]
    for length in (3, 5, 1):
        for bias in (False, True):
            # Rows behind the new one are the application's own.
            def formula(q, k, v, mask, added, past_k, past_v, own, beams=None, places=None, bias=None):
                if bias is not None:
                    q, k, v = q + bias[:8], k + bias[8:16], v + bias[16:]
                caches = [past_k.copy(), past_v.copy()]
                for cache, new in zip(caches, (k, v)):
                    cache[:, :, length] = apart(new, 2)[:, :, 0]
                return [attend(q, *(c[:, :, : length + 1] for c in caches), 2), *caches]

            defined(
                f"{name}_room_{length}_{bias}", name,
                lambda s: [*row(s), None, None, s.f(2, 2, 6, 4), s.f(2, 2, 6, 4), i32([length])] + ([None, None, s.f(24)] if bias else []),
                formula, num_heads=2, past_present_share_buffer=1,
            )


def features():
    classical = dict(domain="ai.onnx.ml")
    for shape in ((5,), (2, 5), (2, 3, 5)):
        case(f"ArrayFeatureExtractor_{len(shape)}", "ArrayFeatureExtractor", lambda s: [s.f(*shape), i64([[4, 0, 2]])], **classical)
    case("Binarizer", "Binarizer", lambda s: [s.f(2, 5)], threshold=0.25, **classical)
    case("Scaler", "Scaler", lambda s: [s.f(2, 3)], offset=[0.5, -1.25, 2.0], scale=[2.0, 0.5, -3.0], **classical)
    case("Scaler_one", "Scaler", lambda s: [s.f(2, 3)], offset=[0.5], scale=[2.0], **classical)
    for norm in ("L1", "L2"):
        case(f"Normalizer_{norm}", "Normalizer", lambda s: [np.concatenate([s.f(2, 4), np.zeros((1, 4), np.float32)])], norm=norm, **classical)
    case("LinearRegressor", "LinearRegressor", lambda s: [s.f(3, 2)], coefficients=[0.5, -2.0], intercepts=[1.5], **classical)
    case("LinearRegressor_targets", "LinearRegressor", lambda s: [s.f(3, 2)], coefficients=[0.5, -2.0, 1.0, 3.0], targets=2, **classical)
    grams = dict(
        min_gram_length=1, max_gram_length=2, ngram_counts=[0, 3], ngram_indexes=[0, 2, 1, 4, 3],
        pool_int64s=[2, 3, 5, 2, 3, 5, 5], domain="",
    )
    for mode in ("TF", "IDF", "TFIDF"):
        for skips in (0, 2):
            case(
                f"TfIdfVectorizer_{mode}_{skips}", "TfIdfVectorizer", lambda s: [i64(s.rng.integers(2, 6, size=(2, 9)))],
                mode=mode, max_skip_count=skips, weights=[0.5, 2.0, 1.5, 3.0, 0.25], **grams,
            )
    case("FeatureVectorizer", "FeatureVectorizer", lambda s: [s.f(2, 3), s.f(2, 1)], inputdimensions=[3, 1], **classical)
def older():
    """Forms of older operator sets, scales that are rounded quotients, and regions that are operands.

    Left out: positions that fall on an element, where the runtime's rounding decides, and regions of an axis that keeps its
    size, which the runtime does not read."""
    image = lambda s: s.f(1, 2, 10, 11)
    for scales in ([1.0, 1.0, 0.6, 1.75], [1.0, 1.0, 0.7, 0.3], [1.0, 1.0, 1.5, 1.0], [1.0, 1.0, 1.0, 0.5]):
        for mode in ("nearest", "linear"):
            case(
                f"Resize_10_{mode}_" + "_".join(map(str, scales[2:])), "Resize", lambda s: [image(s), Const(f32(scales))], mode=mode,
                domain="", version=10,
            )
    for quotients in ([7 / 10, 17 / 11], [9 / 10, 5 / 11], [17 / 10, 8 / 11]):
        scales = Const(f32([1, 1, *quotients]))
        name = "_".join(f"{q:.2f}" for q in quotients)
        for mode in ("nearest", "linear"):
            for places in ("half_pixel", "asymmetric", "pytorch_half_pixel"):
                for rounding in ("floor", "ceil") if mode == "nearest" else ("floor",):
                    case(
                        f"Resize_13_{mode}_{places}_{rounding}_{name}", "Resize", lambda s: [image(s), None, scales], mode=mode,
                        coordinate_transformation_mode=places, nearest_mode=rounding, domain="", version=13,
                    )
        case(f"Upsample_9_{name}", "Upsample", lambda s: [image(s), Const(f32([1, 1, 17 / 10, 19 / 11]))], mode="linear", domain="", version=9)
    regions = {
        "inside": [0, 0, 0.25, 0.125, 1, 1, 0.75, 0.5],
        "outside": [0, 0, -0.25, 0.5, 1, 1, 0.5, 1.25],
        "turned": [0, 0, 0.75, 1, 1, 1, 0.25, 0],
        "whole": [0, 0, 0, 0, 1, 1, 1, 1],
    }
    for word, region in regions.items():
        for mode, rounding in (("nearest", "round_prefer_floor"), ("nearest", "ceil"), ("linear", "floor"), ("cubic", "floor")):
            for size in ([1, 2, 4, 5], [1, 2, 1, 7]):
                common = dict(mode=mode, coordinate_transformation_mode="tf_crop_and_resize", nearest_mode=rounding, extrapolation_value=0.5)
                case(
                    f"Resize_region_{word}_{mode}_{rounding}_{size[2]}", "Resize",
                    lambda s: [image(s), f32(region), None, Const(i64(size))], domain="", version=13, **common,
                )
        case(
            f"Resize_region_axes_{word}", "Resize",
            lambda s: [image(s), f32(region[2:4] + region[6:]), None, Const(i64([3, 4]))], axes=[2, 3], domain="", version=18,
            mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
        )
    mask = Const(np.array([[True, False, True], [False, False, True]]))
    case("Compress_axes", "Compress", lambda s: [s.f(2, 3), mask], domain="")
    for version in (7, 8):
        statistics = lambda s: [s.f(3, 4) for _ in range(3)] + [np.abs(s.f(3, 4)) + f32(0.5)]
        case(
            f"BatchNormalization_{version}_elements", "BatchNormalization", lambda s: [s.f(2, 3, 4), *statistics(s)], spatial=0,
            epsilon=0.001, domain="", version=version,
        )


def write(name, parts):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    LINES.clear()
    for part in parts:
        part()
    Path(__file__).with_name(name).write_text("\n".join(LINES) + "\n")


def main():
    fused = (activations, products, norms, multi_head, attention, grouped, standard_attention, quantized, experts)
    write("fused.txt", fused)
    write("movement.txt", (movement,))
    write("older.txt", (older,))
    write("written_out.txt", (bitsandbytes, recurrent, resized, regions))
    write("contributed.txt", (state_space, gates, positions, images, transforms, bytes_beside, decoding, features))


main()
