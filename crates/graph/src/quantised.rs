//! Quantised models: products of dequantised bytes become products of the bytes.
//!
//! Tools that quantise models write f32 operators between nodes that dequantise their
//! operands, `(q - zero) scale`, and quantise their results, `clip(round(x / scale) + zero)`
//! (the QDQ form). With one scale and zero point for the whole image x and one for each
//! map of the weights w,
//!
//!   sum of (x - p) s (w - q) t = s t (sum of x (w - q) - p (sum of (w - q))),
//!
//! where the inner sums are of bytes, exact in i32, and the last one is a constant of each
//! map. Operators that only move values move the bytes instead.
//!
//! The sum is exact, and s t is rounded to f32 once. The definition rounds each factor, each
//! product and each sum, in an order that it leaves open: where it rounds nothing, both are
//! equal, and elsewhere the exact sum is the nearer one.

mod images;

use crate::model::{Model, Node, Rewrite, ValueId};
use crate::ops::{Binary, Conv, ConvInteger, Gemm, Op, Pool, PoolKind, Transpose, Unary};
use crate::reference;
use crate::simplify::vector;
use crate::tables::{Table, table};
use std::collections::HashMap;
use std::convert::Infallible;
use tensor::{DType, Tensor};

/// (q - zero) scale: bytes, and constants that broadcast to them.
#[derive(Clone, Copy)]
pub(crate) struct Dequantised {
    pub q: ValueId,
    /// Absent zeros are 0.
    pub zero: Option<ValueId>,
    /// f32.
    pub scale: ValueId,
}

/// Constant bytes without a zero point, and what one step of each of their maps is worth: one
/// value a map, or one for all.
struct Weights {
    bytes: Tensor,
    steps: Vec<f64>,
}

/// How sums of products of bytes become bytes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requantised {
    /// As QuantizeLinear defines it: the sum times the scales of its factors, plus the bias, all
    /// in f32, is divided by the scale of the result. A bias is counted in steps of the sum only
    /// if it is what a whole number of them dequantises to.
    Defined,
    /// By one factor, into which all scales are folded. A number that lies between two bytes may
    /// become the other one; a bias is rounded to whole steps if it is nearly a whole number.
    Folded,
}

/// How far a folded bias may be from a whole number of steps, as exporters round it: in steps, and as a
/// part of it.
const BIAS_TOLERANCE: (f64, f64) = (1e-3, 1e-6);

/// Replaces products of dequantised bytes, which are exact in integers and rounded in floats.
/// What is not recognised stays as it is.
pub fn products_of_bytes(model: &Model, requantised: Requantised) -> Model {
    if !model.nodes().any(|(_, n)| dequantises(n, model)) {
        return model.clone();
    }
    let mut unsigned = HashMap::new();
    let Ok(model) = model.rewrite(|r, _, node| {
        let mut pass = Pass {
            name: &node.name,
            r,
            requantised,
            unsigned: &mut unsigned,
        };
        Ok::<_, Infallible>(match pass.replaced(node) {
            Some(values) => values,
            None => pass.copied(node),
        })
    });
    model
}

/// Whether a node begins to dequantise bytes.
pub(crate) fn dequantises(node: &Node, model: &Model) -> bool {
    let bytes = |v: ValueId| is_byte(model[v].dtype());
    node.op == Op::Cast(DType::I32) && node.input(0).is_some_and(bytes)
}

fn is_byte(d: DType) -> bool {
    matches!(d, DType::U8 | DType::I8)
}

fn node(model: &Model, v: ValueId) -> Option<&Node> {
    model.producer(v).map(|(n, _)| &model[n])
}

/// The operands of a node of this operator and a constant.
fn with_constant(model: &Model, v: ValueId, op: Binary) -> Option<(ValueId, ValueId)> {
    let node = node(model, v).filter(|n| n.op == Op::Binary(op))?;
    let (x, c) = (node.input(0)?, node.input(1)?);
    model.constant(c).map(|_| (x, c))
}

fn cast(model: &Model, v: ValueId, to: DType) -> Option<ValueId> {
    node(model, v).filter(|n| n.op == Op::Cast(to))?.input(0)
}

