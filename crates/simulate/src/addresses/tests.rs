//! Straight loops against a walk of all iterations.

#[allow(dead_code, reason = "a part of what other tests use")]
#[path = "../../../analysis/tests/support/mod.rs"]
mod programs;

use super::*;
use crate::cache::{CacheSetting, LevelCounts};
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
];

fn plain(nodes: &mut [Node]) {
    for n in nodes {
        match n {
            Node::Loop { body, straight, .. } => {
                *straight = None;
                plain(body);
            }
            Node::If {
                then, otherwise, ..
            } => {
                plain(then);
                plain(otherwise);
            }
            Node::Touch(_) | Node::Lanes(_) => {}
        }
    }
}

fn has_straight(nodes: &[Node]) -> bool {
    nodes.iter().any(|n| match n {
        Node::Loop { body, straight, .. } => straight.is_some() || has_straight(body),
        Node::If {
            then, otherwise, ..
        } => has_straight(then) || has_straight(otherwise),
        Node::Touch(_) | Node::Lanes(_) => false,
    })
}

/// With levels that are not inclusive, and with inclusive ones.
fn counted(addresses: &Addresses, setting: &CacheSetting) -> Vec<Vec<LevelCounts>> {
    let counts = |inclusive| {
        let mut caches = Caches::new(&CacheSetting {
            inclusive,
            ..setting.clone()
        });
        addresses.run(&mut caches);
        [&caches.first()[..], &caches.shared()].concat()
    };
    [false, true].map(counts).to_vec()
}

#[test]
fn straight_loops_access_what_a_walk_of_all_iterations_does() {
    // Few sets, so that lines are replaced.
    let mut setting = cpus().remove(0).caches;
    (setting.l1d.sets, setting.l1d.ways) = (4, 2);
    let mut kernels = 0;
    for target in [Isa::X86Sse2, Isa::X86Avx2].map(Target::generic) {
        let mut programs = vec![product(7, 33, 19), convolution(5, 7, 13)];
        programs.extend(OPERATORS.iter().flat_map(|spec| operator(spec, &target)));
        for program in &programs {
            for trace in traces(program, &target, 1) {
                let scheduled = schedule::replay(program, &trace).expect("a legal trace");
                let (code, _) = compiled(&scheduled, &target);
                let made = (0..code.accesses.len()).map(|id| {
                    let (instructions, hoisted) = (1 + (id % 2) as u32, (id % 3 / 2) as u32);
                    let made = Made {
                        instructions,
                        hoisted,
                    };
                    (id as AccessId, made)
                });
                let made: HashMap<AccessId, Made> = made.collect();
                let mut addresses = Addresses::of(&code, &made).expect("no data decide");
                kernels += usize::from(has_straight(&addresses.nodes));
                let straight = counted(&addresses, &setting);
                plain(&mut addresses.nodes);
                let all = counted(&addresses, &setting);
                assert_eq!(straight, all, "{}", program.name);
            }
        }
    }
    assert!(kernels >= 40, "{kernels} kernels have such loops");
}
