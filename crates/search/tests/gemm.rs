//! Every point that a sketch of matrix products proposes is a legal schedule:
//! sizes that no tile divides, one row, batches, both orders of the right
//! operand, constants and inputs, on every target and with threads or without.

use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Point, Space, space};
use std::collections::BTreeMap;
use testkit::setting;

/// Random points of a sketch for each that `TUNESMITH_POINTS` asks for, usually one.
const POINTS: u64 = 2;

#[derive(Clone, Copy, Debug)]
struct Product {
    isa: Isa,
    threads: u32,
    /// Batch (0: none), rows, columns, and terms of a sum.
    size: [i64; 4],
    constant: bool,
    transposed: bool,
    /// A bias and a relu behind the sum.
    epilogue: bool,
}

fn products() -> Vec<Product> {
    let sizes = [
        [0, 1, 1000, 512],
        [0, 1, 768, 768],
        [0, 2, 100, 33],
        [0, 128, 768, 768],
        [0, 997, 61, 7],
        [0, 4096, 64, 64],
        [0, 4096, 8, 1024],
        [0, 64, 1, 256],
        [0, 1, 1, 64],
        [0, 37, 1, 32],
        [12, 50, 1, 64],
        [0, 64, 1, 33],
        [0, 2048, 2048, 2048],
        [12, 128, 64, 128],
        [3, 1, 100, 30],
        [0, 1, 1024, 4096],
        [0, 2, 4096, 1024],
        [2, 1, 4096, 1024],
    ];
    let mut all = Vec::new();
    for isa in Isa::ALL {
        for threads in [1, 2] {
            for size in sizes {
                for (constant, transposed) in
                    [(true, false), (true, true), (false, false), (false, true)]
                {
                    all.push(Product {
                        isa,
                        threads,
                        size,
                        constant: constant && size[0] == 0,
                        transposed,
                        epilogue: all.len() % 2 == 1,
                    });
                }
            }
        }
    }
    all
}

impl Product {
    fn target(&self) -> Target {
        Target::generic(self.isa).with_threads(self.threads)
    }

    /// As `graph` writes it.
    fn program(&self) -> Program {
        let [batch, m, n, k] = self.size;
        let mut b = ProgramBuilder::new("product");
        let lead = |last: [i64; 2]| match batch {
            0 => last.to_vec(),
            _ => vec![batch, last[0], last[1]],
        };
        let right = if self.transposed { [n, k] } else { [k, n] };
        let left = b.input("A", DType::F32, &lead([m, k]));
        let right = match self.constant {
            true => b.constant("B", DType::F32, &lead(right)),
            false => b.input("B", DType::F32, &lead(right)),
        };
        let mut axes = vec![("b", batch), ("m", m), ("n", n)];
        axes.retain(|a| a.1 > 0);
        let main = b.reduce("main", &axes, &[("k", k)], Reducer::Sum, |o, t| {
            let (before, [m, n]) = o.split_at(o.len() - 2) else {
                unreachable!("rows and columns");
            };
            let at = |last: [&Expr; 2]| [before, &last.map(Clone::clone)].concat();
            let inner = if self.transposed {
                [n, &t[0]]
            } else {
                [&t[0], n]
            };
            Expr::load(left, at([m, &t[0]])) * Expr::load(right, at(inner))
        });
        if !self.epilogue {
            return b.finish(&[main]);
        }
        let bias = b.constant("C", DType::F32, &[n]);
        let out = b.compute("out", &axes, |o| {
            let biased = Expr::load(main, o.to_vec()) + Expr::load(bias, [o[o.len() - 1].clone()]);
            biased.max(Expr::f32(0.0))
        });
        b.finish(&[out])
    }
}

/// Whether every step of the candidate at a point is legal.
fn replayed(space: &Space, program: &Program, point: &Point) -> Result<(), String> {
    let candidate = space.candidate(program, point).map_err(|e| e.to_string())?;
    let replayed = schedule::replay(program, &candidate.trace);
    replayed.map(drop).map_err(|e| e.to_string())
}

#[test]
fn defaults_and_random_points_are_legal() {
    let mut proposed: BTreeMap<String, usize> = BTreeMap::new();
    let mut illegal = Vec::new();
    let points = POINTS * setting("TUNESMITH_POINTS", 1);
    for product in products() {
        let (target, program) = (product.target(), product.program());
        let all = space(&program, &target, Accuracy::Strict);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for sketch in all.sketches {
            if !sketch.name.starts_with("gemm") {
                continue;
            }
            *proposed.entry(sketch.name.clone()).or_default() += 1;
            let own = Space::of(vec![sketch]);
            let random: Vec<Point> = (0..points).map(|_| own.sample(&mut rng)).collect();
            for point in [vec![own.default_point()], random].concat() {
                if let Err(why) = replayed(&own, &program, &point) {
                    illegal.push(format!("{why}\n  {product:?}\n  {:?}", point.values));
                } else if !own.within_limits(&point) {
                    illegal.push(format!("beyond the limits: {product:?}"));
                }
            }
        }
    }
    let shown = illegal.get(..3).unwrap_or(&illegal).join("\n");
    assert!(illegal.is_empty(), "{} illegal\n{shown}", illegal.len());
    for name in [
        "gemm.packed.columns",
        "gemm.packed.rows",
        "gemm.packed.tiles",
        "gemm.columns",
        "gemm.dots",
        "gemm.stream",
    ] {
        assert!(proposed.contains_key(name), "no `{name}` in {proposed:?}");
    }
}

