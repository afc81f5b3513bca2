//! The operators that a specification can name: a table of parameters and a
//! builder each.

use super::composed;
use super::net::Net;
use super::ordered;
use super::resize;
use super::spec::Arguments;
use crate::model::{ModelError, ValueId};
use crate::ops::{
    Binary, Concat, Conv, ConvInteger, ConvTranspose, Gather, Gelu, LayerNorm, Op, OpError, Pool,
    PoolKind, Reduce, ReduceKind, Softmax, Transpose, Unary,
};
use tensor::DType;

/// What a parameter is where a specification does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// For a parameter with words, the position of one.
    Number(i64),
    /// What the smallest window has on each side of its middle.
    Centred,
    /// A text, which may hold commas.
    Text(&'static str),
    /// The extent of the axes of this letter in the preset text. Where a text is given,
    /// the extents of its letters are given as well.
    Letter(i64),
}

/// A parameter of an operator's specification.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub default: Preset,
    /// The smallest number allowed.
    pub least: i64,
    /// What may be written; empty for a number.
    pub words: &'static [&'static str],
}

/// An operator that a specification can name.
pub struct OperatorInfo {
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    pub parameters: &'static [Parameter],
    build: fn(&mut Net, &Arguments) -> Result<ValueId, ModelError>,
}

const fn size(name: &'static str, default: i64) -> Parameter {
    Parameter {
        name,
        default: Preset::Number(default),
        least: 1,
        words: &[],
    }
}

const fn count(name: &'static str, default: i64) -> Parameter {
    Parameter {
        name,
        default: Preset::Number(default),
        least: 0,
        words: &[],
    }
}

