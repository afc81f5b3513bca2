//! Operators that move elements: one block each.

use super::conv::{axis_names, size_names};
use super::{Access, Axes, Env, Kind};
use crate::compute::Built;
use crate::layout::Layout;
use graph::ops::{Concat, Pad, PadMode, Slice, Split, Transpose};
use graph::{Model, ValueId};
use ir::names::{MAIN, image};
use ir::{BufferId, Expr, ProgramBuilder};

pub(super) fn kind(env: &Env) -> Kind {
    let mut kind = Kind::new(env.node.op.name());
    for (d, n) in env.shape.iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    }
}

/// A chain of selections along the axis; empty parts are left out.
pub(super) fn concat(env: &Env, b: &mut ProgramBuilder, c: Concat) -> (BufferId, Kind) {
    let given = 0..env.node.inputs.len();
    let parts: Vec<&Access> = given.filter_map(|i| env.optional(i)).collect();
    let mut starts = vec![0];
    for (i, part) in parts.iter().enumerate() {
        starts.push(starts[i] + part.shape()[c.axis]);
    }
    let result = env.map(b, |p| {
        let element = |i: usize| {
            let start = starts[i];
            let mut at = p.index.clone();
            match (env.layout, &p.split) {
                (Layout::Blocked { block }, Some((co, ci))) => {
                    let co = if start == 0 {
                        co.clone()
                    } else {
                        co - start / block
                    };
                    parts[i].at_block(&at[0], &co, at[2..].to_vec(), ci)
                }
                _ => {
                    if start > 0 {
                        at[c.axis] = &at[c.axis] - start;
                    }
                    parts[i].at(at)
                }
            }
        };
        let last = parts.len() - 1;
        (0..last).rev().fold(element(last), |rest, i| {
            let inside = match (env.layout, &p.split) {
                (Layout::Blocked { block }, Some((co, _))) => co.clone().lt(starts[i + 1] / block),
                _ => p.index[c.axis].clone().lt(starts[i + 1]),
            };
            Expr::select(inside, element(i), rest)
        })
    });
    (result, kind(env).arg("parts", parts.len()))
}

/// One part.
pub(super) fn split(env: &Env, b: &mut ProgramBuilder, s: &Split) -> (BufferId, Kind) {
    let x = env.operand(0);
    let start = s.sizes[..env.output].iter().sum::<usize>() as i64;
    let result = env.map(b, |p| match (env.layout, &p.split) {
        (Layout::Blocked { block }, Some((co, ci))) => x.at_block(
            &p.index[0],
            &(co + start / block),
            p.index[2..].to_vec(),
            ci,
        ),
        _ => {
            let mut at = p.index.clone();
            at[s.axis] = &at[s.axis] + start;
            x.at(at)
        }
    });
    (result, kind(env))
}

pub(super) fn slice(env: &Env, b: &mut ProgramBuilder, s: &Slice) -> (BufferId, Kind) {
    let x = env.operand(0);
    let result = env.map(b, |p| {
        let axis = |(d, i): (usize, &Expr)| {
            let stepped = if s.steps[d] == 1 {
                i.clone()
            } else {
                i * s.steps[d]
            };
            if s.starts[d] == 0 {
                stepped
            } else {
                stepped + s.starts[d] as i64
            }
        };
        x.at(p.index.iter().enumerate().map(axis).collect())
    });
    (result, kind(env))
}

pub(super) fn pad(env: &Env, b: &mut ProgramBuilder, p: &Pad) -> (BufferId, Kind) {
    let x = env.operand(0);
    let result = env.map(b, |point| {
        let mut inside = Vec::new();
        let mut at = Vec::new();
        for (d, i) in point.index.iter().enumerate() {
            let (n, (before, after)) = (x.shape()[d], p.pads[d]);
            let source = if before == 0 { i.clone() } else { i - before };
            if before <= 0 && after <= 0 {
                at.push(source);
                continue;
            }
            at.push(match p.mode {
                PadMode::Constant(_) => {
                    if before > 0 {
                        inside.push(Expr::int(0).le(&source));
                    }
                    if after > 0 {
                        inside.push(source.clone().lt(n));
                    }
                    source
                }
                PadMode::Edge => source.max(0).min(n - 1),
                PadMode::Wrap => source.floor_mod(n),
                PadMode::Reflect if n == 1 => Expr::int(0),
                PadMode::Reflect => {
                    let folded = source.floor_mod(2 * (n - 1));
                    folded.clone().min(Expr::int(2 * (n - 1)) - folded)
                }
            });
        }
        let fill = match p.mode {
            PadMode::Constant(v) => v,
            _ => 0.0,
        };
        super::guarded(inside, x.at(at), Expr::constant(fill, env.work()))
    });
    (result, kind(env))
}

pub(super) fn transpose(env: &Env, b: &mut ProgramBuilder, t: &Transpose) -> (BufferId, Kind) {
    let x = env.operand(0);
    let result = env.map(b, |p| {
        let mut at = vec![Expr::int(0); t.perm.len()];
        for (i, d) in p.index.iter().zip(&t.perm) {
            at[*d] = i.clone();
        }
        x.at(at)
    });
    let mut kind = kind(env);
    for (d, from) in t.perm.iter().enumerate() {
        kind = kind.arg(&format!("perm{d}"), *from);
    }
    (result, kind)
}

pub(super) fn expand(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let x = env.operand(0);
    (env.map(b, |p| x.load(p)), kind(env))
}

/// A value in another layout.
pub(crate) fn layout_transform(model: &Model, v: ValueId, from: Layout, to: Layout) -> Built {
    let value = &model[v];
    let dtype = value.dtype();
    let shape: Vec<i64> = value.shape().iter().map(|d| *d as i64).collect();
    let mut b = ProgramBuilder::new("layout_transform");
    let x = b.input("X", dtype, &from.physical(value.shape()));
    let extents = to.physical(value.shape());
    let rank = shape.len();
    let names: Vec<String> = match to {
        Layout::Plain => {
            let image = [image::BATCH, image::CHANNEL].map(String::from);
            image.into_iter().chain(axis_names(rank - 2).0).collect()
        }
        Layout::Blocked { .. } => image::blocked(rank - 2)
            .into_iter()
            .map(String::from)
            .collect(),
    };
    let axes = Axes::new(names.into_iter().zip(extents));
    let result = b.compute(MAIN.as_str(), &axes.list(), |s| match (from, to) {
        (Layout::Plain, Layout::Blocked { block }) => {
            let channel = &s[1] * block + &s[rank];
            let at = [&[s[0].clone(), channel.clone()], &s[2..rank]].concat();
            let load = Expr::load(x, at);
            if shape[1] % block == 0 {
                return load;
            }
            Expr::select(channel.lt(shape[1]), load, Expr::constant(0.0, dtype))
        }
        (Layout::Blocked { block }, Layout::Plain) => {
            let lane = s[1].clone().floor_mod(block);
            let co = s[1].clone().floor_div(block);
            Expr::load(x, [&[s[0].clone(), co], &s[2..], &[lane]].concat())
        }
        _ => Expr::load(x, s),
    });
    let block = to.block().or(from.block()).unwrap_or(1);
    let mut kind = Kind::new("layout_transform")
        .arg("block", block)
        .arg("to_blocked", to.block().is_some());
    let names = ["n", "c"].map(String::from).into_iter();
    for (name, n) in names.chain(size_names(rank - 2)).zip(&shape) {
        kind = kind.arg(&name, *n);
    }
    Built {
        program: b.finish(&[result]),
        operands: vec![(v, from)],
        kind,
    }
}
