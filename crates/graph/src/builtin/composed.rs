//! Operators of the table that are small graphs, or whose arguments are texts.

use super::net::Net;
use super::operators::{checked, input};
use super::spec::Arguments;
use crate::model::{ModelError, ValueId};
use crate::ops::{
    Binary, Contract, Conv, LayerNorm, Op, OpError, Reduce, ReduceKind, Reshape, Slice, Softmax,
    Transpose, Unary,
};
use tensor::DType;

type Built = Result<ValueId, ModelError>;

fn refused(op: &'static str, problem: impl Into<String>) -> ModelError {
    ModelError {
        node: op.to_string(),
        op,
        source: OpError(problem.into()),
    }
}

fn reshape(net: &mut Net, x: ValueId, shape: Vec<usize>) -> Built {
    net.try_add(Op::Reshape(Reshape { shape }), &[x])
}

fn transposed(net: &mut Net, x: ValueId, perm: &[usize]) -> Built {
    let perm = perm.to_vec();
    net.try_add(Op::Transpose(Transpose { perm }), &[x])
}

fn binary(net: &mut Net, op: Binary, x: ValueId, y: ValueId) -> Built {
    net.try_add(Op::Binary(op), &[x, y])
}

pub(super) fn contract(net: &mut Net, a: &Arguments) -> Built {
    let spec = a.text("spec");
    let wrong = |problem: String| refused("contract", problem);
    let contract = Contract::parse(spec).map_err(|e| wrong(e.0))?;
    let mut extents = [None; 26];
    for name in a.letters() {
        if !contract.letters().iter().any(|l| name == l.to_string()) {
            return Err(wrong(format!("{spec} has no letter `{name}`")));
        }
        extents[usize::from(name.as_bytes()[0] - b'a')] = a.try_get(name);
    }
    let extent = |l: &char| {
        if !l.is_ascii_lowercase() {
            return Err(wrong(format!(
                "letter `{l}` of {spec} is not one of a to z"
            )));
        }
        let extent = extents[*l as usize - 'a' as usize];
        extent.ok_or_else(|| {
            wrong(format!(
                "letter `{l}` of {spec} has no extent: add {l}=NUMBER"
            ))
        })
    };
    let shape = |letters: &[char]| letters.iter().map(extent).collect::<Result<Vec<_>, _>>();
    let (left, right) = (shape(&contract.left)?, shape(&contract.right)?);
    let (x, y) = (input(net, &left), input(net, &right));
    net.try_add(Op::Contract(contract), &[x, y])
}

/// The products of RAFT (Teed and Deng 2020, section 3.2), for all pairs of pixels.
pub(super) fn correlation(net: &mut Net, a: &Arguments) -> Built {
    let shape = ["n", "c", "h", "w"].map(|d| a.get(d));
    let (x, y) = (input(net, &shape), input(net, &shape));
    let letters = |s: &str| s.chars().collect();
    let all_pairs = Contract {
        left: letters("nchw"),
        right: letters("ncuv"),
        result: letters("nhwuv"),
    };
    net.try_add(Op::Contract(all_pairs), &[x, y])
}

/// The side of a capsule's matrix.
const SIDE: usize = 4;

/// y[n,h,w,i,j,k] = sum over windows, l and c of x[n,..,i,l,c] weight[..,l,j,c,k]: a
/// convolution in which the rows i of a capsule are a batch, and its columns are channels.
pub(super) fn capsule_conv(net: &mut Net, a: &Arguments) -> Built {
    let (n, c, h, w) = (a.get("n"), a.get("c"), a.get("h"), a.get("w"));
    let k = a.get("k");
    let x = input(net, &[n, h, w, SIDE, SIDE, c]);
    let images = transposed(net, x, &[0, 3, 4, 5, 1, 2])?;
    let images = reshape(net, images, vec![n * SIDE, SIDE * c, h, w])?;
    let kernel = [SIDE * k, SIDE * c, a.get("r"), a.get("s")];
    checked(net, &kernel, "conv")?;
    let weight = net.weight("weight", &kernel, kernel[1..].iter().product(), 1.0);
    let conv = Conv {
        strides: vec![a.get("stride"); 2],
        dilations: vec![1; 2],
        pads: vec![(a.get("pad"), a.get("pad")); 2],
        groups: 1,
    };
    let maps = net.try_add(Op::Conv(conv), &[images, weight])?;
    let plane = [net.model[maps].shape()[2], net.model[maps].shape()[3]];
    let maps = reshape(net, maps, vec![n, SIDE, SIDE, k, plane[0], plane[1]])?;
    transposed(net, maps, &[0, 4, 5, 1, 2, 3])
}

pub(super) fn attention(net: &mut Net, a: &Arguments) -> Built {
    let shape = ["heads", "n", "d"].map(|p| a.get(p));
    let mut tensor = |name: &str| net.model.add_input(name, DType::F32, &shape);
    let (q, k, v) = (tensor("q"), tensor("k"), tensor("v"));
    let keys = transposed(net, k, &[0, 2, 1])?;
    let scores = net.try_add(Op::MatMul, &[q, keys])?;
    let root = net.scalar("root", (shape[2] as f32).sqrt());
    let scores = binary(net, Binary::Div, scores, root)?;
    let weights = net.try_add(Op::Softmax(Softmax { axis: 2 }), &[scores])?;
    net.try_add(Op::MatMul, &[weights, v])
}

