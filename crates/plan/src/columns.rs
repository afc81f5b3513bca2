//! Transposed convolutions that phases suit badly become a product and a sum of overlapping
//! columns.
//!
//! By phases a transposed convolution computes every output from its terms (`conv_transpose`):
//! nothing is written twice, but terms outside the image and channels that fill blocks are
//! computed too. The product of the transposed weights and the image computes nothing that is
//! not needed, `columns[m, p] = sum_c W[c, m] X[c, p]`, where m is a map with a tap; `Col2Im`
//! then adds the columns up. It passes over all columns once more.

use graph::ops::{Binary, Col2Im, Contract, ConvTranspose, Op, Reshape};
use graph::{Model, Node, Rewrite, ValueId};
use std::convert::Infallible;

/// Channels of a block, and lanes of a vector, on the widest CPUs.
const LANES: usize = 16;
/// Multiply-adds that take as long as writing and adding one element of the columns, in a
/// cache and in memory. These and the following factors were chosen by the times of 40
/// transposed convolutions in one, two and three dimensions (Zen 4, one thread).
const NEAR: f64 = 12.0;
const FAR: f64 = 48.0;
/// Columns of so many elements stay in caches.
const NEAR_ELEMENTS: usize = 1 << 22;
/// How much longer groups take that are no whole blocks, and each axis of the result that ends
/// within a phase.
const STRADDLING: f64 = 1.7;
const WITHIN_PHASE: f64 = 1.3;
/// Multiply-adds from which on it matters.
const FEWEST: usize = 1 << 17;
/// By how much columns have to be better.
const CLEARLY: f64 = 1.1;

const FITS: &str = "the parts fit as the transposed convolution did";

/// The model with columns where they are predicted to take less time.
pub(crate) fn rewrite(model: &Model) -> Model {
    let rewritten = model.rewrite(|r, _, node| {
        let new = match &node.op {
            Op::ConvTranspose(c) => columns(r, node, c),
            _ => None,
        };
        Ok::<_, Infallible>(new.map_or_else(|| r.copy(node), |v| vec![v]))
    });
    let Ok(model) = rewritten;
    model
}

fn columns(r: &mut Rewrite, node: &Node, c: &ConvTranspose) -> Option<ValueId> {
    let operands: Vec<ValueId> = r.operands(node).into_iter().flatten().collect();
    let (x, w) = (*operands.first()?, *operands.get(1)?);
    r.target.constant(w)?;
    let shape = |v: ValueId| r.target[v].shape().to_vec();
    let (of_x, of_w) = (shape(x), shape(w));
    let result = r.source[node.output()].shape().to_vec();
    let op = overlap(c, &of_x, &of_w, &result)?;
    if !pays(c, &of_x, &of_w, &result) {
        return None;
    }
    let [batch, groups] = [of_x[0], c.groups];
    let (depth, rows) = (of_x[1] / groups, of_w[1..].iter().product::<usize>());
    let pixels = of_x[2..].iter().product::<usize>();
    let mut add = |op: Op, inputs: &[ValueId]| -> ValueId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        r.target.add_node(&node.name, op, &inputs).expect(FITS)[0]
    };
    let reshape = |shape: Vec<usize>| Op::Reshape(Reshape { shape });
    let image = add(reshape(vec![batch, groups, depth, pixels]), &[x]);
    let weights = add(reshape(vec![groups, depth, rows]), &[w]);
    let product = Contract::parse("gcm,ngcp->ngmp").ok()?;
    let columns = add(Op::Contract(product), &[weights, image]);
    let columns = add(reshape(vec![batch, groups * rows, pixels]), &[columns]);
    let sums = add(Op::Col2Im(op), &[columns]);
    let Some(bias) = operands.get(2) else {
        return Some(sums);
    };
    let along_maps = [&[result[1]], &vec![1; result.len() - 2][..]].concat();
    let bias = add(reshape(along_maps), &[*bias]);
    Some(add(Op::Binary(Binary::Add), &[sums, bias]))
}

/// How the columns overlap; `None` where an attribute has no counterpart.
fn overlap(c: &ConvTranspose, x: &[usize], w: &[usize], result: &[usize]) -> Option<Col2Im> {
    let pad = |(before, after): &(i64, i64), extra: &usize| {
        let after = after - *extra as i64;
        Some((
            usize::try_from(*before).ok()?,
            usize::try_from(after.max(0)).ok()?,
        ))
    };
    let pads = c.pads.iter().zip(&c.output_padding);
    let op = Col2Im {
        image: result[2..].to_vec(),
        window: w[2..].to_vec(),
        strides: c.strides.clone(),
        dilations: c.dilations.clone(),
        pads: pads
            .map(|(p, extra)| pad(p, extra))
            .collect::<Option<_>>()?,
    };
    let empty = [x, w, result].concat().contains(&0);
    (!empty && op.windows().ok()? == x[2..]).then_some(op)
}

/// Whether columns are predicted to take clearly less time than phases.
fn pays(c: &ConvTranspose, x: &[usize], w: &[usize], result: &[usize]) -> bool {
    let ratio = |of: usize, whole: usize| of as f64 / whole as f64;
    let padded = |n: usize| ratio(n.next_multiple_of(LANES), n);
    let (depth, maps) = (x[1] / c.groups, w[1]);
    let straddles = c.groups > 1 && !(depth.is_multiple_of(LANES) && maps.is_multiple_of(LANES));
    let mut phases = match straddles {
        true => STRADDLING,
        false => padded(depth) * padded(maps),
    };
    let spatial = result[2..].iter().zip(&x[2..]).zip(&c.strides);
    for ((count, size), stride) in spatial {
        phases *= ratio(count.div_ceil(*stride), *size);
        if !straddles && count % stride != 0 {
            phases *= WITHIN_PHASE;
        }
    }
    let pixels = x[2..].iter().product::<usize>();
    let elements = x[0] * c.groups * w[1..].iter().product::<usize>() * pixels;
    let each = if elements <= NEAR_ELEMENTS { NEAR } else { FAR };
    if elements * depth < FEWEST {
        return false;
    }
    // One column has its lanes along the maps.
    let lanes = if pixels == 1 { 1.0 } else { padded(pixels) };
    phases > CLEARLY * lanes * (1.0 + each / depth as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pays_for(groups: usize, maps: [usize; 2], image: usize, tap: [usize; 3]) -> bool {
        let ([depth, maps], [taps, stride, pad]) = (maps, tap);
        let c = ConvTranspose {
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(pad as i64, pad as i64); 2],
            output_padding: vec![0; 2],
            groups,
        };
        let out = (image - 1) * stride + taps - 2 * pad;
        let (x, w) = ([1, depth, image, image], [depth, maps, taps, taps]);
        pays(&c, &x, &w, &[1, maps * groups, out, out])
    }

    #[test]
    fn columns_pay_where_phases_compute_much_that_is_not_needed() {
        assert!(!pays_for(1, [256, 128], 8, [4, 2, 1]), "whole blocks");
        assert!(!pays_for(1, [1024, 512], 14, [2, 2, 0]));
        assert!(!pays_for(64, [64, 1], 28, [4, 2, 1]), "few terms");
        assert!(pays_for(1, [237, 92], 12, [5, 1, 0]), "borders");
        assert!(pays_for(1, [64, 3], 32, [4, 2, 1]), "few maps");
        assert!(
            pays_for(2, [234, 44], 12, [3, 2, 0]),
            "groups straddle blocks"
        );
        assert!(
            pays_for(1, [128, 64], 24, [3, 3, 1]),
            "the last phase is cut"
        );
    }
}
