//! Products of tiles: exact on targets with instructions for them and without, in loops and under
//! conditions, and the instructions that targets have.

mod support;

use ir::{BufferId, CpuTarget, DType, Expr, HalfDot, Target, TileDot};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Lane, Stmt};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::{host_targets, runs};

/// Sums of `tiles[0]` by `tiles[1]` tiles, of `rows` rows each.
#[derive(Clone, Copy, Debug)]
struct Case {
    types: (DType, DType),
    rows: i64,
    /// Steps of 32 bits in a tile, and tiles that are added one after the other.
    steps: i64,
    chunks: i64,
    tiles: [i64; 2],
    /// Only every other chunk is added.
    skips: bool,
    /// Sums begin with zeros.
    zeros: bool,
    /// Steps are those of two loops.
    halves: bool,
    /// Rows of the last tiles.
    last: i64,
}

const LANES: i64 = 16;

impl Case {
    fn sum(&self) -> DType {
        if self.types.0 == DType::BF16 {
            DType::F32
        } else {
            DType::I32
        }
    }

    fn terms(&self) -> i64 {
        if self.types.0 == DType::BF16 { 2 } else { 4 }
    }

    /// Elements of a row of the left side, of sums, and rows of the sums.
    fn sizes(&self) -> [i64; 3] {
        let k = self.chunks * self.steps * self.terms();
        let m = (self.tiles[0] - 1) * self.rows + self.last;
        [k, self.tiles[1] * LANES, m]
    }

    /// Rows of tiles that are i-th.
    fn rows_of(&self, i: i64) -> i64 {
        if i + 1 == self.tiles[0] {
            self.last
        } else {
            self.rows
        }
    }

    /// acc[m, n] += sum over k of a[m, k] * b[k, n]; b in steps of terms, sums start as z is.
    fn code(&self) -> Flat {
        let mut f = Flat::new();
        let [k, n, m] = self.sizes();
        let terms = self.terms();
        let a = f.buffer(self.types.0, m * k, BufferPlace::Input);
        let b = f.buffer(self.types.1, k * n, BufferPlace::Input);
        let z = f.buffer(self.sum(), m * n, BufferPlace::Output);
        let acc = f.buffer(self.sum(), m * n, BufferPlace::Stack);
        let v = Expr::var;
        let whole = |f: &mut Flat, to, from| {
            let (i, l) = (f.var(), f.var());
            let at = v(i) * LANES + v(l);
            let lane = Some(Lane {
                var: l,
                lanes: LANES as u32,
            });
            let s = f.store(to, at.clone(), Expr::load(from, [at]), lane);
            f.loop_(i, m * n / LANES, false, vec![s])
        };
        let before = match self.zeros {
            false => vec![whole(&mut f, acc, z)],
            true => self.set_to_zero(&mut f, acc),
        };
        let chunk = f.var();
        let mut body = vec![];
        for i in 0..self.tiles[0] {
            for j in 0..self.tiles[1] {
                let (r, s, l) = (f.var(), f.var(), f.var());
                let row = v(r) + i * self.rows;
                let at = row.clone() * n + v(l) + j * LANES;
                let (half, count) = (f.var(), if self.halves { 2 } else { 1 });
                let step = v(chunk) * self.steps + v(half) * (self.steps / count) + v(s);
                let term = |t: i64| {
                    let x = Expr::load(a, [row.clone() * k + step.clone() * terms + t]);
                    let y = (step.clone() * n + v(l) + j * LANES) * terms + t;
                    x.cast(self.sum()) * Expr::load(b, [y]).cast(self.sum())
                };
                let products = (1..terms).fold(term(0), |sum, t| sum + term(t));
                let value = Expr::load(acc, [at.clone()]) + products;
                let lane = Some(Lane {
                    var: l,
                    lanes: LANES as u32,
                });
                let s_ = f.store(acc, at, value, lane);
                let steps = f.loop_(s, self.steps / count, false, vec![s_]);
                let steps = f.loop_(half, count, false, vec![steps]);
                body.push(f.loop_(r, self.rows_of(i), false, vec![steps]));
            }
        }
        if self.skips {
            body = vec![Stmt::If {
                cond: v(chunk).floor_mod(2).equals(0),
                then: body,
                otherwise: vec![],
            }];
        }
        let sums = f.loop_(chunk, self.chunks, false, body);
        let after = whole(&mut f, z, acc);
        f.code.kernel = before;
        f.code.kernel.extend([sums, after]);
        f
    }

    /// A loop for each tile.
    fn set_to_zero(&self, f: &mut Flat, acc: BufferId) -> Vec<Stmt> {
        let n = self.sizes()[1];
        let tiles = (0..self.tiles[0]).flat_map(|i| (0..self.tiles[1]).map(move |j| (i, j)));
        let tiles = tiles.map(|(i, j)| {
            let (r, l) = (f.var(), f.var());
            let at = (Expr::var(r) + i * self.rows) * n + Expr::var(l) + j * LANES;
            let lane = Lane {
                var: l,
                lanes: LANES as u32,
            };
            let zero = match self.sum() {
                DType::F32 => Expr::f32(0.0),
                _ => Expr::int(0).cast(DType::I32),
            };
            let s = f.store(acc, at, zero, Some(lane));
            f.loop_(r, self.rows_of(i), false, vec![s])
        });
        tiles.collect()
    }

