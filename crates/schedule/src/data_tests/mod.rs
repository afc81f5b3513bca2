//! The steps that move, cache and re-lay data, judged by the interpreter.

mod caching;
mod fuzz;
mod inlining;
mod layout;
mod moving;
mod padding;
mod programs;
mod reindexing;
mod winograd;

use crate::illegal::Illegal;
use ir::interpret::run;
use ir::{Node, Program, Role};
use tensor::{Fill, Tensor, compare, fill_tensor};

/// What a program computes from small whole numbers.
struct Expected {
    outputs: Vec<Tensor>,
}

impl Expected {
    fn of(p: &Program) -> Expected {
        let outputs = outputs(p).unwrap_or_else(|e| panic!("{e}\n{}", ir::text::print(p)));
        Expected { outputs }
    }
}

fn outputs(p: &Program) -> Result<Vec<Tensor>, String> {
    let mut args = Vec::new();
    for (i, b) in p.params.iter().enumerate() {
        let b = p.buffer(*b);
        let shape: Vec<usize> = b.shape.iter().map(|n| *n as usize).collect();
        let whole = Fill::Integers {
            lo: if b.dtype.is_signed() { -3 } else { 0 },
            hi: 4,
        };
        args.push(fill_tensor(b.dtype, &shape, whole, 7 + i as u64));
    }
    run(p, &mut args).map_err(|e| e.to_string())?;
    let output = |(b, t): (&ir::BufferId, Tensor)| (p.buffer(*b).role == Role::Output).then_some(t);
    Ok(p.params.iter().zip(args).filter_map(output).collect())
}

/// Checks that a program is well-formed and computes what is expected; sums
/// may have been reassociated.
fn check(p: &Program, expected: &Expected, steps: &str) {
    let place = || format!("after {steps}\n{}", ir::text::print(p));
    let broken = ir::verify::verify(p);
    assert!(broken.is_empty(), "{broken:?} {}", place());
    let found = outputs(p).unwrap_or_else(|e| panic!("{e} {}", place()));
    for (found, wanted) in found.iter().zip(&expected.outputs) {
        let difference = compare(found, wanted);
        assert!(difference.within(1e-6), "{difference:?} {}", place());
    }
}

/// Applies a legal step and checks what it leaves.
fn judged<T>(p: &mut Program, step: impl FnOnce(&mut Program) -> Result<T, Illegal>) {
    let expected = Expected::of(p);
    if let Err(illegal) = step(p) {
        panic!("{illegal}\n{}", ir::text::print(p));
    }
    check(p, &expected, "the step");
}

/// Checks that a step is refused for this reason and changes nothing.
fn refused<T>(p: &Program, why: &str, step: impl FnOnce(&mut Program) -> Result<T, Illegal>) {
    let mut changed = p.clone();
    let illegal = step(&mut changed).err().expect("the step is illegal");
    let text = illegal.to_string();
    assert!(text.contains(why), "`{text}` does not say `{why}`");
    assert_eq!(changed, *p);
}

/// The extents of loops by name.
fn extents(p: &Program, names: &[&str]) -> Vec<i64> {
    let named = |n: &&str| p.loop_named(n).unwrap_or_else(|| panic!("no loop {n}"));
    let loops = names.iter().map(named);
    loops.map(|l| p.loop_(l).extent).collect()
}

/// The names of a loop's children.
fn order(p: &Program, l: &str) -> Vec<String> {
    let l = p.loop_named(l).expect("the loop exists");
    let name = |n: &Node| match n {
        Node::Loop(l) => p.loop_(*l).name.clone(),
        Node::Block(b) => p.block(*b).name.clone(),
    };
    p.children(Some(l)).iter().map(name).collect()
}
