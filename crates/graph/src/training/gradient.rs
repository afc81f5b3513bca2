//! Gradients of operators, in terms of operators.

mod activation;
mod batch_norm;
mod contract;
mod index;
mod movement;
mod pool;

pub(super) use batch_norm::Normalised;

use super::{DATA_GRADIENT, NotTrainable, WEIGHT_GRADIENT, scalar};
use crate::model::{Model, ModelError, Node, ValueId};
use crate::ops::{
    Binary, Conv, ConvTranspose, Cumulative, CumulativeKind, Expand, Gemm, Op, Reduce, ReduceKind,
    Reshape, Slice, Transpose, Unary,
};
use std::collections::{HashMap, HashSet};

/// Gradients of the loss while the nodes are visited in reverse.
pub(super) struct Gradients<'a> {
    model: &'a mut Model,
    /// Values that depend on a weight.
    wanted: HashSet<ValueId>,
    /// Batch normalisations, by their results.
    normalised: &'a HashMap<ValueId, Normalised>,
    found: HashMap<ValueId, ValueId>,
}

impl<'a> Gradients<'a> {
    pub fn new(
        model: &'a mut Model,
        weights: &[ValueId],
        normalised: &'a HashMap<ValueId, Normalised>,
    ) -> Gradients<'a> {
        let mut wanted: HashSet<ValueId> = weights.iter().copied().collect();
        for (_, node) in model.nodes() {
            if node.inputs.iter().flatten().any(|v| wanted.contains(v)) {
                wanted.extend(&node.outputs);
            }
        }
        Gradients {
            model,
            wanted,
            normalised,
            found: HashMap::new(),
        }
    }

    /// Of every value that was reached.
    pub fn finish(self) -> HashMap<ValueId, ValueId> {
        self.found
    }

    /// Adds a part of a value's gradient, if that gradient is wanted.
    pub fn add(&mut self, of: ValueId, part: ValueId) -> Result<(), ModelError> {
        if !self.wanted.contains(&of) {
            return Ok(());
        }
        let sum = match self.found.get(&of) {
            Some(other) => {
                let name = format!("{}.gradient", self.model[of].name());
                self.model
                    .add(&name, Op::Binary(Binary::Add), &[*other, part])?
            }
            None => part,
        };
        self.found.insert(of, sum);
        Ok(())
    }

    /// Takes the gradient of a node's first output to its operands; of a split, of all outputs.
    pub fn through(&mut self, node: &Node) -> Result<(), NotTrainable> {
        if let Op::Split(s) = &node.op {
            return self.split(node, s);
        }
        if node
            .outputs
            .iter()
            .skip(1)
            .any(|v| self.found.contains_key(v))
        {
            return Err(refused(node, " of another output than the first"));
        }
        let Some(dy) = node
            .outputs
            .first()
            .and_then(|v| self.found.get(v))
            .copied()
        else {
            return Ok(());
        };
        // The nodes that the normalisation is made of get no gradients.
        if let Some(n) = self.normalised.get(&node.outputs[0]) {
            return Ok(self.batch_norm(node, n, dy)?);
        }
        let x = node.input(0).unwrap_or(dy);
        match &node.op {
            Op::Identity => self.add(x, dy)?,
            Op::Unary(u) => self.unary(node, *u, x, dy)?,
            Op::Binary(b) => self.binary(node, *b, dy)?,
            Op::Reshape(_) => {
                let shape = self.model[x].shape().to_vec();
                let dx = self.node(node, "dx", Op::Reshape(Reshape { shape }), &[dy])?;
                self.add(x, dx)?;
            }
            Op::Transpose(t) => {
                let perm = inverse(&t.perm);
                let dx = self.node(node, "dx", Op::Transpose(Transpose { perm }), &[dy])?;
                self.add(x, dx)?;
            }
            Op::Expand(_) => {
                let dx = self.folded(node, "dx", dy, x)?;
                self.add(x, dx)?;
            }
            Op::Where => self.select(node, dy)?,
            Op::Concat(c) => self.concat(node, *c, dy)?,
            Op::Slice(s) => self.slice(node, s, x, dy)?,
            Op::Pad(p) => self.pad(node, p, x, dy)?,
            Op::Softmax(s) => self.softmax(node, *s, x, dy)?,
            Op::Reduce(r) => self.reduce(node, r, x, dy)?,
            Op::Cumulative(c) if c.kind == CumulativeKind::Sum => {
                let back = Cumulative {
                    reverse: !c.reverse,
                    ..*c
                };
                let dx = self.node(node, "dx", Op::Cumulative(back), &[dy])?;
                self.add(x, dx)?;
            }
            Op::Gemm(g) => self.gemm(node, g, dy)?,
            Op::MatMul => self.matmul(node, dy)?,
            Op::Conv(c) => self.conv(node, c, dy)?,
            Op::Pool(p) => self.pool(node, p, x, dy)?,
            op => self.of_two(node, op, dy)?,
        }
        Ok(())
    }

    /// Operators of two operands that always are there.
    fn of_two(&mut self, node: &Node, op: &Op, dy: ValueId) -> Result<(), NotTrainable> {
        let (Some(a), Some(b)) = (node.input(0), node.input(1)) else {
            return Err(refused(node, ""));
        };
        let values = [a, b, dy];
        match op {
            Op::Contract(c) => self.contract(node, c, values)?,
            Op::Gather(g) => self.gather(node, *g, values)?,
            Op::GatherElements(g) => self.gather_elements(node, *g, values)?,
            Op::GatherNd(g) => self.gather_nd(node, *g, values)?,
            _ => return Err(refused(node, "")),
        }
        Ok(())
    }

    fn wants(&self, v: Option<ValueId>) -> Option<ValueId> {
        v.filter(|v| self.wanted.contains(v))
    }

    fn node(
        &mut self,
        of: &Node,
        what: &str,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<ValueId, ModelError> {
        self.model.add(&format!("{}.{what}", of.name), op, inputs)
    }

    fn number(&mut self, of: &Node, what: &str, value: f32) -> ValueId {
        self.model
            .add_constant(&format!("{}.{what}", of.name), scalar(value))
    }

    /// The sum of a gradient over the axes along which an operand was broadcast.
    fn folded(
        &mut self,
        of: &Node,
        what: &str,
        gradient: ValueId,
        operand: ValueId,
    ) -> Result<ValueId, ModelError> {
        let (from, to) = (
            self.model[gradient].shape().to_vec(),
            self.model[operand].shape().to_vec(),
        );
        if from == to {
            return Ok(gradient);
        }
        let extra = from.len() - to.len();
        let repeated = |d: &usize| *d < extra || to[*d - extra] == 1 && from[*d] != 1;
        let axes: Vec<usize> = (0..from.len()).filter(repeated).collect();
        let reduce = Reduce {
            kind: ReduceKind::Sum,
            axes,
            keepdims: true,
        };
        let sum = self.node(of, &format!("{what}.sum"), Op::Reduce(reduce), &[gradient])?;
        if extra == 0 {
            return Ok(sum);
        }
        self.node(
            of,
            &format!("{what}.shape"),
            Op::Reshape(Reshape { shape: to }),
            &[sum],
        )
    }

    fn binary(&mut self, node: &Node, op: Binary, dy: ValueId) -> Result<(), NotTrainable> {
        let operands = [node.input(0), node.input(1)];
        let [Some(a), Some(b)] = operands else {
            return Err(refused(node, ""));
        };
        let mul = || Op::Binary(Binary::Mul);
        for (slot, v) in operands.into_iter().enumerate() {
            let Some(v) = self.wants(v) else {
                continue;
            };
            let name = ["da", "db"][slot];
            let whole = match (op, slot) {
                (Binary::Add, _) | (Binary::Sub, 0) => dy,
                (Binary::Sub, _) => self.node(node, "neg", Op::Unary(Unary::Neg), &[dy])?,
                (Binary::Mul, 0) => self.node(node, name, mul(), &[dy, b])?,
                (Binary::Mul, _) => self.node(node, name, mul(), &[dy, a])?,
                (Binary::Div, 0) => self.node(node, name, Op::Binary(Binary::Div), &[dy, b])?,
                // -y / b.
                (Binary::Div, _) => {
                    let y = node.outputs[0];
                    let share = self.node(node, "share", Op::Binary(Binary::Div), &[y, b])?;
                    let against = self.node(node, "against", mul(), &[dy, share])?;
                    self.node(node, name, Op::Unary(Unary::Neg), &[against])?
                }
                (Binary::Pow, 0) => self.pow(node, [a, b], dy)?,
                (Binary::Pow, _) => return Err(refused(node, " of its exponent")),
                _ => return Err(refused(node, "")),
            };
            let part = self.folded(node, name, whole, v)?;
            self.add(v, part)?;
        }
        Ok(())
    }

    /// dy b a^(b - 1).
    fn pow(
        &mut self,
        node: &Node,
        [a, b]: [ValueId; 2],
        dy: ValueId,
    ) -> Result<ValueId, ModelError> {
        let one = self.number(node, "one", 1.0);
        let less = self.node(node, "less", Op::Binary(Binary::Sub), &[b, one])?;
        let power = self.node(node, "power", Op::Binary(Binary::Pow), &[a, less])?;
        let slope = self.node(node, "slope", Op::Binary(Binary::Mul), &[power, b])?;
        self.node(node, "da", Op::Binary(Binary::Mul), &[dy, slope])
    }

    /// dy to the operand that was chosen.
    fn select(&mut self, node: &Node, dy: ValueId) -> Result<(), NotTrainable> {
        let (Some(chosen), operands) = (node.input(0), [node.input(1), node.input(2)]) else {
            return Err(refused(node, ""));
        };
        for (slot, v) in operands.into_iter().enumerate() {
            let Some(v) = self.wants(v) else {
                continue;
            };
            let name = ["da", "db"][slot];
            let zero = self.number(node, "zero", 0.0);
            let inputs = [[chosen, dy, zero], [chosen, zero, dy]][slot];
            let whole = self.node(node, name, Op::Where, &inputs)?;
            let part = self.folded(node, name, whole, v)?;
            self.add(v, part)?;
        }
        Ok(())
    }

    fn reduce(
        &mut self,
        node: &Node,
        r: &Reduce,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let shape = self.model[x].shape().to_vec();
        let mut kept = shape.clone();
        r.axes.iter().for_each(|d| kept[*d] = 1);
        let share = match r.kind {
            ReduceKind::Sum => dy,
            ReduceKind::Mean => {
                let count: usize = r.axes.iter().map(|d| shape[*d]).product();
                let each = self.number(node, "each", 1.0 / count as f32);
                self.node(node, "share", Op::Binary(Binary::Mul), &[dy, each])?
            }
            ReduceKind::Max | ReduceKind::Min => {
                let dx = self.extreme(node, r, kept, x, dy)?;
                return Ok(self.add(x, dx)?);
            }
            _ => return Err(refused(node, "")),
        };
        let share = self.node(node, "kept", Op::Reshape(Reshape { shape: kept }), &[share])?;
        let dx = self.node(node, "dx", Op::Expand(Expand { shape }), &[share])?;
        Ok(self.add(x, dx)?)
    }

    /// Elements that equal the extreme share its gradient, as PyTorch's `amax` has it.
    fn extreme(
        &mut self,
        node: &Node,
        r: &Reduce,
        kept: Vec<usize>,
        x: ValueId,
        dy: ValueId,
    ) -> Result<ValueId, ModelError> {
        let column = Op::Reshape(Reshape { shape: kept });
        let most = self.node(node, "most", column.clone(), &[node.outputs[0]])?;
        let won = self.node(node, "won", Op::Binary(Binary::Equal), &[x, most])?;
        let (one, zero) = (
            self.number(node, "one", 1.0),
            self.number(node, "zero", 0.0),
        );
        let ones = self.node(node, "ones", Op::Where, &[won, one, zero])?;
        let count = Reduce {
            kind: ReduceKind::Sum,
            axes: r.axes.clone(),
            keepdims: true,
        };
        let count = self.node(node, "count", Op::Reduce(count), &[ones])?;
        let of = self.node(node, "of", column, &[dy])?;
        let share = self.node(node, "share", Op::Binary(Binary::Div), &[of, count])?;
        self.node(node, "dx", Op::Binary(Binary::Mul), &[ones, share])
    }

    fn gemm(&mut self, node: &Node, g: &Gemm, dy: ValueId) -> Result<(), NotTrainable> {
        let product = |trans_a, trans_b| {
            Op::Gemm(Gemm {
                alpha: g.alpha,
                beta: 0.0,
                trans_a,
                trans_b,
            })
        };
        let (a, b) = (node.inputs[0], node.inputs[1]);
        if let (Some(to), Some(b)) = (self.wants(a), b) {
            let da = match g.trans_a {
                false => self.node(node, "da", product(false, !g.trans_b), &[dy, b])?,
                true => self.node(node, "da", product(g.trans_b, true), &[b, dy])?,
            };
            self.add(to, da)?;
        }
        if let (Some(to), Some(a)) = (self.wants(b), a) {
            let db = match g.trans_b {
                false => self.node(node, "db", product(!g.trans_a, false), &[a, dy])?,
                true => self.node(node, "db", product(true, g.trans_a), &[dy, a])?,
            };
            self.add(to, db)?;
        }
        if let Some(c) = self.wants(node.input(2)) {
            let mut dc = self.folded(node, "dc", dy, c)?;
            if g.beta != 1.0 {
                let beta = self.number(node, "beta", g.beta);
                dc = self.node(node, "dc", Op::Binary(Binary::Mul), &[dc, beta])?;
            }
            self.add(c, dc)?;
        }
        Ok(())
    }

    fn matmul(&mut self, node: &Node, dy: ValueId) -> Result<(), NotTrainable> {
        let (Some(a), Some(b)) = (node.input(0), node.input(1)) else {
            return Err(refused(node, ""));
        };
        let ranks = [a, b].map(|v| self.model[v].shape().len());
        if ranks.contains(&1) {
            return Err(refused(node, " of a vector"));
        }
        match ranks[1] {
            2 => self.rows_by_matrix(node, [a, b], dy),
            _ => self.matrices(node, [a, b], dy),
        }
    }

    /// All rows of `a` are of one matrix: its gradient is one product, and so is that of `b`, which is thus summed over
    /// the batch where it is computed.
    fn rows_by_matrix(
        &mut self,
        node: &Node,
        [a, b]: [ValueId; 2],
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let product = |trans_a, trans_b| {
            Op::Gemm(Gemm {
                alpha: 1.0,
                beta: 0.0,
                trans_a,
                trans_b,
            })
        };
        let rows = self.rows(node, "dy.rows", dy)?;
        if self.wants(Some(a)).is_some() {
            let shape = self.model[a].shape().to_vec();
            let flat = self.node(node, "da.rows", product(false, true), &[rows, b])?;
            let da = self.node(node, "da", Op::Reshape(Reshape { shape }), &[flat])?;
            self.add(a, da)?;
        }
        if self.wants(Some(b)).is_some() {
            let own = self.rows(node, "a.rows", a)?;
            let db = self.node(node, "db", product(true, false), &[own, rows])?;
            self.add(b, db)?;
        }
        Ok(())
    }

    /// As a matrix of all rows.
    fn rows(&mut self, of: &Node, what: &str, v: ValueId) -> Result<ValueId, ModelError> {
        match self.model[v].shape() {
            [outer @ .., columns] if outer.len() != 1 => {
                let shape = vec![outer.iter().product(), *columns];
                self.node(of, what, Op::Reshape(Reshape { shape }), &[v])
            }
            _ => Ok(v),
        }
    }

    /// Products of many matrices: dy b^T and a^T dy.
    fn matrices(
        &mut self,
        node: &Node,
        [a, b]: [ValueId; 2],
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        if self.wants(Some(a)).is_some() {
            let transposed = self.transposed(node, "b", b)?;
            let whole = self.node(node, "da", Op::MatMul, &[dy, transposed])?;
            let part = self.folded(node, "da", whole, a)?;
            self.add(a, part)?;
        }
        if self.wants(Some(b)).is_some() {
            let transposed = self.transposed(node, "a", a)?;
            let whole = self.node(node, "db", Op::MatMul, &[transposed, dy])?;
            let part = self.folded(node, "db", whole, b)?;
            self.add(b, part)?;
        }
        Ok(())
    }

    /// With its last two axes swapped.
    fn transposed(&mut self, of: &Node, what: &str, v: ValueId) -> Result<ValueId, ModelError> {
        let rank = self.model[v].shape().len();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        let what = format!("{what}.transposed");
        self.node(of, &what, Op::Transpose(Transpose { perm }), &[v])
    }

    fn conv(&mut self, node: &Node, c: &Conv, dy: ValueId) -> Result<(), NotTrainable> {
        let (Some(x), Some(w)) = (node.input(0), node.input(1)) else {
            return Err(refused(node, ""));
        };
        if self.wants(Some(x)).is_some() {
            let dx = self.conv_data(node, c, [x, w, dy])?;
            self.add(x, dx)?;
        }
        if self.wants(Some(w)).is_some() {
            let dw = self.conv_weight(node, c, [x, w, dy])?;
            self.add(w, dw)?;
        }
        if let Some(bias) = self.wants(node.input(2)) {
            let rank = self.model[dy].shape().len();
            let reduce = Reduce {
                kind: ReduceKind::Sum,
                axes: (0..rank).filter(|d| *d != 1).collect(),
                keepdims: false,
            };
            let db = self.node(node, "db", Op::Reduce(reduce), &[dy])?;
            self.add(bias, db)?;
        }
        Ok(())
    }

    /// The transposed convolution, of the size of the image.
    fn conv_data(
        &mut self,
        node: &Node,
        c: &Conv,
        [x, w, dy]: [ValueId; 3],
    ) -> Result<ValueId, ModelError> {
        let rest = |d: usize| self.unreached(c, [x, w, dy], d);
        let transposed = ConvTranspose {
            strides: c.strides.clone(),
            dilations: c.dilations.clone(),
            pads: c.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect(),
            output_padding: (0..c.strides.len()).map(rest).collect(),
            groups: c.groups,
        };
        self.node(node, DATA_GRADIENT, Op::ConvTranspose(transposed), &[dy, w])
    }

    /// How many elements at the end of a padded axis of the image no window reaches.
    fn unreached(&self, c: &Conv, [x, w, dy]: [ValueId; 3], d: usize) -> usize {
        let size = |of: ValueId| self.model[of].shape()[2 + d];
        let reach = (size(w) - 1) * c.dilations[d] + 1;
        let reached = (size(dy) - 1) * c.strides[d] + reach;
        size(x) + c.pads[d].0 + c.pads[d].1 - reached
    }

    /// A convolution over the batch: the image's channels are its batch, the gradient is its weight, and strides
    /// and dilations change places.
    fn conv_weight(
        &mut self,
        node: &Node,
        c: &Conv,
        [x, w, dy]: [ValueId; 3],
    ) -> Result<ValueId, ModelError> {
        let kernel = self.model[w].shape().to_vec();
        if c.groups > 1 && kernel[1] == 1 {
            return self.depthwise_weight(node, c, [x, w, dy]);
        }
        let image = match c.groups {
            1 => self.swapped(node, "image", x)?,
            groups => self.grouped_image(node, groups, x)?,
        };
        let taps = self.taps(node, c, [x, w, dy], (image, dy, c.groups))?;
        self.swapped(node, "dw", taps)
    }

    /// Each image of the batch for itself, as if its channels were further groups: the sum over the batch follows, and
    /// nothing is moved.
    fn depthwise_weight(
        &mut self,
        node: &Node,
        c: &Conv,
        [x, w, dy]: [ValueId; 3],
    ) -> Result<ValueId, ModelError> {
        let reshape = |shape| Op::Reshape(Reshape { shape });
        let [images, maps] = [x, dy].map(|v| self.model[v].shape().to_vec());
        let side = |shape: &[usize]| [&[1, shape[0] * shape[1]], &shape[2..]].concat();
        let image = self.node(node, "image", reshape(side(&images)), &[x])?;
        let gradient = self.node(node, "gradients", reshape(side(&maps)), &[dy])?;
        let groups = images[0] * images[1];
        let taps = self.taps(node, c, [x, w, dy], (image, gradient, groups))?;
        let kernel = self.model[w].shape().to_vec();
        let each = [&[maps[0], maps[1]], &kernel[2..]].concat();
        let each = self.node(node, "each", reshape(each), &[taps])?;
        let sum = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![0],
            keepdims: true,
        };
        let sum = self.node(node, "sum", Op::Reduce(sum), &[each])?;
        self.node(node, "dw", reshape(kernel), &[sum])
    }

    /// The convolution of an image with the swapped `gradient` as its weight, of as many taps as the kernel has.
    fn taps(
        &mut self,
        node: &Node,
        c: &Conv,
        [x, w, dy]: [ValueId; 3],
        (image, gradient, groups): (ValueId, ValueId, usize),
    ) -> Result<ValueId, ModelError> {
        let weight = self.swapped(node, "maps", gradient)?;
        // Where the last windows do not reach the border, there would be more taps: less padding at the end, if there
        // is some, leaves them out.
        let pads = c.pads.iter().enumerate();
        let pads = pads
            .map(|(d, (begin, end))| (*begin, end - (*end).min(self.unreached(c, [x, w, dy], d))));
        let conv = Conv {
            strides: c.dilations.clone(),
            dilations: c.strides.clone(),
            pads: pads.collect(),
            groups,
        };
        let taps = self.node(node, WEIGHT_GRADIENT, Op::Conv(conv), &[image, weight])?;
        let (found, kernel) = (self.model[taps].shape(), self.model[w].shape());
        // As the kernel's, or more taps.
        let sizes = [&found[..2], &kernel[2..]].concat();
        if found == sizes {
            return Ok(taps);
        }
        let slice = Slice {
            starts: vec![0; sizes.len()],
            steps: vec![1; sizes.len()],
            sizes,
        };
        self.node(node, "inner", Op::Slice(slice), &[taps])
    }

    /// With its first two axes swapped.
    fn swapped(&mut self, of: &Node, what: &str, v: ValueId) -> Result<ValueId, ModelError> {
        let mut perm: Vec<usize> = (0..self.model[v].ty().rank()).collect();
        perm.swap(0, 1);
        self.node(of, what, Op::Transpose(Transpose { perm }), &[v])
    }

    /// [C/groups, groups N, spatial..]: the images of a group lie side by side.
    fn grouped_image(
        &mut self,
        node: &Node,
        groups: usize,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let shape = self.model[x].shape().to_vec();
        let (batch, each) = (shape[0], shape[1] / groups);
        let apart = [&[batch, groups, each], &shape[2..]].concat();
        let mut perm: Vec<usize> = (0..apart.len()).collect();
        perm.swap(0, 2);
        let side = [&[each, groups * batch], &shape[2..]].concat();
        let apart = self.node(node, "apart", Op::Reshape(Reshape { shape: apart }), &[x])?;
        let moved = self.node(node, "moved", Op::Transpose(Transpose { perm }), &[apart])?;
        self.node(
            node,
            "image",
            Op::Reshape(Reshape { shape: side }),
            &[moved],
        )
    }
}

/// The permutation that undoes another.
fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut back = vec![0; perm.len()];
    perm.iter()
        .enumerate()
        .for_each(|(to, from)| back[*from] = to);
    back
}

fn refused(node: &Node, why: &str) -> NotTrainable {
    NotTrainable::Operator {
        node: node.name.clone(),
        op: node.op.name(),
        why: why.into(),
    }
}
