//! Reductions over windows of several axes, one axis after the other.
//!
//! Each stage reduces what the stage before it made, along one axis; the last one is
//! `main`. A window of 13 x 13 then has 26 terms instead of 169.

use super::{Axes, Env, Point, guarded};
use ir::names::MAIN;
use ir::{BufferId, Expr, ProgramBuilder, Reducer};

/// One axis along which elements are reduced.
pub(super) struct Stage {
    /// Of the image.
    pub axis: usize,
    /// The axis over terms, and how many there are.
    pub tap: (String, i64),
}

/// A term of a stage: the element along its axis, the conditions under which there is one,
/// and a factor.
pub(super) struct Term {
    pub at: Expr,
    pub inside: Vec<Expr>,
    pub factor: Option<Expr>,
}

/// The result of all stages, without what follows them; `axes` are the result's, and `term`
/// is given a stage's number, the index along its axis, and the tap.
pub(super) fn reduce(
    env: &Env,
    b: &mut ProgramBuilder,
    (axes, stages): (&Axes, &[Stage]),
    reducer: Reducer,
    term: impl Fn(usize, &Expr, &Expr) -> Term,
) -> BufferId {
    let x = env.operand(0);
    let outside = reducer.identity(&[env.work()])[0].clone();
    let mut shape = Axes(axes.0.clone());
    for s in stages {
        shape.0[s.axis].1 = x.shape()[s.axis];
    }
    let mut made: Option<BufferId> = None;
    for (i, s) in stages.iter().enumerate() {
        shape.0[s.axis].1 = axes.0[s.axis].1;
        let name = match i + 1 == stages.len() {
            true => MAIN.as_str().to_string(),
            false => format!("along_{}", axes.0[s.axis].0),
        };
        let (tap, taps) = (s.tap.0.as_str(), s.tap.1);
        let acc = b.reduce(
            &name,
            &shape.list(),
            &[(tap, taps)],
            reducer.clone(),
            |o, t| {
                let Term { at, inside, factor } = term(i, &o[s.axis], &t[0]);
                let mut index = o.to_vec();
                index[s.axis] = at;
                let value = match made {
                    Some(buffer) => Expr::load(buffer, index),
                    None => element(env, &index),
                };
                let value = match factor {
                    Some(factor) => value * factor,
                    None => value,
                };
                guarded(inside, value, outside.clone())
            },
        );
        made = Some(acc);
    }
    made.expect("there is a stage")
}

/// The operand's element at an index that has the axes of the result.
fn element(env: &Env, index: &[Expr]) -> Expr {
    let x = env.operand(0);
    let p: Point = env.point(index);
    match &p.split {
        Some((block, lane)) => x.at_block(&p.index[0], block, p.index[2..].to_vec(), lane),
        None => x.at(p.index),
    }
}
