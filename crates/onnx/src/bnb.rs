//! Importer of MatMulBnb4: a product with weights of 4 bits as the package bitsandbytes writes them.

use crate::node::{Imported, NodeImport, Problem};
use graph::ops::Op;
use tensor::{DType, Tensor};

/// What four bits stand for, as a part of the largest size in a block: a float of 4 bits.
const FP4: [f32; 16] = [
    0.0,
    5.208_333_3e-3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -5.208_333_3e-3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

/// As [`FP4`]: the quantiles of a normal distribution (QLoRA, arXiv:2305.14314, appendix E).
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The weights [N, K] are packed in row-major order, the first of two in the high bits. A block is of neighbours in that
/// order, across rows too.
pub(crate) fn matmul(n: &mut NodeImport) -> Imported {
    let size = |name: &str| match n.attributes.int(name, 0) {
        Ok(v) if (1..1 << 31).contains(&v) => Ok(v as usize),
        Ok(v) => Problem::unsupported(format!("{name}={v}")),
        Err(e) => Err(e),
    };
    let (inputs, maps, block) = (size("K")?, size("N")?, size("block_size")?);
    let transposed = n.attributes.flag("transB", true)?;
    n.attributes.ignore(&["training_mode"]);
    let values = match n.attributes.int("quant_type", 1)? {
        0 => FP4,
        1 => NF4,
        other => return Problem::unsupported(format!("quant_type={other}")),
    };
    let x = n.input(0)?;
    let (Some(packed), Some(largest)) = (n.constant(1, "weights")?, n.constant(2, "absmax")?)
    else {
        return Problem::unsupported("its weights or their absmax are missing");
    };
    let count = inputs * maps;
    if packed.dtype() != DType::U8
        || packed.len() != count.div_ceil(2)
        || largest.len() != count.div_ceil(block)
    {
        return Problem::unsupported(format!(
            "weights {:?} and absmax {:?} for K={inputs}, N={maps}, block_size={block}",
            packed.shape(),
            largest.shape()
        ));
    }
    n.take_elements(&[inputs, maps])?;
    let shape = match transposed {
        true => [inputs, maps],
        false => [maps, inputs],
    };
    let mut weights = Tensor::zeros(DType::F32, &shape);
    let out = weights.as_mut_slice::<f32>();
    for i in 0..count {
        let bits = packed.bytes()[i / 2] >> (4 * (1 - i % 2)) & 0xf;
        let (map, input) = (i / inputs, i % inputs);
        let at = match transposed {
            true => input * maps + map,
            false => i,
        };
        out[at] = values[usize::from(bits)] * largest.get_f64(i / block) as f32;
    }
    let weights = n.model.add_result(&n.name, weights);
    let weights = n.widened(weights, n.dtype(x))?;
    Ok(vec![n.emit(Op::MatMul, &[x, weights])?])
}
