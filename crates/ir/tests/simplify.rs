//! Every rule, alone and together, keeps the value of random index expressions.

use ir::affine::{Ranges, bounds};
use ir::simplify::{rules::RULES, simplify};
use ir::{BinaryOp, Expr, ExprKind, UnaryOp, VarId};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

const VARS: u32 = 4;

/// `None` where evaluation is an error (division by zero).
fn value(e: &Expr, vars: &[i64]) -> Option<i64> {
    let v = |e: &Expr| value(e, vars);
    Some(match e.kind() {
        ExprKind::Int(v, _) => *v,
        ExprKind::Var(x) => vars[x.index()],
        ExprKind::Unary(UnaryOp::Neg, a) => -v(a)?,
        ExprKind::Unary(UnaryOp::Not, a) => 1 - v(a)?,
        ExprKind::Select(c, a, b) => {
            if v(c)? == 1 {
                v(a)?
            } else {
                v(b)?
            }
        }
        ExprKind::Binary(BinaryOp::And, a, b) => i64::from(v(a)? == 1 && v(b)? == 1),
        ExprKind::Binary(BinaryOp::Or, a, b) => i64::from(v(a)? == 1 || v(b)? == 1),
        ExprKind::Binary(op, a, b) => {
            let (x, y) = (v(a)?, v(b)?);
            match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x * y,
                BinaryOp::FloorDiv => (x as f64 / y as f64).floor() as i64,
                BinaryOp::FloorMod => x - y * (x as f64 / y as f64).floor() as i64,
                BinaryOp::Min => x.min(y),
                BinaryOp::Max => x.max(y),
                BinaryOp::Eq => i64::from(x == y),
                BinaryOp::Ne => i64::from(x != y),
                BinaryOp::Lt => i64::from(x < y),
                BinaryOp::Le => i64::from(x <= y),
                _ => unreachable!("not generated"),
            }
        }
        _ => unreachable!("not generated"),
    })
}

fn index(rng: &mut Pcg64Mcg, depth: u32) -> Expr {
    let small = [0, 1, 2, 3, 4, 7, 8, 16, 32, -1, -3];
    if depth == 0 || rng.random_ratio(1, 5) {
        return if rng.random_ratio(2, 3) {
            Expr::var(VarId(rng.random_range(0..VARS)))
        } else {
            Expr::int(small[rng.random_range(0..small.len())])
        };
    }
    let divisor = [1, 2, 3, 4, 8, 16, 32][rng.random_range(0..7)];
    let a = index(rng, depth - 1);
    match rng.random_range(0..11) {
        // What fusing and splitting again makes.
        10 => a.clone().floor_div(divisor) * divisor + a.floor_mod(divisor),
        0..3 => a + index(rng, depth - 1),
        3 => a - index(rng, depth - 1),
        4 => a * small[rng.random_range(0..small.len())],
        5 => a.floor_div(divisor),
        6 => a.floor_mod(divisor),
        7 => {
            let b = index(rng, depth - 1);
            if rng.random() { a.min(b) } else { a.max(b) }
        }
        // What splitting and fusing make: (a*d + b) by d.
        8 => {
            let e = a * divisor + index(rng, 0);
            if rng.random() { e.floor_div(divisor) } else { e.floor_mod(divisor) }
        }
        _ => Expr::select(condition(rng, depth - 1), a, index(rng, depth - 1)),
    }
}

fn condition(rng: &mut Pcg64Mcg, depth: u32) -> Expr {
    if depth > 0 && rng.random_ratio(1, 3) {
        let (a, b) = (condition(rng, depth - 1), condition(rng, depth - 1));
        return match rng.random_range(0..4) {
            0 => a.or(b),
            1 => Expr::unary(UnaryOp::Not, a),
            2 => a.clone().and(b).and(a),
            _ => a.and(b),
        };
    }
    if rng.random_ratio(1, 10) {
        return Expr::bool(rng.random());
    }
    let ops = [BinaryOp::Lt, BinaryOp::Le, BinaryOp::Eq, BinaryOp::Ne];
    let d = depth.min(2);
    Expr::binary(ops[rng.random_range(0..4)], index(rng, d), index(rng, d))
}

