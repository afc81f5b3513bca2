//! Simplification, intervals and assumptions keep to what the interpreter says.

mod random;

use ir::affine::{Affine, Interval, Ranges, bounds};
use ir::simplify::{
    prove,
    rules::{RULES, rules_for},
    simplify,
};
use ir::{BinaryOp, BufferId, DType, Expr, UnaryOp, VarId};
use rand::Rng;
use random::{Random, same, values};
use std::collections::BTreeMap;

/// An expression of a random type.
fn any(random: &mut Random, depth: u32) -> (Expr, DType) {
    match random.rng.random_range(0..7) {
        0 | 1 => (random.index(depth), DType::I64),
        2 | 3 => (random.condition(depth), DType::Bool),
        4 => (random.condition_with_loads(depth), DType::Bool),
        5 => random.narrow(depth),
        _ => (random.float(depth), DType::F32),
    }
}

#[test]
fn every_rule_alone_keeps_values_and_fires() {
    let mut random = Random::new(1);
    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    for i in 0..30_000 {
        random.new_ranges();
        let (mut e, dtype) = any(&mut random, 3);
        // Rules meet simplified operands, but must hold for all.
        if i % 2 == 0 {
            e = e.map_children(|c| simplify(c, &random.ranges));
        }
        let mut all = vec![(e.clone(), dtype)];
        let mut names = vec!["itself"];
        for (name, rule) in RULES {
            if let Some(f) = rule(&e, &random.ranges).filter(|f| *f != e) {
                let tried = rules_for(&e).iter().any(|(other, _)| other == name);
                assert!(tried, "{name} applies to {e:?} and is not tried");
                all.push((f, dtype));
                names.push(name);
                *fired.entry(name).or_default() += 1;
            }
        }
        let points = random.points();
        // Of an expression that is an error nothing is asked.
        if names.len() == 1 || values(&all[..1], &points).is_err() {
            continue;
        }
        let results = values(&all, &points).unwrap_or_else(|error| panic!("{all:?}: {error}"));
        for ((name, (f, _)), result) in names.iter().zip(&all).zip(&results) {
            assert!(
                same(&results[0], result),
                "{name}: {e:?} became {f:?} {:?}",
                random.ranges
            );
        }
    }
    for (name, _) in RULES {
        let times = fired.get(name).copied().unwrap_or(0);
        assert!(times >= 20, "{name} fired {times} times");
    }
}

#[test]
fn simplification_keeps_values_and_is_stable() {
    let mut random = Random::new(2);
    let (mut unstable, mut errors) = (0, 0);
    for _ in 0..20_000 {
        random.new_ranges();
        let (e, dtype) = any(&mut random, 5);
        let s = simplify(&e, &random.ranges);
        unstable += usize::from(simplify(&s, &random.ranges) != s);
        let points = random.points();
        let Ok(before) = values(&[(e.clone(), dtype)], &points) else {
            errors += 1;
            continue;
        };
        match values(&[(s.clone(), dtype)], &points) {
            Ok(after) => {
                let equal = same(&before[0], &after[0]);
                assert!(equal, "{e:?} became {s:?} {:?}", random.ranges);
            }
            Err(error) => panic!("{e:?} became {s:?}: {error} {:?}", random.ranges),
        }
    }
    assert!(errors < 1000, "{errors} expressions were errors");
    assert!(unstable <= 20, "{unstable} results simplified further");
}

#[test]
fn bounds_hold_every_value() {
    let mut random = Random::new(3);
    let mut tight = 0;
    for i in 0..10_000 {
        random.new_ranges();
        let (e, dtype) = match i % 3 {
            0 => (random.condition(3), DType::Bool),
            _ => (random.index(4), DType::I64),
        };
        // Conversions to narrower integers have no bounds.
        let Some(b) = bounds(&e, &random.ranges) else {
            continue;
        };
        let found = values(&[(e.clone(), dtype)], &random.points()).expect("no loads, no zeros");
        let found: Vec<i64> = (0..found[0].len()).map(|i| found[0].get_i64(i)).collect();
        for v in &found {
            assert!(
                b.lo <= *v && *v <= b.hi,
                "{e:?} is {v}, not in {b:?} {:?}",
                random.ranges
            );
        }
        tight += usize::from(found.contains(&b.lo) && found.contains(&b.hi));
    }
    assert!(tight > 3000, "both ends were met only {tight} times");
}