#[test]
fn a_right_operand_that_few_rows_use_is_not_packed_in_every_call() {
    let first = |m: i64, constant: bool| {
        let product = Product {
            isa: Isa::X86Avx512,
            threads: 1,
            size: [0, m, 1024, 1024],
            constant,
            transposed: false,
            epilogue: false,
        };
        let all = space(&product.program(), &product.target(), Accuracy::Strict);
        all.sketches[0].name.clone()
    };
    assert_eq!(first(4, false), "gemm.columns");
    assert_eq!(first(1024, false), "gemm.packed.columns");
    assert_eq!(first(4, true), "gemm.packed.columns");
}

/// A copy of such a row has one loop, which has no other outside.
#[test]
fn a_row_that_many_columns_use_has_legal_sketches_for_several_threads() {
    let mut b = ProgramBuilder::new("row");
    let row = b.input("x", DType::F32, &[40]);
    let right = b.input("B", DType::F32, &[40, 48]);
    let main = b.reduce("main", &[("n", 48)], &[("k", 40)], Reducer::Sum, |o, t| {
        let right = Expr::load(right, vec![t[0].clone(), o[0].clone()]);
        Expr::load(row, vec![t[0].clone()]) * right
    });
    let program = b.finish(&[main]);
    let target = Target::generic(Isa::X86Avx512).with_threads(2);
    for sketch in space(&program, &target, Accuracy::Strict).sketches {
        let own = Space::of(vec![sketch]);
        assert_eq!(replayed(&own, &program, &own.default_point()), Ok(()));
    }
}

/// One key, as of attention to a single token: the sum has one term, and a factor is a scalar.
#[test]
fn a_scalar_factor_is_read_where_it_is() {
    let mut b = ProgramBuilder::new("scaled");
    let p = b.input("P", DType::F32, &[3, 1]);
    let v = b.input("V", DType::F32, &[1, 8]);
    let scale = b.input("S", DType::F32, &[]);
    let axes = [("m", 3), ("n", 8)];
    let product = b.reduce("product", &axes, &[("k", 1)], Reducer::Sum, |o, t| {
        let left = Expr::load(p, vec![o[0].clone(), t[0].clone()]);
        let right = Expr::load(v, vec![t[0].clone(), o[1].clone()]);
        left * right * Expr::load(scale, vec![])
    });
    let program = b.finish(&[product]);
    for isa in Isa::ALL {
        let space = space(&program, &Target::generic(isa), Accuracy::Strict);
        assert_eq!(replayed(&space, &program, &space.default_point()), Ok(()));
    }
}

/// Batches are inside rows: a tile of the template would have rows of one batch apart.
#[test]
fn rows_outside_of_batches_are_left_to_rules() {
    let mut b = ProgramBuilder::new("product");
    let left = b.input("A", DType::F32, &[8, 64, 32]);
    let right = b.input("B", DType::F32, &[32, 64]);
    let axes = [("m", 64), ("b0", 8), ("n", 64)];
    let main = b.reduce("main", &axes, &[("k", 32)], Reducer::Sum, |o, t| {
        let left = Expr::load(left, vec![o[1].clone(), o[0].clone(), t[0].clone()]);
        left * Expr::load(right, vec![t[0].clone(), o[2].clone()])
    });
    let program = b.finish(&[main]);
    let all = space(&program, &Target::generic(Isa::X86Avx512), Accuracy::Strict);
    assert!(all.sketches[0].name.starts_with("rules."));
    assert!(!all.sketches.iter().any(|s| s.name.starts_with("gemm")));
}

#[test]
fn a_right_operand_from_memory_that_one_row_uses_is_streamed() {
    let names = |k: i64, constant: bool| -> Vec<String> {
        let product = Product {
            isa: Isa::X86Avx512,
            threads: 1,
            size: [0, 1, 4096, k],
            constant,
            transposed: false,
            epilogue: true,
        };
        let all = space(&product.program(), &product.target(), Accuracy::Strict);
        all.sketches.into_iter().map(|s| s.name).collect()
    };
    assert_eq!(names(16384, false)[0], "gemm.stream");
    // From the last-level cache the columns of a tile come as fast.
    let cached = names(256, false);
    assert!(cached[0] != "gemm.stream" && cached.contains(&"gemm.stream".into()));
    assert!(!names(4096, true).contains(&"gemm.stream".into()));
}

/// Keys of attention, [1, rows, heads, terms], read by a product that needs
/// them as columns.
fn read_through_a_transpose() -> Program {
    let mut b = ProgramBuilder::new("scores");
    let left = b.input("A", DType::F32, &[1, 128, 12, 64]);
    let right = b.input("B", DType::F32, &[1, 128, 12, 64]);
    let axes = [("b0", 12), ("m", 128), ("n", 128)];
    let main = b.reduce("main", &axes, &[("k", 64)], Reducer::Sum, |o, t| {
        let at = |row: &Expr| [Expr::int(0), row.clone(), o[0].clone(), t[0].clone()];
        Expr::load(left, at(&o[1])) * Expr::load(right, at(&o[2]))
    });
    b.finish(&[main])
}

#[test]
fn a_right_operand_read_through_a_transpose_is_packed_by_panels() {
    let program = read_through_a_transpose();
    for isa in Isa::ALL {
        for threads in [1, 2] {
            let target = Target::generic(isa).with_threads(threads);
            let all = space(&program, &target, Accuracy::Strict);
            let first = &all.sketches[0];
            assert_eq!(first.name, "gemm.packed.columns");
            let reordered = "reorder B.pack.ax4.0 B.pack.ax3 B.pack.ax4.1";
            let candidate = all.candidate(&program, &all.default_point()).unwrap();
            let steps = candidate.trace.to_string();
            assert!(steps.contains(reordered), "{steps}");
        }
    }
}