fn ranges(rng: &mut Pcg64Mcg) -> (Ranges, Vec<(i64, i64)>) {
    let mut r = Ranges::new();
    let mut all = Vec::new();
    for v in 0..VARS {
        let lo = if rng.random_ratio(1, 4) { rng.random_range(-9..3) } else { 0 };
        let hi = lo + [0, 1, 3, 7, 15, 31][rng.random_range(0..6)];
        r.set(VarId(v), lo, hi);
        all.push((lo, hi));
    }
    (r, all)
}

/// Compares `e` with `f` at random points of the ranges.
fn agree(rng: &mut Pcg64Mcg, all: &[(i64, i64)], e: &Expr, f: &Expr, what: &str) {
    for _ in 0..8 {
        let vars: Vec<i64> = all.iter().map(|(lo, hi)| rng.random_range(*lo..=*hi)).collect();
        assert_eq!(value(e, &vars), value(f, &vars), "{what}: {e:?} became {f:?} at {vars:?}");
    }
}

#[test]
fn every_rule_alone_keeps_values_and_fires() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    for i in 0..60_000 {
        let (r, all) = ranges(&mut rng);
        let e = if i % 3 == 0 { condition(&mut rng, 3) } else { index(&mut rng, 4) };
        // Rules expect simplified operands, so half the nodes get them.
        let e = if i % 2 == 0 { e.map_children(|c| simplify(c, &r)) } else { e };
        for (name, rule) in RULES {
            if let Some(f) = rule(&e, &r) {
                agree(&mut rng, &all, &e, &f, name);
                *fired.entry(name).or_default() += usize::from(f != e);
            }
        }
    }
    for (name, _) in RULES.iter().filter(|(n, _)| *n != "float_identity") {
        assert!(fired.get(name).is_some_and(|n| *n >= 20), "{name} fired {:?} times", fired.get(name));
    }
}

#[test]
fn simplification_keeps_values_is_stable_and_bounds_are_sound() {
    let mut rng = Pcg64Mcg::seed_from_u64(2);
    let mut unstable = 0;
    for i in 0..40_000 {
        let (r, all) = ranges(&mut rng);
        let e = if i % 3 == 0 { condition(&mut rng, 4) } else { index(&mut rng, 5) };
        let s = simplify(&e, &r);
        agree(&mut rng, &all, &e, &s, "simplify");
        unstable += usize::from(simplify(&s, &r) != s);
        let b = bounds(&e, &r).expect("every variable has a range");
        let vars: Vec<i64> = all.iter().map(|(lo, hi)| rng.random_range(*lo..=*hi)).collect();
        let v = value(&e, &vars).unwrap();
        assert!(b.lo <= v && v <= b.hi, "{e:?} = {v} outside {b:?} at {vars:?}");
    }
    assert!(unstable <= 40, "{unstable} of 40,000 results simplified further");
}

#[test]
fn what_schedules_need_becomes_canonical() {
    let v = |i| Expr::var(VarId(i));
    let mut r = Ranges::new();
    for (i, extent) in [(0, 4), (1, 4), (2, 8), (3, 14)] {
        r.set_extent(VarId(i), extent);
    }
    let case = |e: Expr, expected: Expr| assert_eq!(simplify(&e, &r), simplify(&expected, &r), "{e:?}");
    let f = || v(0) * 14 + v(3);
    case(f().floor_div(14) * 14 + f().floor_mod(14), v(0) * 14 + v(3));
    case((v(0) * 32 + v(1) * 8 + v(2)).floor_div(8), v(0) * 4 + v(1));
    case((v(0) * 32 + v(1) * 8 + v(2)).floor_mod(8), v(2));
    case((v(0) * 32 + v(1) * 8 + v(2)).floor_mod(16), v(1).floor_mod(2) * 8 + v(2));
    case((v(0) * 32 + v(1) * 8 + v(2)).floor_div(16), v(0) * 2 + v(1).floor_div(2));
    case(v(3).lt(14).and(v(3).ge(0)), Expr::bool(true));
    case((v(3) + v(0) - 1).lt(20), Expr::bool(true));
    case(Expr::int(0).le(v(3) + v(0) - 1), Expr::int(0).lt(v(3) + v(0)));
    case((v(2) * 4).lt(v(1) * 8 + 3), v(2).lt(v(1) * 2 + 1));
}