#[test]
fn what_the_data_decide_has_the_bounds_that_an_operator_gives_it() {
    let r = &extents([4, 4, 8, 56, 3]);
    let data = Expr::load(BufferId(0), vec![v(0)]);
    let between = |e: &Expr, lo: i64, hi: i64| assert_eq!(bounds(e, r), Some(Interval { lo, hi }));
    between(&data.clone().max(0).min(9), 0, 9);
    between(&data.clone().min(v(2)).max(-3), -3, 7);
    assert_eq!(bounds(&data.clone().max(0), r), None);
    let and = |a: &Expr, b: Expr| Expr::binary(BinaryOp::BitAnd, a, b);
    between(&and(&data, v(3)), 0, 55);
    assert_eq!(bounds(&and(&data, Expr::int(-2)), r), None);
    let shifted = |by: Expr| Expr::binary(BinaryOp::Shr, v(3) + 8, by);
    between(&shifted(v(4)), 2, 63);
    between(&shifted(v(4) - 1), 0, 63);
    between(&shifted(v(3) + 2), 0, 15);
}

#[test]
fn assumptions_keep_every_point_where_they_hold() {
    let mut random = Random::new(4);
    let mut learned = 0;
    for _ in 0..10_000 {
        random.new_ranges();
        let (c, holds) = (random.condition(3), random.rng.random());
        let Some(narrowed) = random.ranges.assuming(&c, holds) else {
            continue;
        };
        learned += 1;
        let points = random.points();
        let found = &values(&[(c.clone(), DType::Bool)], &points).expect("no loads")[0];
        for (i, point) in points.iter().enumerate() {
            if (found.get_i64(i) == 1) != holds {
                continue;
            }
            for (v, x) in point.iter().enumerate() {
                let range = narrowed.get(VarId(v as u32)).unwrap();
                assert!(
                    range.lo <= *x && *x <= range.hi,
                    "{c:?} {holds} at {point:?}: {narrowed:?}"
                );
            }
        }
    }
    assert!(learned > 500, "{learned}");
}

fn v(i: u32) -> Expr {
    Expr::var(VarId(i))
}

/// Variables 0 to 4 with these extents.
fn extents(extents: [i64; 5]) -> Ranges {
    let mut r = Ranges::new();
    for (i, extent) in extents.into_iter().enumerate() {
        r.set_extent(VarId(i as u32), extent);
    }
    r
}

#[track_caller]
fn becomes(r: &Ranges, e: Expr, expected: Expr) {
    assert_eq!(simplify(&e, r), expected, "{e:?}");
}

#[test]
fn splits_and_fusions_vanish() {
    let r = &extents([4, 4, 8, 14, 3]);
    let f = || v(0) * 14 + v(3);
    becomes(r, f().floor_div(14) * 14 + f().floor_mod(14), f());
    becomes(r, f().floor_div(14), v(0));
    becomes(r, f().floor_mod(14), v(3));
    let s = || v(0) * 32 + v(1) * 8 + v(2);
    becomes(r, s().floor_div(8), v(0) * 4 + v(1));
    becomes(r, s().floor_mod(8), v(2));
    becomes(r, s().floor_mod(16), v(2) + v(1).floor_mod(2) * 8);
    becomes(r, s().floor_div(16), v(0) * 2 + v(1).floor_div(2));
    becomes(r, (v(3) * 16 + v(0) + 12).floor_div(16), v(3));
    becomes(r, (v(3) * 16 + v(0) + 12).floor_mod(16), v(0) + 12);
    becomes(r, (v(3) * 16 - 1).floor_div(16), v(3) + -1);
    // Three fused loops taken apart again, and put together from the parts.
    let mut wide = Ranges::new();
    wide.set_extent(VarId(0), 24 * 5);
    let parts = || {
        [
            v(0).floor_div(24),
            v(0).floor_div(8).floor_mod(3),
            v(0).floor_mod(8),
        ]
    };
    let [a, b, c] = parts();
    becomes(&wide, a * 24 + b * 8 + c, v(0));
    let [a, b, _] = parts();
    becomes(&wide, a * 3 + b, v(0).floor_div(8));
    becomes(
        &wide,
        v(0).floor_mod(24).floor_div(8),
        v(0).floor_div(8).floor_mod(3),
    );
    let [_, b, c] = parts();
    becomes(&wide, b * 8 + c, v(0).floor_mod(24));
}

