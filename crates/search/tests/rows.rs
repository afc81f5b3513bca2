//! Row by row: softmax and layer normalisation have the sketch *rows* for rows
//! longer than a vector, its points are legal, keep the meaning of the program, and
//! have every block inside the loop over rows.

use ir::{DType, Expr, Isa, LoopKind, Node, Program, ProgramBuilder, Reducer, Target, UnaryOp};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Point, Space, space};
use tensor::{Fill, Tensor, compare, fill_tensor};

const POINTS: usize = 3;
const TOLERANCE: f64 = 1e-6;

/// As `graph` writes it, on rows of two axes, with something fused behind.
fn softmax(rows: [i64; 2], cols: i64) -> Program {
    let mut b = ProgramBuilder::new("softmax");
    let [m, n] = rows;
    let x = b.input("X", DType::F32, &[m, n, cols]);
    let bias = b.constant("C", DType::F32, &[cols]);
    let rows = [("i0", m), ("i1", n)];
    let all = [("i0", m), ("i1", n), ("i2", cols)];
    let max = b.reduce("max", &rows, &[("r", cols)], Reducer::Max, |o, t| {
        Expr::load(x, [o, t].concat())
    });
    let e = b.compute("e", &all, |at| {
        let shifted = Expr::load(x, at.to_vec()) - Expr::load(max, at[..2].to_vec());
        Expr::unary(UnaryOp::Exp, shifted)
    });
    let sum = b.reduce("sum", &rows, &[("r", cols)], Reducer::Sum, |o, t| {
        Expr::load(e, [o, t].concat())
    });
    let inverse = b.compute("inverse", &rows, |at| {
        Expr::f32(1.0) / Expr::load(sum, at.to_vec())
    });
    let out = b.compute("out", &all, |at| {
        let share = Expr::load(e, at.to_vec()) * Expr::load(inverse, at[..2].to_vec());
        share + Expr::load(bias, [at[2].clone()])
    });
    b.finish(&[out])
}

/// Distances of every element from the mean of its row, or of the next one.
fn distances(rows: i64, cols: i64, next: i64) -> Program {
    let mut b = ProgramBuilder::new("distances");
    let x = b.input("X", DType::F32, &[rows + next, cols]);
    let reduced = [("i0", rows + next)];
    let mean = b.reduce("mean", &reduced, &[("r", cols)], Reducer::Sum, |o, t| {
        Expr::load(x, [o, t].concat()) * Expr::f32(1.0 / cols as f32)
    });
    let out = b.compute("out", &[("i0", rows), ("i1", cols)], |at| {
        let row = if next > 0 {
            &at[0] + next
        } else {
            at[0].clone()
        };
        Expr::load(x, at.to_vec()) - Expr::load(mean, [row])
    });
    b.finish(&[out])
}

fn target(isa: Isa, threads: u32) -> Target {
    Target::generic(isa).with_threads(threads)
}

fn sketch_named(name: &str, program: &Program, target: &Target) -> Option<Space> {
    let all = space(program, target, Accuracy::Strict);
    let sketch = all.sketches.into_iter().find(|s| s.name == name)?;
    Some(Space::of(vec![sketch]))
}

fn rows_sketch(program: &Program, target: &Target) -> Option<Space> {
    sketch_named("rows", program, target)
}

/// The default of a sketch and random points, as scheduled programs that compute the same.
fn scheduled(program: &Program, own: &Space, expected: &Tensor, seed: u64) -> Vec<Program> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let random: Vec<Point> = (0..POINTS).map(|_| own.sample(&mut rng)).collect();
    let points = [vec![own.default_point()], random].concat();
    let of = |point: &Point| {
        let candidate = own.candidate(program, point);
        let candidate = candidate.unwrap_or_else(|why| panic!("{why}"));
        let scheduled = schedule::replay(program, &candidate.trace);
        let scheduled = scheduled.unwrap_or_else(|e| panic!("{e}"));
        let difference = compare(&output(&scheduled), expected);
        assert!(difference.within(TOLERANCE), "{difference:?}");
        scheduled
    };
    points.iter().map(of).collect()
}

fn output(program: &Program) -> Tensor {
    let mut args: Vec<Tensor> = Vec::new();
    for (seed, b) in program.params.iter().enumerate() {
        let shape: Vec<usize> = program
            .buffer(*b)
            .shape
            .iter()
            .map(|n| *n as usize)
            .collect();
        let fill = Fill::Uniform { lo: -2.0, hi: 2.0 };
        args.push(fill_tensor(DType::F32, &shape, fill, seed as u64 + 1));
    }
    ir::interpret::run(program, &mut args).unwrap_or_else(|e| panic!("{e}"));
    args.pop().expect("an output")
}