/// What `v` is dequantised from, as it is written.
pub(crate) fn written(model: &Model, v: ValueId) -> Option<Dequantised> {
    let (float, scale) = with_constant(model, v, Binary::Mul)?;
    let wide = cast(model, float, DType::F32)?;
    let (wide, zero) = match with_constant(model, wide, Binary::Sub) {
        Some((wide, zero)) => (wide, Some(zero)),
        None => (wide, None),
    };
    let q = cast(model, wide, DType::I32)?;
    let bytes = is_byte(model[q].dtype()) && model[v].dtype() == DType::F32;
    let same = model[q].shape() == model[v].shape();
    (bytes && same).then_some(Dequantised { q, zero, scale })
}

/// One node's turn. Values are those of the new model.
struct Pass<'p, 'r> {
    name: &'p str,
    r: &'p mut Rewrite<'r>,
    requantised: Requantised,
    /// What quantised i8 are as u8, 128 above: dot products take unsigned images.
    unsigned: &'p mut HashMap<ValueId, ValueId>,
}

impl Pass<'_, '_> {
    fn replaced(&mut self, node: &Node) -> Option<Vec<ValueId>> {
        let inputs = self.r.operands(node);
        let operand = |i: usize| inputs.get(i).copied().flatten();
        let one = |v: Option<ValueId>| v.map(|v| vec![v]);
        match &node.op {
            Op::Cast(to) if is_byte(*to) => one(self.quantised(operand(0)?, *to)),
            Op::Conv(c) => one(self.conv(c, [operand(0)?, operand(1)?], operand(2))),
            Op::MatMul => one(self.matmul([operand(0)?, operand(1)?])),
            Op::Gemm(g) => one(self.gemm(g, [operand(0)?, operand(1)?], operand(2))),
            Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Expand(_)
            | Op::Concat(_)
            | Op::Pool(Pool {
                kind: PoolKind::Max { indices: None },
                ..
            }) => self.moved(node, &inputs),
            _ => None,
        }
    }

    /// The node as it is. It dequantises its operands itself, so that no other node
    /// keeps them apart from it.
    fn copied(&mut self, node: &Node) -> Vec<ValueId> {
        let operands = self.r.operands(node);
        let inputs: Vec<_> = operands
            .into_iter()
            .map(|v| {
                let v = v?;
                Some(match self.dequantised(v) {
                    Some(d) if self.r.target.constant(d.q).is_none() => self.dequantise(d),
                    _ => v,
                })
            })
            .collect();
        let outputs = self.r.target.add_node(self.name, node.op.clone(), &inputs);
        outputs.expect("a node of a valid model is valid in its copy")
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let value = self.r.target.add(self.name, op, operands);
        value.expect("a quantised operator takes the operands that it is written for")
    }

    fn constant(&mut self, t: Tensor) -> ValueId {
        self.r.target.add_result(self.name, t)
    }

    fn node(&self, v: ValueId) -> Option<&Node> {
        node(&self.r.target, v)
    }

    fn with_constant(&self, v: ValueId, op: Binary) -> Option<(ValueId, ValueId)> {
        with_constant(&self.r.target, v, op)
    }

    fn cast(&self, v: ValueId, to: DType) -> Option<ValueId> {
        cast(&self.r.target, v, to)
    }

    fn unary(&self, v: ValueId, op: Unary) -> Option<ValueId> {
        self.node(v).filter(|n| n.op == Op::Unary(op))?.input(0)
    }

    fn written(&self, v: ValueId) -> Option<Dequantised> {
        written(&self.r.target, v)
    }

    /// What `v` is dequantised from: unsigned bytes where they can be.
    fn dequantised(&mut self, v: ValueId) -> Option<Dequantised> {
        let d = self.written(v)?;
        let Some(q) = self.unsigned.get(&d.q).copied() else {
            return Some(d);
        };
        let zero = self.zero(&d)? + UNSIGNED;
        let zero = Some(self.constant(filled(DType::I32, &[], zero)));
        Some(Dequantised { q, zero, ..d })
    }

