//! Contractions that nobody wrote a template for: random axes, batches, windows, strides,
//! dilations, groups, element orders and epilogues get sketches from rules; every point
//! that these propose is legal and computes what the program computes.
//!
//! `TUNESMITH_FUZZ` sets the number of programs, `TUNESMITH_FUZZ_SEED` the first seed.

use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target, interpret};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Point, Sketch, Space, space};
use tensor::{Tensor, compare};
use testkit::{Window, contraction_args, random_contraction, setting};

/// What the names of the sketches begin with that are checked.
const OWN: [&str; 7] = [
    "rules.", "rows", "stages", "columns", "nest", "im2row", "convgemm",
];
/// Points of a sketch beside its default.
const POINTS: usize = 2;

/// A transposed convolution by phases whose taps may be unequal in number: lanes of maps,
/// and a result that is written in strides.
fn transposed(rng: &mut impl Rng) -> Program {
    let (stride, taps) = (rng.random_range(2..4), rng.random_range(1..6));
    let (size, bases) = (rng.random_range(1..7), rng.random_range(1..9));
    let count = bases * stride;
    let (maps, depth) = (rng.random_range(1..20), rng.random_range(1..4));
    let pad = rng.random_range(0..3);
    let mut b = ProgramBuilder::new("transposed");
    let x = b.input("X", DType::F32, &[size, depth]);
    let weight = b.constant("W", DType::F32, &[depth, maps, taps]);
    let steps = (taps - 1) / stride + 1;
    let axes = [("x0", bases), ("px", stride), ("k", maps)];
    let terms = [("s0", steps), ("c", depth)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let padded = &o[1] + pad;
        let tap = &t[0] * stride + padded.clone().floor_mod(stride);
        let row = &o[0] + padded.floor_div(stride) - &t[0];
        let known = tap.clone().lt(taps);
        let inside = known.clone().and(Expr::int(0).le(&row));
        let inside = inside.and(row.clone().lt(size));
        let data = Expr::load(x, vec![row, t[1].clone()]);
        let weight = Expr::load(weight, vec![t[1].clone(), o[2].clone(), tap]);
        let zero = || Expr::f32(0.0);
        Expr::select(inside, data, zero()) * Expr::select(known, weight, zero())
    });
    let result = b.compute_into("out", &axes, &[count, maps], |o| {
        let position = &o[0] * stride + &o[1];
        let value = Expr::load(main, o.to_vec()) + Expr::f32(1.0);
        (vec![position, o[2].clone()], value)
    });
    b.finish(&[result])
}

const REDUCERS: [Reducer; 4] = [Reducer::Sum, Reducer::Max, Reducer::Min, Reducer::Prod];

/// Pooling of one to three axes, plain or in blocks of channels.
fn pooling(rng: &mut impl Rng) -> Program {
    let mut windows: Vec<Window> = (0..rng.random_range(1..4))
        .map(|_| Window::random(rng))
        .collect();
    if let Some(last) = windows.last_mut() {
        last.outputs = rng.random_range(1..40);
        last.stride = rng.random_range(1..4);
    }
    let reducer = REDUCERS[rng.random_range(0..4)].clone();
    let dtype = [DType::F32, DType::F32, DType::F64, DType::I32][rng.random_range(0..4)];
    let block = [1, 1, 4, 8][rng.random_range(0..4)];
    let mut b = ProgramBuilder::new("pooling");
    let sizes: Vec<i64> = windows.iter().map(|w| w.size()).collect();
    let lead = [1, rng.random_range(1..4)];
    let lanes = if block > 1 { vec![block] } else { vec![] };
    let x = b.input("X", dtype, &[&lead[..], &sizes, &lanes].concat());
    let names = ["z", "y", "x"];
    let taps = ["q", "r", "s"];
    let from = names.len() - windows.len();
    let mut axes = vec![("n", lead[0]), ("c", lead[1])];
    let outputs = windows.iter().map(|w| w.outputs);
    axes.extend(names[from..].iter().copied().zip(outputs));
    axes.extend(lanes.iter().map(|n| ("ci", *n)));
    let counts = windows.iter().map(|w| w.taps);
    let terms: Vec<(&str, i64)> = taps[from..].iter().copied().zip(counts).collect();
    let outside = reducer.identity(&[dtype])[0].clone();
    let main = b.reduce("main", &axes, &terms, reducer, |o, t| {
        let mut inside = Expr::bool(true);
        let mut at = o[..2].to_vec();
        for (d, w) in windows.iter().enumerate() {
            let position = w.position(&o[2 + d], &t[d]);
            inside = inside
                .and(Expr::int(0).le(&position))
                .and(position.clone().lt(sizes[d]));
            at.push(position);
        }
        at.extend_from_slice(&o[2 + windows.len()..]);
        Expr::select(inside, Expr::load(x, at), outside.clone())
    });
    let result = match dtype {
        DType::F32 => return finish(rng, b, main, &axes),
        _ => main,
    };
    b.finish(&[result])
}

