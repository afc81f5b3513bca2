//! Random contractions: convolutions and products that nobody wrote a template for, of
//! random axes, windows, strides, dilations, groups, element types and epilogues.
//!
//! A program has a sum of products `main` and, behind it, the block `out` with an epilogue
//! where there is one. On [`contraction_args`] all arithmetic is exact: any legal order of
//! evaluation gives equal numbers.

use crate::args::random_args;
use ir::{BufferId, DType, Expr, Program, ProgramBuilder, Reducer, Role};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tensor::{Fill, Tensor, fill_tensor};

/// Element types of the operands and of the sum: of those that code
/// generation knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Types {
    operands: [DType; 2],
    sum: DType,
}

impl Types {
    fn random(rng: &mut impl Rng) -> Types {
        let alike = |dtype: DType| Types {
            operands: [dtype; 2],
            sum: dtype,
        };
        let bytes = |operands: [DType; 2]| Types {
            operands,
            sum: DType::I32,
        };
        match rng.random_range(0..10) {
            0 | 1 => alike(DType::F64),
            2 => alike(DType::I32),
            3 => bytes([DType::U8, DType::I8]),
            4 => bytes([DType::I8, DType::U8]),
            5 => bytes([DType::I8, DType::I8]),
            _ => alike(DType::F32),
        }
    }

    /// An element of an operand, in the type of the sum.
    fn factor(self, operand: usize, element: Expr) -> Expr {
        match self.operands[operand] == self.sum {
            true => element,
            false => element.cast(self.sum),
        }
    }
}

/// A window along one spatial axis.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub outputs: i64,
    pub taps: i64,
    pub stride: i64,
    pub dilation: i64,
    /// Before the image.
    pub pad: i64,
    /// Behind it.
    pub pad_end: i64,
}

impl Window {
    pub fn random(rng: &mut impl Rng) -> Window {
        let taps = rng.random_range(1..5);
        Window {
            outputs: rng.random_range(1..14),
            taps,
            stride: rng.random_range(1..4),
            dilation: rng.random_range(1..3),
            pad: rng.random_range(0..=taps / 2),
            pad_end: rng.random_range(0..=taps),
        }
    }