    fn dequantise(&mut self, d: Dequantised) -> ValueId {
        let mut wide = self.add(Op::Cast(DType::I32), &[d.q]);
        if let Some(zero) = d.zero {
            wide = self.add(Op::Binary(Binary::Sub), &[wide, zero]);
        }
        let float = self.add(Op::Cast(DType::F32), &[wide]);
        self.add(Op::Binary(Binary::Mul), &[float, d.scale])
    }

    /// The only element of a constant.
    fn scalar(&self, v: ValueId) -> Option<f64> {
        let t = self.r.target.constant(v)?;
        (t.len() == 1).then(|| t.get_f64(0))
    }

    /// The zero point, if there is one for all.
    fn zero(&self, d: &Dequantised) -> Option<f64> {
        d.zero.map_or(Some(0.0), |z| self.scalar(z))
    }

    /// Zero point and scale, if there is one of each for all.
    fn whole(&self, d: &Dequantised) -> Option<[f64; 2]> {
        Some([self.zero(d)?, self.scalar(d.scale)?])
    }

    /// The bytes that a node quantises to, where `clipped` is what it casts.
    fn quantised(&mut self, clipped: ValueId, to: DType) -> Option<ValueId> {
        let shifted = self.unary(clipped, whole_range(to))?;
        let (rounded, zero) = match self.with_constant(shifted, Binary::Add) {
            Some((rounded, zero)) => (rounded, self.scalar(zero)?),
            None => (shifted, 0.0),
        };
        let divided = self.unary(rounded, Unary::Round)?;
        let (x, scale) = self.with_constant(divided, Binary::Div)?;
        let step = self.scalar(scale).filter(|s| *s > 0.0)?;
        // Constants of one element may still add axes.
        let same = self.r.target[x].shape() == self.r.target[clipped].shape();
        if self.r.target[x].dtype() != DType::F32 || !same || zero.fract() != 0.0 {
            return None;
        }
        Some(self.in_steps(x, [zero, step], to))
    }

    /// The bytes that `x` is in these steps.
    fn in_steps(&mut self, x: ValueId, [zero, step]: [f64; 2], to: DType) -> ValueId {
        let found = self.again(x, [zero, step], to);
        if let Some(q) = found.or_else(|| self.joined(x, [zero, step], to)) {
            return q;
        }
        let scaled = self.rescaled(x, step);
        let rounded = self.add(Op::Unary(Unary::Round), &[scaled]);
        let bytes = |pass: &mut Self, zero, to| {
            let q = pass.bytes(rounded, zero, to);
            pass.looked_up(q).unwrap_or(q)
        };
        let q = bytes(self, zero, to);
        if to == DType::I8 {
            let above = bytes(self, zero + UNSIGNED, DType::U8);
            self.unsigned.insert(q, above);
        }
        q
    }

    /// Bytes of several steps, joined: each part becomes bytes of the new steps before.
    fn joined(&mut self, x: ValueId, steps: [f64; 2], to: DType) -> Option<ValueId> {
        let node = self.node(x)?;
        let Op::Concat(c) = node.op else {
            return None;
        };
        let parts: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        if !parts.iter().all(|v| self.written(*v).is_some()) {
            return None;
        }
        let in_steps = |v: &ValueId| self.in_steps(*v, steps, to);
        let parts: Vec<ValueId> = parts.iter().map(in_steps).collect();
        let q = self.add(Op::Concat(c), &parts);
        let unsigned = parts.iter().map(|q| self.unsigned.get(q).copied());
        if let Some(unsigned) = unsigned.collect::<Option<Vec<_>>>() {
            let above = self.add(Op::Concat(c), &unsigned);
            self.unsigned.insert(q, above);
        }
        Some(q)
    }

    /// The bytes that `x` is dequantised from, if it is quantised to the same steps again.
    fn again(&mut self, x: ValueId, [zero, step]: [f64; 2], to: DType) -> Option<ValueId> {
        let d = self.written(x)?;
        let from = self.r.target[d.q].dtype();
        let [own, own_step] = self.whole(&d)?;
        let above = |dtype| if dtype == DType::I8 { UNSIGNED } else { 0.0 };
        // Beyond f32 all bytes would be the last one.
        let finite = step * 256.0 <= f64::from(f32::MAX);
        if !finite || own_step != step || own + above(from) != zero + above(to) {
            return None;
        }
        match (from, to) {
            (DType::U8, DType::I8) => {
                let q = self.moved_by(d.q, -UNSIGNED, to);
                self.unsigned.insert(q, d.q);
                Some(q)
            }
            _ => (from == to).then_some(d.q),
        }
    }