/// A reduction over any axes of a tensor.
fn reduction(rng: &mut impl Rng) -> Program {
    let letters = ["a", "b", "c", "d"];
    let rank = rng.random_range(1..5);
    let reducer = REDUCERS[rng.random_range(0..4)].clone();
    let extents: Vec<i64> = (0..rank)
        .map(|d| rng.random_range(1..if d + 1 == rank { 90 } else { 8 }))
        .collect();
    let mut kept: Vec<bool> = (0..rank).map(|_| rng.random()).collect();
    kept[rng.random_range(0..rank)] = false;
    let mut b = ProgramBuilder::new("reduction");
    let x = b.input("X", DType::F32, &extents);
    let of = |keep: bool| -> Vec<(&str, i64)> {
        let all = letters.iter().copied().zip(extents.iter().copied());
        let chosen = all.zip(&kept).filter(|(_, k)| **k == keep);
        chosen.map(|(axis, _)| axis).collect()
    };
    let mut axes = of(true);
    if axes.is_empty() {
        axes.push(("one", 1));
    }
    let terms = of(false);
    let main = b.reduce("main", &axes, &terms, reducer, |o, t| {
        let (mut o, mut t) = (o.iter(), t.iter());
        let at = kept.iter().map(|k| match k {
            true => o.next().unwrap().clone(),
            false => t.next().unwrap().clone(),
        });
        Expr::load(x, at.collect::<Vec<_>>())
    });
    finish(rng, b, main, &axes)
}

/// Two reductions along rows, the second one of values that depend on the first one, with
/// a result for each element or each row.
fn row_chain(rng: &mut impl Rng) -> Program {
    let letters = ["a", "b", "c", "d"];
    let count = rng.random_range(1..4);
    let mut extents: Vec<i64> = (0..count).map(|_| rng.random_range(1..5)).collect();
    // One axis along the row, or two.
    let along = rng.random_range(1..3);
    for d in 0..along {
        let most = if d + 1 == along { 300 } else { 6 };
        extents.push(rng.random_range(1..most));
    }
    extents.truncate(letters.len());
    let (rows, row) = extents.split_at(count.min(extents.len() - 1));
    let named = |from: usize, of: &[i64]| -> Vec<(&str, i64)> {
        letters[from..]
            .iter()
            .copied()
            .zip(of.iter().copied())
            .collect()
    };
    let (axes, terms) = (named(0, rows), named(rows.len(), row));
    let mut b = ProgramBuilder::new("rows");
    let x = b.input("X", DType::F32, &extents);
    let element = |o: &[Expr], t: &[Expr]| Expr::load(x, [o, t].concat());
    let max = b.reduce("max", &axes, &terms, Reducer::Max, element);
    let powers =
        |o: &[Expr], t: &[Expr]| Expr::unary(ir::UnaryOp::Exp, element(o, t) - Expr::load(max, o));
    let sum = b.reduce("sum", &axes, &terms, Reducer::Sum, powers);
    let result = match rng.random_range(0..3) {
        0 => sum,
        1 => b.compute("out", &axes, |o| {
            Expr::unary(ir::UnaryOp::Log, Expr::load(sum, o)) + Expr::load(max, o)
        }),
        _ => b.compute("out", &[&axes[..], &terms].concat(), |at| {
            let (o, t) = at.split_at(rows.len());
            powers(o, t) / Expr::load(sum, o)
        }),
    };
    b.finish(&[result])
}

