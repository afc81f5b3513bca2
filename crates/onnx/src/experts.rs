//! Importers of tables and of experts whose weights are packed by blocks: GatherBlockQuantized, MoE and QMoE.
//!
//! All experts compute all rows. A row's result is the weighted sum over experts, and the weight is 0 for those that its
//! router did not choose.

use crate::attention::{columns, transposed};
use crate::composite::scalar;
use crate::fused::gated;
use crate::gates::sum;
use crate::indexing::counting;
use crate::node::{Imported, NodeImport, Problem};
use crate::quantized::{Along, dequantized};
use graph::ValueId;
use graph::ops::{Binary, Gather, GatherElements, Gelu, Op, Softmax, TopK, Unary};
use tensor::{DType, Tensor};

/// A positive attribute.
fn size(n: &NodeImport, name: &str, default: i64) -> Result<usize, Problem> {
    match n.attributes.int(name, default)? {
        v if (1..1 << 31).contains(&v) => Ok(v as usize),
        v => Problem::unsupported(format!("{name}={v}")),
    }
}

fn bits(n: &NodeImport, name: &str) -> Result<usize, Problem> {
    match size(n, name, 4)? {
        bits @ (2 | 4 | 8) => Ok(bits),
        bits => Problem::unsupported(format!("{name}={bits}")),
    }
}

/// The first `count` numbers of so many bits in each row of bytes, those in low bits first.
fn unpacked(n: &mut NodeImport, x: ValueId, bits: usize, count: usize) -> Result<ValueId, Problem> {
    let mut shape = n.shape(x);
    let Some(bytes) = shape.pop() else {
        return Problem::unsupported("what it unpacks has no axis");
    };
    let in_byte = 8 / bits;
    if n.dtype(x) != DType::U8 || bytes != count.div_ceil(in_byte) {
        return Problem::unsupported(format!("{count} numbers of {bits} bits in {}", n.ty(x)));
    }
    if in_byte == 1 {
        return Ok(x);
    }
    n.take_elements(&n.shape(x))?;
    let apart = n.reshape(x, [&shape[..], &[bytes, 1]].concat())?;
    let shifts: Vec<u8> = (0..in_byte).map(|i| (i * bits) as u8).collect();
    let shifts = Tensor::from_slice(&[in_byte], &shifts);
    let shifts = n.model.add_result(&n.name, shifts);
    let low = n.filled(DType::U8, &[], f64::from((1u8 << bits) - 1))?;
    let y = n.binary(Binary::ShiftRight, apart, shifts)?;
    let y = n.binary(Binary::BitAnd, y, low)?;
    let y = n.reshape(y, [&shape[..], &[bytes * in_byte]].concat())?;
    match bytes * in_byte == count {
        true => Ok(y),
        false => columns(n, y, 0, 1, count),
    }
}

/// Rows of a table of packed numbers with a scale for each block, as the numbers that they stand for.
pub(crate) fn gather_block_quantized(n: &mut NodeImport) -> Imported {
    let (table, indices, scales) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let rank = n.ty(table).rank();
    let axis = n.axis(n.attributes.int("gather_axis", 0)?, rank)?;
    let along = n.axis(n.attributes.int("quantize_axis", 1)?, rank)?;
    let block = size(n, "block_size", 128)?;
    // Numbers of 4 bits as a type of their own are not packed here.
    let is_packed = !n.narrow.contains_key(&table);
    let bits = bits(n, "bits")?;
    if axis == along || is_packed && along + 1 != rank || n.ty(scales).rank() != rank {
        return Problem::unsupported(format!(
            "gather_axis={axis}, quantize_axis={along} of {} with scales {}",
            n.ty(table),
            n.ty(scales)
        ));
    }
    let gather = |n: &mut NodeImport, v| n.emit(Op::Gather(Gather { axis }), &[v, indices]);
    let (mut x, scales) = (gather(n, table)?, gather(n, scales)?);
    let mut zeros = match n.optional(3) {
        Some(z) => Some(gather(n, z)?),
        None => None,
    };
    let along = match along < axis {
        true => along,
        false => along + n.ty(indices).rank() - 1,
    };
    if is_packed {
        let (width, blocks) = (n.shape(x)[along], n.shape(scales)[along]);
        x = unpacked(n, x, bits, width * (8 / bits))?;
        zeros = Some(match zeros {
            Some(z) => unpacked(n, z, bits, blocks)?,
            None => n.filled(DType::U8, &n.shape(scales), f64::from(1u8 << (bits - 1)))?,
        });
    }
    let y = dequantized(n, x, (scales, zeros), Along::blocks(along, block))?;
    Ok(vec![n.cast(y, n.dtype(scales))?])
}