#[test]
fn points_keep_the_meaning_of_the_program() {
    for cols in [17, 33, 64, 100, 129] {
        for program in [softmax([2, 3], cols), distances(4, cols, 0)] {
            let expected = output(&program);
            for (isa, threads) in Isa::ALL.into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
                let target = target(isa, threads);
                let own = rows_sketch(&program, &target).expect("a program of rows");
                for scheduled in scheduled(&program, &own, &expected, cols as u64) {
                    // One pass over the rows: nothing has loops of its own.
                    let outermost = scheduled.children(None);
                    assert!(matches!(outermost[..], [Node::Loop(_)]), "{outermost:?}");
                }
            }
        }
    }
}

#[test]
fn threads_share_parts_of_few_long_rows() {
    // Prime lengths: the last part is shorter, and its last vector is cut.
    for (program, threads) in [
        (softmax([1, 1], 16_411), 2),
        (softmax([1, 1], 16_411), 3),
        (softmax([3, 1], 16_411), 2),
        (distances(1, 32_768, 0), 2),
    ] {
        let target = target(Isa::X86Avx512, threads);
        let own = sketch_named("rows.parts", &program, &target).expect("few long rows");
        let first = space(&program, &target, Accuracy::Strict)
            .sketches
            .remove(0);
        assert_eq!(first.name, "rows.parts");
        for scheduled in scheduled(&program, &own, &output(&program), 1) {
            let shared = |n: &&Node| match n {
                Node::Loop(l) => scheduled.loop_(*l).kind == LoopKind::Parallel,
                Node::Block(_) => false,
            };
            // Every pass over the elements is shared.
            let passes = scheduled.children(None).iter().filter(shared).count();
            assert!(passes >= 2, "{passes}");
        }
    }
    let parts = |p: &Program, threads| {
        sketch_named("rows.parts", p, &target(Isa::X86Avx512, threads)).is_some()
    };
    assert!(!parts(&softmax([1, 1], 16_411), 1), "one thread");
    assert!(!parts(&softmax([2, 1], 16_411), 2), "a row for each thread");
    assert!(
        !parts(&softmax([1, 1], 4096), 2),
        "no longer than waking takes"
    );
}

#[test]
fn it_is_the_default_of_rows_and_of_nothing_else() {
    let target = target(Isa::X86Avx512, 1);
    let first = |p: &Program| space(p, &target, Accuracy::Strict).sketches[0].name.clone();
    assert_eq!(first(&softmax([12, 128], 128)), "rows");
    assert_eq!(first(&softmax([1, 1], 1000)), "rows");
    assert_eq!(first(&distances(8, 768, 0)), "rows");
    // No longer than a vector.
    assert!(rows_sketch(&softmax([2, 3], 16), &target).is_none());
    // A row that needs another row's results.
    assert!(rows_sketch(&distances(8, 768, 1), &target).is_none());
}

/// The place of the largest element of each row, counted in integers.
fn place_of_largest(rows: i64, cols: i64) -> Program {
    let mut b = ProgramBuilder::new("place");
    let x = b.input("X", DType::F32, &[rows, cols]);
    let outer = [("i0", rows)];
    let best = b.reduce("best", &outer, &[("r", cols)], Reducer::Max, |o, t| {
        Expr::load(x, [o, t].concat())
    });
    let main = b.reduce("main", &outer, &[("r", cols)], Reducer::Min, |o, t| {
        let is_best = Expr::load(x, [o, t].concat()).equals(Expr::load(best, o.to_vec()));
        let none = Expr::constant(cols as f64, DType::I32);
        Expr::select(is_best, t[0].clone().cast(DType::I32), none)
    });
    let out = b.compute("out", &outer, |o| {
        Expr::load(main, o.to_vec()).cast(DType::F32)
    });
    b.finish(&[out])
}

#[test]
fn positions_along_a_row_are_found_in_vectors() {
    for (rows, cols) in [(1, 27), (3, 40)] {
        let program = place_of_largest(rows, cols);
        let own = rows_sketch(&program, &target(Isa::X86Avx2, 1)).unwrap();
        let expected = output(&program);
        assert!(!scheduled(&program, &own, &expected, 1).is_empty());
    }
}
