//! Which ONNX operators can be imported, and by what.

use crate::node::{Imported, NodeImport};
use crate::{
    attention as a, bits, bnb, composite as c, contract as k, cumulative as u, elementwise as e,
    experts as b, fused as f, grouped as v, image as g, indexing as x, linear as l, losses as o,
    movement as m, norm as n, qlinear as d, quantized as q, recurrent as t, reduce as r,
    regions as y, resize as i, select as h, sequence as j, shapes as s, spectrum as z,
    windows as w,
};

/// An importable ONNX operator.
pub struct Operator {
    /// Empty for the standard operators.
    pub domain: &'static str,
    pub name: &'static str,
    pub(crate) import: fn(&mut NodeImport) -> Imported,
}

const fn standard(name: &'static str, import: fn(&mut NodeImport) -> Imported) -> Operator {
    Operator {
        domain: "",
        name,
        import,
    }
}

/// Of the domain of operators that ONNX Runtime's optimiser writes.
const fn microsoft(name: &'static str, import: fn(&mut NodeImport) -> Imported) -> Operator {
    Operator {
        domain: "com.microsoft",
        name,
        import,
    }
}

/// By name. An operator missing here is reported as unsupported.
pub const OPERATORS: &[Operator] = &[
    standard("Abs", e::abs),
    standard("Acos", e::acos),
    standard("Acosh", e::acosh),
    standard("Add", e::add),
    standard("AffineGrid", g::affine_grid),
    standard("And", e::and),
    standard("ArgMax", r::arg_max),
    standard("ArgMin", r::arg_min),
    standard("Asin", e::asin),
    standard("Asinh", e::asinh),
    standard("Atan", e::atan),
    standard("Atanh", e::atanh),
    standard("Attention", a::attention),
    standard("AveragePool", w::average_pool),
    standard("BatchNormalization", n::batch_norm),
    standard("BitCast", bits::bit_cast),
    standard("BitShift", e::bit_shift),
    standard("BitwiseAnd", e::bit_and),
    standard("BitwiseNot", e::bit_not),
    standard("BitwiseOr", e::bit_or),
    standard("BitwiseXor", e::bit_xor),
    standard("BlackmanWindow", o::blackman_window),
    standard("Cast", e::cast),
    standard("CastLike", e::cast_like),
    standard("CausalConvWithState", f::causal_conv),
    standard("Ceil", e::ceil),
    standard("Celu", c::celu),
    standard("CenterCropPad", g::center_crop_pad),
    standard("Clip", e::clip),
    standard("Col2Im", g::col2im),
    standard("Compress", h::compress),
    standard("Concat", m::concat),
    standard("ConcatFromSequence", j::concat),
    standard("Constant", s::constant),
    standard("ConstantOfShape", s::constant_of_shape),
    standard("Conv", w::conv),
    standard("ConvInteger", q::conv_integer),
    standard("ConvTranspose", w::conv_transpose),
    standard("Cos", e::cos),
    standard("Cosh", e::cosh),
    standard("CumProd", u::prod),
    standard("CumSum", u::sum),
    standard("DFT", z::dft),
    standard("DeformConv", y::deform_conv),
    standard("DepthToSpace", m::depth_to_space),
    standard("DequantizeLinear", q::dequantize_linear),
    standard("Det", y::det),
    standard("Div", e::div),
    standard("Dropout", e::dropout),
    standard("DynamicQuantizeLinear", q::dynamic_quantize_linear),
    standard("Einsum", k::einsum),
    standard("Elu", c::elu),
    standard("Equal", e::equal),
    standard("Erf", e::erf),
    standard("Exp", e::exp),
    standard("Expand", m::expand),
    standard("EyeLike", x::eye_like),
    standard("Flatten", m::flatten),
    standard("Floor", e::floor),
    standard("GRU", t::gru),
    standard("Gather", m::gather),
    standard("GatherElements", x::gather_elements),
    standard("GatherND", x::gather_nd),
    standard("Gelu", e::gelu),
    standard("Gemm", l::gemm),
    standard("GlobalAveragePool", w::global_average_pool),
    standard("GlobalLpPool", c::global_lp_pool),
    standard("GlobalMaxPool", w::global_max_pool),
    standard("Greater", e::greater),
    standard("GreaterOrEqual", e::greater_or_equal),
    standard("GridSample", g::grid_sample),
    standard("GroupNormalization", c::group_norm),
    standard("HammingWindow", o::hamming_window),
    standard("HannWindow", o::hann_window),
    standard("HardSigmoid", e::hard_sigmoid),
    standard("HardSwish", e::hard_swish),
    standard("Hardmax", x::hardmax),
    standard("Identity", e::identity),
    standard("InstanceNormalization", c::instance_norm),
    standard("IsInf", c::is_inf),
    standard("IsNaN", c::is_nan),
    standard("LRN", n::lrn),
    standard("LSTM", t::lstm),
    standard("LayerNormalization", n::layer_norm),
    standard("LeakyRelu", e::leaky_relu),
    standard("Less", e::less),
    standard("LessOrEqual", e::less_or_equal),
    standard("Log", e::log),
    standard("LogSoftmax", n::log_softmax),
    standard("LpNormalization", c::lp_normalization),
    standard("LpPool", c::lp_pool),
    standard("MatMul", l::matmul),
    standard("MatMulInteger", q::matmul_integer),
    standard("Max", e::max),
    standard("MaxPool", w::max_pool),
    standard("MaxRoiPool", y::max_roi_pool),
    standard("MaxUnpool", w::max_unpool),
    standard("Mean", e::mean),
    standard("MeanVarianceNormalization", c::mean_variance_norm),
    standard("MelWeightMatrix", z::mel_weight_matrix),
    standard("Min", e::min),
    standard("Mish", c::mish),
    standard("Mod", e::modulo),
    standard("Mul", e::mul),
    standard("Neg", e::neg),
    standard("NegativeLogLikelihoodLoss", o::negative_log_likelihood),
    standard("NonMaxSuppression", h::non_max_suppression),
    standard("NonZero", h::non_zero),
    standard("Not", e::not),
    standard("OneHot", x::one_hot),
    standard("Optional", j::optional),
    standard("OptionalGetElement", j::optional),
    standard("OptionalHasElement", j::has_element),
    standard("Or", e::or),
    standard("PRelu", e::prelu),
    standard("Pad", m::pad),
    standard("Pow", e::pow),
    standard("QLinearConv", q::qlinear_conv),
    standard("QLinearMatMul", q::qlinear_matmul),
    standard("QuantizeLinear", q::quantize_linear),
    standard("RMSNormalization", c::rms_norm),
    standard("RNN", t::rnn),
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
    standard("Resize", i::resize),
    standard("ReverseSequence", x::reverse_sequence),
    standard("RoiAlign", y::roi_align),
    standard("RotaryEmbedding", a::rotary_embedding),
    standard("Round", e::round),
    standard("STFT", z::stft),
    standard("Scatter", x::scatter_elements),
    standard("ScatterElements", x::scatter_elements),
    standard("ScatterND", x::scatter_nd),
    standard("Selu", c::selu),
    standard("SequenceAt", j::at),
    standard("SequenceConstruct", j::construct),
    standard("SequenceEmpty", j::empty),
    standard("SequenceErase", j::erase),
    standard("SequenceInsert", j::insert),
    standard("SequenceLength", j::length),
    standard("Shape", s::shape),
    standard("Shrink", c::shrink),
    standard("Sigmoid", e::sigmoid),
    standard("Sign", e::sign),
    standard("SimplifiedLayerNormalization", f::simplified_layer_norm),
    standard("Sin", e::sin),
    standard("Sinh", e::sinh),
    standard("Size", s::size),
    standard("Slice", m::slice),
    standard("Softmax", n::softmax),
    standard("SoftmaxCrossEntropyLoss", o::softmax_cross_entropy),
    standard("Softplus", c::softplus),
    standard("Softsign", e::softsign),
    standard("SpaceToDepth", m::space_to_depth),
    standard("Split", m::split),
    standard("SplitToSequence", j::split),
    standard("Sqrt", e::sqrt),
    standard("Squeeze", m::squeeze),
    standard("Sub", e::sub),
    standard("Sum", e::sum),
    standard("SwiGLU", f::swiglu),
    standard("Swish", c::swish),
    standard("Tan", e::tan),
    standard("Tanh", e::tanh),
    standard("TensorScatter", f::tensor_scatter),
    standard("ThresholdedRelu", c::thresholded_relu),
    standard("Tile", m::tile),
    standard("TopK", x::top_k),
    standard("Transpose", m::transpose),
    standard("Trilu", x::trilu),
    standard("Unique", h::unique),
    standard("Unsqueeze", m::unsqueeze),
    standard("Upsample", i::upsample),
    standard("Where", e::select),
    standard("Xor", e::xor),
    microsoft("Attention", f::microsoft_attention),
    microsoft("BiasGelu", f::bias_gelu),
    microsoft("CDist", c::distances),
    microsoft("DynamicQuantizeLSTM", t::dynamic_quantize_lstm),
    microsoft("DynamicQuantizeMatMul", d::dynamic_quantize_matmul),
    microsoft("EmbedLayerNormalization", f::embed_layer_norm),
    microsoft("ExpandDims", m::expand_dims),
    microsoft("FastGelu", f::fast_gelu),
    microsoft("FusedConv", f::fused_conv),
    microsoft("FusedGemm", f::fused_gemm),
    microsoft("FusedMatMul", f::fused_matmul),
    microsoft("GatherBlockQuantized", b::gather_block_quantized),
    microsoft("GatherND", x::gather_nd),
    microsoft("Gelu", e::gelu),
    microsoft("GridSample", g::grid_sample),
    microsoft("GroupQueryAttention", v::group_query_attention),
    microsoft("Inverse", y::inverse),
    microsoft("MatMulBnb4", bnb::matmul),
    microsoft("MatMulIntegerToFloat", d::matmul_integer_to_float),
    microsoft("MatMulNBits", d::matmul_n_bits),
    microsoft("MoE", b::moe),
    microsoft("MultiHeadAttention", f::multi_head_attention),
    microsoft("DequantizeLinear", q::dequantize_linear),
    microsoft("NhwcMaxPool", w::nhwc_max_pool),
    microsoft("Pad", m::microsoft_pad),
    microsoft("QAttention", d::attention),
    microsoft("QGemm", d::gemm),
    microsoft("QLinearAdd", d::add),
    microsoft("QLinearAveragePool", d::average_pool),
    microsoft("QLinearConcat", d::concat),
    microsoft("QLinearConv", d::conv),
    microsoft("QLinearGlobalAveragePool", d::global_average_pool),
    microsoft("QLinearLeakyRelu", d::leaky_relu),
    microsoft("QLinearMul", d::mul),
    microsoft("QLinearSigmoid", d::sigmoid),
    microsoft("QLinearSoftmax", d::softmax),
    microsoft("QLinearWhere", d::select),
    microsoft("QMoE", b::quantized_moe),
    microsoft("QuantizeLinear", q::quantize_linear),
    microsoft("QuickGelu", f::quick_gelu),
    microsoft("Range", s::range),
    microsoft("RotaryEmbedding", a::microsoft_rotary_embedding),
    microsoft("SkipLayerNormalization", f::skip_layer_norm),
    microsoft(
        "SkipSimplifiedLayerNormalization",
        f::skip_simplified_layer_norm,
    ),
    microsoft("TransposeMatMul", f::fused_matmul),
    microsoft("Trilu", x::trilu),
    microsoft("Unique", h::microsoft_unique),
];

