//! Random schedules of small programs: every nest split, permuted and given
//! random loop kinds, nests that go row by row put under one loop.

use crate::conv::conv;
use crate::hand::Hand;
use crate::judge::{code_after, outputs, run, values};
use crate::matmul::matmul;
use crate::tensors::{argmax, softmax};
use ir::{Annotation, Expr, IterKind, LoopKind, Node, Program, Role, Scope};
use lower::flat::text;
use rand::seq::{IndexedMutRandom, IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tensor::compare;

/// One loop of a nest: `stride` times its variable is a part of iteration
/// variable `iter`.
#[derive(Clone)]
struct Part {
    iter: usize,
    extent: i64,
    stride: i64,
    spatial: bool,
    kind: LoopKind,
    annotations: Vec<Annotation>,
}

/// The parts of one block's nest, outermost first; `row` is the extent of the
/// first iteration variable that a loop outside already runs over in steps.
fn parts(p: &Program, block: &str, row: Option<i64>, rng: &mut Pcg64Mcg) -> Vec<Part> {
    let iters = &p.block(p.block_named(block).unwrap()).iters;
    let mut out = Vec::new();
    for (iter, i) in iters.iter().enumerate() {
        let extent = if iter == 0 {
            row.unwrap_or(i.extent)
        } else {
            i.extent
        };
        let part = |extent, stride| Part {
            iter,
            extent,
            stride,
            spatial: i.kind == IterKind::Spatial,
            kind: LoopKind::Serial,
            annotations: vec![],
        };
        let factor = rng.random_range(1..=extent);
        if rng.random_bool(0.5) && factor > 1 {
            out.push(part((extent + factor - 1) / factor, factor));
            out.push(part(factor, 1));
        } else {
            out.push(part(extent, 1));
        }
    }
    out.shuffle(rng);
    let inner = out.len() - 1;
    let mut copies = 1;
    for (n, part) in out.iter_mut().enumerate() {
        let kind = match rng.random_range(0..4) {
            0 if n == 0 && part.spatial && row.is_none() => LoopKind::Parallel,
            _ if n == inner && part.spatial && rng.random_bool(0.7) => LoopKind::Vectorized,
            1 if copies * part.extent <= 24 => LoopKind::Unrolled,
            _ => LoopKind::Serial,
        };
        if kind == LoopKind::Unrolled {
            copies *= part.extent;
        }
        part.kind = kind;
        if kind == LoopKind::Serial && rng.random_bool(0.3) && copies * 3 <= 24 {
            copies *= 3;
            part.annotations.push(Annotation::UnrollBy(3));
        }
    }
    out
}

/// What a nest is built from, beside its loops.
struct Nest<'a> {
    block: &'a str,
    extents: Vec<i64>,
    /// Where the rows of this strip start, and how many they are.
    strip: Option<(Expr, i64)>,
}

fn nest(h: &mut Hand, block: &str, strip: Option<(Expr, i64)>, rng: &mut Pcg64Mcg) -> Node {
    let mut parts = parts(&h.p, block, strip.as_ref().map(|s| s.1), rng);
    for b in h.p.params.clone() {
        if h.p.buffer(b).role == Role::Input
            && rng.random_bool(0.3)
            && let Some(part) = parts.choose_mut(rng)
        {
            part.annotations.push(Annotation::Prefetch {
                buffer: b,
                distance: 2,
            });
        }
    }
    let iters = &h.p.block(h.p.block_named(block).unwrap()).iters;
    let extents: Vec<i64> = iters.iter().map(|i| i.extent).collect();
    let at = vec![Expr::int(0); extents.len()];
    build(
        h,
        &Nest {
            block,
            extents,
            strip,
        },
        &parts,
        at,
    )
}

fn build(h: &mut Hand, nest: &Nest<'_>, parts: &[Part], mut at: Vec<Expr>) -> Node {
    let Some((first, rest)) = parts.split_first() else {
        // Splits may reach beyond the domain, and beyond this strip.
        let mut conds = Vec::new();
        if let Some((start, rows)) = &nest.strip {
            conds.push(at[0].clone().lt(*rows));
            at[0] = start + &at[0];
        }
        conds.extend(at.iter().zip(&nest.extents).map(|(b, n)| b.clone().lt(*n)));
        let predicate = conds.into_iter().reduce(|a, b| a.and(b));
        return h.guarded(nest.block, &at, predicate, true);
    };
    let Part {
        iter,
        extent,
        stride,
        kind,
        annotations,
        ..
    } = first.clone();
    h.annotated(
        &format!("{}.{iter}", nest.block),
        extent,
        kind,
        annotations,
        |h, v| {
            at[iter] = &at[iter] + v * stride;
            vec![build(h, nest, rest, at)]
        },
    )
}

/// A random schedule; `by_rows`: every block runs over the same first variable
/// and reads only its own row of what the others compute.
fn schedule(raw: &Program, by_rows: bool, rng: &mut Pcg64Mcg) -> Program {
    let mut h = Hand::of(raw);
    for b in raw.live_buffers() {
        if raw.buffer(b).role == Role::Intermediate {
            let scopes = [Scope::Global, Scope::Local, Scope::Register];
            h.p.buffer_mut(b).scope = *scopes.choose(rng).unwrap();
        }
    }
    let blocks: Vec<String> = raw
        .block_ids()
        .iter()
        .map(|b| raw.block(*b).name.clone())
        .collect();
    if !by_rows || rng.random_bool(0.3) {
        let body = blocks.iter().map(|b| nest(&mut h, b, None, rng)).collect();
        return h.finish(body);
    }
    let rows = raw.block(raw.block_ids()[0]).iters[0].extent;
    let strip = rng.random_range(1..=rows);
    let kinds = [LoopKind::Serial, LoopKind::Parallel, LoopKind::Unrolled];
    let kind = *kinds.choose(rng).unwrap();
    let body = h.nest("strip", (rows + strip - 1) / strip, kind, |h, i| {
        let at = i * strip;
        blocks
            .iter()
            .map(|b| nest(h, b, Some((at.clone(), strip)), rng))
            .collect()
    });
    h.finish(vec![body])
}

fn fuzz(raw: &Program, by_rows: bool, tolerance: f64, rounds: u64) {
    let given = values(raw);
    let expected = crate::judge::interpreted(raw, &given);
    for seed in 0..rounds {
        let rng = &mut Pcg64Mcg::seed_from_u64(seed);
        let mut p = schedule(raw, by_rows, rng);
        if !ir::verify::verify(&p).is_empty() {
            // Worker-private memory on both sides of a parallel loop.
            for b in raw.live_buffers() {
                p.buffer_mut(b).scope = Scope::Global;
            }
        }
        let code = code_after(&p, None);
        let actual = run(&code, &given);
        for b in outputs(raw) {
            let want = &expected[&b];
            let d = compare(&actual[&b].clone().reshaped(want.shape()), want);
            assert!(
                d.within(tolerance),
                "seed {seed}: {d:?}\n{}",
                text::print(&code)
            );
        }
    }
}

#[test]
fn matmuls() {
    fuzz(&matmul(6, 8, 5), true, 0.0, 150);
    fuzz(&matmul(7, 5, 3), true, 0.0, 150);
}

#[test]
fn convolutions() {
    fuzz(&conv(4, 5), false, 0.0, 80);
}

#[test]
fn softmaxes() {
    fuzz(&softmax(6, 9), true, 1e-6, 150);
}

#[test]
fn tuple_reductions() {
    fuzz(&argmax(5, 6), true, 0.0, 150);
}
