//! Straight loops against a walk of all iterations.

#[allow(dead_code, reason = "a part of what other tests use")]
#[path = "../../../analysis/tests/support/mod.rs"]
mod programs;

use super::*;
use crate::cache::{CacheSetting, Geometry, LevelCounts};
use crate::cpus;
use ir::{Isa, Target};
use programs::{compiled, convolution, operator, product, traces};

/// Windows over borders, odd widths, gathers, and copies between layouts.
const OPERATORS: &[&str] = &[
    "op:depthwise_conv2d(c=5,h=13,w=11,r=5,s=5)",
    "op:conv2d_transpose(c=6,h=5,w=7,k=9,stride=2)",
    "op:max_pool3d(c=3,d=5,h=9,w=13)",
    "op:resize2d(c=3,h=7,w=9,to_h=13,to_w=17)",
    "op:correlation(c=9,h=7,w=9)",
    "op:softmax(rows=7,cols=197)",
    "op:group_norm(c=12,h=5,w=7,groups=3)",
    "op:conv2d(c=7,h=19,w=19,k=9,r=7,s=7,stride=2,pad=3)",
    "op:gather(table=127,rows=37,cols=61)",
    "op:scatter_add(table=131,rows=301,cols=37)",
];

fn each_loop(nodes: &mut [Node], change: &mut impl FnMut(&mut Option<Straight>)) {
    for n in nodes {
        match n {
            Node::Loop { body, straight, .. } => {
                change(straight);
                each_loop(body, change);
            }
            Node::If {
                then, otherwise, ..
            } => {
                each_loop(then, change);
                each_loop(otherwise, change);
            }
            Node::Check(..) | Node::Touch(_) | Node::Lanes(_) => {}
        }
    }
}

fn has_straight(nodes: &[Node]) -> bool {
    nodes.iter().any(|n| match n {
        Node::Loop { body, straight, .. } => straight.is_some() || has_straight(body),
        Node::If {
            then, otherwise, ..
        } => has_straight(then) || has_straight(otherwise),
        Node::Check(..) | Node::Touch(_) | Node::Lanes(_) => false,
    })
}

/// With levels that are not inclusive, and with inclusive ones.
fn counted(addresses: &Addresses, setting: &CacheSetting) -> Vec<Vec<LevelCounts>> {
    let counts = |inclusive| {
        let mut caches = Caches::new(&CacheSetting {
            inclusive,
            ..setting.clone()
        });
        addresses.run(&mut caches).expect("all is in bounds");
        [&caches.first()[..], &caches.shared()].concat()
    };
    [false, true].map(counts).to_vec()
}

/// All accesses, each with its instructions and the loops that it was moved out of.
fn all_made(code: &Code, of: impl Fn(u32) -> (u32, u32)) -> HashMap<AccessId, Made> {
    let made = (0..code.accesses.len() as AccessId).map(|id| {
        let (instructions, hoisted) = of(id);
        let made = Made {
            instructions,
            hoisted,
        };
        (id, made)
    });
    made.collect()
}

/// What the defaults of an operator's sketches access, or why nobody knows.
fn followed(spec: &str) -> Vec<Result<u64, NotFollowed>> {
    let target = Target::generic(Isa::X86Avx2);
    let setting = cpus().remove(0).caches;
    let mut all = vec![];
    for program in operator(spec, &target) {
        for trace in traces(&program, &target, 0) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            let (code, _) = compiled(&scheduled, &target);
            let mut caches = Caches::new(&setting);
            let addresses = Addresses::of(&code, &all_made(&code, |_| (1, 0)), &Frame::default());
            let ran = addresses.and_then(|a| a.run(&mut caches));
            let misses = |l: &LevelCounts| l.read.misses + l.write.misses;
            all.push(ran.map(|()| misses(&caches.first()[0])));
        }
    }
    all
}

#[test]
fn indices_have_the_values_that_executables_are_filled_with() {
    // Of a larger table, 127 rows of one line are read: each index is 0 to 126. The others are lines of the result, and
    // of the indices.
    for misses in followed("op:gather(table=1000,rows=127,cols=16)") {
        let misses = misses.expect("the indices are inside");
        assert!((2 * 127..2 * 127 + 32).contains(&misses), "{misses}");
    }
}