/// One layer of all experts: weights [experts, results, terms] and a bias [experts, results].
struct Layer {
    weights: ValueId,
    bias: Option<ValueId>,
}

impl Layer {
    /// Operands from number `first` on: packed weights, their scales and a bias; and zero points.
    fn packed(
        n: &mut NodeImport,
        first: usize,
        zeros: usize,
        terms: usize,
    ) -> Result<Self, Problem> {
        let bits = bits(n, "expert_weight_bits")?;
        let (packed, mut scales) = (n.input(first)?, n.input(first + 1)?);
        let block = match n.attributes.int("block_size", 0)? {
            0 => terms,
            _ => size(n, "block_size", 0)?,
        };
        let numbers = unpacked(n, packed, bits, terms)?;
        let mut zeros = n.optional(zeros);
        if let [experts, results] = n.shape(scales)[..] {
            if let Some(z) = &mut zeros {
                *z = unpacked(n, *z, bits, results)?;
                *z = n.reshape(*z, vec![experts, results, 1])?;
            }
            scales = n.reshape(scales, vec![experts, results, 1])?;
        } else if let (Some(z), Some(blocks)) = (&mut zeros, n.shape(scales).last().copied()) {
            *z = unpacked(n, *z, bits, blocks)?;
        }
        let zeros = match zeros {
            Some(z) => z,
            None => n.filled(DType::U8, &n.shape(scales), f64::from(1u8 << (bits - 1)))?,
        };
        let weights = dequantized(n, numbers, (scales, Some(zeros)), Along::blocks(2, block))?;
        let bias = n.optional(first + 2);
        Ok(Layer { weights, bias })
    }

    fn plain(n: &NodeImport, first: usize) -> Result<Self, Problem> {
        let (weights, bias) = (n.input(first)?, n.optional(first + 1));
        Ok(Layer { weights, bias })
    }

    /// Of rows [experts or 1, rows, terms].
    fn apply(&self, n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
        let &[experts, results, _] = &n.shape(self.weights)[..] else {
            return Problem::unsupported(format!("its weights are {}", n.ty(self.weights)));
        };
        let weights = n.cast(self.weights, n.dtype(x))?;
        let turned = transposed(n, weights, &[0, 2, 1])?;
        let y = n.emit(Op::MatMul, &[x, turned])?;
        match self.bias {
            Some(bias) => {
                let bias = n.reshape(bias, vec![experts, 1, results])?;
                n.binary(Binary::Add, y, bias)
            }
            None => Ok(y),
        }
    }
}

/// The weight of each expert for each row: [experts, rows, 1]. Those that are not among the k best have 0.
fn routed(
    n: &mut NodeImport,
    logits: ValueId,
    [experts, rows]: [usize; 2],
    normalised: bool,
) -> Result<ValueId, Problem> {
    if n.shape(logits) != [rows, experts] {
        return Problem::unsupported(format!(
            "its routing is {} for {rows} rows and {experts} experts",
            n.ty(logits)
        ));
    }
    let k = size(n, "k", 1)?.min(experts);
    let best = TopK {
        axis: 1,
        k,
        largest: true,
    };
    let chosen = n.emit(Op::TopK(best), &[logits])?;
    let softmax = |n: &mut NodeImport, v| n.emit(Op::Softmax(Softmax { axis: 1 }), &[v]);
    let pick = |n: &mut NodeImport, v| {
        n.emit(Op::GatherElements(GatherElements { axis: 1 }), &[v, chosen])
    };
    let weights = match normalised {
        true => {
            let own = pick(n, logits)?;
            softmax(n, own)?
        }
        false => {
            let all = softmax(n, logits)?;
            pick(n, all)?
        }
    };
    let expert = counting(n, experts, 0, 3, 0)?;
    let chosen = n.reshape(chosen, vec![1, rows, k])?;
    let is_own = n.binary(Binary::Equal, expert, chosen)?;
    let weights = n.reshape(weights, vec![1, rows, k])?;
    let zero = n.filled(n.dtype(weights), &[], 0.0)?;
    let apart = n.emit(Op::Where, &[is_own, weights, zero])?;
    sum(n, apart, 2, true)
}

