//! Random expressions of every type, and their values by the interpreter.

use ir::affine::Ranges;
use ir::interpret::{InterpretError, run};
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, UnaryOp, VarId};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tensor::Tensor;

pub const VARS: u32 = 4;
/// Elements of each buffer that expressions load from.
const N: usize = 6;
/// Points at which expressions are compared.
const POINTS: usize = 24;

const POINT: BufferId = BufferId(0);
const FLOATS: BufferId = BufferId(1);
const INTS: BufferId = BufferId(2);
const BOOLS: BufferId = BufferId(3);

/// Draws expressions over variables 0 to 3, of which `ranges` knows the values.
pub struct Random {
    pub rng: Pcg64Mcg,
    pub ranges: Ranges,
    limits: Vec<(i64, i64)>,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let (ranges, limits) = (Ranges::new(), vec![]);
        Random {
            rng,
            ranges,
            limits,
        }
    }

    /// Draws the ranges anew.
    pub fn new_ranges(&mut self) {
        self.limits.clear();
        for v in 0..VARS {
            let lo = match self.rng.random_ratio(1, 4) {
                true => self.rng.random_range(-9..3),
                false => 0,
            };
            let hi = lo + [0, 1, 3, 7, 15, 31][self.rng.random_range(0..6)];
            self.ranges.set(VarId(v), lo, hi);
            self.limits.push((lo, hi));
        }
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    fn leaf(&mut self) -> Expr {
        let small = [0, 1, 2, 3, 4, 7, 8, 16, 32, -1, -3];
        match self.rng.random_ratio(2, 3) {
            true => Expr::var(VarId(self.rng.random_range(0..VARS))),
            false => Expr::int(self.one(&small)),
        }
    }

    /// An index without loads.
    pub fn index(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.rng.random_ratio(1, 5) {
            return self.leaf();
        }
        let d = self.one(&[1, 2, 3, 4, 8, 16, 32]);
        let a = self.index(depth - 1);
        match self.rng.random_range(0..16) {
            0..3 => a + self.index(depth - 1),
            3 => a - self.index(depth - 1),
            4 => a * self.one(&[0, 1, 2, 3, 4, 7, 8, 16, -1, -3]),
            5 => a.floor_div(d),
            6 => a.floor_mod(d),
            7 | 8 => self.extreme(a, depth),
            // What splitting and fusing make.
            9 | 10 => {
                let e = a * d + self.leaf();
                let d = d * self.one(&[1, 1, 2, 3]);
                if self.rng.random() {
                    e.floor_div(d)
                } else {
                    e.floor_mod(d)
                }
            }
            11 => a.clone().floor_div(d) * d + a.floor_mod(d),
            12 => {
                let rest = a.floor_mod(d * self.one(&[2, 3]));
                if self.rng.random() {
                    rest.floor_div(d)
                } else {
                    rest.floor_mod(d)
                }
            }
            13 => match self.rng.random_range(0..4) {
                0 => Expr::unary(UnaryOp::Abs, a),
                1 => a / d,
                2 => a.floor_div(-d),
                _ => a.cast(self.one(&[DType::I32, DType::U8])).cast(DType::I64),
            },
            _ => self.select(depth, a, |r, d| r.index(d)),
        }
    }

    fn extreme(&mut self, a: Expr, depth: u32) -> Expr {
        let b = self.index(depth - 1);
        if self.rng.random() {
            a.min(b)
        } else {
            a.max(b)
        }
    }

    /// A select that may share its condition or its value with one inside.
    fn select(&mut self, depth: u32, a: Expr, other: impl Fn(&mut Random, u32) -> Expr) -> Expr {
        let (c, d) = (self.condition(depth - 1), self.condition(1));
        let b = other(self, depth - 1);
        match self.rng.random_range(0..8) {
            0 => Expr::select(c.clone(), a, Expr::select(c, b, other(self, 0))),
            1 => Expr::select(c.clone().and(d), Expr::select(c, a, other(self, 0)), b),
            2 => Expr::select(c, Expr::select(d, a, b.clone()), b),
            3 => Expr::select(c, a.clone(), Expr::select(d, a, b)),
            4 => Expr::select(c, a.clone(), a),
            _ => Expr::select(c, a, b),
        }
    }

    /// A condition without loads.
    pub fn condition(&mut self, depth: u32) -> Expr {
        if depth > 0 && self.rng.random_ratio(1, 3) {
            let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
            return match self.rng.random_range(0..7) {
                0 => a.or(b),
                1 => Expr::unary(UnaryOp::Not, a),
                2 => a.clone().and(b).and(a),
                3 => a.and(b.and(self.condition(depth - 1))),
                4 => self.select(depth, a, |r, d| r.condition(d)),
                5 => {
                    let x = self.index(1);
                    let (k, l) = (self.rng.random_range(-2..9), self.rng.random_range(-2..9));
                    let low = if self.rng.random() {
                        x.clone().lt(k)
                    } else {
                        Expr::int(k).lt(&x)
                    };
                    if self.rng.random() {
                        low.and(x.lt(l))
                    } else {
                        low.or(x.lt(l))
                    }
                }
                _ => a.and(b),
            };
        }
        if self.rng.random_ratio(1, 10) {
            return Expr::bool(self.rng.random());
        }
        let d = depth.min(2);
        let (mut a, b) = (self.index(d), self.index(d));
        if self.rng.random_ratio(1, 3) {
            // A quotient against a constant, or a split index against a limit.
            let k = self.one(&[2, 4, 8]);
            let limit = self.rng.random_range(-3..20);
            a = if self.rng.random() {
                a.floor_div(k)
            } else {
                a * k + self.leaf()
            };
            return if self.rng.random() {
                a.lt(limit)
            } else {
                Expr::int(limit).lt(a)
            };
        }
        let ops = [BinaryOp::Lt, BinaryOp::Le, BinaryOp::Eq, BinaryOp::Ne];
        Expr::binary(self.one(&ops), a, b)
    }

    /// An index into a buffer, guarded where it may be out of range.
    fn guarded(&mut self, depth: u32, load: impl Fn(Expr) -> Expr, otherwise: Expr) -> Expr {
        let i = self.index(depth.min(2));
        let n = N as i64;
        match self.rng.random_range(0..3) {
            0 => load(i.floor_mod(n)),
            1 => {
                let inside = Expr::int(0).le(&i).and(i.clone().lt(n));
                Expr::select(inside, load(i), otherwise)
            }
            _ => {
                let outside = i.clone().lt(0).or(Expr::int(n).le(&i));
                Expr::select(outside, otherwise, load(i))
            }
        }
    }

    fn int_with_loads(&mut self, depth: u32) -> Expr {
        let i = self.guarded(depth, |i| Expr::load(INTS, [i]), Expr::int(1));
        match self.rng.random_range(0..4) {
            0 => i + self.index(depth),
            1 => (i * 2 + self.leaf()).floor_div(2),
            2 => i.max(self.index(depth)),
            _ => i,
        }
    }

    pub fn condition_with_loads(&mut self, depth: u32) -> Expr {
        let c = match self.rng.random_range(0..3) {
            0 => self.guarded(depth, |i| Expr::load(BOOLS, [i]), Expr::bool(true)),
            1 => {
                let (a, b) = (self.float(depth.min(2)), self.float(depth.min(1)));
                Expr::binary(self.one(&[BinaryOp::Lt, BinaryOp::Eq, BinaryOp::Ne]), a, b)
            }
            _ => self.int_with_loads(depth.min(2)).lt(self.index(1)),
        };
        match self.rng.random_range(0..4) {
            0 => c.and(self.condition(depth.min(2))),
            1 => self.condition(depth.min(2)).or(c),
            2 => Expr::unary(UnaryOp::Not, c),
            _ => c,
        }
    }

    /// An integer of few bits, of an index or of some bits of one.
    pub fn narrow(&mut self, depth: u32) -> (Expr, DType) {
        let to = self.one(&[DType::U8, DType::I8, DType::I16, DType::I32]);
        let a = self.index(depth - 1);
        let k = self.one(&[0, 7, 128, 256, 32_768]);
        let mask = self.one(&[3, 255, 0xfffe, 0xffff, 0xffff_ffff, -1]);
        let bits = Expr::binary(BinaryOp::BitAnd, a.clone() + k, Expr::int(mask));
        let e = match self.rng.random_range(0..4) {
            0 => a.cast(self.one(&[DType::I32, DType::U8])),
            1 => bits,
            2 => bits + -k,
            _ => (bits + -k).cast(DType::I32),
        };
        (e.cast(to), to)
    }

    /// An `f32`.
    pub fn float(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.rng.random_ratio(1, 6) {
            let c = self.one(&[0.0, -0.0, 1.0, 2.0, 0.1, -3.5, f32::INFINITY]);
            return match self.rng.random_range(0..3) {
                0 => Expr::f32(c),
                1 => self.index(1).cast(DType::F32),
                _ => self.guarded(1, |i| Expr::load(FLOATS, [i]), Expr::f32(c)),
            };
        }
        let a = self.float(depth - 1);
        match self.rng.random_range(0..10) {
            0..3 => {
                let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div];
                let b = self.float(depth - 1);
                Expr::binary(self.one(&ops), a, b)
            }
            3 => {
                let b = self.float(depth - 1);
                if self.rng.random() {
                    a.min(b)
                } else {
                    a.max(b)
                }
            }
            4 | 5 => {
                // Identities, and what only looks like one.
                let one = Expr::f32(self.one(&[1.0, 0.0, -0.0]));
                match self.rng.random_range(0..5) {
                    0 => a * one,
                    1 => one * a,
                    2 => a / one,
                    3 => a - one,
                    _ => a + one,
                }
            }
            6 => Expr::unary(self.one(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Floor]), a),
            7 => a
                .cast(self.one(&[DType::F64, DType::F32, DType::F16]))
                .cast(DType::F32),
            8 => {
                let c = self.condition_with_loads(depth - 1);
                Expr::select(c, a, self.float(depth - 1))
            }
            _ => self.select(depth, a, |r, d| r.float(d)),
        }
    }

    /// Points of the ranges, corners among them.
    pub fn points(&mut self) -> Vec<Vec<i64>> {
        let mut draw = |corner: bool| {
            let rng = &mut self.rng;
            let value = |(lo, hi): &(i64, i64)| match corner {
                true => *[lo, hi][rng.random_range(0..2)],
                false => rng.random_range(*lo..=*hi),
            };
            self.limits.iter().map(value).collect()
        };
        (0..POINTS).map(|i| draw(i % 3 == 0)).collect()
    }
}