/// The importer of an operator.
pub(crate) fn find(domain: &str, name: &str) -> Option<&'static Operator> {
    OPERATORS
        .iter()
        .find(|o| o.domain == domain && o.name == name)
}

/// Operators whose results are random.
const RANDOM: [&str; 6] = [
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];
/// Searches over a model that is an attribute of theirs.
const GENERATION: [&str; 5] = [
    "BeamSearch",
    "GreedySearch",
    "NGramRepeatBlock",
    "Sampling",
    "WhisperBeamSearch",
];
/// Operators of com.microsoft that the optimiser writes for one kind of device, of which it has
/// others to write where it is told another kind.
const OF_A_DEVICE: [&str; 6] = [
    "GemmFastGelu",
    "NhwcConv",
    "NhwcFusedConv",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "SparseAttention",
];
/// Operators of training.
const TRAINING: [&str; 4] = ["Adagrad", "Adam", "Gradient", "Momentum"];

/// Why an operator cannot be imported, and what to do.
pub(crate) fn refusal(domain: &str, name: &str) -> &'static str {
    let standard = domain.is_empty() || domain.starts_with("ai.onnx");
    if standard && RANDOM.contains(&name) {
        "its result is random; export the model for inference, or make what it draws an input"
    } else if standard && TRAINING.contains(&name) {
        "it is for training; export the model for inference"
    } else if domain == "com.microsoft" && GENERATION.contains(&name) {
        "it generates a text with a model that it holds; export that model, and let the \
         application choose tokens"
    } else if domain == "com.microsoft" && OF_A_DEVICE.contains(&name) {
        "ONNX Runtime's optimiser wrote it for one kind of device; give the model before it was \
         optimised, or optimised at the level `basic`"
    } else if domain == "com.microsoft" && name == "BifurcationDetector" {
        "it compares drafts of tokens in a loop of generation; export the decoder alone"
    } else {
        "there is no such operator here"
    }
}
