//! Chains of nodes that move elements: their indices composed, one block.

use super::{Access, Env, Kind};
use crate::layout::Layout;
use graph::ops::{Concat, Op, Slice};
use graph::{Model, NodeId};
use ir::names::MAIN;
use ir::{BufferId, Expr, ProgramBuilder};

/// A result of a node that moves elements, as elements of its operands.
#[derive(Clone)]
pub(super) struct Moved {
    op: Op,
    /// Which result of the node.
    output: usize,
    pub shape: Vec<i64>,
    sources: Vec<Access>,
}

impl Moved {
    pub fn of(model: &Model, (n, output): (NodeId, usize), sources: Vec<Access>) -> Moved {
        let node = &model[n];
        let shape = model[node.outputs[output]].shape();
        Moved {
            op: node.op.clone(),
            output,
            shape: shape.iter().map(|d| *d as i64).collect(),
            sources,
        }
    }

    /// The element at an index inside the shape.
    pub fn at(&self, mut index: Vec<Expr>) -> Expr {
        let source = &self.sources[0];
        match &self.op {
            Op::Transpose(t) => {
                let given = index.clone();
                t.perm.iter().zip(given).for_each(|(d, i)| index[*d] = i);
            }
            Op::Slice(s) => index = sliced(s, &index),
            Op::Split(s) => {
                let start: usize = s.sizes[..self.output].iter().sum();
                index[s.axis] = index[s.axis].clone() + start as i64;
            }
            Op::Concat(c) => return self.joined(*c, &index),
            _ => index = reshaped(&self.shape, source.shape(), &index),
        }
        source.at(index)
    }

    /// One part or another. All of them are read inside their shapes, whichever is meant:
    /// vectors of several parts can then load from all.
    fn joined(&self, c: Concat, index: &[Expr]) -> Expr {
        let along = &index[c.axis];
        let sizes: Vec<i64> = self.sources.iter().map(|s| s.shape()[c.axis]).collect();
        let equal = sizes.iter().all(|n| *n == sizes[0]);
        let starts: Vec<i64> = (0..sizes.len()).map(|i| sizes[..i].iter().sum()).collect();
        let element = |i: usize| {
            let inside = match equal {
                true => along.clone().floor_mod(sizes[i]),
                false => (along - starts[i]).max(0).min(sizes[i] - 1),
            };
            let mut at = index.to_vec();
            at[c.axis] = inside;
            self.sources[i].at(at)
        };
        let last = sizes.len() - 1;
        (0..last).rev().fold(element(last), |rest, i| {
            let here = match equal {
                true => along.clone().floor_div(sizes[i]).lt(i as i64 + 1),
                false => along.clone().lt(starts[i + 1]),
            };
            Expr::select(here, element(i), rest)
        })
    }
}

fn sliced(s: &Slice, index: &[Expr]) -> Vec<Expr> {
    let axis = |(d, i): (usize, &Expr)| {
        let stepped = match s.steps[d] {
            1 => i.clone(),
            step => i * step,
        };
        match s.starts[d] as i64 {
            0 => stepped,
            start => stepped + start,
        }
    };
    index.iter().enumerate().map(axis).collect()
}

/// The index in a tensor of shape `to` of the element at an index of `from`. Axes that
/// both have pass through.
fn reshaped(from: &[i64], to: &[i64], index: &[Expr]) -> Vec<Expr> {
    let mut result = Vec::new();
    let (mut f, mut t) = (0, 0);
    while t < to.len() {
        // The fewest next axes of both that have as many elements.
        let first = (f, t);
        let (mut given, mut wanted) = (1, to[t]);
        t += 1;
        while given != wanted {
            if given < wanted {
                given *= from[f];
                f += 1;
            } else {
                wanted *= to[t];
                t += 1;
            }
        }
        let along = from[first.0..f].iter().copied().zip(&index[first.0..f]);
        result.extend(digits(along, &to[first.1..t]));
    }
    result
}

/// The digits, of these extents, of the number that others write.
fn digits<'a>(given: impl Iterator<Item = (i64, &'a Expr)>, wanted: &[i64]) -> Vec<Expr> {
    let long = given.filter(|(n, _)| *n != 1);
    let number = long.fold(None, |sum: Option<Expr>, (n, i)| {
        Some(sum.map_or(i.clone(), |sum| sum * n + i))
    });
    let number = number.unwrap_or(Expr::int(0));
    let mut inner: i64 = wanted.iter().product();
    let all = inner;
    let digit = |n: &i64| {
        let outermost = inner == all;
        inner /= n;
        let at = match inner {
            1 => number.clone(),
            inner => number.clone().floor_div(inner),
        };
        match (*n, outermost) {
            (1, _) => Expr::int(0),
            (_, true) => at,
            (n, false) => at.floor_mod(n),
        }
    };
    wanted.iter().map(digit).collect()
}

/// Blocks of channels read no channel beyond the last one, whose lanes are zero anyway.
pub(super) fn moved(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let node = env.node;
    let sources = node.inputs.iter().flatten();
    let sources = sources.map(|v| env.accesses[v].clone()).collect();
    let anchor = Moved {
        op: node.op.clone(),
        output: env.output,
        shape: env.shape.clone(),
        sources,
    };
    let channels = env.shape.get(1).copied().unwrap_or(1);
    let result = b.compute(MAIN.as_str(), &env.axes().list(), |s| {
        let p = env.point(s);
        let mut at = p.index.clone();
        if matches!(env.layout, Layout::Blocked { block } if channels % block != 0) {
            at[1] = at[1].clone().min(channels - 1);
        }
        env.follow(anchor.at(at), &p)
    });
    let mut kind = Kind::new("move").arg("parts", env.accesses.len());
    for (d, n) in env.shape.iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    if let Some(block) = env.layout.block() {
        kind = kind.arg("block", block);
    }
    (result, kind)
}
