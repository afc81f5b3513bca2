//! Gradients of operators, in terms of operators.

use super::{NotTrainable, scalar};
use crate::model::{Model, ModelError, Node, ValueId};
use crate::ops::IndexOrder;
use crate::ops::{
    ArgReduce, Binary, Combine, Conv, ConvTranspose, Expand, Gemm, Op, Pool, PoolKind, Reduce,
    ReduceKind, Reshape, ScatterElements, Slice, Transpose, Unary,
};
use std::collections::{HashMap, HashSet};
use tensor::{DType, Tensor};

/// Gradients of the loss while the nodes are visited in reverse.
pub(super) struct Gradients<'a> {
    model: &'a mut Model,
    /// Values that depend on a weight.
    wanted: HashSet<ValueId>,
    found: HashMap<ValueId, ValueId>,
}

impl<'a> Gradients<'a> {
    pub fn new(model: &'a mut Model, weights: &[ValueId]) -> Gradients<'a> {
        let mut wanted: HashSet<ValueId> = weights.iter().copied().collect();
        for (_, node) in model.nodes() {
            if node.inputs.iter().flatten().any(|v| wanted.contains(v)) {
                wanted.extend(&node.outputs);
            }
        }
        Gradients {
            model,
            wanted,
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

    /// Takes the gradient of a node's first output to its operands.
    pub fn through(&mut self, node: &Node) -> Result<(), NotTrainable> {
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
                let mut perm = vec![0; t.perm.len()];
                t.perm
                    .iter()
                    .enumerate()
                    .for_each(|(to, from)| perm[*from] = to);
                let dx = self.node(node, "dx", Op::Transpose(Transpose { perm }), &[dy])?;
                self.add(x, dx)?;
            }
            Op::Expand(_) => {
                let dx = self.folded(node, "dx", dy, x)?;
                self.add(x, dx)?;
            }
            Op::Reduce(r) => self.reduce(node, r, x, dy)?,
            Op::Gemm(g) => self.gemm(node, g, dy)?,
            Op::MatMul => self.matmul(node, dy)?,
            Op::Conv(c) => self.conv(node, c, dy)?,
            Op::Pool(p) => self.pool(node, p, x, dy)?,
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

    fn unary(
        &mut self,
        node: &Node,
        u: Unary,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let (y, mul) = (node.outputs[0], Op::Binary(Binary::Mul));
        let dx = match u {
            Unary::Neg => self.node(node, "dx", Op::Unary(Unary::Neg), &[dy])?,
            Unary::Relu => {
                let zero = self.number(node, "zero", 0.0);
                let open = self.node(node, "open", Op::Binary(Binary::Greater), &[y, zero])?;
                self.node(node, "dx", Op::Where, &[open, dy, zero])?
            }
            Unary::Exp => self.node(node, "dx", mul, &[dy, y])?,
            Unary::Log => self.node(node, "dx", Op::Binary(Binary::Div), &[dy, x])?,
            Unary::Sqrt => {
                let two = self.number(node, "two", 2.0);
                let twice = self.node(node, "twice", mul, &[y, two])?;
                self.node(node, "dx", Op::Binary(Binary::Div), &[dy, twice])?
            }
            // -y y.
            Unary::Reciprocal => {
                let square = self.node(node, "square", mul.clone(), &[y, y])?;
                let against = self.node(node, "against", mul, &[dy, square])?;
                self.node(node, "dx", Op::Unary(Unary::Neg), &[against])?
            }
            // y (1 - y), and 1 - y y.
            Unary::Sigmoid | Unary::Tanh => {
                let one = self.number(node, "one", 1.0);
                let (of, by) = match u {
                    Unary::Sigmoid => (y, y),
                    _ => (self.node(node, "square", mul.clone(), &[y, y])?, one),
                };
                let left = self.node(node, "left", Op::Binary(Binary::Sub), &[one, of])?;
                let slope = self.node(node, "slope", mul.clone(), &[left, by])?;
                self.node(node, "dx", mul, &[dy, slope])?
            }
            _ => return Err(refused(node, "")),
        };
        Ok(self.add(x, dx)?)
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
                _ => return Err(refused(node, "")),
            };
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
            _ => return Err(refused(node, "")),
        };
        let share = self.node(node, "kept", Op::Reshape(Reshape { shape: kept }), &[share])?;
        let dx = self.node(node, "dx", Op::Expand(Expand { shape }), &[share])?;
        Ok(self.add(x, dx)?)
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
            if g.beta != 1.0 {
                return Err(refused(node, " with a beta that is not 1"));
            }
            let dc = self.folded(node, "dc", dy, c)?;
            self.add(c, dc)?;
        }
        Ok(())
    }

