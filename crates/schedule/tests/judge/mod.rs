//! Programs that steps are tried on, and the judge: a step leaves a
//! well-formed program that computes the same bits, or changes nothing.

#![allow(dead_code)] // Each test binary uses a part.

use ir::{DType, Expr, Program, ProgramBuilder, Reducer};
use schedule::Step;
use tensor::Tensor;
use testkit::random_args;

/// mm[m,n] = a[m,k] b[k,n] with whole sizes, and out = max(mm + bias, 0).
pub fn matmul(m: i64, n: i64, k: i64) -> Program {
    let mut b = ProgramBuilder::new("matmul");
    let x = b.input("a", DType::F32, &[m, k]);
    let y = b.constant("b", DType::F32, &[k, n]);
    let bias = b.constant("bias", DType::F32, &[n]);
    let axes = [("m", m), ("n", n)];
    let mm = b.reduce("mm", &axes, &[("k", k)], Reducer::Sum, |o, r| {
        Expr::load(x, [o[0].clone(), r[0].clone()]) * Expr::load(y, [r[0].clone(), o[1].clone()])
    });
    let out = b.compute("out", &axes, |o| {
        (Expr::load(mm, o.to_vec()) + Expr::load(bias, [o[1].clone()])).max(Expr::f32(0.0))
    });
    b.finish(&[out])
}

/// A 3-wide convolution of x[2,8,9] padded by 1; blocks `pad` and `conv`.
pub fn padded_conv() -> Program {
    let mut b = ProgramBuilder::new("conv");
    let x = b.input("x", DType::F32, &[2, 8, 9]);
    let w = b.constant("w", DType::F32, &[3, 2, 3, 3]);
    let pad = b.compute("pad", &[("c", 2), ("h", 10), ("w", 11)], |o| {
        let inside = |e: &Expr, n: i64| Expr::int(1).le(e).and(e.clone().lt(n + 1));
        let at = [o[0].clone(), &o[1] - 1, &o[2] - 1];
        let inside = inside(&o[1], 8).and(inside(&o[2], 9));
        Expr::select(inside, Expr::load(x, at), Expr::f32(0.0))
    });
    let axes = [("o", 3), ("h", 8), ("w", 9)];
    let terms = [("c", 2), ("r", 3), ("s", 3)];
    let conv = b.reduce("conv", &axes, &terms, Reducer::Sum, |o, k| {
        let at = [k[0].clone(), &o[1] + &k[1], &o[2] + &k[2]];
        let weight = [o[0].clone(), k[0].clone(), k[1].clone(), k[2].clone()];
        Expr::load(pad, at) * Expr::load(w, weight)
    });
    b.finish(&[conv])
}

/// y = x + 1 over 3 axes.
pub fn pointwise() -> Program {
    let mut b = ProgramBuilder::new("pointwise");
    let shape = [4, 6, 10];
    let x = b.input("x", DType::F32, &shape);
    let y = b.compute("y", &[("i", 4), ("j", 6), ("k", 10)], |o| {
        Expr::load(x, o.to_vec()) + Expr::f32(1.0)
    });
    b.finish(&[y])
}

/// u = x, and then u[k % 3, j] = 2 u[k % 3, j] + l for all k and l, one after the other.
pub fn updates() -> Program {
    let mut b = ProgramBuilder::new("updates");
    let axes = [("i", 3), ("j", 8)];
    let x = b.input("x", DType::F32, &[3, 8]);
    let u = b.compute("copy", &axes, |o| Expr::load(x, o.to_vec()));
    let ordered = [("k", 6), ("l", 2)];
    b.update("u", u, (&[("j", 8)], &ordered), |o, t| {
        let at = vec![t[0].clone().floor_mod(3), o[0].clone()];
        let last = Expr::load(u, at.clone()) * Expr::f32(2.0);
        (at, last + t[1].clone().cast(DType::F32))
    });
    b.finish(&[u])
}