/// Windows, or interpolation of neighbours, along two or three axes, one after the other;
/// plain or in blocks of channels.
fn staged(rng: &mut impl Rng) -> Program {
    let names = ["z", "y", "x"];
    let count = rng.random_range(2..4);
    let from = names.len() - count;
    let block = [1, 1, 8][rng.random_range(0..3)];
    let reducer = REDUCERS[rng.random_range(0..3)].clone();
    let lead = [rng.random_range(1..3), rng.random_range(1..4)];
    let mut sizes: Vec<i64> = (0..count).map(|_| rng.random_range(1..7)).collect();
    sizes[count - 1] = rng.random_range(1..45);
    let mut b = ProgramBuilder::new("staged");
    let lanes = if block > 1 { vec![block] } else { vec![] };
    let x = b.input("X", DType::F32, &[&lead[..], &sizes, &lanes].concat());
    let mut axes = vec![("n", lead[0]), ("c", lead[1])];
    axes.extend(names[from..].iter().copied().zip(sizes.iter().copied()));
    axes.extend(lanes.iter().map(|n| ("ci", *n)));
    let mut made = x;
    for d in 0..count {
        let (at, size) = (2 + d, sizes[d]);
        let w = Window::random(rng);
        let (over, by) = (rng.random_range(1..6), rng.random_range(1..4));
        let interpolates = rng.random();
        let outputs = match d + 1 == count {
            true => rng.random_range(1..60),
            false => rng.random_range(1..9),
        };
        axes[at].1 = outputs;
        let weights = b.compute(
            &format!("weights{d}"),
            &[("t", w.taps), ("i", outputs)],
            |o| (&o[0] * 3 + &o[1]).floor_mod(5).cast(DType::F32),
        );
        let name = if d + 1 == count {
            "main"
        } else {
            ["along_z", "along_y"][from + d]
        };
        let outside = reducer.identity(&[DType::F32])[0].clone();
        made = b.reduce(name, &axes, &[("t", w.taps)], reducer.clone(), |o, t| {
            let mut index = o.to_vec();
            if interpolates {
                let position = (&o[at] * by - 1).floor_div(over) + &t[0];
                index[at] = position.max(0).min(size - 1);
                let weight = Expr::load(weights, [t[0].clone(), o[at].clone()]);
                return Expr::load(made, index) * weight;
            }
            let position = w.position(&o[at], &t[0]);
            index[at] = position.clone();
            let inside = Expr::int(0).le(&position).and(position.lt(size));
            Expr::select(inside, Expr::load(made, index), outside.clone())
        });
    }
    finish(rng, b, made, &axes)
}

/// A softmax along an axis that is not the innermost one.
fn column_chain(rng: &mut impl Rng) -> Program {
    let outer = rng.random_range(1..4);
    let (terms, columns) = (rng.random_range(1..9), rng.random_range(1..90));
    let axes = [("a", outer), ("k", terms), ("x", columns)];
    let kept = [axes[0], axes[2]];
    let mut b = ProgramBuilder::new("columns");
    let x = b.input("X", DType::F32, &[outer, terms, columns]);
    let whole = |o: &[Expr], t: &Expr| vec![o[0].clone(), t.clone(), o[1].clone()];
    let of = |at: &[Expr]| vec![at[0].clone(), at[2].clone()];
    let max = b.reduce("max", &kept, &[("r", terms)], Reducer::Max, |o, t| {
        Expr::load(x, whole(o, &t[0]))
    });
    let e = b.compute("e", &axes, |at| {
        Expr::unary(
            ir::UnaryOp::Exp,
            Expr::load(x, at) - Expr::load(max, of(at)),
        )
    });
    let sum = b.reduce("sum", &kept, &[("r", terms)], Reducer::Sum, |o, t| {
        Expr::load(e, whole(o, &t[0]))
    });
    let inverse = b.compute("inverse", &kept, |o| Expr::f32(1.0) / Expr::load(sum, o));
    let result = b.compute("out", &axes, |at| {
        Expr::load(e, at) * Expr::load(inverse, of(at))
    });
    b.finish(&[result])
}

/// Elements of rows at indices that step unevenly, and are cut off at the ends.
fn resampled(rng: &mut impl Rng) -> Program {
    let (rows, size) = (rng.random_range(1..5), rng.random_range(1..90));
    let (count, over) = (rng.random_range(1..700), rng.random_range(1..9));
    let (by, plus) = (rng.random_range(1..9), rng.random_range(-9..9));
    let mut b = ProgramBuilder::new("resampled");
    let x = b.input("X", DType::F32, &[rows, size]);
    let main = b.compute("main", &[("y", rows), ("x", count)], |o| {
        let position = (&o[1] * by + plus).floor_div(over);
        Expr::load(x, [o[0].clone(), position.max(0).min(size - 1)])
    });
    b.finish(&[main])
}

/// With an epilogue behind the sum, or without.
fn finish(
    rng: &mut impl Rng,
    mut b: ProgramBuilder,
    main: ir::BufferId,
    axes: &[(&str, i64)],
) -> Program {
    let result = match rng.random() {
        false => main,
        true => b.compute("out", axes, |at| {
            Expr::load(main, at).max(Expr::f32(0.0)) + Expr::f32(1.0)
        }),
    };
    b.finish(&[result])
}

