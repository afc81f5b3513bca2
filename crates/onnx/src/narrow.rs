//! Element types of ONNX that no tensor here computes in.
//!
//! A value of such a type is held in a wider type that has all of its numbers: 16-bit integers as i32, unsigned ones of 32
//! bits as i64, numbers of 4 bits as bytes, 8-bit floats as f32. Unsigned integers of 64 bits are held as the bits of an i64.
//! While a model is read, such a value is marked. `narrowing.rs` casts to such types, and `wrapping.rs` computes with the
//! integers of 16 bits and more. Operators that compute with the others would round and wrap at other numbers than the
//! file's type does, so only those take a marked value that move elements, compare them, or leave the type: `Cast`,
//! `QuantizeLinear`, `DequantizeLinear`.

use crate::node::{NodeImport, Problem};
use graph::ValueId;
use std::collections::HashMap;
use tensor::{DType, Tensor};

enum Numbers {
    Unsigned,
    Signed,
    /// What the bits stand for.
    Float(fn(u8) -> f32),
}

/// One such type.
pub(crate) struct Narrow {
    /// Of ONNX's `TensorProto.DataType`.
    pub(crate) number: i32,
    pub(crate) name: &'static str,
    bits: usize,
    numbers: Numbers,
    /// What holds its values.
    pub(crate) carrier: DType,
}

const fn narrow(
    number: i32,
    name: &'static str,
    bits: usize,
    numbers: Numbers,
    carrier: DType,
) -> Narrow {
    Narrow {
        number,
        name,
        bits,
        numbers,
        carrier,
    }
}

static NARROW: [Narrow; 14] = [
    narrow(4, "uint16", 16, Numbers::Unsigned, DType::I32),
    narrow(5, "int16", 16, Numbers::Signed, DType::I32),
    narrow(12, "uint32", 32, Numbers::Unsigned, DType::I64),
    narrow(13, "uint64", 64, Numbers::Unsigned, DType::I64),
    narrow(17, "float8e4m3fn", 8, Numbers::Float(e4m3fn), DType::F32),
    narrow(
        18,
        "float8e4m3fnuz",
        8,
        Numbers::Float(e4m3fnuz),
        DType::F32,
    ),
    narrow(19, "float8e5m2", 8, Numbers::Float(e5m2), DType::F32),
    narrow(
        20,
        "float8e5m2fnuz",
        8,
        Numbers::Float(e5m2fnuz),
        DType::F32,
    ),
    narrow(21, "uint4", 4, Numbers::Unsigned, DType::U8),
    narrow(22, "int4", 4, Numbers::Signed, DType::I8),
    narrow(23, "float4e2m1", 4, Numbers::Float(e2m1), DType::F32),
    narrow(24, "float8e8m0", 8, Numbers::Float(e8m0), DType::F32),
    narrow(25, "uint2", 2, Numbers::Unsigned, DType::U8),
    narrow(26, "int2", 2, Numbers::Signed, DType::I8),
];

/// Of a number that may be above what an i64 holds, which has the bits of one then. It can be moved and cast only.
pub(crate) static OPEN_UINT64: Narrow = narrow(13, "uint64", 64, Numbers::Unsigned, DType::I64);

/// The values of a model that is being imported which have such a type.
pub(crate) type Narrows = HashMap<ValueId, &'static Narrow>;