#[test]
fn conditions_shrink_to_what_is_open() {
    let r = &extents([4, 4, 8, 56, 3]);
    let inside = |e: Expr, n: i64| Expr::int(0).le(&e).and(e.lt(n));
    // y + r - 1 within 0..56: the padding of a convolution.
    let y = || v(3) + v(4) - 1;
    becomes(r, inside(v(2) + v(4) - 1, 56), Expr::int(0).lt(v(2) + v(4)));
    becomes(r, inside(v(3) + v(4), 58), Expr::bool(true));
    let both = Expr::int(0).lt(v(3) + v(4)).and((v(3) + v(4)).lt(57));
    becomes(r, inside(y(), 56), both);
    let mut interior = r.clone();
    interior.set(VarId(3), 1, 54);
    becomes(&interior, inside(y(), 56), Expr::bool(true));
    // Common factors, and low terms that cannot matter.
    becomes(r, (v(2) * 4).lt(v(1) * 8 + 3), v(2).lt(v(1) * 2 + 1));
    becomes(r, (v(3) * 4 + v(0)).lt(52), v(3).lt(13));
    becomes(r, (v(3) * 4 + v(0)).lt(53), (v(0) + v(3) * 4).lt(53));
    becomes(r, v(3).floor_div(8).lt(3), v(3).lt(24));
    becomes(
        r,
        Expr::int(2).le(v(3).floor_div(8)),
        Expr::int(15).lt(v(3)),
    );
    becomes(r, (v(3) * 2).equals(7), Expr::bool(false));
    becomes(r, (v(3) * 2).equals(8), v(3).equals(4));
    // The stronger conjunct, the weaker disjunct, what excludes and what covers.
    becomes(
        r,
        v(3).lt(9).and(v(2).lt(5)).and(v(3).lt(7)),
        v(3).lt(7).and(v(2).lt(5)),
    );
    becomes(r, v(3).lt(7).or(v(3).lt(9)), v(3).lt(9));
    becomes(
        r,
        (v(0) + v(3)).lt(7).and(Expr::int(7).lt(v(0) + v(3))),
        Expr::bool(false),
    );
    becomes(
        r,
        (v(0) + v(3)).lt(7).or(Expr::int(5).lt(v(0) + v(3))),
        Expr::bool(true),
    );
    let not = |e| Expr::unary(UnaryOp::Not, e);
    becomes(r, not(inside(v(3), 9)), Expr::int(8).lt(v(3)));
}

#[test]
fn guards_are_known_where_they_hold() {
    let r = &extents([4, 4, 8, 56, 3]);
    let x = |i: Expr| Expr::load(BufferId(0), [i]);
    let zero = || Expr::f32(0.0);
    let clamped = || v(3).max(0).min(9);
    becomes(
        r,
        Expr::select(v(3).lt(10), x(clamped()), zero()),
        Expr::select(v(3).lt(10), x(v(3)), zero()),
    );
    // The same guard twice, and a guard of a guard.
    let c = || Expr::int(0).lt(v(3) + v(4));
    let d = || (v(0) + v(1)).lt(5);
    let guarded = |c: Expr, e: Expr| Expr::select(c, e, zero());
    becomes(
        r,
        guarded(c(), guarded(c(), x(v(3)))),
        guarded(c(), x(v(3))),
    );
    becomes(
        r,
        guarded(c(), guarded(d(), x(v(3)))),
        guarded(c().and(d()), x(v(3))),
    );
    becomes(r, guarded(v(2).lt(8), x(v(3))), x(v(3)));
    // A load stays under its guard, whatever else is known.
    let loaded = Expr::load(BufferId(1), [v(3)]);
    let e = guarded(v(3).lt(10), x(loaded));
    becomes(r, e.clone(), e);
}

#[test]
fn floats_keep_every_bit() {
    let r = &Ranges::new();
    let x = || Expr::load(BufferId(0), [Expr::int(0)]);
    let one = || Expr::f32(1.0);
    becomes(r, x() * one() / one() - Expr::f32(0.0), x());
    for e in [
        x() + Expr::f32(0.0),
        x() - Expr::f32(-0.0),
        x() * Expr::f32(0.0),
        x() - x(),
        x() / x(),
        x().min(x()),
        (x() + one()) + one(),
        Expr::unary(UnaryOp::Not, x().lt(one())),
    ] {
        becomes(r, e.clone(), e);
    }
    becomes(
        r,
        Expr::f32(0.1) + Expr::f32(0.2),
        Expr::f32(0.1f32 + 0.2f32),
    );
}