fn outputs(program: &Program, args: &[Tensor]) -> Vec<Tensor> {
    let mut args = args.to_vec();
    interpret::run(program, &mut args).unwrap_or_else(|e| panic!("{e}"));
    args
}

/// Checks what rules propose for a program; how many sketches there are.
fn check(program: &Program, target: &Target, seed: u64) -> usize {
    let all = space(program, target, Accuracy::Strict);
    assert_eq!(all.refused, [], "seed {seed}\n{}", ir::text::print(program));
    let by_rules = all.sketches.into_iter();
    let by_rules = by_rules.filter(|s| OWN.iter().any(|own| s.name.starts_with(own)));
    check_sketches(program, by_rules.collect(), (POINTS, seed))
}

/// Checks the defaults of sketches and so many other points of each.
fn check_sketches(program: &Program, all: Vec<Sketch>, (points, seed): (usize, u64)) -> usize {
    let args = contraction_args(program, seed);
    let expected = outputs(program, &args);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut sketches = 0;
    for sketch in all {
        sketches += 1;
        let own = Space::of(vec![sketch]);
        let random = (0..points).map(|_| own.sample(&mut rng));
        let points: Vec<Point> = [own.default_point()].into_iter().chain(random).collect();
        for point in points {
            let told = || {
                format!(
                    "seed {seed}, {:?}\n{}",
                    point.values,
                    ir::text::print(program)
                )
            };
            let candidate = own
                .candidate(program, &point)
                .unwrap_or_else(|e| panic!("{e}: {}", told()));
            let replayed = schedule::replay(program, &candidate.trace);
            let scheduled = replayed.unwrap_or_else(|e| panic!("{e}: {}", told()));
            let found = outputs(&scheduled, &args);
            for (a, b) in found.iter().zip(&expected) {
                assert!(compare(a, b).rel_l2 <= 1e-5, "another result: {}", told());
            }
        }
    }
    sketches
}

/// Checks so many random programs, unless the environment says otherwise: how many have
/// sketches by rules, and how many there are.
fn fuzz(usual: u64, program: impl Fn(&mut Pcg64Mcg, u64) -> Program) -> (u64, u64) {
    let (count, first) = (
        setting("TUNESMITH_FUZZ", usual),
        setting("TUNESMITH_FUZZ_SEED", 1),
    );
    let mut covered = 0;
    for seed in first..first + count {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let program = program(&mut rng, seed);
        let isa = [Isa::X86Avx512, Isa::X86Avx2, Isa::AArch64Neon][rng.random_range(0..3)];
        let target = Target::generic(isa).with_threads(rng.random_range(1..3));
        covered += u64::from(check(&program, &target, seed) > 0);
    }
    (covered, count)
}

#[test]
fn any_contraction_gets_legal_sketches_that_compute_the_same() {
    let (covered, count) = fuzz(14, |rng, seed| match rng.random_range(0..5) {
        0 => transposed(rng),
        _ => random_contraction(seed),
    });
    // Some have no axis along which the output is contiguous: all its extents are 1.
    assert!(
        covered * 20 >= count * 19,
        "{covered} of {count} have sketches by rules"
    );
}

/// Scores of attention with the heads behind the rows: the right operand is in strides
/// along the columns.
#[test]
fn an_operand_in_strides_is_copied() {
    let (heads, rows, columns, depth) = (2, 19, 37, 5);
    let mut b = ProgramBuilder::new("scores");
    let q = b.input("Q", DType::F32, &[rows, heads, depth]);
    let k = b.input("K", DType::F32, &[columns, heads, depth]);
    let axes = [("h", heads), ("m", rows), ("n", columns)];
    let main = b.reduce("main", &axes, &[("d", depth)], Reducer::Sum, |o, t| {
        let left = Expr::load(q, vec![o[1].clone(), o[0].clone(), t[0].clone()]);
        left * Expr::load(k, vec![o[2].clone(), o[0].clone(), t[0].clone()])
    });
    let program = b.finish(&[main]);
    for isa in [Isa::X86Avx512, Isa::X86Avx2, Isa::AArch64Neon] {
        for threads in 1..3 {
            let target = Target::generic(isa).with_threads(threads);
            let rules = search::rules_text(&program, &target);
            assert!(rules.contains("+ copies     K.pack"), "{rules}");
            assert!(check(&program, &target, 1) > 2);
        }
    }
}