    /// Bytes with a number added to each, which fits.
    fn moved_by(&mut self, v: ValueId, by: f64, to: DType) -> ValueId {
        let wide = self.add(Op::Cast(DType::I32), &[v]);
        let by = self.constant(filled(DType::I32, &[], by));
        let moved = self.add(Op::Binary(Binary::Add), &[wide, by]);
        self.add(Op::Cast(to), &[moved])
    }

    /// Bytes from a table, if they depend on one byte each and are costly to compute.
    fn looked_up(&mut self, v: ValueId) -> Option<ValueId> {
        let Table { byte, values } = table(&self.r.target, v)?;
        let byte = match self.r.target[byte].dtype() {
            DType::U8 => byte,
            _ => self.add(Op::Cast(DType::U8), &[byte]),
        };
        let values = self.constant(values);
        Some(self.add(Op::Lookup, &[byte, values]))
    }

    /// The bytes of steps from a zero point.
    fn bytes(&mut self, steps: ValueId, zero: f64, to: DType) -> ValueId {
        let mut y = steps;
        if zero != 0.0 {
            let zero = self.constant(filled(DType::F32, &[], zero));
            y = self.add(Op::Binary(Binary::Add), &[y, zero]);
        }
        let y = self.add(Op::Unary(whole_range(to)), &[y]);
        self.add(Op::Cast(to), &[y])
    }

    /// x / step. Of a sum of products of bytes the scale may be divided instead; else the
    /// quotient is that of the model.
    fn rescaled(&mut self, x: ValueId, step: f64) -> ValueId {
        if self.requantised == Requantised::Folded
            && let Some(rescaled) = self.rescaled_sum(x, step)
        {
            return rescaled;
        }
        let step = self.constant(filled(DType::F32, &[], step));
        self.add(Op::Binary(Binary::Div), &[x, step])
    }

    fn rescaled_sum(&mut self, x: ValueId, step: f64) -> Option<ValueId> {
        if let Some((of, scale)) = self.with_constant(x, Binary::Mul) {
            let wide = self.cast(of, DType::F32)?;
            if !self.is_sum_of_products(wide) {
                return None;
            }
            let scale = self.divided(scale, step);
            return Some(self.add(Op::Binary(Binary::Mul), &[of, scale]));
        }
        if let Some((of, shift)) = self.with_constant(x, Binary::Add) {
            let (of, shift) = (self.rescaled_sum(of, step)?, self.divided(shift, step));
            return Some(self.add(Op::Binary(Binary::Add), &[of, shift]));
        }
        let of = self.unary(x, Unary::Relu)?;
        let of = self.rescaled_sum(of, step)?;
        Some(self.add(Op::Unary(Unary::Relu), &[of]))
    }

    /// Whether integers are sums of products of bytes, perhaps with others added.
    fn is_sum_of_products(&self, v: ValueId) -> bool {
        self.node(v).is_some_and(|n| match n.op {
            Op::ConvInteger(_) | Op::MatMulInteger => true,
            Op::Binary(Binary::Add | Binary::Sub) => n
                .inputs
                .iter()
                .flatten()
                .any(|v| self.is_sum_of_products(*v)),
            _ => false,
        })
    }

    /// A constant divided by a number.
    fn divided(&mut self, v: ValueId, by: f64) -> ValueId {
        let t = self.r.target.constant(v).expect("it is a constant").clone();
        let mut quotient = Tensor::zeros(t.dtype(), t.shape());
        (0..t.len()).for_each(|i| quotient.set_f64(i, t.get_f64(i) / by));
        self.constant(quotient)
    }

