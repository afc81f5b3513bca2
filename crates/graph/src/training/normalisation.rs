//! Normalisations as a training step computes them.

use super::gradient::Normalised;
use super::{NotTrainable, Step, scalar};
use crate::model::{ModelError, ValueId};
use crate::ops::{BatchNorm, Binary, LayerNorm, Op, Reduce, ReduceKind, Reshape, Unary};

/// Share by which running statistics of a batch normalisation move to those of a batch: PyTorch's default.
const STATISTICS: f32 = 0.1;

impl Step {
    /// Batch normalisation by the statistics of the batch.
    pub(super) fn batch_norm(
        &mut self,
        name: &str,
        op: BatchNorm,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, NotTrainable> {
        let at = |i: usize| inputs[i].expect("batch normalisation has five operands");
        let (x, part) = (at(0), |what: &str| format!("{name}.{what}"));
        let shape = self.model[x].shape().to_vec();
        let channels = shape[1];
        let mut per_channel = vec![1; shape.len()];
        per_channel[1] = channels;
        let axes = (0..shape.len()).filter(|d| *d != 1).collect();
        let [_, inverse, mean, variance] = self.spread(name, x, axes, op.epsilon)?;
        let m = &mut self.model;
        let mut reshaped = |what: &str, v| {
            let shape = per_channel.clone();
            m.add(&part(what), Op::Reshape(Reshape { shape }), &[v])
        };
        let (scale, shift) = (reshaped("scale", at(1))?, reshaped("shift", at(2))?);
        let (mul, sub) = (|| Op::Binary(Binary::Mul), Op::Binary(Binary::Sub));
        let factor = m.add(&part("factor"), mul(), &[inverse, scale])?;
        // Subtracted once more: the kernel that scales reads x, and the centred elements are not written.
        let apart = m.add(&part("apart"), sub, &[x, mean])?;
        let scaled = m.add(&part("scaled"), mul(), &[apart, factor])?;
        let out = m.add(name, Op::Binary(Binary::Add), &[scaled, shift])?;
        let normalised = Normalised {
            x,
            scale: at(1),
            shift: at(2),
            mean,
            inverse,
            factor,
        };
        self.normalised.insert(out, normalised);
        // The running variance is of the sample, not of the population.
        let count = shape.iter().product::<usize>() / channels.max(1);
        let sample = count as f32 / (count as f32 - 1.0).max(1.0);
        for (running, batch, by) in [(at(3), mean, 1.0), (at(4), variance, sample)] {
            if self.states.contains_key(&running) {
                let new = self.moved(running, batch, by)?;
                self.statistics.push((running, new));
            }
        }
        Ok(out)
    }

    /// A running statistic moved to `by` times that of a batch.
    fn moved(
        &mut self,
        running: ValueId,
        batch: ValueId,
        by: f32,
    ) -> Result<ValueId, NotTrainable> {
        let name = self.model[running].name().to_string();
        let shape = self.model[running].shape().to_vec();
        let part = |what: &str| format!("{name}.{what}");
        let m = &mut self.model;
        let batch = m.add(&part("batch"), Op::Reshape(Reshape { shape }), &[batch])?;
        let keep = m.add_constant(&part("keep"), scalar(1.0 - STATISTICS));
        let take = m.add_constant(&part("take"), scalar(STATISTICS * by));
        let old = m.add(&part("old"), Op::Binary(Binary::Mul), &[running, keep])?;
        let new = m.add(&part("part"), Op::Binary(Binary::Mul), &[batch, take])?;
        Ok(m.add(&part("next"), Op::Binary(Binary::Add), &[old, new])?)
    }

    /// Layer normalisation in parts, which have gradients.
    pub(super) fn layer_norm(
        &mut self,
        name: &str,
        op: LayerNorm,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, NotTrainable> {
        let at = |i: usize| inputs.get(i).copied().flatten();
        let (Some(x), Some(scale)) = (at(0), at(1)) else {
            unreachable!("layer normalisation has two operands");
        };
        let axes = (op.axis..self.model[x].shape().len()).collect();
        let [centred, inverse, ..] = self.spread(name, x, axes, op.epsilon)?;
        let part = |what: &str| format!("{name}.{what}");
        let (m, mul) = (&mut self.model, || Op::Binary(Binary::Mul));
        let standard = m.add(&part("standard"), mul(), &[centred, inverse])?;
        Ok(match at(2) {
            Some(shift) => {
                let scaled = m.add(&part("scaled"), mul(), &[standard, scale])?;
                m.add(name, Op::Binary(Binary::Add), &[scaled, shift])?
            }
            None => m.add(name, mul(), &[standard, scale])?,
        })
    }

    /// Over these axes, which stay as 1: x less its mean, 1 / sqrt(variance + epsilon), the mean and the variance.
    fn spread(
        &mut self,
        name: &str,
        x: ValueId,
        axes: Vec<usize>,
        epsilon: f32,
    ) -> Result<[ValueId; 4], ModelError> {
        let part = |what: &str| format!("{name}.{what}");
        let mean_of = || {
            Op::Reduce(Reduce {
                kind: ReduceKind::Mean,
                axes: axes.clone(),
                keepdims: true,
            })
        };
        let (m, add, mul) = (
            &mut self.model,
            Op::Binary(Binary::Add),
            Op::Binary(Binary::Mul),
        );
        let mean = m.add(&part("batch_mean"), mean_of(), &[x])?;
        let centred = m.add(&part("centred"), Op::Binary(Binary::Sub), &[x, mean])?;
        let square = m.add(&part("square"), mul, &[centred, centred])?;
        let variance = m.add(&part("batch_variance"), mean_of(), &[square])?;
        let epsilon = m.add_constant(&part("epsilon"), scalar(epsilon));
        let above = m.add(&part("above"), add, &[variance, epsilon])?;
        let deviation = m.add(&part("deviation"), Op::Unary(Unary::Sqrt), &[above])?;
        let inverse = m.add(&part("inverse"), Op::Unary(Unary::Reciprocal), &[deviation])?;
        Ok([centred, inverse, mean, variance])
    }
}