/// The gradient of a convolution's weights: each image is a channel, and the windows are as large as the gradient.
fn weight_gradient(size: i64, stride: i64, pad: i64) -> Program {
    let (images, block, taps) = (3, 16, 3);
    let count = (size + 2 * pad - taps) / stride + 1;
    let mut b = ProgramBuilder::new("weight_gradient");
    let x = b.input("X", DType::F32, &[images, 1, size, size, block]);
    let dy = b.input("DY", DType::F32, &[images, 2, count, count, block]);
    let axes = [
        ("n", block),
        ("ko", 2),
        ("y", taps),
        ("x", taps),
        ("ki", block),
    ];
    let terms = [("c", images), ("r", count), ("s", count)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = [1, 2].map(|i| &o[i + 1] + &t[i] * stride - pad);
        let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(size));
        let inside = within(&at[0]).and(within(&at[1]));
        let [row, column] = at;
        let channel = o[0].clone();
        let data = Expr::load(x, [t[0].clone(), Expr::int(0), row, column, channel]);
        let own = [
            t[0].clone(),
            o[1].clone(),
            t[1].clone(),
            t[2].clone(),
            o[4].clone(),
        ];
        Expr::select(inside, data, Expr::f32(0.0)) * Expr::load(dy, own)
    });
    b.finish(&[main])
}

/// 3 x 3 results for each pair of maps are too few for the registers, so a tile has several maps of the image.
#[test]
fn a_tile_of_few_rows_and_columns_has_maps_too() {
    let program = weight_gradient(7, 1, 1);
    let all = space(&program, &Target::generic(Isa::X86Avx512), Accuracy::Strict);
    let mut decisions = all.sketches[0].decisions.iter();
    let maps = decisions.find(|d| d.name == "tile_n").unwrap();
    assert!(maps.value[0] >= 4, "{} maps", maps.value[0]);
}

#[test]
fn convolutions_without_constants_gather_their_windows() {
    for (stride, pad) in [(1, 0), (1, 1), (2, 1)] {
        for threads in 1..3 {
            let program = weight_gradient(7, stride, pad);
            let target = Target::generic(Isa::X86Avx512).with_threads(threads);
            let all = space(&program, &target, Accuracy::Strict);
            let has = |name: &str| all.sketches.iter().any(|s| s.name == name);
            assert!(has("im2row") && has("convgemm"), "{stride} {pad}");
            check(&program, &target, 1);
        }
    }
}

/// The last part of ten taps reaches past them.
#[test]
fn gradients_of_weights_are_filtered_in_parts_of_their_taps() {
    for (size, threads) in [(8, 1), (10, 2)] {
        let program = weight_gradient(size, 1, 1);
        let target = Target::generic(Isa::X86Avx512).with_threads(threads);
        let all = space(&program, &target, Accuracy::Relaxed);
        assert_eq!(all.refused, []);
        let parts = |s: &Sketch| s.name.ends_with("parts_of_taps");
        // Four parts of three images are too few terms for matrix products, nine are enough.
        assert_eq!(parts(&all.sketches[0]), size > 8);
        let all: Vec<Sketch> = all.sketches.into_iter().filter(parts).collect();
        assert_eq!(check_sketches(&program, all, (3, 1)), 2);
    }
}

#[test]
fn what_rules_read_from_its_definition_is_direct_where_it_has_windows() {
    let name = |p: &Program, algorithm| search::name_for_people(p, algorithm);
    let convolution = weight_gradient(7, 1, 1);
    assert_eq!(
        name(&convolution, "rules.rows.copied"),
        "direct.rows.copied"
    );
    assert_eq!(name(&convolution, "im2row"), "im2row");
    let mut b = ProgramBuilder::new("product");
    let [x, w] = ["X", "W"].map(|name| b.input(name, DType::F32, &[16, 16]));
    let axes = [("m", 16), ("n", 16)];
    let main = b.reduce("main", &axes, &[("k", 16)], Reducer::Sum, |o, t| {
        let left = Expr::load(x, [o[0].clone(), t[0].clone()]);
        left * Expr::load(w, [t[0].clone(), o[1].clone()])
    });
    assert_eq!(name(&b.finish(&[main]), "rules.rows"), "rules.rows");
}