/// The values of `f32`, index or boolean expressions at each point, by the interpreter.
pub fn values(exprs: &[(Expr, DType)], points: &[Vec<i64>]) -> Result<Vec<Tensor>, InterpretError> {
    let n = points.len();
    let mut b = ProgramBuilder::new("values");
    let shape = [n as i64, i64::from(VARS)];
    assert_eq!(b.input("point", DType::I64, &shape), POINT);
    assert_eq!(b.input("floats", DType::F32, &[N as i64]), FLOATS);
    assert_eq!(b.input("ints", DType::I64, &[N as i64]), INTS);
    assert_eq!(b.input("bools", DType::Bool, &[N as i64]), BOOLS);
    let outputs = b.block("out", &[("n", n as i64)], &[], None, |s, _| {
        let value = |e: &Expr| {
            e.substitute(&|v| Some(Expr::load(POINT, [s[0].clone(), Expr::int(i64::from(v.0))])))
        };
        exprs.iter().map(|(e, _)| value(e)).collect()
    });
    let program = b.finish(&outputs);
    let mut args = vec![
        Tensor::from_slice(&[n, VARS as usize], &points.concat()),
        Tensor::from_slice(
            &[N],
            &[1.5f32, -0.0, f32::NAN, f32::NEG_INFINITY, 0.1, 16777216.0],
        ),
        Tensor::from_slice(&[N], &[0i64, 5, -7, 3, 100, -1]),
        Tensor::from_bools(&[N], &[true, false, false, true, true, false]),
    ];
    args.extend(exprs.iter().map(|(_, d)| Tensor::zeros(*d, &[n])));
    run(&program, &mut args)?;
    Ok(args.split_off(4))
}

/// Whether two tensors are equal to the bit, any NaN being any other.
pub fn same(a: &Tensor, b: &Tensor) -> bool {
    let equal = |i: usize| match a.dtype().is_float() {
        true => {
            let (x, y) = (a.get_f64(i), b.get_f64(i));
            x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan())
        }
        false => a.get_i64(i) == b.get_i64(i),
    };
    a.len() == b.len() && (0..a.len()).all(equal)
}