    fn matmul(&mut self, node: &Node, dy: ValueId) -> Result<(), NotTrainable> {
        let (Some(a), Some(b)) = (node.input(0), node.input(1)) else {
            return Err(refused(node, ""));
        };
        if [a, b].iter().any(|v| self.model[*v].shape().len() != 2) {
            return Err(refused(node, " of other ranks than 2"));
        }
        let of_matrices = Gemm {
            alpha: 1.0,
            beta: 0.0,
            trans_a: false,
            trans_b: false,
        };
        self.gemm(node, &of_matrices, dy)
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
            if c.groups != 1 {
                return Err(refused(node, " with several groups"));
            }
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
        let (image, kernel, maps) = (
            self.model[x].shape(),
            self.model[w].shape(),
            self.model[dy].shape(),
        );
        // What no window of the last stride reaches.
        let rest = |d: usize| {
            let reach = (kernel[2 + d] - 1) * c.dilations[d] + 1;
            let reached = (maps[2 + d] - 1) * c.strides[d] + reach;
            let padded = image[2 + d] + c.pads[d].0 + c.pads[d].1;
            padded - reached
        };
        let transposed = ConvTranspose {
            strides: c.strides.clone(),
            dilations: c.dilations.clone(),
            pads: c.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect(),
            output_padding: (0..c.strides.len()).map(rest).collect(),
            groups: c.groups,
        };
        self.node(node, "dx", Op::ConvTranspose(transposed), &[dy, w])
    }

    /// A convolution over the batch: the image's channels are its batch, the gradient is its weight, and strides
    /// and dilations change places.
    fn conv_weight(
        &mut self,
        node: &Node,
        c: &Conv,
        [x, w, dy]: [ValueId; 3],
    ) -> Result<ValueId, ModelError> {
        let rank = self.model[x].shape().len();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(0, 1);
        let swapped = || Op::Transpose(Transpose { perm: perm.clone() });
        let image = self.node(node, "image", swapped(), &[x])?;
        let weight = self.node(node, "maps", swapped(), &[dy])?;
        let conv = Conv {
            strides: c.dilations.clone(),
            dilations: c.strides.clone(),
            pads: c.pads.clone(),
            groups: 1,
        };
        let mut taps = self.node(node, "taps", Op::Conv(conv), &[image, weight])?;
        let kernel = self.model[w].shape();
        // [C,M,kernel..]; more taps where the last windows do not reach the border.
        let sizes = [&[kernel[1], kernel[0]], &kernel[2..]].concat();
        if self.model[taps].shape() != sizes {
            let slice = Slice {
                starts: vec![0; rank],
                steps: vec![1; rank],
                sizes,
            };
            taps = self.node(node, "inner", Op::Slice(slice), &[taps])?;
        }
        self.node(node, "dw", swapped(), &[taps])
    }

    fn pool(&mut self, node: &Node, p: &Pool, x: ValueId, dy: ValueId) -> Result<(), NotTrainable> {
        let PoolKind::Max { .. } = p.kind else {
            return Err(refused(node, ""));
        };
        let image = self.model[x].shape().to_vec();
        let tiled = p.kernel == p.strides
            && p.pads.iter().all(|p| *p == (0, 0))
            && p.dilations.iter().all(|d| *d == 1)
            && (p.kernel.iter().zip(&image[2..])).all(|(k, n)| n.is_multiple_of(*k));
        let dx = match tiled {
            true => self.tiled_pool(node, p, x, dy)?,
            false => self.scattered_pool(node, p, x, dy)?,
        };
        Ok(self.add(x, dx)?)
    }