/// Weights of maps in blocks, whose taps are read backwards if they are mirrored.
#[test]
fn weights_in_blocks_are_copied() {
    let (block, rows, taps) = (16, 13, 3);
    for mirrored in [false, true] {
        let mut b = ProgramBuilder::new("blocks");
        let x = b.input("X", DType::F32, &[2, rows + taps - 1, block]);
        let w = b.input("W", DType::F32, &[2 * block, 2 * block, taps]);
        let axes = [("ko", 2), ("y", rows), ("ki", block)];
        let terms = [("co", 2), ("r", taps), ("ci", block)];
        let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
            let tap = match mirrored {
                true => Expr::int(taps - 1) - &t[1],
                false => t[1].clone(),
            };
            let [map, channel] =
                [(&o[0], &o[2]), (&t[0], &t[2])].map(|(of, lane)| of * block + lane);
            let data = Expr::load(x, vec![t[0].clone(), &o[1] + &t[1], t[2].clone()]);
            data * Expr::load(w, vec![map, channel, tap])
        });
        let program = b.finish(&[main]);
        let target = Target::generic(Isa::X86Avx512);
        let rules = search::rules_text(&program, &target);
        assert!(rules.contains("+ copies     W.pack"), "{rules}");
        assert!(check(&program, &target, 1) > 2);
    }
}

/// A matrix, stored by results, times few vectors: each of its elements is used a few times.
#[test]
fn lanes_share_the_terms_of_rows_that_are_seldom_used() {
    let product = |vectors: i64, terms: i64, across: bool| {
        let mut b = ProgramBuilder::new("product");
        let shape = if across {
            [terms, vectors]
        } else {
            [vectors, terms]
        };
        let a = b.input("A", DType::F32, &shape);
        let m = b.input("M", DType::F32, &[37, terms]);
        let axes = [("i", vectors), ("j", 37)];
        let main = b.reduce("main", &axes, &[("k", terms)], Reducer::Sum, |o, t| {
            let at = [o[0].clone(), t[0].clone()];
            let at = if across {
                [at[1].clone(), at[0].clone()]
            } else {
                at
            };
            let left = Expr::load(a, at.to_vec());
            left * Expr::load(m, vec![o[1].clone(), t[0].clone()])
        });
        let result = b.compute("out", &axes, |at| Expr::load(main, at).max(Expr::f32(0.0)));
        b.finish(&[result])
    };
    for isa in [Isa::X86Avx512, Isa::X86Avx2, Isa::AArch64Neon] {
        for (threads, across) in [(1, false), (2, false), (1, true)] {
            let target = Target::generic(isa).with_threads(threads);
            let first = |p: &Program| space(p, &target, Accuracy::Strict).sketches.remove(0).name;
            for terms in [64, 203] {
                let few = product(3, terms, across);
                assert!(
                    first(&few).starts_with("rules.rows.dots"),
                    "{}",
                    first(&few)
                );
                assert!(check(&few, &target, 1) > 2);
            }
            assert!(
                !first(&product(16, 64, across)).contains("dots"),
                "copies pay"
            );
        }
    }
}

/// A convolution of an image in blocks of channels to a few maps that are not.
fn convolution_to_few_maps(maps: i64, taps: i64) -> Program {
    let (blocks, rows, columns, lanes) = (4, 6, 9, 16);
    let mut b = ProgramBuilder::new("convolution");
    let x = b.input("X", DType::F32, &[1, blocks, rows, columns, lanes]);
    let w = b.constant("W", DType::F32, &[maps, blocks * lanes, taps, taps]);
    let axes = [("n", 1), ("k", maps), ("y", rows), ("x", columns)];
    let terms = [("co", blocks), ("r", taps), ("s", taps), ("ci", lanes)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = [0, 1].map(|d| &o[2 + d] + &t[1 + d] - taps / 2);
        let inside = at.iter().zip([rows, columns]).map(|(i, size)| {
            let first = Expr::int(0).le(i);
            first.and(i.clone().lt(size))
        });
        let inside = inside.reduce(Expr::and).unwrap();
        let [row, column] = at;
        let pixel = vec![o[0].clone(), t[0].clone(), row, column, t[3].clone()];
        let channel = &t[0] * lanes + &t[3];
        let weight = vec![o[1].clone(), channel, t[1].clone(), t[2].clone()];
        Expr::select(inside, Expr::load(x, pixel), Expr::f32(0.0)) * Expr::load(w, weight)
    });
    b.finish(&[main])
}

/// Each lane sums the terms of its channels: vectors of pixels would be in strides.
#[test]
fn few_maps_of_an_image_in_blocks_are_sums_of_lanes() {
    for (maps, taps) in [(1, 3), (3, 3), (1, 1), (2, 1)] {
        let program = convolution_to_few_maps(maps, taps);
        let target = Target::generic(Isa::X86Avx512).with_threads(1);
        let name = &space(&program, &target, Accuracy::Strict).sketches[0].name;
        assert!(name.starts_with("rules.rows.dots"), "{name}");
        assert!(check(&program, &target, 1) > 2);
    }
}

