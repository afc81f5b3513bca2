"""One random node at a time: an operator, operands from a graph so far, and attributes.

`MAKERS` has a function for each operator, by domain and name. A function draws operands and gives the node's attributes;
whether the node is valid is left to onnxruntime, which computes it alone.
"""

import numpy as np

FLOATS = ["float32"] * 6 + ["float64", "float16"]
INTS = ["int64", "int32"]
BYTES = ["uint8", "int8"]
NUMBERS = FLOATS + INTS
ALL = NUMBERS + BYTES + ["bool"]
NARROW = ["uint16", "int16", "uint32", "uint64"]
ELEM_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip
MICROSOFT = "com.microsoft"
MAKERS = {}


class Node:
    """A node that is to be tried: names of operands, of which some may be None."""

    def __init__(self, inputs, outputs=1, **attributes):
        self.inputs, self.outputs, self.attributes = inputs, outputs, attributes


class Unfit(Exception):
    """The operator has no form for what was drawn."""


def maker(*names, domain="", since=1):
    def add(function):
        for name in names:
            MAKERS[domain, name] = (function, since)
        return function

    return add


def ms(*names):
    return maker(*names, domain=MICROSOFT)


def axis(g, x, extra=0):
    rank = g.rank(x) + extra
    if rank == 0:
        raise Unfit
    return int(g.rng.integers(-rank, rank))


def ints(values):
    return np.array(values, np.int64)


def partner(g, x, dtype=None):
    """A value that broadcasts with `x`."""
    dtype = dtype or g.dtype(x)
    shape = g.shape(x)
    if g.rng.random() < 0.5:
        fits = g.choose(lambda v: g.dtype(v) == dtype and broadcasts(g.shape(v), shape))
        if fits:
            return fits
    shape = [n if g.rng.random() < 0.7 else 1 for n in shape]
    return g.fresh(dtype, shape[int(g.rng.integers(0, len(shape) + 1)) if g.rng.random() < 0.3 else 0 :])


def broadcasts(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))


@maker("Acos", "Asin", "Atanh")
def inner(g):
    return Node([g.fresh(g.one_of(FLOATS), g.small_shape(), scale=0.25)])


@maker("Acosh", "Log", "Sqrt")
def outer(g):
    return Node([g.fresh(g.one_of(FLOATS[1:]), g.small_shape(), least=1)])


@maker("Abs", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Neg", "Reciprocal",
       "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh", "Identity")  # fmt: skip
def unary(g):
    return Node([g.pick(FLOATS)])


@maker("MeanVarianceNormalization")
def mean_variance(g):
    return Node([image(g)], axes=g.one_of([[0, 2, 3], [2, 3], [1]]))


@maker("IsInf", "IsNaN")
def tests(g):
    return Node([g.pick(FLOATS)])


@maker("Swish", since=24)
@maker("Mish", since=18)
@maker("Gelu", since=20)
def later_unary(g):
    return Node([g.pick(FLOATS)])


@maker("Celu", "Elu", "LeakyRelu", "ThresholdedRelu")
def with_alpha(g):
    return Node([g.pick(FLOATS)], alpha=g.number(0.1, 2))


@maker("Selu")
def selu(g):
    return Node([g.pick(FLOATS)], alpha=g.number(1, 2), gamma=g.number(1, 2))


@maker("HardSigmoid")
def hard_sigmoid(g):
    return Node([g.pick(FLOATS)], alpha=g.number(0.1, 0.5), beta=g.number(0.1, 0.9))


@maker("Shrink")
def shrink(g):
    return Node([g.pick(FLOATS)], lambd=g.number(0.1, 1), bias=g.number(0, 0.5))


@maker("Not")
def negation(g):
    return Node([g.pick(["bool"])])


@maker("BitwiseNot", since=18)
def bit_not(g):
    return Node([g.pick(INTS + BYTES)])


@maker("Add", "Sub", "Mul", "Div", "Min", "Max")
def binary(g):
    x = g.pick(NUMBERS)
    return Node([x, partner(g, x)])


@maker("Pow")
def power(g):
    x = g.fresh(g.one_of(FLOATS[2:] + INTS), g.small_shape(), least=1)
    return Node([x, partner(g, x)])


@maker("Sum", "Mean")
def variadic(g):
    x = g.pick(FLOATS)
    return Node([x] + [partner(g, x) for _ in range(g.up_to(2))])


@maker("Mod")
def modulo(g):
    x = g.pick(NUMBERS)
    fmod = 1 if g.dtype(x).startswith("float") else g.up_to(2) - 1
    divisor = g.fresh(g.dtype(x), g.shape(x), nonzero=True)
    return Node([x, divisor], fmod=fmod)