/// i, f, g, o = x Wx + h Wh + b; c' = sigmoid(f) c + sigmoid(i) tanh(g); h' = sigmoid(o) tanh(c')
/// (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000). The outputs are c' and h'.
pub(super) fn lstm_cell(net: &mut Net, a: &Arguments) -> Built {
    let [n, width, hidden] = ["n", "x", "hidden"].map(|p| a.get(p));
    let gates = hidden.saturating_mul(4);
    let mut tensor = |name: &str, width| net.model.add_input(name, DType::F32, &[n, width]);
    let (x, h, c) = (tensor("x", width), tensor("h", hidden), tensor("c", hidden));
    checked(net, &[width, gates], "matmul")?;
    checked(net, &[hidden, gates], "matmul")?;
    let of_x = net.weight("weight_x", &[width, gates], width, 1.0);
    let of_h = net.weight("weight_h", &[hidden, gates], hidden, 1.0);
    let bias = net.uniform("bias", &[gates], -0.1, 0.1);
    let from_x = net.try_add(Op::MatMul, &[x, of_x])?;
    let from_h = net.try_add(Op::MatMul, &[h, of_h])?;
    let sum = binary(net, Binary::Add, from_x, from_h)?;
    let sum = binary(net, Binary::Add, sum, bias)?;
    let mut gate = |at: usize, activation: Unary| {
        let part = Slice {
            starts: vec![0, at * hidden],
            steps: vec![1, 1],
            sizes: vec![n, hidden],
        };
        let part = net.try_add(Op::Slice(part), &[sum])?;
        net.try_add(Op::Unary(activation), &[part])
    };
    let input = gate(0, Unary::Sigmoid)?;
    let forget = gate(1, Unary::Sigmoid)?;
    let new = gate(2, Unary::Tanh)?;
    let output = gate(3, Unary::Sigmoid)?;
    let kept = binary(net, Binary::Mul, forget, c)?;
    let added = binary(net, Binary::Mul, input, new)?;
    let c = binary(net, Binary::Add, kept, added)?;
    net.output("next_c", c);
    let shown = net.try_add(Op::Unary(Unary::Tanh), &[c])?;
    binary(net, Binary::Mul, output, shown)
}

/// A layer normalisation of each group of channels, then a scale and shift a channel.
pub(super) fn group_norm(net: &mut Net, a: &Arguments) -> Built {
    let shape = ["n", "c", "h", "w"].map(|d| a.get(d));
    let [n, c, h, w] = shape;
    let groups = a.get("groups");
    if !c.is_multiple_of(groups) {
        let problem = format!("c={c} channels are not a multiple of groups={groups}");
        return Err(refused("group_norm", problem));
    }
    let x = input(net, &shape);
    let parts = reshape(net, x, vec![n, groups, c / groups * h * w])?;
    let one = net.scalar("one", 1.0);
    let norm = LayerNorm {
        axis: 2,
        epsilon: 1e-5,
        statistics: false,
    };
    let normal = net.try_add(Op::LayerNorm(norm), &[parts, one])?;
    let whole = reshape(net, normal, shape.to_vec())?;
    let scale = net.uniform("scale", &[c, 1, 1], 0.8, 1.2);
    let shift = net.uniform("shift", &[c, 1, 1], -0.1, 0.1);
    let scaled = binary(net, Binary::Mul, whole, scale)?;
    binary(net, Binary::Add, scaled, shift)
}

/// m + log(sum of exp(x - m)), with the row's maximum m, so that nothing overflows.
pub(super) fn log_sum_exp(net: &mut Net, a: &Arguments) -> Built {
    let rows = a.get("rows");
    let x = input(net, &[rows, a.get("cols")]);
    let reduce = |kind| {
        Op::Reduce(Reduce {
            kind,
            axes: vec![1],
            keepdims: true,
        })
    };
    let max = net.try_add(reduce(ReduceKind::Max), &[x])?;
    let shifted = binary(net, Binary::Sub, x, max)?;
    let powers = net.try_add(Op::Unary(Unary::Exp), &[shifted])?;
    let sum = net.try_add(reduce(ReduceKind::Sum), &[powers])?;
    let log = net.try_add(Op::Unary(Unary::Log), &[sum])?;
    let y = binary(net, Binary::Add, log, max)?;
    reshape(net, y, vec![rows])
}

pub(super) fn transpose(net: &mut Net, a: &Arguments) -> Built {
    let text = a.text("perm");
    let wrong = |problem: String| refused("transpose", format!("perm={text}: {problem}"));
    let digits = text.chars().map(|c| c.to_digit(10).map(|d| d as usize));
    let perm: Option<Vec<usize>> = digits.collect();
    let axes = ["n", "c", "rows", "cols"];
    let perm = perm.filter(|p| (2..=axes.len()).contains(&p.len()));
    let is_order = |p: &Vec<usize>| (0..p.len()).all(|d| p.contains(&d));
    let Some(perm) = perm.filter(is_order) else {
        let valid = "an order of the axes such as 10, 102 or 0213 is needed";
        return Err(wrong(valid.to_string()));
    };
    let (unused, own) = axes.split_at(axes.len() - perm.len());
    if let Some(axis) = unused.iter().find(|d| a.get(d) != 1) {
        let names = own.join(",");
        return Err(wrong(format!("the axes are [{names}], without `{axis}`")));
    }
    let shape: Vec<usize> = own.iter().map(|d| a.get(d)).collect();
    let x = input(net, &shape);
    transposed(net, x, &perm)
}