    /// An operator that moves values, of bytes instead.
    fn moved(&mut self, node: &Node, inputs: &[Option<ValueId>]) -> Option<Vec<ValueId>> {
        let mut images = Vec::new();
        for v in inputs {
            images.push(self.dequantised((*v)?)?);
        }
        let first = *images.first()?;
        let scale = self.whole(&first)?;
        let dtype = |d: &Dequantised| self.r.target[d.q].dtype();
        let alike = |d: &Dequantised| self.whole(d) == Some(scale) && dtype(d) == dtype(&first);
        let moves = images.iter().any(|d| self.r.target.constant(d.q).is_none());
        if scale[1] <= 0.0 || !moves || !images.iter().all(alike) {
            return None;
        }
        let zero = first.zero.map(|_| filled(DType::I32, &[], scale[0]));
        let zero = zero.map(|t| self.constant(t));
        let scale = self.constant(filled(DType::F32, &[], scale[1]));
        let bytes: Vec<_> = images.iter().map(|d| Some(d.q)).collect();
        let moved = self.r.target.add_node(self.name, node.op.clone(), &bytes);
        let moved = moved.ok()?.into_iter();
        Some(
            moved
                .map(|q| self.dequantise(Dequantised { q, zero, scale }))
                .collect(),
        )
    }

    /// Constant bytes whose maps lie along `axis`.
    fn weights(&self, v: ValueId, axis: usize) -> Option<Weights> {
        let d = self.written(v)?;
        let q = self.r.target.constant(d.q)?;
        let maps = *q.shape().get(axis)?;
        let along = |v: ValueId| {
            let t = self.r.target.constant(v)?;
            let shape_fits = t.rank() == q.rank() && t.shape()[axis] == maps && t.len() == maps;
            (t.len() == 1 || shape_fits).then(|| (0..t.len()).map(|i| t.get_f64(i)).collect())
        };
        let steps: Vec<f64> = along(d.scale)?;
        let zeros: Vec<f64> = d.zero.map_or(Some(vec![0.0]), along)?;
        if zeros.iter().all(|z| *z == 0.0) {
            let bytes = (**q).clone();
            return Some(Weights { bytes, steps });
        }
        let inner: usize = q.shape()[axis + 1..].iter().product();
        let mut bytes = Tensor::zeros(DType::I8, q.shape());
        for i in 0..q.len() {
            let zero = zeros[if zeros.len() == 1 {
                0
            } else {
                i / inner % maps
            }];
            let value = q.get_f64(i) - zero;
            if !(-128.0..=127.0).contains(&value) {
                return None;
            }
            bytes.set_f64(i, value);
        }
        Some(Weights { bytes, steps })
    }

    /// Unsigned bytes of maps whose distance to their zero points is more than a byte with a sign holds: what
    /// they are less 128, and the zero points less 128. A sum of products with these differs by
    /// the sum of the window, as often as its map's rest says.
    fn weights_with_rest(&self, v: ValueId) -> Option<(Weights, Vec<f64>)> {
        let d = self.written(v)?;
        let q = self
            .r
            .target
            .constant(d.q)
            .filter(|q| q.dtype() == DType::U8)?;
        let maps = *q.shape().first()?;
        let of_maps = |v: ValueId| {
            let t = self.r.target.constant(v)?;
            let fits = t.rank() == q.rank() && t.shape()[0] == maps && t.len() == maps;
            let value = |m: usize| t.get_f64(if t.len() == 1 { 0 } else { m });
            (t.len() == 1 || fits).then(|| (0..maps).map(value).collect::<Vec<f64>>())
        };
        let (steps, zeros) = (of_maps(d.scale)?, of_maps(d.zero?)?);
        let mut bytes = Tensor::zeros(DType::I8, q.shape());
        (0..q.len()).for_each(|i| bytes.set_f64(i, q.get_f64(i) - UNSIGNED));
        let rest = zeros.iter().map(|z| z - UNSIGNED).collect();
        Some((Weights { bytes, steps }, rest))
    }