@maker("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(g):
    x = g.pick(NUMBERS)
    return Node([x, partner(g, x)])


@maker("And", "Or", "Xor")
def logical(g):
    x = g.pick(["bool"])
    return Node([x, partner(g, x)])


@maker("BitwiseAnd", "BitwiseOr", "BitwiseXor", since=18)
def bitwise(g):
    x = g.pick(INTS + BYTES)
    return Node([x, partner(g, x)])


@maker("BitShift")
def bit_shift(g):
    x = g.pick(["uint8"])
    return Node([x, g.constant(g.rng.integers(0, 8, g.shape(x)).astype(np.uint8))], direction=g.one_of(["LEFT", "RIGHT"]))


@maker("PRelu")
def prelu(g):
    x = g.pick(FLOATS)
    return Node([x, g.fresh(g.dtype(x), g.shape(x)[-1:], constant=True)])


@maker("Where")
def where(g):
    x = g.pick(ALL)
    return Node([partner(g, x, "bool"), x, partner(g, x)])


@maker("Clip")
def clip(g):
    x = g.pick(NUMBERS)
    low, high = (g.constant(np.array(v, g.dtype(x))) for v in (-1, 2))
    return Node([x, g.one_of([low, None]), g.one_of([high, None])])


@maker("Cast")
def cast(g):
    # Before a cast onnxruntime leaves out that results of operators on halves are rounded to halves.
    return Node([g.pick([d for d in ALL + NARROW if d != "float16"])], to=ELEM_TYPES[g.one_of(ALL + NARROW)])


@maker("CastLike")
def cast_like(g):
    return Node([g.pick([d for d in ALL if d != "float16"]), g.pick(ALL)])


@maker("Dropout")
def dropout(g):
    return Node([g.pick(FLOATS)], g.up_to(2))


@maker("Transpose")
def transpose(g):
    x = g.pick(ALL + NARROW)
    return Node([x], perm=[int(i) for i in g.rng.permutation(g.rank(x))])


@maker("Reshape")
def reshape(g):
    x = g.pick(ALL + NARROW)
    shape = factors(g, g.size(x))
    if g.rng.random() < 0.4:
        shape[g.up_to(len(shape)) - 1] = -1
    return Node([x, g.constant(ints(shape))])


def factors(g, size):
    shape = []
    while size > 1 and len(shape) < 3:
        n = int(g.one_of([d for d in range(1, size + 1) if size % d == 0]))
        shape.append(n)
        size //= n
    return shape + [size]


@maker("Flatten")
def flatten(g):
    x = g.pick(ALL)
    return Node([x], axis=axis(g, x))


@maker("Squeeze")
def squeeze(g):
    x = g.pick(ALL)
    ones = [i for i, n in enumerate(g.shape(x)) if n == 1]
    return Node([x, g.constant(ints([g.one_of(ones)]))] if ones else [x])


@maker("Unsqueeze")
def unsqueeze(g):
    x = g.pick(ALL)
    return Node([x, g.constant(ints([axis(g, x, 1)]))])


@maker("Concat")
def concat(g):
    x = g.pick(ALL)
    at = axis(g, x)
    parts = [x]
    for _ in range(g.up_to(2)):
        shape = list(g.shape(x))
        shape[at] = g.up_to(3)
        parts.append(g.fresh(g.dtype(x), shape))
    g.rng.shuffle(parts)
    return Node(parts, axis=at)


@maker("Split")
def split(g):
    x = g.pick(ALL)
    at = axis(g, x)
    size = g.shape(x)[at]
    if size < 2:
        raise Unfit
    first = g.up_to(size - 1)
    return Node([x, g.constant(ints([first, size - first]))], 2, axis=at)


@maker("Slice")
def slices(g):
    x = g.pick(ALL)
    at = axis(g, x)
    size = g.shape(x)[at]
    start, end, step = (int(g.rng.integers(-size, size)) for _ in range(3))
    parts = [[start], [g.one_of([end, 2**62, -(2**62)])], [at], [step or 1]]
    return Node([x] + [g.constant(ints(p)) for p in parts])


@maker("Pad")
def pad(g):
    x = g.pick(NUMBERS)
    mode = g.one_of(["constant", "reflect", "edge", "constant"])
    pads = g.rng.integers(-1 if mode == "constant" else 0, 3, 2 * g.rank(x))
    value = g.constant(np.array(2, g.dtype(x))) if g.rng.random() < 0.5 else None
    return Node([x, g.constant(ints(pads)), value if mode == "constant" else None], mode=mode)


@maker("Expand")
def expand(g):
    x = g.pick(ALL)
    shape = [g.up_to(4) if n == 1 else n for n in g.shape(x)]
    return Node([x, g.constant(ints([g.up_to(2), *shape][g.up_to(2) - 1 :]))])


@maker("Tile")
def tile(g):
    x = g.pick(ALL)
    return Node([x, g.constant(ints(g.rng.integers(1, 3, g.rank(x))))])


@maker("Gather")
def gather(g):
    x = g.pick(ALL)
    at = axis(g, x)
    n = g.shape(x)[at]
    return Node([x, g.indices(n, g.small_shape(2))], axis=at)


@maker("GatherElements")
def gather_elements(g):
    x = g.pick(ALL)
    at = axis(g, x)
    shape = list(g.shape(x))
    n, shape[at] = shape[at], g.up_to(4)
    return Node([x, g.indices(n, shape)], axis=at)


@maker("GatherND")
def gather_nd(g):
    x = g.pick(ALL)
    return Node([x, g.indices(min(g.shape(x)[:1] or (0,)), (g.up_to(4), 1))])


@maker("ScatterElements")
def scatter_elements(g):
    x = g.pick(FLOATS + INTS)
    at = axis(g, x)
    n = g.shape(x)[at]
    reduction = g.one_of(["none", "add", "mul", "max", "min"])
    count = g.up_to(n) if reduction == "none" else g.up_to(4)
    column = g.rng.permutation(n)[:count] if reduction == "none" else g.rng.integers(0, n, count)
    shape = list(g.shape(x))
    shape[at] = count
    along = [1] * len(shape)
    along[at] = count
    places = np.broadcast_to(column.reshape(along), shape).astype(np.int64)
    return Node([x, g.constant(places), g.fresh(g.dtype(x), shape)], axis=at, reduction=reduction)


@maker("ScatterND")
def scatter_nd(g):
    x = g.pick(FLOATS + INTS)
    if g.rank(x) == 0:
        raise Unfit
    n = g.shape(x)[0]
    rows = g.rng.permutation(n)[: g.up_to(n)].reshape(-1, 1)
    updates = g.fresh(g.dtype(x), (len(rows), *g.shape(x)[1:]))
    return Node([x, g.constant(ints(rows)), updates], reduction=g.one_of(["none", "add", "mul"]))


@maker("DepthToSpace")
def depth_to_space(g):
    x = g.fresh(g.one_of(FLOATS), (g.up_to(2), 4 * g.up_to(2), g.up_to(3), g.up_to(3)))
    return Node([x], blocksize=2, mode=g.one_of(["DCR", "CRD"]))


@maker("SpaceToDepth")
def space_to_depth(g):
    return Node([g.fresh("float32", (g.up_to(2), g.up_to(3), 4, 2 * g.up_to(3)))], blocksize=2)


@maker("Trilu")
def trilu(g):
    x = g.pick(FLOATS + INTS + ["bool"])
    return Node([x, g.constant(np.array(g.rng.integers(-2, 3), np.int64))], upper=g.up_to(2) - 1)


@maker("ReverseSequence")
def reverse_sequence(g):
    x = g.pick(FLOATS + INTS)
    if g.rank(x) < 2:
        raise Unfit
    steps, batch = g.shape(x)[:2]
    lengths = g.rng.integers(1, steps + 1, batch)
    return Node([x, g.constant(ints(lengths))], time_axis=0, batch_axis=1)


@maker("CenterCropPad", since=18)
def center_crop_pad(g):
    x = g.pick(FLOATS + INTS)
    return Node([x, g.constant(ints(g.rng.integers(1, 7, g.rank(x))))])


@maker("Compress")
def compress(g):
    x = g.pick(ALL)
    at = axis(g, x)
    return Node([x, g.fresh("bool", (g.shape(x)[at],))], axis=at)


@maker("OneHot")
def one_hot(g):
    depth = g.up_to(5)
    x = g.indices(depth, g.small_shape(2))
    return Node([x, g.constant(np.array(depth, np.int64)), g.constant(np.array([0, 1], np.float32))], axis=-1)


@maker("EyeLike")
def eye_like(g):
    return Node([g.fresh("float32", (g.up_to(4), g.up_to(4)))], k=int(g.rng.integers(-2, 3)))


@maker("Shape", "Size")
def shape_of(g):
    return Node([g.pick(ALL)])


@maker("ConstantOfShape")
def constant_of_shape(g):
    return Node([g.constant(ints(g.small_shape()))])


@maker("NonZero")
def non_zero(g):
    x = g.pick(FLOATS[:1] + INTS + ["bool"])
    if g.rank(x) == 0:
        # The specification has no rows then, and onnxruntime has one.
        raise Unfit
    return Node([x])


@maker("Unique")
def unique(g):
    return Node([g.pick(["int64", "float32"])], g.up_to(4), sorted=1)


@maker("TopK")
def top_k(g):
    x = g.pick(FLOATS + INTS)
    at = axis(g, x)
    k = g.up_to(g.shape(x)[at])
    return Node([x, g.constant(ints([k]))], 2, axis=at, largest=g.up_to(2) - 1)


@maker("CumSum")
def cum_sum(g):
    x = g.pick(NUMBERS)
    at = g.constant(np.array(axis(g, x), np.int64))
    return Node([x, at], exclusive=g.up_to(2) - 1, reverse=g.up_to(2) - 1)


@maker("ArgMax", "ArgMin")
def arg(g):
    x = g.pick(FLOATS[:1] + ["float64", "int32", "uint8", "int8"])
    return Node([x], axis=axis(g, x), keepdims=g.up_to(2) - 1, select_last_index=g.up_to(2) - 1)


@maker("Softmax", "LogSoftmax", "Hardmax")
def softmax(g):
    x = g.pick(FLOATS)
    return Node([x], axis=axis(g, x))


@maker("LpNormalization")
def lp_normalization(g):
    x = g.pick(FLOATS)
    return Node([x], axis=axis(g, x), p=g.up_to(2))


@maker("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
       "ReduceSum", "ReduceSumSquare")  # fmt: skip
def reduction(g):
    # Of integers onnxruntime cuts each power to an integer before it adds them up.
    x = g.pick(FLOATS if g.operator == "ReduceLogSumExp" else NUMBERS)
    keepdims = g.up_to(2) - 1
    axes = sorted({axis(g, x) % g.rank(x) for _ in range(g.up_to(2))})
    if g.opset >= 18 or g.operator == "ReduceSum":
        return Node([x, g.constant(ints(axes))] if g.rng.random() < 0.8 else [x], keepdims=keepdims)
    return Node([x], axes=axes, keepdims=keepdims)


@maker("MatMul")
def matmul(g):
    x = g.pick(NUMBERS)
    if g.rank(x) == 0:
        raise Unfit
    shape = [g.shape(x)[-1], g.up_to(8)]
    if g.rng.random() < 0.3:
        shape = [*g.shape(x)[:-2], *shape]
    return Node([x, g.fresh(g.dtype(x), shape)])


@maker("Gemm")
def gemm(g):
    a, b = g.up_to(2) - 1, g.up_to(2) - 1
    m, k, n = g.up_to(6), g.up_to(9), g.up_to(17)
    dtype = g.one_of(["float32", "float32", "float64"])
    x = g.fresh(dtype, (k, m) if a else (m, k))
    y = g.fresh(dtype, (n, k) if b else (k, n))
    c = g.one_of([None, g.fresh(dtype, (n,)), g.fresh(dtype, (m, 1))])
    return Node([x, y, c], transA=a, transB=b, alpha=g.number(0.5, 2), beta=g.number(0.5, 2))


@maker("Einsum")
def einsum(g):
    equation, *shapes = g.one_of([
        ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)), ("ii->i", (4, 4)), ("ij->", (3, 5)),
        ("...ij->...ji", (2, 3, 4)), ("i,j->ij", (3,), (4,)), ("bhwc,hkc->bhwk", (1, 2, 3, 4), (2, 3, 4)),
    ])  # fmt: skip
    return Node([g.fresh("float32", s) for s in shapes], equation=equation)


