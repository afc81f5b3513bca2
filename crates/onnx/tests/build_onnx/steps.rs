//! Bytes and what they stand for, by the definitions of DequantizeLinear and QuantizeLinear in
//! f32. For tests here and of crate `tunesmith`.

use tensor::DType;

/// A type of bytes, what one step of them is worth, and which of them is 0.
#[derive(Clone, Copy, Debug)]
pub struct Steps(pub DType, pub f32, pub i32);

/// The least and the greatest byte of a type.
pub fn range(d: DType) -> (i32, i32) {
    if d == DType::U8 {
        (0, 255)
    } else {
        (-128, 127)
    }
}

pub fn dequantised(q: i32, s: Steps) -> f32 {
    (q - s.2) as f32 * s.1
}

pub fn quantised(x: f32, s: Steps) -> i32 {
    let (least, most) = range(s.0);
    let rounded = f64::from((x / s.1).round_ties_even());
    (rounded + f64::from(s.2)).clamp(f64::from(least), f64::from(most)) as i32
}