/// One of some words; `default` is the position of one.
const fn words(name: &'static str, words: &'static [&'static str], default: i64) -> Parameter {
    Parameter {
        name,
        default: Preset::Number(default),
        least: 0,
        words,
    }
}

const fn text(name: &'static str, default: &'static str) -> Parameter {
    Parameter {
        name,
        default: Preset::Text(default),
        least: 0,
        words: &[],
    }
}

macro_rules! letters {
    ($($letter:ident)*) => {
        &[
            text("spec", "abcd,cbe->aed"),
            $(Parameter {
                name: stringify!($letter),
                default: Preset::Letter(32),
                least: 1,
                words: &[],
            }),*
        ]
    };
}

/// An equation, and the extents of its letters.
const CONTRACT: &[Parameter] = letters!(a b c d e f g h i j k l m n o p q r s t u v w x y z);
/// The letters alone.
pub(super) const LETTERS: &[Parameter] = CONTRACT.split_at(1).1;

/// On both sides of every spatial axis.
const PAD: Parameter = Parameter {
    name: "pad",
    default: Preset::Centred,
    least: 0,
    words: &[],
};
const LAYOUT: Parameter = words("layout", &["nchw", "nhwc", "blocked"], 2);
const BIAS: Parameter = words("bias", &["no", "yes"], 0);
const ACTIVATION: Parameter = words("activation", &["none", "relu", "gelu", "sigmoid"], 0);

/// Of activations and weights: f32, or u8 and i8 with sums in i32.
const DTYPE: Parameter = words("dtype", &["f32", "i8"], 0);

macro_rules! conv_parameters {
    ($($own:expr),* ; $c:expr, $k:expr, $groups:expr; $($more:expr),*) => {
        &[
            size("n", 1), size("c", $c), $($own,)* size("k", $k),
            size("stride", 1), PAD, size("dilation", 1), size("groups", $groups),
            BIAS, ACTIVATION, $($more),*
        ]
    };
}

const fn operator(
    name: &'static str,
    doc: &'static str,
    parameters: &'static [Parameter],
    build: fn(&mut Net, &Arguments) -> Result<ValueId, ModelError>,
) -> OperatorInfo {
    OperatorInfo {
        name,
        doc,
        parameters,
        build,
    }
}

/// By name, with defaults.
pub const OPERATORS: &[OperatorInfo] = &[
    operator(
        "conv1d",
        "convolution of [n,c,w] with [k,c/groups,s]",
        conv_parameters!(size("w", 128), size("s", 3); 64, 64, 1; LAYOUT),
        |net, a| conv(net, a, &["w"], &["s"]),
    ),
    operator(
        "conv2d",
        "convolution of [n,c,h,w] with [k,c/groups,r,s]",
        conv_parameters!(size("h", 56), size("w", 56), size("r", 3), size("s", 3); 64, 64, 1; LAYOUT, DTYPE),
        |net, a| conv(net, a, &["h", "w"], &["r", "s"]),
    ),
    operator(
        "conv3d",
        "convolution of [n,c,d,h,w] with [k,c/groups,q,r,s]",
        conv_parameters!(
            size("d", 8), size("h", 28), size("w", 28), size("q", 3), size("r", 3), size("s", 3);
            32, 32, 1; LAYOUT
        ),
        |net, a| conv(net, a, &["d", "h", "w"], &["q", "r", "s"]),
    ),
    operator(
        "grouped_conv2d",
        "conv2d in 32 groups",
        conv_parameters!(size("h", 28), size("w", 28), size("r", 3), size("s", 3); 128, 128, 32; LAYOUT),
        |net, a| conv(net, a, &["h", "w"], &["r", "s"]),
    ),
    operator(
        "depthwise_conv2d",
        "every channel of [n,c,h,w] with its own [r,s]",
        &[
            size("n", 1),
            size("c", 64),
            size("h", 56),
            size("w", 56),
            size("r", 3),
            size("s", 3),
            size("stride", 1),
            PAD,
            size("dilation", 1),
            BIAS,
            ACTIVATION,
            LAYOUT,
        ],
        |net, a| conv(net, a, &["h", "w"], &["r", "s"]),
    ),
    operator(
        "conv1d_transpose",
        "transposed convolution of [n,c,w] with [c,k/groups,s]",
        conv_parameters!(size("w", 64), size("s", 4), count("output_pad", 0); 64, 64, 1; LAYOUT),
        |net, a| conv_transpose(net, a, &["w"], &["s"]),
    ),
    operator(
        "conv2d_transpose",
        "transposed convolution of [n,c,h,w] with [c,k/groups,r,s]",
        conv_parameters!(
            size("h", 28), size("w", 28), size("r", 4), size("s", 4), count("output_pad", 0);
            64, 64, 1; LAYOUT
        ),
        |net, a| conv_transpose(net, a, &["h", "w"], &["r", "s"]),
    ),
    operator(
        "conv3d_transpose",
        "transposed convolution of [n,c,d,h,w] with [c,k/groups,q,r,s]",
        conv_parameters!(
            size("d", 8), size("h", 14), size("w", 14), size("q", 4), size("r", 4), size("s", 4),
            count("output_pad", 0);
            16, 16, 1; LAYOUT
        ),
        |net, a| conv_transpose(net, a, &["d", "h", "w"], &["q", "r", "s"]),
    ),
    operator(
        "matmul",
        "[m,k] [k,n], both inputs",
        &[size("m", 512), size("n", 512), size("k", 512), ACTIVATION],
        |net, a| {
            let (x, y) = (
                input(net, &[a.get("m"), a.get("k")]),
                input(net, &[a.get("k"), a.get("n")]),
            );
            let z = net.try_add(Op::MatMul, &[x, y])?;
            activation(net, a, z)
        },
    ),
    operator(
        "batch_matmul",
        "[b,m,k] [b,k,n], both inputs",
        &[
            size("b", 12),
            size("m", 128),
            size("n", 128),
            size("k", 64),
            ACTIVATION,
        ],
        |net, a| {
            let b = a.get("b");
            let x = input(net, &[b, a.get("m"), a.get("k")]);
            let y = input(net, &[b, a.get("k"), a.get("n")]);
            let z = net.try_add(Op::MatMul, &[x, y])?;
            activation(net, a, z)
        },
    ),
    operator(
        "dense",
        "[m,k] with constant weights [k,n]",
        &[
            size("m", 128),
            size("n", 768),
            size("k", 768),
            BIAS,
            ACTIVATION,
            DTYPE,
        ],
        dense,
    ),
    operator(
        "contract",
        "two inputs, summed over the letters that the result lacks",
        CONTRACT,
        composed::contract,
    ),
    operator(
        "correlation",
        "of all pixels of [n,c,h,w] with all of another [n,c,h,w]",
        &[size("n", 1), size("c", 64), size("h", 14), size("w", 14)],
        composed::correlation,
    ),
    operator(
        "capsule_conv2d",
        "convolution of matrices 4x4, [n,h,w,4,4,c] with k x c of them a window",
        &[
            size("n", 1),
            size("c", 8),
            size("h", 16),
            size("w", 16),
            size("k", 8),
            size("r", 3),
            size("s", 3),
            size("stride", 1),
            PAD,
        ],
        composed::capsule_conv,
    ),
    operator(
        "attention",
        "softmax(q k' / sqrt(d)) v for each of the heads; all are [heads,n,d]",
        &[size("heads", 12), size("n", 128), size("d", 64)],
        composed::attention,
    ),
    operator(
        "lstm_cell",
        "one step of an LSTM: [n,x] and the states [n,hidden] to the next states, with constant weights",
        &[size("n", 20), size("x", 650), size("hidden", 650)],
        composed::lstm_cell,
    ),
    operator(
        "softmax",
        "over the columns of [rows,cols], or of [rows,cols,inner]",
        &[size("rows", 1536), size("cols", 128), size("inner", 1)],
        |net, a| {
            let shape = ["rows", "cols", "inner"].map(|d| a.get(d));
            let rank = if shape[2] == 1 { 2 } else { 3 };
            let x = input(net, &shape[..rank]);
            net.try_add(Op::Softmax(Softmax { axis: 1 }), &[x])
        },
    ),
    operator(
        "layer_norm",
        "over the columns of [rows,cols]",
        &[size("rows", 128), size("cols", 768)],
        layer_norm,
    ),
    operator(
        "group_norm",
        "over the channels and pixels of each group of [n,c,h,w]",
        &[
            size("n", 1),
            size("c", 64),
            size("h", 28),
            size("w", 28),
            size("groups", 32),
        ],
        composed::group_norm,
    ),
    operator(
        "log_sum_exp",
        "over the columns of [rows,cols]",
        &[size("rows", 1024), size("cols", 1024)],
        composed::log_sum_exp,
    ),
    operator(
        "max_pool2d",
        "maximum over windows of [n,c,h,w]",
        POOL,
        |net, a| {
            pool(
                net,
                a,
                PoolKind::Max { indices: None },
                &["h", "w"],
                &["r", "s"],
            )
        },
    ),
    operator(
        "max_pool3d",
        "maximum over windows of [n,c,d,h,w]",
        &[
            size("n", 1),
            size("c", 64),
            size("d", 8),
            size("h", 28),
            size("w", 28),
            size("q", 3),
            size("r", 3),
            size("s", 3),
            size("stride", 2),
            PAD,
            size("dilation", 1),
        ],
        |net, a| {
            let max = PoolKind::Max { indices: None };
            pool(net, a, max, &["d", "h", "w"], &["q", "r", "s"])
        },
    ),
    operator(
        "avg_pool2d",
        "mean over windows of [n,c,h,w]",
        POOL,
        |net, a| {
            let count_include_pad = false;
            let mean = PoolKind::Average { count_include_pad };
            pool(net, a, mean, &["h", "w"], &["r", "s"])
        },
    ),
    operator(
        "global_avg_pool2d",
        "mean over the pixels of [n,c,h,w]",
        &[size("n", 1), size("c", 512), size("h", 7), size("w", 7)],
        |net, a| {
            let x = input(net, &["n", "c", "h", "w"].map(|d| a.get(d)));
            let mean = Reduce {
                kind: ReduceKind::Mean,
                axes: vec![2, 3],
                keepdims: true,
            };
            net.try_add(Op::Reduce(mean), &[x])
        },
    ),
    operator(
        "resize2d",
        "interpolation of [n,c,h,w] to [n,c,to_h,to_w]",
        &[
            size("n", 1),
            size("c", 64),
            size("h", 28),
            size("w", 28),
            size("to_h", 56),
            size("to_w", 56),
            words("mode", resize::MODES, 1),
            words("coordinates", resize::COORDINATES, 0),
        ],
        resize::resize2d,
    ),
    operator(
        "reduce_sum",
        "over the columns of [rows,cols]",
        &[size("rows", 1024), size("cols", 1024)],
        |net, a| {
            let x = input(net, &[a.get("rows"), a.get("cols")]);
            let sum = Reduce {
                kind: ReduceKind::Sum,
                axes: vec![1],
                keepdims: false,
            };
            net.try_add(Op::Reduce(sum), &[x])
        },
    ),
    operator(
        "transpose",
        "[rows,cols], [c,rows,cols] or [n,c,rows,cols] to the order of axes `perm`",
        &[
            size("n", 1),
            size("c", 1),
            size("rows", 1024),
            size("cols", 1024),
            text("perm", "10"),
        ],
        composed::transpose,
    ),
    operator(
        "add",
        "two matrices [rows,cols], then an activation",
        &[size("rows", 1024), size("cols", 1024), ACTIVATION],
        |net, a| {
            let shape = [a.get("rows"), a.get("cols")];
            let (x, y) = (input(net, &shape), input(net, &shape));
            let z = net.try_add(Op::Binary(Binary::Add), &[x, y])?;
            activation(net, a, z)
        },
    ),
    operator(
        "concat",
        "two images [n,c,h,w] along channels",
        &[size("n", 1), size("c", 64), size("h", 28), size("w", 28)],
        |net, a| {
            let shape = ["n", "c", "h", "w"].map(|d| a.get(d));
            let (x, y) = (input(net, &shape), input(net, &shape));
            net.try_add(Op::Concat(Concat { axis: 1 }), &[x, y])
        },
    ),
    operator(
        "gather",
        "rows of a table [table,cols] by [rows] indices",
        &[size("table", 4096), size("rows", 128), size("cols", 768)],
        |net, a| {
            let shape = [a.get("table"), a.get("cols")];
            checked(net, &shape, "gather")?;
            let table = net.uniform("table", &shape, -1.0, 1.0);
            let indices = net.model.add_input("indices", DType::I64, &[a.get("rows")]);
            net.try_add(Op::Gather(Gather { axis: 0 }), &[table, indices])
        },
    ),
    operator(
        "scatter_add",
        "updates [rows,cols] added to the rows of [table,cols] that indices [rows,cols] name",
        &[size("table", 1000), size("rows", 20_000), size("cols", 64)],
        ordered::scatter_add,
    ),
    operator(
        "cumulative_sum",
        "up to each element of [outer,n,inner] along n",
        &[size("outer", 64), size("n", 512), size("inner", 64)],
        ordered::cumulative_sum,
    ),
    operator(
        "top_k",
        "positions of the k largest elements of each row of [rows,cols]",
        &[size("rows", 4), size("cols", 50_257), size("k", 50)],
        ordered::top_k,
    ),
    operator(
        "suppress",
        "the most best of boxes that no better one of their class overlaps",
        &[size("classes", 1), size("boxes", 8400), size("most", 100)],
        ordered::suppress,
    ),
];

const POOL: &[Parameter] = &[
    size("n", 1),
    size("c", 64),
    size("h", 56),
    size("w", 56),
    size("r", 3),
    size("s", 3),
    size("stride", 2),
    PAD,
    size("dilation", 1),
];

/// Builds the one-operator model of a specification.
pub(super) fn build(
    operator: &OperatorInfo,
    arguments: &Arguments,
    net: &mut Net,
) -> Result<(), ModelError> {
    let y = (operator.build)(net, arguments)?;
    net.output("y", y);
    Ok(())
}

/// Whether the specification names a plain layout.
pub(super) fn is_plain(operator: &OperatorInfo, arguments: &Arguments) -> bool {
    let names_layout = operator.parameters.iter().any(|p| p.name == LAYOUT.name);
    let word = names_layout.then(|| LAYOUT.words[arguments.get(LAYOUT.name)]);
    matches!(word, Some("nchw" | "nhwc"))
}

pub(super) fn input(net: &mut Net, shape: &[usize]) -> ValueId {
    net.model.add_input("x", DType::F32, shape)
}

/// Whether the operator is on bytes.
fn is_integer(a: &Arguments) -> bool {
    a.try_get(DTYPE.name)
        .is_some_and(|d| DTYPE.words[d] == "i8")
}

/// The input and the weights of a product.
fn operands(net: &mut Net, a: &Arguments, x: &[usize], w: &[usize], fan_in: usize) -> [ValueId; 2] {
    if is_integer(a) {
        let x = net.model.add_input("x", DType::U8, x);
        return [x, net.bytes("weight", w)];
    }
    [input(net, x), net.weight("weight", w, fan_in, 1.0)]
}

/// Refuses what is not defined on sums of bytes.
fn only_float(a: &Arguments, op: &'static str, what: &str) -> Result<(), ModelError> {
    if !is_integer(a) {
        return Ok(());
    }
    Err(ModelError {
        node: op.to_string(),
        op,
        source: OpError(format!(
            "dtype=i8 goes with no {what}; leave one of them out"
        )),
    })
}

/// The most elements of a drawn tensor.
const MOST_WEIGHTS: usize = 1 << 30;

/// Refuses weights that are too large to draw.
pub(super) fn checked(net: &Net, shape: &[usize], op: &'static str) -> Result<(), ModelError> {
    let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if elements.is_some_and(|n| n <= MOST_WEIGHTS) {
        return Ok(());
    }
    Err(ModelError {
        node: net.model.name.clone(),
        op,
        source: OpError(format!(
            "weights {shape:?} are larger than {MOST_WEIGHTS} elements"
        )),
    })
}

fn activation(net: &mut Net, a: &Arguments, x: ValueId) -> Result<ValueId, ModelError> {
    let op = match ACTIVATION.words[a.get(ACTIVATION.name)] {
        "relu" => Unary::Relu,
        "gelu" => Unary::Gelu(Gelu::Exact),
        "sigmoid" => Unary::Sigmoid,
        _ => return Ok(x),
    };
    only_float(a, op.name(), "activation")?;
    net.try_add(Op::Unary(op), &[x])
}

fn conv(
    net: &mut Net,
    a: &Arguments,
    spatial: &[&str],
    taps: &[&str],
) -> Result<ValueId, ModelError> {
    let rank = spatial.len();
    let channels = a.get("c");
    // Depth-wise operators have neither maps nor groups of their own.
    let (maps, groups) = match (a.try_get("k"), a.try_get("groups")) {
        (Some(maps), Some(groups)) => (maps, groups),
        _ => (channels, channels),
    };
    let mut shape = vec![a.get("n"), channels];
    shape.extend(spatial.iter().map(|d| a.get(d)));
    let mut kernel = vec![maps, channels / groups];
    kernel.extend(taps.iter().map(|d| a.get(d)));
    checked(net, &kernel, "conv")?;
    let fan_in = kernel[1..].iter().product::<usize>().max(1);
    if channels_last(a) {
        shape[1..].rotate_left(1);
    }
    let [x, w] = operands(net, a, &shape, &kernel, fan_in);
    let x = channels_first(net, a, x)?;
    let conv = Conv {
        strides: vec![a.get("stride"); rank],
        dilations: vec![a.get("dilation"); rank],
        pads: vec![(a.get("pad"), a.get("pad")); rank],
        groups,
    };
    let op = if is_integer(a) {
        Op::ConvInteger(ConvInteger {
            conv,
            outside: 0,
            centred: false,
        })
    } else {
        Op::Conv(conv)
    };
    let y = with_bias(net, a, op, x, w, maps)?;
    let y = activation(net, a, y)?;
    as_asked(net, a, y)
}

/// Whether images are asked for with channels as their last axis.
fn channels_last(a: &Arguments) -> bool {
    a.try_get(LAYOUT.name)
        .is_some_and(|l| LAYOUT.words[l] == "nhwc")
}

/// An image as it is asked for with its channels as the second axis.
fn channels_first(net: &mut Net, a: &Arguments, x: ValueId) -> Result<ValueId, ModelError> {
    if !channels_last(a) {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (0..net.model[x].ty().rank()).collect();
    perm[1..].rotate_right(1);
    net.try_add(Op::Transpose(Transpose { perm }), &[x])
}

/// The reverse of [`channels_first`].
fn as_asked(net: &mut Net, a: &Arguments, y: ValueId) -> Result<ValueId, ModelError> {
    if !channels_last(a) {
        return Ok(y);
    }
    let mut perm: Vec<usize> = (0..net.model[y].ty().rank()).collect();
    perm[1..].rotate_left(1);
    net.try_add(Op::Transpose(Transpose { perm }), &[y])
}

fn with_bias(
    net: &mut Net,
    a: &Arguments,
    op: Op,
    x: ValueId,
    w: ValueId,
    maps: usize,
) -> Result<ValueId, ModelError> {
    let mut inputs = vec![x, w];
    if a.flag(BIAS.name) {
        only_float(a, op.name(), "bias")?;
        inputs.push(net.uniform("bias", &[maps], -0.1, 0.1));
    }
    net.try_add(op, &inputs)
}

fn conv_transpose(
    net: &mut Net,
    a: &Arguments,
    spatial: &[&str],
    taps: &[&str],
) -> Result<ValueId, ModelError> {
    let rank = spatial.len();
    let (channels, maps, groups) = (a.get("c"), a.get("k"), a.get("groups"));
    let mut shape = vec![a.get("n"), channels];
    shape.extend(spatial.iter().map(|d| a.get(d)));
    if channels_last(a) {
        shape[1..].rotate_left(1);
    }
    let x = input(net, &shape);
    let x = channels_first(net, a, x)?;
    let mut kernel = vec![channels, maps / groups];
    kernel.extend(taps.iter().map(|d| a.get(d)));
    checked(net, &kernel, "conv_transpose")?;
    let fan_in = channels / groups * kernel[2..].iter().product::<usize>();
    let w = net.weight("weight", &kernel, fan_in.max(1), 1.0);
    let pad = a.get("pad") as i64;
    let op = Op::ConvTranspose(ConvTranspose {
        strides: vec![a.get("stride"); rank],
        dilations: vec![a.get("dilation"); rank],
        pads: vec![(pad, pad); rank],
        output_padding: vec![a.get("output_pad"); rank],
        groups,
    });
    let y = with_bias(net, a, op, x, w, maps)?;
    let y = activation(net, a, y)?;
    as_asked(net, a, y)
}

fn dense(net: &mut Net, a: &Arguments) -> Result<ValueId, ModelError> {
    let (m, n, k) = (a.get("m"), a.get("n"), a.get("k"));
    checked(net, &[k, n], "matmul")?;
    let [x, w] = operands(net, a, &[m, k], &[k, n], k);
    let op = if is_integer(a) {
        Op::MatMulInteger
    } else {
        Op::MatMul
    };
    let mut y = net.try_add(op, &[x, w])?;
    if a.flag(BIAS.name) {
        only_float(a, "dense", "bias")?;
        let bias = net.uniform("bias", &[n], -0.1, 0.1);
        y = net.try_add(Op::Binary(Binary::Add), &[y, bias])?;
    }
    activation(net, a, y)
}

fn layer_norm(net: &mut Net, a: &Arguments) -> Result<ValueId, ModelError> {
    let (rows, cols) = (a.get("rows"), a.get("cols"));
    let x = input(net, &[rows, cols]);
    let scale = net.uniform("scale", &[cols], 0.8, 1.2);
    let shift = net.uniform("shift", &[cols], -0.1, 0.1);
    let norm = LayerNorm {
        axis: 1,
        epsilon: 1e-5,
        statistics: false,
    };
    net.try_add(Op::LayerNorm(norm), &[x, scale, shift])
}

fn pool(
    net: &mut Net,
    a: &Arguments,
    kind: PoolKind,
    spatial: &[&str],
    taps: &[&str],
) -> Result<ValueId, ModelError> {
    let rank = spatial.len();
    let mut shape = vec![a.get("n"), a.get("c")];
    shape.extend(spatial.iter().map(|d| a.get(d)));
    let x = input(net, &shape);
    let pool = Pool {
        kind,
        kernel: taps.iter().map(|t| a.get(t)).collect(),
        strides: vec![a.get("stride"); rank],
        dilations: vec![a.get("dilation"); rank],
        pads: vec![(a.get("pad"), a.get("pad")); rank],
        ceil_mode: false,
    };
    net.try_add(Op::Pool(pool), &[x])
}