/// Operators whose results are elements of their operands: the results have the operands' type.
const MOVE: [&str; 30] = [
    "CenterCropPad",
    "Compress",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Pad",
    "ReduceMax",
    "ReduceMin",
    "Reshape",
    "ReverseSequence",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// Operators that take such a type and give another one.
const LEAVE: [&str; 14] = [
    "BitCast",
    "Cast",
    "CastLike",
    "DequantizeLinear",
    "Equal",
    "GatherBlockQuantized",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "QuantizeLinear",
    "Shape",
    "Size",
    "MatMulInteger16",
];

/// Operators that take numbers which may be above what an i64 holds.
const TAKE_OPEN: [&str; 30] = [
    "BitCast",
    "Cast",
    "CastLike",
    "CenterCropPad",
    "Compress",
    "Concat",
    "DepthToSpace",
    "Equal",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "ReverseSequence",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// A float of a sign and so many bits of exponent and mantissa, without special values.
fn float(bits: u8, exponent: u32, mantissa: u32, bias: i32) -> f32 {
    let sign = if bits >> (exponent + mantissa) == 1 {
        -1.0
    } else {
        1.0
    };
    let e = i32::from(bits >> mantissa) & ((1 << exponent) - 1);
    let m = f32::from(bits & ((1 << mantissa) - 1)) / (1u32 << mantissa) as f32;
    sign * match e {
        0 => m * 2f32.powi(1 - bias),
        e => (1.0 + m) * 2f32.powi(e - bias),
    }
}

fn e4m3fn(bits: u8) -> f32 {
    match bits & 0x7f {
        0x7f => f32::NAN,
        _ => float(bits, 4, 3, 7),
    }
}

fn e4m3fnuz(bits: u8) -> f32 {
    match bits {
        0x80 => f32::NAN,
        _ => float(bits, 4, 3, 8),
    }
}

fn e5m2(bits: u8) -> f32 {
    match bits & 0x7f {
        0x7c if bits < 0x80 => f32::INFINITY,
        0x7c => f32::NEG_INFINITY,
        0x7d.. => f32::NAN,
        _ => float(bits, 5, 2, 15),
    }
}

fn e5m2fnuz(bits: u8) -> f32 {
    match bits {
        0x80 => f32::NAN,
        _ => float(bits, 5, 2, 16),
    }
}

fn e2m1(bits: u8) -> f32 {
    float(bits, 2, 1, 1)
}

/// A power of two without sign.
fn e8m0(bits: u8) -> f32 {
    match bits {
        0xff => f32::NAN,
        _ => 2f64.powi(i32::from(bits) - 127) as f32,
    }
}

impl Narrow {
    pub(crate) fn of(number: i32) -> Option<&'static Narrow> {
        NARROW.iter().find(|n| n.number == number)
    }

    /// The type of a model's inputs and outputs that hold its values, if there is one.
    pub(crate) fn stored(&self) -> Option<DType> {
        Some(match self.number {
            4 => DType::U16,
            5 => DType::I16,
            12 => DType::U32,
            13 => DType::U64,
            _ => return None,
        })
    }

    /// What an input of this element type stands for.
    pub(crate) fn of_stored(dtype: DType) -> Option<&'static Narrow> {
        match dtype {
            DType::U64 => Some(&OPEN_UINT64),
            _ => NARROW.iter().find(|n| n.stored() == Some(dtype)),
        }
    }

    /// The bytes that so many elements take in a file, where narrower ones than a byte are packed.
    pub(crate) fn byte_size(&self, elements: usize) -> usize {
        (elements * self.bits).div_ceil(8)
    }

    /// The bytes of one element where a message lists elements as numbers: those narrower than a byte are listed
    /// by the byte.
    pub(crate) fn listed_size(&self) -> usize {
        self.bits.div_ceil(8)
    }

    /// The least and the greatest integer; none for floats.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let half = 2f64.powi(self.bits as i32 - 1);
        match self.numbers {
            Numbers::Unsigned => Some((0.0, 2.0 * half - 1.0)),
            Numbers::Signed => Some((-half, half - 1.0)),
            Numbers::Float(_) => None,
        }
    }

    /// The elements that these bytes hold, the least significant bits first.
    ///
    /// And the type that says whether one may be above what an i64 holds.
    pub(crate) fn tensor(
        &'static self,
        shape: &[usize],
        bytes: &[u8],
    ) -> (Tensor, &'static Narrow) {
        let mut kind = self;
        let mut out = Tensor::zeros(self.carrier, shape);
        for i in 0..out.len() {
            let at = i * self.bits;
            let bits = match self.bits {
                0..8 => u64::from(bytes[at / 8] >> (at % 8)) & ((1 << self.bits) - 1),
                _ => {
                    let own = bytes[at / 8..].iter().take(self.bits / 8);
                    own.rev().fold(0, |bits, b| bits << 8 | u64::from(*b))
                }
            };
            match self.numbers {
                Numbers::Float(value) => out.set_f64(i, f64::from(value(bits as u8))),
                Numbers::Signed => {
                    let unused = 64 - self.bits;
                    out.set_i64(i, (bits << unused) as i64 >> unused);
                }
                Numbers::Unsigned => {
                    if i64::try_from(bits).is_err() {
                        kind = &OPEN_UINT64;
                    }
                    out.set_i64(i, bits as i64);
                }
            }
        }
        (out, kind)
    }
}