/// u = x, s = 2 u, then u[k] = u[k] + 1 for all k, one after the other; y = s - u.
pub fn read_before_updates() -> Program {
    let mut b = ProgramBuilder::new("read_before_updates");
    let axes = [("i", 8)];
    let x = b.input("x", DType::F32, &[8]);
    let u = b.compute("copy", &axes, |o| Expr::load(x, o.to_vec()));
    let s = b.compute("s", &axes, |o| Expr::load(u, o.to_vec()) * Expr::f32(2.0));
    b.update("u", u, (&[], &[("k", 8)]), |_, t| {
        (t.to_vec(), Expr::load(u, t.to_vec()) + Expr::f32(1.0))
    });
    let y = b.compute("y", &axes, |o| {
        Expr::load(s, o.to_vec()) - Expr::load(u, o.to_vec())
    });
    b.finish(&[y])
}

/// t = 2x is used at two places of a window: z[i] = t[i] + t[i+1].
pub fn window() -> Program {
    let mut b = ProgramBuilder::new("window");
    let x = b.input("x", DType::F32, &[13]);
    let t = b.compute("t", &[("i", 13)], |o| {
        Expr::load(x, o.to_vec()) * Expr::f32(2.0)
    });
    let z = b.compute("z", &[("i", 12)], |o| {
        Expr::load(t, o.to_vec()) + Expr::load(t, [&o[0] + 1])
    });
    b.finish(&[z])
}

/// The outputs for arguments of small whole numbers.
fn outputs(p: &Program) -> Result<Vec<Tensor>, String> {
    let mut args = random_args(p, 11);
    ir::interpret::run(p, &mut args).map_err(|e| e.to_string())?;
    Ok(args)
}

/// Applies steps, one a line, and checks after each.
pub fn judged(p: &mut Program, steps: &str) {
    let expected = outputs(p).expect("the program runs");
    for line in steps.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let step: Step = line.parse().expect("a step");
        if let Err(illegal) = step.apply(p, &[]) {
            panic!("{illegal}\n{}", ir::text::print(p));
        }
        let place = || format!("after `{line}`\n{}", ir::text::print(p));
        let broken = ir::verify::verify(p);
        assert!(broken.is_empty(), "{broken:?} {}", place());
        match outputs(p) {
            Ok(found) => assert!(found == expected, "wrong result {}", place()),
            Err(e) => panic!("{e} {}", place()),
        }
    }
}

/// Checks that a step is refused for a reason that says `why`, and changes nothing.
pub fn refused(p: &Program, step: &str, why: &str) {
    let mut changed = p.clone();
    let step: Step = step.parse().expect("a step");
    let illegal = match step.apply(&mut changed, &[]) {
        Err(illegal) => illegal.to_string(),
        Ok(_) => panic!("`{step}` is legal\n{}", ir::text::print(&changed)),
    };
    assert!(illegal.contains(why), "`{illegal}` does not say `{why}`");
    assert_eq!(changed, *p);
}

/// Names and extents of the loops of the body, outermost first.
pub fn loops(p: &Program) -> Vec<(String, i64)> {
    let of = |l| (p.loop_(l).name.clone(), p.loop_(l).extent);
    p.loop_ids().into_iter().map(of).collect()
}

/// As `loops`, of the loops whose names begin so.
pub fn loops_of(p: &Program, prefix: &str) -> Vec<(String, i64)> {
    let mut all = loops(p);
    all.retain(|(name, _)| name.starts_with(prefix));
    all
}

pub fn named(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs.iter().map(|(n, e)| (n.to_string(), *e)).collect()
}

/// The predicate of a block as text.
pub fn predicate(p: &Program, block: &str) -> Option<String> {
    let b = p.block_named(block).expect("the block exists");
    let predicate = p.block(b).predicate.as_ref()?;
    Some(ir::text::expr(p, predicate))
}