    /// Windows that tile the image: the gradient goes to the first maximum of each.
    fn tiled_pool(
        &mut self,
        node: &Node,
        p: &Pool,
        x: ValueId,
        dy: ValueId,
    ) -> Result<ValueId, ModelError> {
        let (image, maps) = (
            self.model[x].shape().to_vec(),
            self.model[dy].shape().to_vec(),
        );
        let spatial = p.kernel.len();
        // [N,C,windows,taps,windows,taps..], and then all windows before all taps.
        let mut split = image[..2].to_vec();
        let mut perm = vec![0, 1];
        for d in 0..spatial {
            split.extend([maps[2 + d], p.kernel[d]]);
        }
        perm.extend((0..spatial).map(|d| 2 + 2 * d));
        perm.extend((0..spatial).map(|d| 3 + 2 * d));
        let taps: usize = p.kernel.iter().product();
        let windows = [&maps[..], &[taps]].concat();
        let split_x = self.node(
            node,
            "split",
            Op::Reshape(Reshape {
                shape: split.clone(),
            }),
            &[x],
        )?;
        let moved = self.node(
            node,
            "moved",
            Op::Transpose(Transpose { perm: perm.clone() }),
            &[split_x],
        )?;
        let moved_shape = self.model[moved].shape().to_vec();
        let of_window = Op::Reshape(Reshape { shape: windows });
        let values = self.node(node, "values", of_window, &[moved])?;
        let first = ArgReduce {
            max: true,
            axis: maps.len(),
            keepdims: true,
            last: false,
        };
        let first = self.node(node, "first", Op::ArgReduce(first), &[values])?;
        let all: Vec<i64> = (0..taps as i64).collect();
        let all = self.model.add_constant(
            &format!("{}.taps", node.name),
            Tensor::from_slice(&[taps], &all),
        );
        let won = self.node(node, "won", Op::Binary(Binary::Equal), &[first, all])?;
        let one = Op::Reshape(Reshape {
            shape: [&maps[..], &[1]].concat(),
        });
        let one = self.node(node, "one", one, &[dy])?;
        let zero = self.number(node, "zero", 0.0);
        let spread = self.node(node, "spread", Op::Where, &[won, one, zero])?;
        let apart = Op::Reshape(Reshape { shape: moved_shape });
        let apart = self.node(node, "apart", apart, &[spread])?;
        let mut back = vec![0; perm.len()];
        perm.iter()
            .enumerate()
            .for_each(|(to, from)| back[*from] = to);
        let placed = self.node(
            node,
            "placed",
            Op::Transpose(Transpose { perm: back }),
            &[apart],
        )?;
        self.node(node, "dx", Op::Reshape(Reshape { shape: image }), &[placed])
    }

    /// Windows that overlap: each adds its gradient at the position of its maximum.
    fn scattered_pool(
        &mut self,
        node: &Node,
        p: &Pool,
        x: ValueId,
        dy: ValueId,
    ) -> Result<ValueId, ModelError> {
        let image = self.model[x].shape().to_vec();
        let (count, all): (usize, usize) = (
            self.model[dy].shape().iter().product(),
            image.iter().product(),
        );
        let indexed = Pool {
            kind: PoolKind::Max {
                indices: Some(IndexOrder::RowMajor),
            },
            ..p.clone()
        };
        let name = format!("{}.again", node.name);
        let positions = self.model.add_node(&name, Op::Pool(indexed), &[Some(x)])?[1];
        let flat = |n: usize| Op::Reshape(Reshape { shape: vec![n] });
        let positions = self.node(node, "positions", flat(count), &[positions])?;
        let updates = self.node(node, "updates", flat(count), &[dy])?;
        let zeros = self.model.add_constant(
            &format!("{}.zeros", node.name),
            Tensor::zeros(DType::F32, &[all]),
        );
        let add = ScatterElements {
            axis: 0,
            combine: Combine::Add,
        };
        let sums = self.node(
            node,
            "sums",
            Op::ScatterElements(add),
            &[zeros, positions, updates],
        )?;
        self.node(node, "dx", Op::Reshape(Reshape { shape: image }), &[sums])
    }
}

fn refused(node: &Node, why: &str) -> NotTrainable {
    NotTrainable::Operator {
        node: node.name.clone(),
        op: node.op.name(),
        why: why.into(),
    }
}
