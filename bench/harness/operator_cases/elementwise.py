"""Operators whose results depend on one element of each operand."""

from onnx import TensorProto

from .case import case, each, fixed, flags, integers, microsoft, normal, positive, u8, uniform

# A feature map early in a convolutional network, a smaller one, a plane of integers, and the hidden layer of BERT-base.
MAP = (1, 256, 64, 64)
SMALL = (1, 64, 64, 64)
PLANE = (1000, 1000)
HIDDEN = (128, 3072)

FLOAT_UNARY = (
    "Abs Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Mish Neg "
    "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu"
)

UNARY = [
    *each(FLOAT_UNARY, "map", normal(*MAP), opset=22),
    *each("Log Sqrt", "map", positive(*MAP)),
    *each("Asin Acos Atanh", "map", uniform(-0.9, 0.9, *MAP)),
    case("Acosh/map", positive(*MAP, least=1.1)),
    case("Not/map", flags(*MAP)),
    case("Dropout/map", normal(*MAP)),
    *each("Exp Gelu HardSwish Relu Sigmoid Tanh", "f16", normal(*SMALL, dtype="float16")),
    case("Sqrt/f16", positive(*SMALL, dtype="float16")),
    *each("Exp Sigmoid Tanh", "f64", normal(*SMALL, dtype="float64")),
    case("Log/f64", positive(*SMALL, dtype="float64")),
    case("Abs/i64", integers(999, *PLANE, start=-999)),
    microsoft("Gelu/bert", normal(*HIDDEN)),
    microsoft("QuickGelu/bert", normal(*HIDDEN)),
    microsoft("FastGelu/bert", normal(*HIDDEN), normal(3072)),
    microsoft("BiasGelu/bert", normal(*HIDDEN), normal(3072)),
]

FLOAT_BINARY = "Add Sub Mul Div Max Min"

BINARY = [
    *each(FLOAT_BINARY, "same", normal(*MAP), positive(*MAP)),
    *each(FLOAT_BINARY, "channels", normal(*MAP), positive(1, 256, 1, 1)),
    *each(FLOAT_BINARY, "row", normal(*MAP), positive(64)),
    case("PRelu/channels", normal(*MAP), normal(256, 1, 1)),
    *each("Add Mul Div", "f16", normal(*SMALL, dtype="float16"), positive(*SMALL, dtype="float16")),
    case("Add/f64", normal(*SMALL, dtype="float64"), normal(*SMALL, dtype="float64")),
    case("Add/u8", u8(*PLANE), u8(*PLANE)),
    *each("Add Mul", "i64", integers(100, *PLANE), integers(100, *PLANE)),
    case("Div/i64", integers(1000, *PLANE), integers(10, *PLANE, start=1)),
    case("Div/i32", integers(1000, *PLANE, dtype="int32"), integers(10, *PLANE, start=1, dtype="int32")),
    case("Mod/f32", normal(*MAP), positive(*MAP), fmod=1),
    case("Mod/i64", integers(1000, *PLANE), integers(51, *PLANE, start=1)),
    case("Mod/i64-scalar", integers(999, *PLANE), fixed(7)),
    case("Pow/same", positive(*MAP), positive(*MAP)),
    case("Pow/square", normal(*SMALL), fixed(2, "float32")),
    case("Pow/cube", normal(*SMALL), fixed(3, "float32")),
    case("Pow/root", positive(*SMALL), fixed(0.5, "float32")),
    case("Pow/2.5", positive(*SMALL), fixed(2.5, "float32")),
    case("Pow/i64-square", integers(9, 1000, 100), fixed(2)),
]

SEVERAL = [
    case("Max/three", normal(*MAP), normal(*MAP), normal(*MAP)),
    case("Sum/four", normal(*MAP), normal(1, 256, 1, 1), normal(64), normal(*MAP)),
    case("Mean/two", normal(*MAP), normal(*MAP)),
    case("Clip/scalars", normal(*MAP), fixed(-1, "float32"), fixed(1, "float32")),
    case("Clip/i64", integers(99, *PLANE), fixed(3), fixed(50)),
]

LOGIC = [
    *each("Equal Greater GreaterOrEqual Less LessOrEqual", "same", normal(*MAP), normal(*MAP)),
    case("Less/i64", integers(99, *PLANE), integers(99, *PLANE)),
    *each("And Or Xor", "same", flags(*MAP), flags(*MAP)),
    case("Where/same", flags(*MAP), normal(*MAP), normal(*MAP)),
    case("Where/mask", flags(1, 1, 64, 64), normal(*MAP), fixed(0, "float32")),
    case("Where/i64", flags(*PLANE), integers(9, *PLANE), integers(9, *PLANE)),
    *each(
        "BitwiseAnd BitwiseOr BitwiseXor", "i32", integers(99, *PLANE, dtype="int32"), integers(99, *PLANE, dtype="int32")
    ),
    case("BitwiseNot/i32", integers(99, *PLANE, dtype="int32")),
    case(
        "BitShift/left", integers(100, *PLANE, dtype="uint32"), integers(5, *PLANE, dtype="uint32"), direction="LEFT"
    ),
]

CASTS = [
    case("Cast/f32-i64", uniform(0, 100, *MAP), to=TensorProto.INT64),
    case("Cast/i64-f32", integers(100, *MAP), to=TensorProto.FLOAT),
    case("Cast/f32-u8", uniform(0, 100, *MAP), to=TensorProto.UINT8),
    case("Cast/u8-f32", u8(*MAP), to=TensorProto.FLOAT),
    case("Cast/f32-f16", uniform(0, 100, *MAP), to=TensorProto.FLOAT16),
    case("Cast/f16-f32", uniform(0, 100, *MAP, dtype="float16"), to=TensorProto.FLOAT),
    case("Cast/f32-f64", uniform(0, 100, *MAP), to=TensorProto.DOUBLE),
    case("Cast/f32-bool", uniform(0, 100, *MAP), to=TensorProto.BOOL),
    case("Cast/i32-i64", integers(100, *MAP, dtype="int32"), to=TensorProto.INT64),
    case("CastLike/f32-i32", normal(*MAP), fixed(1, "int32")),
]

CASES = [*UNARY, *BINARY, *SEVERAL, *LOGIC, *CASTS]