def image(g, dtype="float32", channels=None):
    return g.fresh(dtype, (g.up_to(2), channels or g.up_to(4), g.up_to(6) + 2, g.up_to(6) + 2))


def windows(g, dilations=True):
    attributes = {"strides": [g.up_to(2), g.up_to(2)], "pads": [int(n) for n in g.rng.integers(0, 2, 4)]}
    if g.rng.random() < 0.2:
        attributes["auto_pad"] = g.one_of(["SAME_UPPER", "SAME_LOWER", "VALID"])
        # onnxruntime leaves dilations out of such paddings of pools.
        dilations = False
        del attributes["pads"]
    if dilations and g.rng.random() < 0.3:
        attributes["dilations"] = [g.up_to(2), g.up_to(2)]
    return attributes


@maker("Conv")
def conv(g):
    group = g.up_to(2)
    x = image(g, channels=group * g.up_to(3))
    kernel, maps = (g.up_to(3), g.up_to(3)), group * g.up_to(3)
    w = g.fresh("float32", (maps, g.shape(x)[1] // group, *kernel), constant=True)
    bias = g.one_of([None, g.fresh("float32", (maps,), constant=True)])
    return Node([x, w, bias], group=group, **windows(g))


@maker("ConvTranspose")
def conv_transpose(g):
    group = g.up_to(2)
    x = image(g, channels=group * g.up_to(2))
    w = g.fresh("float32", (g.shape(x)[1], g.up_to(3), g.up_to(3), g.up_to(3)), constant=True)
    # Under auto_pad onnxruntime's result is smaller than the specification's where steps are longer than the kernel.
    sizes = windows(g)
    sizes.pop("auto_pad", None)
    return Node([x, w], group=group, **sizes)


@maker("MaxPool")
def max_pool(g):
    return Node([image(g)], g.up_to(2), kernel_shape=[g.up_to(3), g.up_to(3)], ceil_mode=g.up_to(2) - 1, **windows(g))


@maker("AveragePool")
def average_pool(g):
    more = {"count_include_pad": g.up_to(2) - 1, "ceil_mode": g.up_to(2) - 1}
    return Node([image(g)], kernel_shape=[g.up_to(3), g.up_to(3)], **more, **windows(g, g.opset >= 19))


@maker("LpPool")
def lp_pool(g):
    return Node([image(g)], kernel_shape=[2, g.up_to(3)], p=g.up_to(3), **windows(g, g.opset >= 18))


@maker("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(g):
    return Node([image(g)])


@maker("BatchNormalization")
def batch_norm(g):
    x = image(g)
    c = g.shape(x)[1]
    parts = [g.fresh("float32", (c,), constant=True) for _ in range(3)]
    return Node([x, *parts, g.constant(g.rng.uniform(0.5, 2, c).astype(np.float32))], epsilon=g.number(1e-4, 1e-2))


@maker("InstanceNormalization")
def instance_norm(g):
    x = image(g)
    return Node([x] + [g.fresh("float32", (g.shape(x)[1],)) for _ in range(2)], epsilon=g.number(1e-3, 1e-2))


@maker("LayerNormalization")
def layer_norm(g):
    x = g.pick(["float32", "float64"])
    shape = g.shape(x)[-1:]
    return Node([x, g.fresh(g.dtype(x), shape), g.one_of([None, g.fresh(g.dtype(x), shape)])], axis=-1)


@maker("GroupNormalization", since=21)
def group_norm(g):
    x = image(g, channels=4)
    return Node([x, g.fresh("float32", (4,)), g.fresh("float32", (4,))], num_groups=g.one_of([1, 2, 4]))


@maker("RMSNormalization", since=23)
def rms_norm(g):
    x = g.pick(["float32"])
    return Node([x, g.fresh("float32", g.shape(x)[-1:])])


@maker("LRN")
def lrn(g):
    return Node([image(g)], size=g.one_of([1, 3, 5]), alpha=g.number(0.01, 1), beta=g.number(0.5, 1), bias=1.0)


@maker("Resize")
def resize(g):
    mode = g.one_of(["nearest", "linear", "cubic"])
    # Of bytes onnxruntime cuts means that rounding has taken off a whole number to the number below.
    x = image(g, g.one_of(["float32", "uint8"]) if mode == "nearest" else "float32")
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": g.one_of(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = g.one_of(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if g.rng.random() < 0.5:
        sizes = [*g.shape(x)[:2], g.up_to(9), g.up_to(9)]
        return Node([x, None, None, g.constant(ints(sizes))], **attributes)
    # Corners are those of a fractional size in the specification, and of its whole part in onnxruntime. So is one pixel of PyTorch's.
    halves = attributes["coordinate_transformation_mode"] in ("half_pixel", "asymmetric")
    scales = np.array([1, 1, *(g.one_of([0.5, 0.75, 1.5] if halves else [1, 2, 3]) for _ in range(2))], np.float32)
    return Node([x, None, g.constant(scales)], **attributes)


@maker("GridSample")
def grid_sample(g):
    x = image(g)
    grid = g.fresh("float32", (g.shape(x)[0], g.up_to(4), g.up_to(4), 2))
    names = {"linear": "bilinear", "cubic": "bicubic"} if g.opset < 20 else {}
    mode = g.one_of(["linear", "nearest", "cubic"])
    padding = g.one_of(["zeros", "border", "reflection"])
    return Node([x, grid], mode=names.get(mode, mode), padding_mode=padding, align_corners=g.up_to(2) - 1)


@maker("RoiAlign")
def roi_align(g):
    x = image(g)
    count = g.up_to(3)
    corners = g.rng.uniform(0, 4, (count, 2))
    regions = np.concatenate([corners, corners + g.rng.uniform(0.5, 5, (count, 2))], 1).astype(np.float32)
    batch = g.rng.integers(0, g.shape(x)[0], count)
    sizes = {"output_height": g.up_to(3), "output_width": g.up_to(3), "sampling_ratio": g.up_to(3) - 1}
    return Node([x, g.value(regions), g.constant(ints(batch))], **sizes)


@maker("Col2Im", since=18)
def col2im(g):
    x = g.fresh("float32", (g.up_to(2), 4 * g.up_to(2), 9))
    return Node([x, g.constant(ints([4, 4])), g.constant(ints([2, 2]))])


@maker("Det")
def det(g):
    n = g.up_to(4)
    return Node([g.fresh("float32", (g.up_to(2), n, n))])


@maker("DFT", since=20)
def dft(g):
    x = g.fresh("float32", (g.up_to(2), g.up_to(9), g.up_to(2)))
    return Node([x, None, g.constant(np.array(1, np.int64))], inverse=g.up_to(2) - 1)


@maker("RNN", "GRU", "LSTM")
def recurrent(g):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[g.operator]
    steps, batch, size, hidden = g.up_to(4), g.up_to(2), g.up_to(4), g.up_to(4)
    ways = g.up_to(2)
    x = g.fresh("float32", (steps, batch, size))
    shapes = [(ways, gates * hidden, size), (ways, gates * hidden, hidden), (ways, 2 * gates * hidden)]
    parts = [g.fresh("float32", s, constant=True, scale=0.3) for s in shapes]
    direction = "bidirectional" if ways == 2 else g.one_of(["forward", "reverse"])
    return Node([x, *parts], 2, hidden_size=hidden, direction=direction)


def quantised(g, shape, dtype="uint8"):
    info = np.iinfo(dtype)
    return g.value(g.rng.integers(info.min, info.max + 1, shape).astype(dtype))


def steps(g, dtype="uint8"):
    zero = g.rng.integers(100, 140) if dtype == "uint8" else g.rng.integers(-10, 10)
    return [g.constant(np.float32(g.number(0.01, 0.05))), g.constant(np.array(zero, dtype))]


@maker("QuantizeLinear")
def quantize(g):
    return Node([g.pick(["float32"]), *steps(g, g.one_of(BYTES))])


@maker("DequantizeLinear")
def dequantize(g):
    x = g.pick(BYTES)
    return Node([x, *steps(g, g.dtype(x))])


@maker("DynamicQuantizeLinear")
def dynamic_quantize(g):
    return Node([g.pick(["float32"])], 3)


@maker("MatMulInteger")
def matmul_integer(g):
    m, k, n = g.up_to(5), g.up_to(17), g.up_to(9)
    a, b = quantised(g, (m, k)), quantised(g, (k, n), g.one_of(BYTES))
    return Node([a, b, steps(g)[1], steps(g, g.dtype(b))[1]])


@maker("QLinearMatMul")
def qlinear_matmul(g):
    m, k, n = g.up_to(5), g.up_to(17), g.up_to(9)
    a, b = quantised(g, (m, k)), quantised(g, (k, n))
    return Node([a, *steps(g), b, *steps(g), *steps(g)])


@maker("QLinearConv")
def qlinear_conv(g):
    c, maps = g.up_to(3), g.up_to(4)
    x = quantised(g, (1, c, 5, 6))
    w = g.constant(g.rng.integers(-128, 128, (maps, c, 3, 3)).astype(np.int8))
    zero = g.constant(np.array(0, np.int8))
    return Node([x, *steps(g), w, steps(g)[0], zero, *steps(g)], **windows(g))


@maker("ConvInteger")
def conv_integer(g):
    c = g.up_to(3)
    return Node([quantised(g, (1, c, 5, 6)), quantised(g, (g.up_to(3), c, 2, 3)), steps(g)[1]], **windows(g))


@maker("RotaryEmbedding", since=23)
def rotary_embedding(g):
    b, h, s, d = g.up_to(2), g.up_to(2), g.up_to(4), 2 * g.up_to(3)
    tables = [g.fresh("float32", (b, s, d // 2)) for _ in range(2)]
    return Node([g.fresh("float32", (b, h, s, d)), *tables], interleaved=g.up_to(2) - 1)


@maker("Attention", since=23)
def attention(g):
    b, h, s, t, d = g.up_to(2), g.up_to(2), g.up_to(4), g.up_to(4), g.up_to(4)
    parts = [g.fresh("float32", (b, h, n, d)) for n in (s, t, t)]
    return Node(parts, is_causal=g.up_to(2) - 1)


@maker("SoftmaxCrossEntropyLoss")
def cross_entropy(g):
    n, c = g.up_to(4), g.up_to(5)
    return Node([g.fresh("float32", (n, c)), g.indices(c, (n,))], g.up_to(2), reduction=g.one_of(["mean", "sum", "none"]))


@maker("NegativeLogLikelihoodLoss")
def likelihood(g):
    n, c = g.up_to(4), g.up_to(5)
    return Node([g.fresh("float32", (n, c)), g.indices(c, (n,))], reduction=g.one_of(["mean", "sum", "none"]))


@ms("Gelu", "QuickGelu")
def fused_unary(g):
    return Node([g.pick(["float32"])])


@ms("BiasGelu", "FastGelu")
def bias_gelu(g):
    x = g.pick(["float32"])
    return Node([x, g.fresh("float32", g.shape(x)[-1:])])


@ms("FusedMatMul")
def fused_matmul(g):
    a, b = g.up_to(2) - 1, g.up_to(2) - 1
    x = g.fresh("float32", (2, 3, 4) if not a else (2, 4, 3))
    return Node([x, g.fresh("float32", (5, 4) if b else (4, 5))], transA=a, transB=b, alpha=g.number(0.5, 2))


@ms("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(g):
    shape = (g.up_to(2), g.up_to(3), g.up_to(8))
    extra = [g.fresh("float32", shape[-1:])] if g.operator == "SkipLayerNormalization" else []
    return Node([g.fresh("float32", shape), g.fresh("float32", shape), g.fresh("float32", shape[-1:]), *extra])


@ms("QLinearAdd", "QLinearMul")
def qlinear_binary(g):
    x = g.pick(["uint8"])
    return Node([x, *steps(g), partner(g, x), *steps(g), *steps(g)])


@ms("QLinearSigmoid", "QLinearLeakyRelu")
def qlinear_unary(g):
    return Node([g.pick(["uint8"]), *steps(g), *steps(g)])


@ms("QLinearSoftmax")
def qlinear_softmax(g):
    x = g.pick(["uint8"])
    y_steps = [g.constant(np.float32(1 / 256)), g.constant(np.array(0, np.uint8))]
    return Node([x, *steps(g), *y_steps], opset=g.one_of([11, 13]), axis=axis(g, x))


@ms("QLinearConcat")
def qlinear_concat(g):
    parts = [quantised(g, (2, g.up_to(3))) for _ in range(2)]
    return Node([*steps(g), *(v for p in parts for v in [p, *steps(g)])], axis=1)


@ms("MatMulIntegerToFloat")
def matmul_to_float(g):
    m, k, n = g.up_to(5), g.up_to(17), g.up_to(9)
    (a, a_zero), (b, b_zero) = steps(g), steps(g)
    return Node([quantised(g, (m, k)), quantised(g, (k, n)), a, b, a_zero, b_zero])


@ms("DynamicQuantizeMatMul")
def dynamic_matmul(g):
    k, n = g.up_to(17), g.up_to(9)
    return Node([g.fresh("float32", (g.up_to(4), k)), quantised(g, (k, n)), *steps(g)])


@ms("MatMulNBits")
def matmul_n_bits(g):
    k, n, block = g.one_of([32, 40, 64]), g.up_to(9), g.one_of([16, 32])
    blocks = -(-k // block)
    packed = g.constant(g.rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8))
    scales = g.constant(g.rng.uniform(0.01, 0.1, n * blocks).astype(np.float32))
    order = [None, g.constant(g.rng.integers(0, blocks, k).astype(np.int32))] if g.up_to(3) == 1 and k % block == 0 else []
    return Node([g.fresh("float32", (g.up_to(3), k)), packed, scales, *order], K=k, N=n, bits=4, block_size=block)


@ms("QLinearGlobalAveragePool")
def qlinear_global_pool(g):
    last = g.up_to(2) - 1
    return Node([quantised(g, (1, g.up_to(3), 3, 4)), *steps(g), *steps(g)], channels_last=last)


@ms("QLinearAveragePool")
def qlinear_average_pool(g):
    x = quantised(g, (1, g.up_to(3), 5, 6))
    return Node([x, *steps(g), *steps(g)], kernel_shape=[2, 3], strides=[g.up_to(2), 1])


@ms("NhwcMaxPool")
def nhwc_max_pool(g):
    return Node([quantised(g, (g.up_to(2), 5, 6, g.up_to(9)))], kernel_shape=[2, 3], strides=[g.up_to(2), 1])


@ms("QLinearConv")
def qlinear_conv_by_channels(g):
    last, channels, maps = g.up_to(2) - 1, g.up_to(3), g.up_to(9)
    x = quantised(g, (1, 5, 6, channels) if last else (1, channels, 5, 6))
    return Node([x, *steps(g), quantised(g, (maps, channels, 2, 3)), *steps(g), *steps(g)], channels_last=last)


@ms("CDist")
def distances(g):
    k = g.up_to(17)
    # onnxruntime takes products off squares.
    a, b = g.fresh("float32", (g.up_to(9), k)), g.fresh("float32", (g.up_to(5), k), scale=4)
    return Node([a, b], metric=g.one_of(["euclidean", "sqeuclidean"]))


@ms("Inverse")
def inverse(g):
    n = g.up_to(4)
    return Node([g.fresh("float32", (g.up_to(2), n, n))])


@ms("ExpandDims")
def expand_dims(g):
    x = g.pick(FLOATS)
    return Node([x, g.constant(np.array(axis(g, x, 1), np.int32))])


@ms("QLinearWhere")
def qlinear_where(g):
    x = g.pick(["uint8"])
    return Node([partner(g, x, "bool"), x, *steps(g), partner(g, x), *steps(g), *steps(g)])


@ms("QGemm")
def qgemm(g):
    m, k, n = g.up_to(4), g.up_to(9), g.up_to(5)
    return Node([quantised(g, (m, k)), *steps(g), quantised(g, (k, n)), *steps(g), None, *steps(g)])


@ms("FusedGemm", "FusedConv")
def fused_product(g):
    activation = g.one_of(["Relu", "Sigmoid", "Tanh"])
    if g.operator == "FusedGemm":
        return Node([g.fresh("float32", s) for s in [(3, 4), (4, 5), (5,)]], activation=activation)
    parts = [g.fresh("float32", s) for s in [(1, 2, 5, 6), (3, 2, 3, 3), (3,)]]
    return Node(parts, activation=activation, **windows(g))


@ms("MultiHeadAttention")
def multi_head_attention(g):
    batch, length, keys, heads = g.up_to(2), g.up_to(4), g.up_to(4), g.up_to(2)
    return Node([g.fresh("float32", (batch, n, heads * 4)) for n in (length, keys, keys)], num_heads=heads)


@ms("Attention")
def packed_attention(g):
    heads, size = g.up_to(2), g.up_to(5)
    shapes = [(g.up_to(2), g.up_to(4), size), (size, 3 * heads * 4), (3 * heads * 4,)]
    return Node([g.fresh("float32", s) for s in shapes], num_heads=heads, unidirectional=g.up_to(2) - 1)


@maker("SimplifiedLayerNormalization")
def simplified_norm(g):
    x = g.pick(["float32"])
    return Node([x, g.fresh("float32", g.shape(x)[-1:])], axis=-1, epsilon=g.number(1e-4, 1e-2))


@maker("HannWindow", "HammingWindow", "BlackmanWindow")
def window(g):
    return Node([g.constant(np.array(g.up_to(12), np.int64))], periodic=g.up_to(2) - 1)


@maker("STFT")
def stft(g):
    signal = g.fresh("float32", (g.up_to(2), 16, 1))
    return Node([signal, g.constant(np.array(4, np.int64)), g.fresh("float32", (8,), constant=True)], onesided=1)


@maker("MelWeightMatrix")
def mel_weights(g):
    numbers = [np.array(n, np.int64) for n in (g.up_to(6), 16, 8000)]
    return Node([g.constant(n) for n in [*numbers, np.float32(g.number(0, 100)), np.float32(4000)]])


@maker("Range")
def counted(g):
    kind = g.one_of([np.int64, np.float32, np.int32])
    return Node([g.constant(np.array(n, kind)) for n in (g.up_to(4), g.up_to(4) + 6, g.up_to(3))])


@maker("AffineGrid", since=20)
def affine_grid(g):
    # Of an axis of one pixel the specification, PyTorch and onnxruntime each give another place.
    theta = g.fresh("float32", (1, 2, 3))
    return Node([theta, g.constant(ints([1, 1, g.up_to(5) + 1, g.up_to(5) + 1]))], align_corners=g.up_to(2) - 1)


@maker("MaxRoiPool")
def max_roi_pool(g):
    x = image(g)
    corners = g.rng.integers(0, 4, (2, 2))
    regions = np.concatenate([np.zeros((2, 1)), corners, corners + g.rng.integers(0, 5, (2, 2))], 1)
    return Node([x, g.value(regions.astype(np.float32))], pooled_shape=[g.up_to(3), g.up_to(3)])


@maker("DeformConv", since=19)
def deform_conv(g):
    shapes = [(1, 2, 5, 5), (g.up_to(3), 2, 2, 2), (1, 8, 4, 4)]
    return Node([g.fresh("float32", s) for s in shapes])


@maker("TensorScatter", since=24)
def tensor_scatter(g):
    shapes = [(2, 5, 3), (2, g.up_to(2), 3)]
    return Node([g.fresh("float32", s) for s in shapes] + [g.constant(ints([g.up_to(3), 0]))], axis=1)


@maker("NonMaxSuppression")
def suppression(g):
    corners = g.rng.uniform(0, 1, (1, 6, 2))
    boxes = np.concatenate([corners, corners + g.rng.uniform(0.1, 1, (1, 6, 2))], 2).astype(np.float32)
    limits = [g.constant(np.array([g.up_to(4)], np.int64)), g.constant(np.array([0.4], np.float32))]
    return Node([g.value(boxes), g.fresh("float32", (1, 2, 6)), *limits])


@ms("ScaledSiLU")
def scaled_silu(g):
    return Node([g.pick(["float32"])], alpha=g.number(0.5, 2))


@ms("GatedAdd")
def gated_add(g):
    shape = (g.up_to(2), g.up_to(3), g.up_to(8))
    return Node([g.fresh("float32", shape), g.fresh("float32", shape), g.fresh("float32", (*shape[:-1], 1))])


@ms("GatedRMSNorm")
def gated_norm(g):
    width = g.up_to(8)
    shape = (g.up_to(2), g.up_to(3), width * g.up_to(2))
    return Node([g.fresh("float32", shape), g.fresh("float32", (width,)), g.fresh("float32", shape)])


@ms("BranchwiseRMSNorm")
def branchwise_norm(g):
    return Node([g.fresh("float32", (g.up_to(2), g.up_to(3), g.up_to(8)))])


@ms("HyperConnectionPreMix")
def hyper_connection(g):
    shape = (g.up_to(2), g.up_to(3), g.up_to(8))
    return Node([g.fresh("float32", shape), g.fresh("float32", shape[:2])], reduction_scale=g.number(0.5, 2))


@ms("LinearAttentionGate")
def attention_gate(g):
    shape = (g.up_to(2), g.up_to(3), g.up_to(8))
    width = shape[-1:]
    return Node([g.fresh("float32", shape), g.fresh("float32", width), g.fresh("float32", width), g.fresh("float32", shape)], 2)


@ms("CausalConvWithState")
def causal_conv(g):
    batch, channels, taps = g.up_to(2), g.up_to(4), g.up_to(4)
    return Node([g.fresh("float32", (batch, channels, g.up_to(6))), g.fresh("float32", (channels, 1, taps)), g.fresh("float32", (channels,))], 2)


@ms("UnfoldTensor")
def unfold(g):
    x = g.fresh("float32", (g.up_to(3), g.up_to(6)))
    return Node([x], dim=-1, size=g.up_to(g.shape(x)[-1]), step=g.up_to(3))


@ms("MatMulInteger16")
def matmul_of_words(g):
    rows, terms, columns = g.up_to(4), g.up_to(4), g.up_to(4)
    return Node([g.fresh("int16", (rows, terms)), g.fresh("int16", (terms, columns))])


# Operators of com.microsoft that onnxruntime's CPU provider does not have: no graph can be compared with it.
ELSEWHERE = {
    "BiasAdd", "BiasDropout", "BiasSoftmax", "BiasSplitGelu", "ComplexMul", "ComplexMulConj", "FusedMatMulActivation", "GatedRelativePositionBias",
    "GemmFastGelu", "GemmaRotaryEmbedding", "GroupNorm", "Irfft", "IsAllFinite", "MulInteger", "NhwcConv", "NhwcFusedConv", "QLinearReduceMean",
    "ReduceSumInteger", "RelativePositionBias", "Rfft", "SkipGroupNorm", "SwiGLU", "TorchEmbedding",
}  # fmt: skip