    /// Elements of the image.
    pub fn size(self) -> i64 {
        let reach = (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1;
        (reach - self.pad - self.pad_end).max(1)
    }

    /// The position in the image that an output and a tap read.
    pub fn position(self, output: &Expr, tap: &Expr) -> Expr {
        output * self.stride + tap * self.dilation - self.pad
    }
}

/// A random contraction; the same seed gives the same program on every machine.
pub fn random_contraction(seed: u64) -> Program {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    match rng.random() {
        true => convolution(&mut rng),
        false => product(&mut rng),
    }
}

/// Arguments on which a random contraction is exact: bytes of their whole range, other
/// operands small.
pub fn contraction_args(program: &Program, seed: u64) -> Vec<Tensor> {
    let mut args = random_args(program, seed);
    for (i, (arg, id)) in args.iter_mut().zip(&program.params).enumerate() {
        let (lo, hi) = match program.buffer(*id).dtype {
            DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
            DType::U8 => (0, i64::from(u8::MAX)),
            _ => continue,
        };
        if program.buffer(*id).role != Role::Output {
            let shape = arg.shape().to_vec();
            let fill = Fill::Integers { lo, hi };
            *arg = fill_tensor(arg.dtype(), &shape, fill, seed ^ (i as u64 + 1));
        }
    }
    args
}

/// A convolution of one to three windows, in groups; channels are the second axis or the
/// last one.
fn convolution(rng: &mut impl Rng) -> Program {
    let types = Types::random(rng);
    let count = [1, 1, 2, 2, 3].choose(rng).copied().unwrap_or(1);
    let windows: Vec<Window> = (0..count).map(|_| Window::random(rng)).collect();
    let groups = [1, 1, 1, 2, 3, 4].choose(rng).copied().unwrap_or(1);
    let (maps, depth) = (rng.random_range(1..20), rng.random_range(1..5));
    let images = rng.random_range(1..3);
    let channels_last = rng.random_ratio(1, 3);
    let placed = |image: Expr, channel: Expr, positions: Vec<Expr>| -> Vec<Expr> {
        match channels_last {
            true => [vec![image], positions, vec![channel]].concat(),
            false => [vec![image, channel], positions].concat(),
        }
    };
    let sizes: Vec<i64> = windows.iter().map(|w| w.size()).collect();
    let mut b = ProgramBuilder::new("convolution");
    let shape = match channels_last {
        true => [&[images], &sizes[..], &[groups * depth]].concat(),
        false => [&[images, groups * depth], &sizes[..]].concat(),
    };
    let x = b.input("X", types.operands[0], &shape);
    let taps: Vec<i64> = windows.iter().map(|w| w.taps).collect();
    let of_weights = [&[groups * maps, depth], &taps[..]].concat();
    let weight = b.constant("W", types.operands[1], &of_weights);
    let names = ["x", "y", "z"];
    let tap_names = ["s", "r", "q"];
    let of_windows = names.iter().zip(&windows).map(|(n, w)| (*n, w.outputs));
    let image = ("n", images);
    let channel = ("k", groups * maps);
    let axes: Vec<(&str, i64)> = match channels_last {
        true => [image]
            .into_iter()
            .chain(of_windows)
            .chain([channel])
            .collect(),
        false => [image, channel].into_iter().chain(of_windows).collect(),
    };
    let of_taps = tap_names.iter().zip(&windows).map(|(n, w)| (*n, w.taps));
    let terms: Vec<(&str, i64)> = [("c", depth)].into_iter().chain(of_taps).collect();
    let (first, k) = if channels_last {
        (1, 1 + count)
    } else {
        (2, 1)
    };
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let group = o[k].clone().floor_div(maps);
        let mut inside = Expr::bool(true);
        let mut positions = Vec::new();
        for (d, w) in windows.iter().enumerate() {
            let position = w.position(&o[first + d], &t[1 + d]);
            inside = inside
                .and(Expr::int(0).le(&position))
                .and(position.clone().lt(sizes[d]));
            positions.push(position);
        }
        let at = placed(o[0].clone(), group * depth + &t[0], positions);
        let zero = Expr::constant(0.0, types.operands[0]);
        let data = Expr::select(inside, Expr::load(x, at), zero);
        let weight = Expr::load(weight, [&[o[k].clone()], t].concat());
        types.factor(0, data) * types.factor(1, weight)
    });
    finish(rng, b, main, &axes, k, types)
}

/// An axis of a product: its letter, and the operands that have it.
#[derive(Clone, Copy)]
struct Letter {
    name: &'static str,
    extent: i64,
    of: [bool; 2],
    summed: bool,
}

/// Axes of a random product: batches, some of which one operand is broadcast along, rows,
/// columns and terms.
fn letters(rng: &mut impl Rng) -> Vec<Letter> {
    // Of each kind: its letters, the fewest and the most of them, and the longest extent.
    let kinds = [
        (["a", "b"], 0, 2, 4),
        (["m", "o"], 1, 2, 9),
        (["n", "p"], 1, 2, 40),
        (["k", "l"], 1, 2, 12),
    ];
    let mut used = Vec::new();
    for (kind, (names, least, most, longest)) in kinds.into_iter().enumerate() {
        let count = rng.random_range(least..=most);
        for name in names.into_iter().take(count) {
            let of = match kind {
                0 => [[true, true], [true, true], [true, false], [false, true]]
                    .choose(rng)
                    .copied()
                    .unwrap_or([true; 2]),
                1 => [true, false],
                2 => [false, true],
                _ => [true, true],
            };
            used.push(Letter {
                name,
                extent: rng.random_range(1..=longest),
                of,
                summed: kind == 3,
            });
        }
    }
    used
}

