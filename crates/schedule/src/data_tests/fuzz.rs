//! Random sequences of the steps: each is refused without a trace, or leaves a
//! well-formed program that computes the same.

use super::programs::{argmax, matmul, padded_conv, softmax, split, stencils, transposes};
use super::{Expected, check};
use crate::illegal::Illegal;
use crate::steps::{
    cache_read, cache_write, compute_at, compute_inline, pack, reverse_compute_at,
    reverse_compute_inline, rfactor,
};
use ir::{LoopId, Node, Program, Scope};

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
    match draw.below(12) {
        0 | 1 => {
            let inner = [2, 3, 4][draw.below(3)];
            let result = match p.loop_named(&format!("{l}.0")) {
                Some(_) => Err(Illegal::new("split", &l, "its parts' names are taken")),
                None => Ok(split(p, &l, inner)),
            };
            (format!("split {l} {inner}"), result)
        }
        2 | 3 => (
            format!("compute_at {block} {l}"),
            compute_at::apply(p, &block, &l),
        ),
        4 | 5 => (
            format!("reverse_compute_at {block} {l}"),
            reverse_compute_at::apply(p, &block, &l),
        ),
        6 => (
            format!("compute_inline {block}"),
            compute_inline::apply(p, &block),
        ),
        7 => (
            format!("reverse_compute_inline {block}"),
            reverse_compute_inline::apply(p, &block),
        ),
        8 => (
            format!("cache_read {block} {buffer}"),
            cache_read::apply(p, &block, &buffer, Scope::Local),
        ),
        9 => (
            format!("cache_write {block}"),
            cache_write::apply(p, &block, 0, Scope::Local),
        ),
        10 => (format!("rfactor {l}"), rfactor::apply(p, &l)),
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
    (text, pack::apply(p, buffer, &tiles, &order))
}

/// Swaps two loops that are each other's only child, outside reductions: the
/// first instance of a reduction must stay first, which every order of whole
/// loops keeps.
fn swap(p: &mut Program, draw: &mut Draw) {
    let nested: Vec<(LoopId, LoopId)> = p
        .loop_ids()
        .into_iter()
        .filter_map(|l| match p.children(Some(l)) {
            [Node::Loop(inner)] => Some((l, *inner)),
            _ => None,
        })
        .collect();
    if nested.is_empty() {
        return;
    }
    let (outer, inner) = draw.of(&nested);
    let body = p.loop_(inner).body.clone();
    if p.blocks_under(&body).len() != 1 {
        return;
    }
    p.replace_node(Node::Loop(outer), &[Node::Loop(inner)]);
    p.loop_mut(inner).body = vec![Node::Loop(outer)];
    p.loop_mut(outer).body = body;
}

#[test]
fn random_sequences_keep_what_a_program_computes() {
    let programs = [padded_conv, matmul, softmax, argmax, stencils, transposes];
    let mut applied = 0;
    for (i, program) in programs.into_iter().enumerate() {
        let expected = Expected::of(&program());
        for seed in 0..150 {
            let mut draw = Draw((i * 1000 + seed) as u64);
            let mut p = program();
            let mut log = Vec::new();
            for _ in 0..12 {
                if draw.below(3) == 0 {
                    swap(&mut p, &mut draw);
                }
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