    fn check(&self, target: &Target) {
        let [k, n, m] = self.sizes().map(|d| d as usize);
        let range = |d: DType| match d {
            DType::I8 => (-128, 127),
            DType::U8 => (0, 255),
            _ => (-30, 30),
        };
        let fill = |d: DType, len: usize, seed: u64| {
            let (lo, hi) = range(d);
            fill_tensor(d, &[len], Fill::Integers { lo, hi }, seed)
        };
        let (a, b) = (fill(self.types.0, m * k, 1), fill(self.types.1, k * n, 2));
        let z = fill_tensor(self.sum(), &[m * n], Fill::Integers { lo: -9, hi: 9 }, 3);
        let mut args = [a.clone(), b.clone(), z.clone()];
        assert_eq!(self.code().run(target, &mut args), 0);
        let (terms, chunk) = (self.terms() as usize, (self.steps * self.terms()) as usize);
        for (r, c) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            let added = (0..k).filter(|t| !self.skips || t / chunk % 2 == 0);
            let product = |t: usize| {
                let at = (t / terms * n + c) * terms + t % terms;
                a.get_f64(r * k + t) * b.get_f64(at)
            };
            let start = if self.zeros {
                0.0
            } else {
                z.get_f64(r * n + c)
            };
            let sum = start + added.map(product).sum::<f64>();
            let found: &Tensor = &args[2];
            assert_eq!(
                found.get_f64(r * n + c),
                sum,
                "{self:?} at {r}, {c} on {target}"
            );
        }
    }
}

fn with_tiles() -> Target {
    let dot = TileDot::Amx;
    Target::Cpu(CpuTarget {
        tile_dot: Some(dot),
        half_dot: Some(HalfDot::Avx512Bf16),
        ..CpuTarget::generic(dot.isa())
    })
}

const TYPES: [(DType, DType); 5] = [
    (DType::BF16, DType::BF16),
    (DType::I8, DType::I8),
    (DType::I8, DType::U8),
    (DType::U8, DType::I8),
    (DType::U8, DType::U8),
];

/// Rows and steps, chunks, tiles, and whether some are skipped.
const SHAPES: [(i64, i64, i64, [i64; 2], bool); 7] = [
    (16, 16, 3, [2, 2], false),
    (14, 8, 5, [2, 2], false),
    (7, 4, 2, [1, 3], true),
    (16, 16, 1, [1, 1], false),
    (5, 16, 4, [1, 1], true),
    (16, 2, 3, [3, 2], false),
    // More sums than tiles.
    (16, 16, 2, [4, 3], false),
];

fn case(types: (DType, DType), shape: usize) -> Case {
    let (rows, steps, chunks, tiles, skips) = SHAPES[shape];
    Case {
        types,
        rows,
        steps,
        chunks,
        tiles,
        skips,
        zeros: false,
        halves: false,
        last: rows,
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let shapes = (0..SHAPES.len()).flat_map(|shape| [false, true].map(|zeros| (shape, zeros)));
    shapes.flat_map(|(shape, zeros)| {
        TYPES.map(|types| Case {
            zeros,
            halves: zeros == (shape % 2 == 0),
            last: if zeros { 4 } else { case(types, shape).rows },
            ..case(types, shape)
        })
    })
}

#[test]
fn sums_are_exact() {
    let with = [with_tiles()].into_iter().filter(runs);
    for target in host_targets().into_iter().chain(with) {
        cases().for_each(|c| c.check(&target));
    }
}

fn assembly(f: &Flat) -> String {
    let compiler = Compiler::new(&with_tiles()).expect("a target of LLVM");
    let emit = Emit {
        assembly: true,
        ..Emit::default()
    };
    let compiled = compiler.compile(&f.code, emit).expect("the code compiles");
    compiled.assembly.expect("it was asked for")
}

fn count(text: &str, instruction: &str) -> usize {
    let is = |l: &&str| l.split_whitespace().next() == Some(instruction);
    text.lines().filter(is).count()
}

#[test]
fn sums_stay_in_tiles_and_factors_are_loaded_once() {
    let names = ["tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"];
    for (types, name) in TYPES.into_iter().zip(names) {
        let text = assembly(&case(types, 0).code());
        // Four sums before and behind the loop; two factors of each side in it.
        let found = ["ldtilecfg", "tileloadd", "tilestored", "tilerelease", name];
        let found = found.map(|i| count(&text, i));
        assert_eq!(found, [1, 8, 4, 1, 4], "{types:?}");
    }
    // Zeros are no loads.
    let zeros = Case {
        zeros: true,
        halves: true,
        ..case(TYPES[0], 0)
    };
    let text = assembly(&zeros.code());
    let found = ["tilezero", "tileloadd", "tilestored"].map(|i| count(&text, i));
    assert_eq!(found, [4, 4, 4]);
    // Rows of two numbers are of one region.
    let last = Case {
        last: 3,
        ..case(TYPES[0], 0)
    };
    let found = ["ldtilecfg", "tilestored"].map(|i| count(&assembly(&last.code()), i));
    assert_eq!(found, [1, 4]);
    // A single product of steps, without a loop round it.
    let text = assembly(&case(TYPES[0], 3).code());
    assert_eq!(count(&text, "tdpbf16ps"), 1);
    // Twelve sums are more than tiles hold: each chunk loads and stores them.
    let text = assembly(&case(TYPES[0], 6).code());
    let found = ["tdpbf16ps", "tilestored"].map(|i| count(&text, i));
    assert_eq!(found, [12, 12]);
}