    fn conv(&mut self, c: &Conv, [x, w]: [ValueId; 2], bias: Option<ValueId>) -> Option<ValueId> {
        let x = self.dequantised(x)?;
        let [zero, step] = self.whole(&x)?;
        let (w, rest) = match self.weights(w, 0) {
            Some(w) => (w, vec![]),
            None if c.groups == 1 => self.weights_with_rest(w)?,
            None => return None,
        };
        let maps = w.bytes.shape()[0];
        let terms = w.bytes.len() / maps.max(1);
        let dtype = self.r.target[x.q].dtype();
        let value = |i: usize| w.bytes.get_f64(i) - rest.get(i / terms).unwrap_or(&0.0);
        let mut sums = sums_of_maps((w.bytes.len(), &value), maps, |i| i / terms, dtype, zero)?;
        // Each channel has a sum of its own: no instruction adds several products of bytes, so
        // that a zero point is as well taken off before, and borders need no terms.
        let centred = zero != 0.0 && self.r.target[x.q].shape()[1] == c.groups;
        if centred {
            sums.iter_mut().for_each(MapSum::centre);
        }
        let bias = self.bias(bias, maps)?;
        if maps == 0 {
            return None;
        }
        let mut shape = vec![1; w.bytes.rank()];
        shape[1] = maps;
        let mut window = w.bytes.shape().to_vec();
        let weights = self.constant(w.bytes);
        let op = Op::ConvInteger(ConvInteger {
            conv: c.clone(),
            outside: zero as i64,
            centred,
        });
        let mut sum = self.add(op.clone(), &[x.q, weights]);
        if !rest.is_empty() {
            window[0] = 1;
            let ones = self.constant(filled(DType::I8, &window, 1.0));
            let windows = self.add(op, &[x.q, ones]);
            let rest = self.constant(vector(DType::I32, &rest, &shape));
            let rest = self.add(Op::Binary(Binary::Mul), &[windows, rest]);
            sum = self.add(Op::Binary(Binary::Sub), &[sum, rest]);
        }
        Some(self.scaled(sum, sums, (&w.steps, step), bias, &shape))
    }

    fn matmul(&mut self, [a, b]: [ValueId; 2]) -> Option<ValueId> {
        match self.weights(b, 1) {
            Some(w) => self.product(a, w, None),
            None => self.product_of_images(a, b),
        }
    }

    fn gemm(&mut self, g: &Gemm, [a, b]: [ValueId; 2], c: Option<ValueId>) -> Option<ValueId> {
        if g.trans_a || g.alpha != 1.0 || c.is_some() && g.beta != 1.0 {
            return None;
        }
        let mut w = self.weights(b, usize::from(!g.trans_b))?;
        if g.trans_b {
            let turn = Op::Transpose(Transpose { perm: vec![1, 0] });
            w.bytes = reference::apply(&turn, &[Some(&w.bytes)]).ok()?.pop()?;
        }
        self.product(a, w, c)
    }

    /// A product with a matrix of bytes.
    fn product(&mut self, a: ValueId, w: Weights, bias: Option<ValueId>) -> Option<ValueId> {
        let a = self.dequantised(a)?;
        let [zero, step] = self.whole(&a)?;
        let [_, columns] = *w.bytes.shape() else {
            return None;
        };
        let bias = self.bias(bias, columns)?;
        let ty = self.r.target[a.q].ty();
        if columns == 0 || ty.rank() < 2 {
            return None;
        }
        let value = |i: usize| w.bytes.get_f64(i);
        let sums = sums_of_maps(
            (w.bytes.len(), &value),
            columns,
            |i| i % columns,
            ty.dtype,
            zero,
        )?;
        let weights = self.constant(w.bytes);
        let sum = self.add(Op::MatMulInteger, &[a.q, weights]);
        Some(self.scaled(sum, sums, (&w.steps, step), bias, &[columns]))
    }

    /// A constant bias of each map, zeros without one. None if it is no constant, or more.
    fn bias(&self, v: Option<ValueId>, maps: usize) -> Option<Vec<f64>> {
        let Some(v) = v else {
            return Some(vec![0.0; maps]);
        };
        let t = self.r.target.constant(v)?;
        let fits = t.len() == 1 || t.len() == maps && t.shape().last() == Some(&maps);
        fits.then(|| {
            (0..maps)
                .map(|m| t.get_f64(if t.len() == 1 { 0 } else { m }))
                .collect()
        })
    }

    /// Whether a bias is so many steps of a sum, rounded to a whole number.
    fn is_whole(&self, bias: f64, step: f64) -> bool {
        let steps = bias / step;
        let error = (steps - steps.round()).abs();
        match self.requantised {
            Requantised::Folded => error <= BIAS_TOLERANCE.0 + steps.abs() * BIAS_TOLERANCE.1,
            Requantised::Defined => steps.round() as f32 * step as f32 == bias as f32,
        }
    }

