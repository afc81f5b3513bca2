//! Random sequences of the steps: each is refused without a trace, or leaves a
//! well-formed program that computes the same.

use super::programs::{
    argmax, matmul, padded_conv, pooling, residual, softmax, stencils, transposes,
};
use super::{Expected, check};
use crate::illegal::Illegal;
use crate::steps::{
    cache_read, cache_write, compute_at, compute_inline, decompose_reduction, fuse, pack, parallel,
    partition, reorder, reverse_compute_at, reverse_compute_inline, rfactor, split, vectorize,
};
use ir::{Node, Program, Scope};

/// A 64-bit linear congruential generator (Knuth's MMIX constants).
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Tries one random step; its text, and what came of it.
fn attempt(p: &mut Program, draw: &mut Draw) -> (String, Result<(), Illegal>) {
    let blocks: Vec<String> = p
        .block_ids()
        .iter()
        .map(|b| p.block(*b).name.clone())
        .collect();
    let loops: Vec<String> = p
        .loop_ids()
        .iter()
        .map(|l| p.loop_(*l).name.clone())
        .collect();
    let buffers = p.live_buffers();
    let buffers: Vec<String> = buffers.iter().map(|b| p.buffer(*b).name.clone()).collect();
    let (block, l, buffer) = (draw.of(&blocks), draw.of(&loops), draw.of(&buffers));
    match draw.below(16) {
        0 => {
            let inner = [2, 3, 4][draw.below(3)];
            let result = split::apply(p, &l, &[None, Some(inner)]).map(drop);
            (format!("split {l} {inner}"), result)
        }
        1..=3 => random_loop_step(p, &l, &block, draw),
        4 | 5 => (
            format!("compute_at {block} {l}"),
            compute_at::apply(p, &block, &l),
        ),
        6..=8 => (
            format!("reverse_compute_at {block} {l}"),
            reverse_compute_at::apply(p, &block, &l),
        ),
        9 => (
            format!("compute_inline {block}"),
            compute_inline::apply(p, &block),
        ),
        10 => (
            format!("reverse_compute_inline {block}"),
            reverse_compute_inline::apply(p, &block),
        ),
        11 => (
            format!("cache_read {block} {buffer}"),
            cache_read::apply(p, &block, &buffer, Scope::Local).map(drop),
        ),
        12 => (
            format!("cache_write {block}"),
            cache_write::apply(p, &block, 0, Scope::Local).map(drop),
        ),
        13 | 14 => (format!("rfactor {l}"), rfactor::apply(p, &l).map(drop)),
        _ => random_pack(p, &buffer, draw),
    }
}

fn random_pack(p: &mut Program, buffer: &str, draw: &mut Draw) -> (String, Result<(), Illegal>) {
    let b = p.buffer_named(buffer).expect("drawn from the live ones");
    let rank = p.buffer(b).shape.len();
    let tiles = vec![(draw.below(rank), [2, 3][draw.below(2)])];
    let mut order: Vec<usize> = (0..=rank).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw.below(i + 1));
    }
    let text = format!("pack {buffer} {tiles:?} {order:?}");
    (text, pack::apply(p, buffer, &tiles, &order).map(drop))
}

fn random_loop_step(
    p: &mut Program,
    l: &str,
    block: &str,
    draw: &mut Draw,
) -> (String, Result<(), Illegal>) {
    let id = p.loop_named(l).expect("drawn from the body");
    let inner = match p.children(Some(id)) {
        [Node::Loop(inner)] => p.loop_(*inner).name.clone(),
        _ => l.to_string(),
    };
    match draw.below(7) {
        0 => (
            format!("fuse {l} {inner}"),
            fuse::apply(p, l, &inner).map(drop),
        ),
        1 | 2 => (
            format!("reorder {inner} {l}"),
            reorder::apply(p, &[inner, l.to_string()]),
        ),
        3 => (format!("parallel {l}"), parallel::apply(p, l)),
        4 => (format!("vectorize {l}"), vectorize::apply(p, l)),
        5 => (format!("partition {l}"), partition::apply(p, l)),
        _ => (
            format!("decompose_reduction {block} {l}"),
            decompose_reduction::apply(p, block, l).map(drop),
        ),
    }
}

#[test]
fn random_sequences_keep_what_a_program_computes() {
    let programs = [
        residual,
        pooling,
        padded_conv,
        matmul,
        softmax,
        argmax,
        stencils,
        transposes,
    ];
    let mut applied = 0;
    for (i, program) in programs.into_iter().enumerate() {
        let expected = Expected::of(&program());
        for seed in 0..150 {
            let mut draw = Draw((i * 1000 + seed) as u64);
            let mut p = program();
            let mut log = Vec::new();
            for _ in 0..12 {
                let before = p.clone();
                let (step, result) = attempt(&mut p, &mut draw);
                match result {
                    Ok(()) => {
                        log.push(step);
                        applied += 1;
                        check(&p, &expected, &log.join("; "));
                    }
                    Err(_) => assert_eq!(p, before, "{step} changed what it refused"),
                }
            }
        }
    }
    assert!(applied > 3000, "only {applied} steps were legal");
}