/// A product of two operands with axes in any order.
fn product(rng: &mut impl Rng) -> Program {
    let types = Types::random(rng);
    let used = letters(rng);
    let mut shuffled = |keep: &dyn Fn(&Letter) -> bool| -> Vec<Letter> {
        let mut found: Vec<Letter> = used.iter().filter(|l| keep(l)).copied().collect();
        found.shuffle(rng);
        found
    };
    let operands = [shuffled(&|l| l.of[0]), shuffled(&|l| l.of[1])];
    let result = shuffled(&|l| !l.summed);
    let summed = shuffled(&|l| l.summed);
    let mut b = ProgramBuilder::new("product");
    let shape = |of: &[Letter]| of.iter().map(|l| l.extent).collect::<Vec<i64>>();
    let left = b.input("A", types.operands[0], &shape(&operands[0]));
    let right = match rng.random() {
        true => b.input("B", types.operands[1], &shape(&operands[1])),
        false => b.constant("B", types.operands[1], &shape(&operands[1])),
    };
    let named = |of: &[Letter]| of.iter().map(|l| (l.name, l.extent)).collect::<Vec<_>>();
    let (axes, terms) = (named(&result), named(&summed));
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let index = |l: &Letter| {
            let mut all = result.iter().zip(o).chain(summed.iter().zip(t));
            let found = all.rfind(|(r, _)| r.name == l.name);
            let (_, e) = found.expect("every letter is summed or in the result");
            e.clone()
        };
        let element = |operand: usize, buffer: BufferId| {
            let at: Vec<Expr> = operands[operand].iter().map(index).collect();
            types.factor(operand, Expr::load(buffer, at))
        };
        element(0, left) * element(1, right)
    });
    let channel = rng.random_range(0..axes.len());
    finish(rng, b, main, &axes, channel, types)
}

/// With an epilogue behind the sum, or without: a bias along the axis `channel`, a scale, a
/// residual, and the positive part.
fn finish(
    rng: &mut impl Rng,
    mut b: ProgramBuilder,
    main: BufferId,
    axes: &[(&str, i64)],
    channel: usize,
    types: Types,
) -> Program {
    let [biased, scaled, residual, positive] = [(); 4].map(|()| rng.random_ratio(1, 3));
    if !(biased || scaled || residual || positive) {
        return b.finish(&[main]);
    }
    let shape: Vec<i64> = axes.iter().map(|(_, extent)| *extent).collect();
    let bias = biased.then(|| b.constant("bias", types.sum, &[shape[channel]]));
    let other = residual.then(|| b.input("residual", types.sum, &shape));
    let number = |n: f64| Expr::constant(n, types.sum);
    let result = b.compute("out", axes, |at| {
        let mut value = Expr::load(main, at);
        if let Some(bias) = bias {
            value = value + Expr::load(bias, [at[channel].clone()]);
        }
        if scaled {
            value = value * number(2.0);
        }
        if let Some(other) = other {
            value = value + Expr::load(other, at);
        }
        if positive {
            value = value.max(number(0.0));
        }
        value
    });
    b.finish(&[result])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{interpret, verify};
    use std::collections::BTreeSet;

    #[test]
    fn they_keep_the_verifiers_promises_run_and_are_of_every_type() {
        let mut types = BTreeSet::new();
        for seed in 0..100 {
            let program = random_contraction(seed);
            assert_eq!(program, random_contraction(seed));
            assert!(verify::verify(&program).is_empty(), "{seed}");
            let mut args = contraction_args(&program, seed);
            interpret::run(&program, &mut args).unwrap_or_else(|e| panic!("{seed}: {e}"));
            let dtype = |id: &BufferId| program.buffer(*id).dtype.to_string();
            types.extend(program.params.iter().map(dtype));
        }
        for wanted in ["f32", "f64", "i8", "u8", "i32"] {
            assert!(types.contains(wanted), "{wanted} of {types:?}");
        }
    }
}