#[test]
fn narrow_integers_wrap_and_have_no_bounds() {
    let r = &extents([4, 4, 8, 56, 3]);
    let i8 = |v: f64| Expr::constant(v, DType::I8);
    assert_eq!(bounds(&(i8(100.0) + i8(100.0)), r), None);
    assert_eq!(Affine::of(&(i8(100.0) + i8(100.0))), None);
    becomes(r, i8(100.0) + i8(100.0), i8(-56.0));
    let narrow = v(3).cast(DType::I8);
    let e = (narrow.clone() * i8(3.0)).lt(i8(0.0));
    becomes(r, e.clone(), e);
    becomes(r, narrow.cast(DType::I64), v(3));
    let wraps = (v(3) * 3).cast(DType::I8).cast(DType::I64);
    becomes(r, wraps.clone(), wraps);
}

#[test]
fn affine_forms() {
    let a = Affine::of(&((v(1) * 3 - v(0)) * 2 + 5 - v(1) * 6)).unwrap();
    assert_eq!(
        (a.coefficient(VarId(0)), a.coefficient(VarId(1)), a.constant),
        (-2, 0, 5)
    );
    assert_eq!(a.terms.len(), 1);
    assert_eq!(Affine::of(&a.to_expr()), Some(a.clone()));
    assert_eq!(a.scale(-1).add_scaled(&a, 1), Affine::constant(0));
    assert_eq!(Affine::of(&(v(0) * v(1))), None);
    assert_eq!(Affine::of(&v(0).floor_div(2)), None);
    // Overflow wraps, as the arithmetic does.
    let huge = Affine::of(&(v(0) * i64::MAX * 2)).unwrap();
    assert_eq!(huge.coefficient(VarId(0)), -2);
}

#[test]
fn proofs() {
    let r = &extents([4, 4, 8, 56, 3]);
    assert!(prove(&(v(0) * 4 + v(1)).lt(16), r));
    assert!(!prove(&(v(0) * 4 + v(1)).lt(15), r));
    assert!(prove(
        &(v(3) - v(3).floor_div(8) * 8).equals(v(3).floor_mod(8)),
        r
    ));
    assert!(prove(&v(0).min(v(1)).le(3), r));
    assert!(!prove(&Expr::load(BufferId(0), [v(0)]).lt(5), r));
    let unknown = Expr::var(VarId(99));
    assert!(!prove(&unknown.clone().lt(5), r));
    assert!(prove(&(unknown.clone() + 4 - &unknown).equals(4), r));
    assert_eq!(bounds(&unknown, r), None);
    assert_eq!(
        bounds(&v(0).floor_div(-2), r),
        Some(Interval { lo: -2, hi: 0 })
    );
}

#[test]
fn assumptions_narrow_single_variables() {
    let r = extents([4, 4, 8, 56, 3]);
    let range = |c: Expr, holds: bool, var: u32| {
        let narrowed = r.assuming(&c, holds)?;
        narrowed.get(VarId(var)).map(|i| (i.lo, i.hi))
    };
    assert_eq!(range((v(3) * 4).le(30), true, 3), Some((0, 7)));
    assert_eq!(range((v(3) * 4).le(30), false, 3), Some((8, 55)));
    assert_eq!(range(Expr::int(9).lt(v(3)), true, 3), Some((10, 55)));
    assert_eq!(range(v(3).equals(9), true, 3), Some((9, 9)));
    // The others at their best: v3 + v4 >= 57 needs v4 >= 2.
    assert_eq!(range(Expr::int(57).le(v(3) + v(4)), true, 4), Some((2, 2)));
    let both = v(3).lt(9).and(v(2).lt(5));
    assert_eq!(range(both.clone(), true, 2), Some((0, 4)));
    assert_eq!(range(both, false, 2), None);
    // Nothing new, and what cannot be.
    assert_eq!(range(v(3).lt(99), true, 3), None);
    assert_eq!(range(v(3).lt(0), true, 3), None);
}

/// Numbers whose bits are computed with use all of them: `<=` is not `<` of the next one.
#[test]
fn the_greatest_number_has_no_next() {
    let turned = |i| {
        let x = Expr::arg(i, DType::I64);
        Expr::binary(BinaryOp::BitXor, x, Expr::int(i64::MIN))
    };
    let e = Expr::binary(BinaryOp::Le, turned(0), turned(1));
    let simple = simplify(&e, &Ranges::new());
    let less = |e: &Expr| matches!(e.kind(), ir::ExprKind::Binary(BinaryOp::Lt, ..));
    assert!(!simple.any(&less), "{simple:?}");
}
