//! Which ONNX operators can be imported, and by what.

use super::node::{Imported, NodeImport};
use super::{
    composite as c, elementwise as e, linear as l, movement as m, norm as n, reduce as r,
    shapes as s, windows as w,
};

/// An importable ONNX operator.
pub struct Operator {
    /// Empty for the standard operators.
    pub domain: &'static str,
    pub name: &'static str,
    pub(super) import: fn(&mut NodeImport) -> Imported,
}

const fn standard(name: &'static str, import: fn(&mut NodeImport) -> Imported) -> Operator {
    Operator {
        domain: "",
        name,
        import,
    }
}

/// By name. An operator missing here is reported as unsupported.
pub const OPERATORS: &[Operator] = &[
    standard("Abs", e::abs),
    standard("Add", e::add),
    standard("And", e::and),
    standard("ArgMax", r::arg_max),
    standard("ArgMin", r::arg_min),
    standard("AveragePool", w::average_pool),
    standard("BatchNormalization", n::batch_norm),
    standard("Cast", e::cast),
    standard("CastLike", e::cast_like),
    standard("Ceil", e::ceil),
    standard("Celu", c::celu),
    standard("Clip", e::clip),
    standard("Concat", m::concat),
    standard("Constant", s::constant),
    standard("ConstantOfShape", s::constant_of_shape),
    standard("Conv", w::conv),
    standard("ConvTranspose", w::conv_transpose),
    standard("DepthToSpace", m::depth_to_space),
    standard("Div", e::div),
    standard("Dropout", e::dropout),
    standard("Elu", c::elu),
    standard("Equal", e::equal),
    standard("Erf", e::erf),
    standard("Exp", e::exp),
    standard("Expand", m::expand),
    standard("Flatten", m::flatten),
    standard("Floor", e::floor),
    standard("Gather", m::gather),
    standard("Gelu", e::gelu),
    standard("Gemm", l::gemm),
    standard("GlobalAveragePool", w::global_average_pool),
    standard("GlobalMaxPool", w::global_max_pool),
    standard("Greater", e::greater),
    standard("GreaterOrEqual", e::greater_or_equal),
    standard("GroupNormalization", c::group_norm),
    standard("HardSigmoid", e::hard_sigmoid),
    standard("HardSwish", e::hard_swish),
    standard("Identity", e::identity),
    standard("InstanceNormalization", c::instance_norm),
    standard("IsNaN", c::is_nan),
    standard("LRN", n::lrn),
    standard("LayerNormalization", n::layer_norm),
    standard("LeakyRelu", e::leaky_relu),
    standard("Less", e::less),
    standard("LessOrEqual", e::less_or_equal),
    standard("Log", e::log),
    standard("LogSoftmax", n::log_softmax),
    standard("MatMul", l::matmul),
    standard("Max", e::max),
    standard("MaxPool", w::max_pool),
    standard("Mean", e::mean),
    standard("Min", e::min),
    standard("Mish", c::mish),
    standard("Mod", e::modulo),
    standard("Mul", e::mul),
    standard("Neg", e::neg),
    standard("Not", e::not),
    standard("Or", e::or),
    standard("PRelu", e::prelu),
    standard("Pad", m::pad),
    standard("Pow", e::pow),
    standard("RMSNormalization", c::rms_norm),
    standard("Range", s::range),
    standard("Reciprocal", e::reciprocal),
    standard("ReduceL1", r::l1),
    standard("ReduceL2", r::l2),
    standard("ReduceLogSum", r::log_sum),
    standard("ReduceLogSumExp", r::log_sum_exp),
    standard("ReduceMax", r::max),
    standard("ReduceMean", r::mean),
    standard("ReduceMin", r::min),
    standard("ReduceProd", r::prod),
    standard("ReduceSum", r::sum),
    standard("ReduceSumSquare", r::sum_square),
    standard("Relu", e::relu),
    standard("Reshape", m::reshape),
    standard("Round", e::round),
    standard("Selu", c::selu),
    standard("Shape", s::shape),
    standard("Sigmoid", e::sigmoid),
    standard("Sign", e::sign),
    standard("Size", s::size),
    standard("Slice", m::slice),
    standard("Softmax", n::softmax),
    standard("Softplus", c::softplus),
    standard("Softsign", e::softsign),
    standard("SpaceToDepth", m::space_to_depth),
    standard("Split", m::split),
    standard("Sqrt", e::sqrt),
    standard("Squeeze", m::squeeze),
    standard("Sub", e::sub),
    standard("Sum", e::sum),
    standard("Swish", c::swish),
    standard("Tanh", e::tanh),
    standard("ThresholdedRelu", c::thresholded_relu),
    standard("Tile", m::tile),
    standard("Transpose", m::transpose),
    standard("Unsqueeze", m::unsqueeze),
    standard("Where", e::select),
    standard("Xor", e::xor),
    Operator {
        domain: "com.microsoft",
        name: "Gelu",
        import: e::gelu,
    },
];

/// The importer of an operator.
pub(super) fn find(domain: &str, name: &str) -> Option<&'static Operator> {
    OPERATORS
        .iter()
        .find(|o| o.domain == domain && o.name == name)
}