fn activated(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let alpha = n.attributes.float("activation_alpha", 1.0)?;
    let beta = n.attributes.float("activation_beta", 0.0)?;
    let limit = n.attributes.optional_float("swiglu_limit")?;
    let fusion = n.attributes.int("swiglu_fusion", 0)?;
    match n.attributes.text("activation_type", "relu")?.as_str() {
        "identity" => Ok(x),
        "relu" => n.unary(Unary::Relu, x),
        // The form that ONNX Runtime computes.
        "gelu" => n.unary(Unary::Gelu(Gelu::Tanh), x),
        "silu" => gated(n, x, 1.0),
        // Gates and what they let through alternate.
        "swiglu" if fusion == 1 => {
            let half = n.shape(x).last().map_or(0, |width| width / 2);
            let (mut gate, mut linear) = (columns(n, x, 0, 2, half)?, columns(n, x, 1, 2, half)?);
            if let Some(limit) = limit.map(f64::from) {
                let (min, max) = (Some(-limit), Some(limit));
                gate = n.unary(Unary::Clip { min: None, max }, gate)?;
                linear = n.unary(Unary::Clip { min, max }, linear)?;
            }
            let gate = gated(n, gate, alpha)?;
            let beta = scalar(n, linear, beta)?;
            let linear = n.binary(Binary::Add, linear, beta)?;
            n.binary(Binary::Mul, gate, linear)
        }
        other => Problem::unsupported(format!("activation_type=`{other}`, fusion {fusion}")),
    }
}

/// The weighted results of experts for the rows of operand 0.
fn mixed(
    n: &mut NodeImport,
    normalised: bool,
    layers: impl Fn(&mut NodeImport) -> Result<[Layer; 2], Problem>,
) -> Imported {
    let (x, logits) = (n.input(0)?, n.input(1)?);
    if n.attributes.flag("use_sparse_mixer", false)? {
        return Problem::unsupported("use_sparse_mixer=1");
    }
    let shape = n.shape(x);
    let Some(width) = shape.last().copied().filter(|_| !n.ty(x).is_empty()) else {
        return Problem::unsupported(format!("its operand is {}", n.ty(x)));
    };
    let [first, second] = layers(n)?;
    let count = n.ty(x).len() / width;
    let rows = n.reshape(x, vec![1, count, width])?;
    let inner = first.apply(n, rows)?;
    let inner = activated(n, inner)?;
    let y = second.apply(n, inner)?;
    let experts = n.shape(y)[0];
    let weights = routed(n, logits, [experts, count], normalised)?;
    let weighted = n.binary(Binary::Mul, y, weights)?;
    let y = sum(n, weighted, 0, false)?;
    Ok(vec![n.reshape(y, shape)?])
}

pub(crate) fn moe(n: &mut NodeImport) -> Imported {
    let normalised = n.attributes.flag("normalize_routing_weights", false)?;
    mixed(n, normalised, |n| {
        Ok([Layer::plain(n, 2)?, Layer::plain(n, 4)?])
    })
}

/// ONNX Runtime normalises the weights of these experts whatever the attribute says.
pub(crate) fn quantized_moe(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["normalize_routing_weights"]);
    mixed(n, true, |n| {
        let width = n.shape(n.input(0)?).last().copied().unwrap_or(0);
        let first = Layer::packed(n, 2, 11, width)?;
        let results = n.shape(first.weights)[1];
        let is_halved = n.attributes.text("activation_type", "relu")? == "swiglu";
        let inner = if is_halved { results / 2 } else { results };
        Ok([first, Layer::packed(n, 5, 12, inner)?])
    })
}
