//! Gradients of pools.

use super::{Gradients, inverse};
use crate::model::{ModelError, Node, ValueId};
use crate::ops::{
    ArgReduce, Binary, ConvTranspose, IndexOrder, MaxPoolGradient, Op, Pool, PoolKind, Reshape,
    Transpose,
};
use crate::training::NotTrainable;
use tensor::Tensor;

impl Gradients<'_> {
    pub(super) fn pool(
        &mut self,
        node: &Node,
        p: &Pool,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        if let PoolKind::Average { count_include_pad } = p.kind {
            let dx = self.average_pool(node, p, count_include_pad, [x, dy])?;
            return Ok(self.add(x, dx)?);
        }
        let image = self.model[x].shape().to_vec();
        let tiled = p.kernel == p.strides
            && p.pads.iter().all(|p| *p == (0, 0))
            && p.dilations.iter().all(|d| *d == 1)
            && (p.kernel.iter().zip(&image[2..])).all(|(k, n)| n.is_multiple_of(*k));
        let dx = match tiled {
            true => self.tiled_pool(node, p, x, dy)?,
            false => self.gathered_pool(node, p, x, dy)?,
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
        let back = Op::Transpose(Transpose {
            perm: inverse(&perm),
        });
        let placed = self.node(node, "placed", back, &[apart])?;
        self.node(node, "dx", Op::Reshape(Reshape { shape: image }), &[placed])
    }

    /// Windows that overlap: each element asks those that it is in whether it is their maximum.
    fn gathered_pool(
        &mut self,
        node: &Node,
        p: &Pool,
        x: ValueId,
        dy: ValueId,
    ) -> Result<ValueId, ModelError> {
        let pool = Pool {
            kind: PoolKind::Max {
                indices: Some(IndexOrder::Window),
            },
            ..p.clone()
        };
        let name = format!("{}.again", node.name);
        let positions = self
            .model
            .add_node(&name, Op::Pool(pool.clone()), &[Some(x)])?[1];
        let image = self.model[x].shape()[2..].to_vec();
        let gradient = Op::MaxPoolGradient(MaxPoolGradient { image, pool });
        self.node(node, "dx", gradient, &[dy, positions])
    }

    /// Each window spreads its share over its taps: a transposed convolution of every channel with ones.
    fn average_pool(
        &mut self,
        node: &Node,
        p: &Pool,
        count_include_pad: bool,
        [x, dy]: [ValueId; 2],
    ) -> Result<ValueId, ModelError> {
        let (image, maps) = (
            self.model[x].shape().to_vec(),
            self.model[dy].shape().to_vec(),
        );
        let spatial = p.kernel.len();
        let counts =
            (0..spatial).map(|d| counted(p, d, image[2 + d], maps[2 + d], count_include_pad));
        let mut shares = vec![1.0f32];
        for counts in counts {
            let along = |s: &f32| counts.iter().map(|n| s / *n as f32).collect::<Vec<_>>();
            shares = shares.iter().flat_map(along).collect();
        }
        let name = |what: &str| format!("{}.{what}", node.name);
        let shares = Tensor::from_slice(&maps[2..], &shares);
        let shares = self.model.add_constant(&name("shares"), shares);
        let share = self.node(node, "share", Op::Binary(Binary::Mul), &[dy, shares])?;
        // All channels of all images are a batch of one channel.
        let alone = [&[maps[0] * maps[1], 1], &maps[2..]].concat();
        let alone = self.node(
            node,
            "alone",
            Op::Reshape(Reshape { shape: alone }),
            &[share],
        )?;
        let taps = [&[1, 1], &p.kernel[..]].concat();
        let ones = vec![1.0f32; taps.iter().product()];
        let ones = Tensor::from_slice(&taps, &ones);
        let ones = self.model.add_constant(&name("ones"), ones);
        let end = |d: usize| {
            let reach = (p.kernel[d] - 1) * p.dilations[d] + 1;
            let full = (maps[2 + d] - 1) * p.strides[d] + reach;
            full as i64 - (p.pads[d].0 + image[2 + d]) as i64
        };
        let transposed = ConvTranspose {
            strides: p.strides.clone(),
            dilations: p.dilations.clone(),
            pads: (0..spatial).map(|d| (p.pads[d].0 as i64, end(d))).collect(),
            output_padding: vec![0; spatial],
            groups: 1,
        };
        let spread = self.node(
            node,
            "spread",
            Op::ConvTranspose(transposed),
            &[alone, ones],
        )?;
        self.node(node, "dx", Op::Reshape(Reshape { shape: image }), &[spread])
    }
}

/// How many taps each window counts along a spatial axis.
fn counted(p: &Pool, d: usize, size: usize, windows: usize, count_include_pad: bool) -> Vec<usize> {
    let (before, after) = p.pads[d];
    let counted = match count_include_pad {
        true => 0..before + size + after,
        false => before..before + size,
    };
    let of_window = |o: usize| {
        let taps = (0..p.kernel[d]).map(|t| o * p.strides[d] + t * p.dilations[d]);
        taps.filter(|at| counted.contains(at)).count().max(1)
    };
    (0..windows).map(of_window).collect()
}