/// A plain convolution of images with rows of so many elements, and five outputs along columns.
fn plain_convolution((size, outputs): (i64, i64), stride: i64, pad: i64) -> Program {
    let (depth, maps, taps, down) = (3, 9, 3, 5);
    let sizes = [(down - 1) * stride + taps - 2 * pad, size];
    let mut b = ProgramBuilder::new("convolution");
    let x = b.input("X", DType::F32, &[2, depth, sizes[0], sizes[1]]);
    let w = b.constant("W", DType::F32, &[maps, depth, taps, taps]);
    let axes = [("n", 2), ("k", maps), ("y", down), ("x", outputs)];
    let terms = [("c", depth), ("r", taps), ("s", taps)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = [0, 1].map(|d| &o[2 + d] * stride + &t[1 + d] - pad);
        let inside = at.iter().zip(sizes).map(|(i, size)| {
            let first = Expr::int(0).le(i);
            first.and(i.clone().lt(size))
        });
        let inside = inside.reduce(Expr::and).unwrap();
        let [row, column] = at;
        let data = Expr::load(x, vec![o[0].clone(), t[0].clone(), row, column]);
        let weight = Expr::load(w, [&[o[1].clone()], t].concat());
        Expr::select(inside, data, Expr::f32(0.0)) * weight
    });
    b.finish(&[main])
}

/// Lanes two elements apart are read from a copy in two phases; a border is in the copy of
/// one sketch, and the main block has no test there, also where the last vector is padded.
#[test]
fn an_operand_with_windows_is_copied_with_its_border() {
    for ((size, outputs), stride, pad) in [((37, 19), 2, 1), ((37, 18), 2, 0), ((19, 19), 1, 1)] {
        let program = plain_convolution((size, outputs), stride, pad);
        for isa in [Isa::X86Avx512, Isa::X86Avx2, Isa::AArch64Neon] {
            for threads in 1..3 {
                let target = Target::generic(isa).with_threads(threads);
                let all = space(&program, &target, Accuracy::Strict);
                let copies = |s: &&search::Sketch| {
                    let mut steps = s.steps.iter().map(|s| s.step().to_string());
                    steps.any(|s| s.starts_with("surround main X"))
                };
                let sketch = all
                    .sketches
                    .iter()
                    .find(copies)
                    .expect("a sketch that copies");
                let own = Space::of(vec![sketch.clone()]);
                let candidate = own.candidate(&program, &own.default_point()).unwrap();
                let scheduled = schedule::replay(&program, &candidate.trace).unwrap();
                let main = scheduled.block(scheduled.block_named("main").unwrap());
                let tested = |e: &Expr| matches!(e.kind(), ir::ExprKind::Select(..));
                assert!(
                    !main.writes[0].value.any(&tested),
                    "{}",
                    ir::text::print(&scheduled)
                );
                if stride > 1 {
                    let rules = search::rules_text(&program, &target);
                    assert!(rules.contains("+ surround   X in 2 phases"), "{rules}");
                }
                assert!(check(&program, &target, 1) > 2);
            }
        }
    }
}

/// A [rows, terms] times B [terms, columns], and what a decision of the first sketch may
/// be and is.
fn decided(size: [i64; 3], decision: &str) -> (Vec<i64>, i64) {
    let [rows, columns, depth] = size;
    let mut b = ProgramBuilder::new("product");
    let left = b.input("A", DType::F32, &[rows, depth]);
    let right = b.input("B", DType::F32, &[depth, columns]);
    let axes = [("r", rows), ("c", columns)];
    let main = b.reduce("main", &axes, &[("d", depth)], Reducer::Sum, |o, t| {
        let left = Expr::load(left, vec![o[0].clone(), t[0].clone()]);
        left * Expr::load(right, vec![t[0].clone(), o[1].clone()])
    });
    let program = b.finish(&[main]);
    let all = space(&program, &Target::generic(Isa::X86Avx512), Accuracy::Strict);
    let mut decisions = all.sketches[0].decisions.iter();
    let found = decisions.find(|d| d.name == decision).unwrap();
    let values = (0..found.cardinality()).map(|v| found.kind.value_at(v).unwrap()[0]);
    (values.collect(), found.value[0])
}

#[test]
fn a_tile_has_any_number_of_vectors() {
    // 13 vectors: no number but 1 divides them.
    let (widths, _) = decided([64, 197, 64], "vectors");
    assert_eq!(widths, [16, 32, 48, 64, 80, 96]);
}