    /// (sum + offset) scale + bias, with one of each a map. A bias of whole steps is part of
    /// the offset, where the sums surely leave room for it.
    fn scaled(
        &mut self,
        mut sum: ValueId,
        sums: Vec<MapSum>,
        (steps, step): (&[f64], f64),
        bias: Vec<f64>,
        shape: &[usize],
    ) -> ValueId {
        let of_map = |m: usize| step * steps[if steps.len() == 1 { 0 } else { m }];
        let in_steps: Vec<f64> = bias
            .iter()
            .enumerate()
            .map(|(m, b)| b / of_map(m))
            .collect();
        let whole = (0..bias.len())
            .all(|m| self.is_whole(bias[m], of_map(m)) && sums[m].fits_with(in_steps[m].round()));
        let offset = |(s, b): (&MapSum, &f64)| s.offset + if whole { b.round() } else { 0.0 };
        let offsets: Vec<f64> = sums.iter().zip(&in_steps).map(offset).collect();
        if offsets.iter().any(|o| *o != 0.0) {
            let offsets = self.constant(vector(DType::I32, &offsets, shape));
            sum = self.add(Op::Binary(Binary::Add), &[sum, offsets]);
        }
        let float = self.add(Op::Cast(DType::F32), &[sum]);
        let scale = match steps.len() {
            1 => filled(DType::F32, &[], of_map(0)),
            n => vector(DType::F32, &(0..n).map(of_map).collect::<Vec<_>>(), shape),
        };
        let scale = self.constant(scale);
        let scaled = self.add(Op::Binary(Binary::Mul), &[float, scale]);
        if whole {
            return scaled;
        }
        let bias = self.constant(vector(DType::F32, &bias, shape));
        self.add(Op::Binary(Binary::Add), &[scaled, bias])
    }
}

/// What i8 are more as u8, of which dot products take images.
const UNSIGNED: f64 = 128.0;

/// Clips to all values of a type of bytes.
fn whole_range(to: DType) -> Unary {
    let (min, max) = range(to);
    Unary::Clip {
        min: Some(min),
        max: Some(max),
    }
}

/// What the sums of products of a map can be, whatever the image, and what is added to each
/// for its zero point.
#[derive(Clone, Copy, Default)]
struct MapSum {
    least: f64,
    most: f64,
    offset: f64,
}

impl MapSum {
    /// Of an image whose zero point is taken off every element.
    fn centre(&mut self) {
        self.least += self.offset;
        self.most += self.offset;
        self.offset = 0.0;
    }

    /// Whether each sum, its offset and `more`, and all together are numbers of an i32.
    fn fits_with(&self, more: f64) -> bool {
        let offset = self.offset + more;
        let all = [
            self.least,
            self.most,
            offset,
            self.least + offset,
            self.most + offset,
        ];
        all.iter()
            .all(|v| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(v))
    }
}

/// The sums of each map of so many constant weights with an image of a type of bytes. None if one could
/// overflow an i32, or the zero point is no value of the image.
fn sums_of_maps(
    (count, weight): (usize, &dyn Fn(usize) -> f64),
    maps: usize,
    map: impl Fn(usize) -> usize,
    image: DType,
    zero: f64,
) -> Option<Vec<MapSum>> {
    let (least, most) = range(image);
    if !(least..=most).contains(&zero) {
        return None;
    }
    let mut sums = vec![MapSum::default(); maps];
    for i in 0..count {
        let (w, sum) = (weight(i), &mut sums[map(i)]);
        sum.least += (w * least).min(w * most);
        sum.most += (w * least).max(w * most);
        sum.offset -= w * zero;
    }
    sums.iter().all(|s| s.fits_with(0.0)).then_some(sums)
}

/// The least and the greatest byte of a type.
fn range(of: DType) -> (f64, f64) {
    match of {
        DType::U8 => (0.0, 255.0),
        _ => (-128.0, 127.0),
    }
}

fn filled(dtype: DType, shape: &[usize], value: f64) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    (0..t.len()).for_each(|i| t.set_f64(i, value));
    t
}
