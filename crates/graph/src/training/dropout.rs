//! Dropout: masks by a hash of the element's position, the layer and the step.
//!
//! Promises that a mask is a function of the seed, the layer, the number of the step and the position: no thread
//! and no kernel changes it. The masks are values of the model, so forward and backward have the same.

use super::{NotTrainable, Step, scalar};
use crate::model::{Model, ModelError, ValueId};
use crate::ops::{Binary, Dropout, Op};
use tensor::{DType, Tensor};

/// The state that has the number of the step, i32 [].
const STEP: &str = "dropout.step";

/// The random numbers of a step.
pub(super) struct Masks {
    seed: u64,
    /// Layers so far.
    layers: u64,
    /// The number of the step; none before the first layer.
    step: Option<ValueId>,
}

impl Masks {
    pub fn new(seed: u64) -> Masks {
        Masks {
            seed,
            layers: 0,
            step: None,
        }
    }
}

impl Step {
    /// x times 1 / (1 - ratio) where it is kept, and 0 elsewhere.
    pub(super) fn dropout(
        &mut self,
        name: &str,
        op: Dropout,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, NotTrainable> {
        let x = inputs[0].expect("dropout has an operand");
        let step = self.step_number();
        self.masks.layers += 1;
        let keys = keys(self.masks.seed, self.masks.layers);
        let shape = self.model[x].shape().to_vec();
        let mut bits = Bits {
            model: &mut self.model,
            name,
        };
        let random = bits.of(&shape, step, keys)?;
        let least = bits.number("least", least_kept(op.ratio));
        let m = &mut self.model;
        let part = |what: &str| format!("{name}.{what}");
        let compare = Op::Binary(Binary::GreaterOrEqual);
        let kept = m.add(&part("kept"), compare, &[random, least])?;
        let scale = m.add_constant(&part("scale"), scalar(1.0 / (1.0 - op.ratio)));
        let zero = m.add_constant(&part("zero"), scalar(0.0));
        let mask = m.add(&part("mask"), Op::Where, &[kept, scale, zero])?;
        Ok(m.add(name, Op::Binary(Binary::Mul), &[x, mask])?)
    }

    fn step_number(&mut self) -> ValueId {
        let model = &mut self.model;
        *(self.masks.step).get_or_insert_with(|| model.add_input(STEP, DType::I32, &[]))
    }

    /// The next step has the next number, if there are dropouts.
    pub(super) fn count_steps(&mut self) -> Result<(), ModelError> {
        let Some(step) = self.masks.step else {
            return Ok(());
        };
        let one = integer(&mut self.model, &format!("{STEP}.one"), 1);
        let add = Op::Binary(Binary::Add);
        let next = self.model.add(&format!("{STEP}.sum"), add, &[step, one])?;
        let first = Tensor::from_slice(&[], &[0i32]);
        self.model.add_state(step, next, first);
        Ok(())
    }
}

/// The least of all i32 that is kept: below it lies the share that is dropped.
fn least_kept(ratio: f32) -> i32 {
    (f64::from(ratio) * 2f64.powi(32) + f64::from(i32::MIN)) as i32
}

/// Two numbers of a layer, by the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn keys(seed: u64, layer: u64) -> [i32; 2] {
    let mut z = seed.wrapping_add(layer.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    [z as i32, (z >> 32) as i32]
}

fn integer(model: &mut Model, name: &str, value: i32) -> ValueId {
    model.add_constant(name, Tensor::from_slice(&[], &[value]))
}

/// Adds nodes of integers for one layer.
struct Bits<'a> {
    model: &'a mut Model,
    name: &'a str,
}

impl Bits<'_> {
    /// One random i32 an element. Two rounds with a key of the step before each, so that neither steps nor layers
    /// have masks that are one another's, shifted.
    fn of(
        &mut self,
        shape: &[usize],
        step: ValueId,
        keys: [i32; 2],
    ) -> Result<ValueId, ModelError> {
        let mut bits = self.positions(shape)?;
        for (round, key) in keys.into_iter().enumerate() {
            let key = self.number(&format!("key{round}"), key);
            let of_step = self.both(Binary::Add, "of_step", step, key)?;
            let of_step = self.mixed(of_step)?;
            bits = self.both(Binary::Add, "round", bits, of_step)?;
            bits = self.mixed(bits)?;
        }
        Ok(bits)
    }

    /// The position of each element in row-major order, as a sum over the axes.
    fn positions(&mut self, shape: &[usize]) -> Result<ValueId, ModelError> {
        let mut sum = self.number("first", 0);
        let mut stride = 1i32;
        for (d, size) in shape.iter().enumerate().rev() {
            let along: Vec<i32> = (0..*size as i32).map(|i| i.wrapping_mul(stride)).collect();
            stride = stride.wrapping_mul(*size as i32);
            let mut axis = vec![1; shape.len()];
            axis[d] = *size;
            let name = format!("{}.axis{d}", self.name);
            let along = Tensor::from_slice(&axis, &along);
            let along = self.model.add_constant(&name, along);
            sum = self.both(Binary::Add, "position", along, sum)?;
        }
        Ok(sum)
    }

    /// The finaliser of MurmurHash3 (Appleby 2011): each bit of the result depends on all bits.
    fn mixed(&mut self, mut x: ValueId) -> Result<ValueId, ModelError> {
        for (shift, factor) in [
            (16, Some(0x85eb_ca6bu32)),
            (13, Some(0xc2b2_ae35)),
            (16, None),
        ] {
            let high = self.high(x, shift)?;
            x = self.both(Binary::BitXor, "xor", x, high)?;
            if let Some(factor) = factor {
                let factor = self.number("factor", factor as i32);
                x = self.both(Binary::Mul, "product", x, factor)?;
            }
        }
        Ok(x)
    }

    /// The bits from `shift` on, with zeros above, which a shift of i32 does not give.
    fn high(&mut self, x: ValueId, shift: i32) -> Result<ValueId, ModelError> {
        let by = self.number("by", shift);
        let shifted = self.both(Binary::ShiftRight, "shifted", x, by)?;
        let low = self.number("low", (u32::MAX >> shift) as i32);
        self.both(Binary::BitAnd, "high", shifted, low)
    }

    fn both(
        &mut self,
        op: Binary,
        what: &str,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, ModelError> {
        let name = format!("{}.{what}", self.name);
        self.model.add(&name, Op::Binary(op), &[a, b])
    }

    fn number(&mut self, what: &str, value: i32) -> ValueId {
        let name = format!("{}.{what}", self.name);
        integer(self.model, &name, value)
    }
}