#[test]
fn an_index_that_is_out_of_bounds_is_said() {
    let all = followed("op:gather(table=126,rows=200,cols=16)");
    assert!(!all.is_empty());
    for ran in all {
        let buffer = "I".to_string();
        assert_eq!(ran, Err(NotFollowed::OutOfBounds { buffer }));
    }
    // With so few indices, none is outside.
    assert!(
        followed("op:gather(table=126,rows=64,cols=16)")
            .iter()
            .all(Result::is_ok)
    );
}

#[test]
fn floats_that_decide_addresses_are_refused() {
    let all = followed("op:top_k(rows=3,cols=37,k=4)");
    let refused =
        |r: &Result<u64, NotFollowed>| matches!(r, Err(NotFollowed::DependsOnData { .. }));
    assert!(all.iter().any(refused), "{all:?}");
}

#[test]
fn straight_loops_access_what_a_walk_of_all_iterations_does() {
    // Few sets and few ways, so that lines are replaced, and as many as processors have.
    let first_levels = [(4, 2), (5, 3), (64, 8)].map(|(sets, ways)| {
        let mut setting = cpus().remove(0).caches;
        setting.l1d = Geometry { sets, ways };
        setting
    });
    let mut kernels = 0;
    for target in [Isa::X86Sse2, Isa::X86Avx2].map(Target::generic) {
        let mut programs = vec![product(7, 33, 19), convolution(5, 7, 13)];
        programs.extend(OPERATORS.iter().flat_map(|spec| operator(spec, &target)));
        for program in &programs {
            for trace in traces(program, &target, 1) {
                let scheduled = schedule::replay(program, &trace).expect("a legal trace");
                let (code, _) = compiled(&scheduled, &target);
                let made = all_made(&code, |id| (1 + id % 2, id % 3 / 2));
                let mut addresses =
                    Addresses::of(&code, &made, &Frame::default()).expect("they are followed");
                kernels += usize::from(has_straight(&addresses.nodes));
                let counts = |a: &Addresses| first_levels.each_ref().map(|l| counted(a, l));
                let straight = counts(&addresses);
                each_loop(&mut addresses.nodes, &mut |s| {
                    s.iter_mut().for_each(|s| s.cases = 1);
                });
                assert_eq!(straight, counts(&addresses), "{}", program.name);
                each_loop(&mut addresses.nodes, &mut |s| *s = None);
                assert_eq!(straight, counts(&addresses), "{}", program.name);
            }
        }
    }
    assert!(kernels >= 40, "{kernels} kernels have such loops");
}

#[test]
fn rows_that_are_transposed_in_registers_bring_each_line_about_once() {
    let target = Target::generic(Isa::X86Avx2);
    let setting = cpus().remove(0).caches;
    let mut kernels = 0;
    // The first task brings the image into blocks of channels.
    for program in &operator("op:grouped_conv2d(c=24,h=53,w=53,k=24,groups=6)", &target)[..1] {
        for trace in traces(program, &target, 0) {
            let scheduled = schedule::replay(program, &trace).expect("a legal trace");
            let (code, object) = compiled(&scheduled, &target);
            let analysis = programs::analysed(&code, &object, &target, "kernel");
            let decoder = llvm::Decoder::new(&target).expect("a known target");
            let functions = decoder.functions(&object).expect("the object is read");
            let kernel = crate::Kernel {
                code: &code,
                functions: &functions,
                analysis: &analysis,
            };
            let counted = crate::simulate(kernel, &setting, None).expect("it is followed");
            // 24 maps of 53 x 53 elements of 4 bytes, and as many of the result.
            let lines = 24 * 53 * 53 * 4 / LINE;
            let misses = counted.l1d.read.misses;
            assert!(
                (lines..lines * 4 / 3).contains(&misses),
                "{misses} of {lines}"
            );
            kernels += 1;
        }
    }
    assert!(kernels >= 2, "{kernels} kernels");
}