/// Refuses an operator that gets a value of such a type and would compute with it.
pub(crate) fn check(n: &NodeImport, operator: &str) -> Result<(), Problem> {
    let takes = |kind: &Narrow| match std::ptr::eq(kind, &OPEN_UINT64) {
        true => TAKE_OPEN.contains(&operator),
        false => MOVE.contains(&operator) || LEAVE.contains(&operator),
    };
    // A reduction computes.
    let plain = n.attributes.text("reduction", "none")? == "none";
    let takes = |kind: &Narrow| plain && takes(kind);
    let given = n.inputs.iter().flatten();
    let mut kinds = given.filter_map(|v| Some((*v, n.narrow.get(v)?)));
    match kinds.find(|(_, kind)| !takes(kind)) {
        Some((v, kind)) => Problem::unsupported(format!(
            "its operand `{}` is of type {}, which this operator does not take here; cast it to another type before",
            n.model[v].name(),
            kind.name
        )),
        None => Ok(()),
    }
}

/// Marks what an operator has made of values of such a type.
pub(crate) fn mark(n: &mut NodeImport, operator: &str, results: &[ValueId]) {
    let kinds = n.inputs.iter().flatten().filter_map(|v| n.narrow.get(v));
    // One number that may be large is enough for a result to have one.
    let kind = kinds.max_by_key(|kind| std::ptr::eq(**kind, &OPEN_UINT64));
    if let Some(kind) = kind.copied().filter(|_| MOVE.contains(&operator)) {
        // Others than those of `Split` are indices.
        let count = if operator == "Split" {
            results.len()
        } else {
            1
        };
        n.narrow
            .extend(results.iter().take(count).map(|v| (*v, kind)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_their_definitions() {
        // Greatest, least normal and least subnormal ones, from the table of ONNX's documentation.
        assert_eq!(
            [0x7e, 0x08, 0x01, 0x81].map(e4m3fn),
            [448.0, 2f32.powi(-6), 2f32.powi(-9), -(2f32.powi(-9))]
        );
        assert_eq!(
            [0x7f, 0x08, 0x01].map(e4m3fnuz),
            [240.0, 2f32.powi(-7), 2f32.powi(-10)]
        );
        assert_eq!(
            [0x7b, 0x04, 0x01].map(e5m2),
            [57344.0, 2f32.powi(-14), 2f32.powi(-16)]
        );
        assert_eq!(
            [0x7f, 0x04, 0x01].map(e5m2fnuz),
            [57344.0, 2f32.powi(-15), 2f32.powi(-17)]
        );
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(e2m1), values);
        assert_eq!([8 + 1, 8 + 7].map(e2m1), [-0.5, -6.0]);
        assert_eq!([127, 128, 0].map(e8m0), [1.0, 2.0, 2f64.powi(-127) as f32]);
        assert_eq!([0x7c, 0xfc].map(e5m2), [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(e4m3fn(0xff).is_nan() && e4m3fnuz(0x80).is_nan() && e5m2fnuz(0x80).is_nan());
        assert!(e5m2(0x7f).is_nan() && e8m0(0xff).is_nan());
    }

    #[test]
    fn elements_narrower_than_a_byte_begin_at_its_low_bits() {
        let read = |number, bytes: &[u8], count| {
            let (t, _) = Narrow::of(number).unwrap().tensor(&[count], bytes);
            (0..count).map(|i| t.get_i64(i)).collect::<Vec<_>>()
        };
        assert_eq!(read(21, &[0x21, 0xf3], 4), [1, 2, 3, 15]);
        assert_eq!(read(22, &[0x8f, 0x07], 3), [-1, -8, 7]);
        assert_eq!(read(26, &[0b11_10_01_00], 4), [0, 1, -2, -1]);
        assert_eq!(read(5, &[0xfe, 0xff, 0x01, 0x00], 2), [-2, 1]);
        assert_eq!(read(12, &[0xff, 0xff, 0xff, 0xff], 1), [4_294_967_295]);
        let (large, kind) = Narrow::of(13).unwrap().tensor(&[1], &[0xff; 8]);
        assert_eq!(large.get_i64(0), -1);
        assert!(std::ptr::eq(kind, &OPEN_UINT64));
    }
}