#[test]
fn rows_a_page_apart_are_no_more_than_a_set_of_the_cache_holds() {
    let (_, apart) = decided([1024, 64, 1024], "tile_r");
    assert!((2..=8).contains(&apart), "{apart} rows");
    // A line more each: the rows are in sets of their own.
    let (_, beside) = decided([1024, 64, 1024 + 16], "tile_r");
    assert!(beside > 8, "{beside} rows");
}

/// A sum with fewer results than would keep two threads busy, and terms of a prime number.
#[test]
fn threads_share_the_terms_of_few_results() {
    let products = |terms: i64, out: bool| {
        let mut b = ProgramBuilder::new("products");
        let a = b.input("A", DType::F32, &[terms, 2]);
        let c = b.input("B", DType::F32, &[terms, 3]);
        let axes = [("i", 2), ("j", 3)];
        let main = b.reduce("main", &axes, &[("k", terms)], Reducer::Sum, |o, t| {
            let left = Expr::load(a, vec![t[0].clone(), o[0].clone()]);
            left * Expr::load(c, vec![t[0].clone(), o[1].clone()])
        });
        let result = match out {
            false => main,
            true => b.compute("out", &axes, |at| {
                Expr::load(main, at).max(Expr::f32(0.0)) + Expr::f32(1.0)
            }),
        };
        b.finish(&[result])
    };
    let sketches = |program: &Program, threads| {
        let target = Target::generic(Isa::X86Avx512).with_threads(threads);
        let all = space(program, &target, Accuracy::Strict);
        assert_eq!(all.refused, []);
        let mut all = all.sketches;
        all.retain(|s| !s.name.ends_with(".serial"));
        all
    };
    let is_parts = |s: &Sketch| s.name.ends_with(".parts");
    for (out, threads) in [(false, 2), (true, 2), (true, 3)] {
        let long = products(50_021, out);
        let mut all = sketches(&long, threads);
        assert_eq!(all[0].name, "rules.panels.parts");
        all.retain(is_parts);
        assert_eq!(check_sketches(&long, all, (0, 1)), 2);
        assert!(!sketches(&long, 1).iter().any(is_parts));
    }
    // Waking threads takes longer.
    assert!(!sketches(&products(1000, false), 2).iter().any(is_parts));
}

#[test]
fn any_reduction_of_one_operand_gets_legal_sketches_that_compute_the_same() {
    let (covered, count) = fuzz(20, |rng, _| match rng.random_range(0..3) {
        0 => reduction(rng),
        1 => row_chain(rng),
        _ => pooling(rng),
    });
    // Others have rows shorter than a vector, or one result.
    assert!(
        covered * 2 >= count,
        "{covered} of {count} have sketches by rules"
    );
}

#[test]
fn stages_columns_and_uneven_rows_get_legal_sketches_that_compute_the_same() {
    let (covered, count) = fuzz(20, |rng, _| match rng.random_range(0..3) {
        0 => staged(rng),
        1 => column_chain(rng),
        _ => resampled(rng),
    });
    assert_eq!(covered, count);
}

#[test]
fn programs_of_stages_and_columns_begin_with_their_own_sketches() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let target = Target::generic(Isa::X86Avx512);
    let first = |program: Program| {
        let all = space(&program, &target, Accuracy::Strict);
        all.sketches[0].name.clone()
    };
    // A window of one element at its own place is no stage.
    let staged = (0..20).filter(|_| first(staged(&mut rng)) == "stages");
    assert!(staged.count() >= 10);
    let wide = (0..).map(|_| column_chain(&mut rng));
    let mut wide = wide.filter(|p| p.buffer(p.params[0]).shape[2] >= 16);
    assert_eq!(first(wide.next().unwrap()), "columns");
}

#[test]
fn dumps_say_what_was_read_and_what_each_rule_did() {
    let is_convolution = |p: &Program| search::analysis_text(p).contains("windows");
    let mut programs = (1..).map(random_contraction);
    let program = programs.find(is_convolution).unwrap();
    let facts = search::analysis_text(&program);
    for word in ["reused", "reduction", "elements"] {
        assert!(facts.contains(word), "no `{word}` in\n{facts}");
    }
    let rules = search::rules_text(&program, &Target::generic(Isa::X86Avx512));
    for rule in ["lanes", "tile", "pack", "order", "registers", "borders"] {
        assert!(
            rules.contains(&format!(" {rule} ")),
            "no `{rule}` in\n{rules}"
        );
    }
}
