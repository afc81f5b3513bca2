//! Random programs under random traces of schedule steps.

use crate::judge::{interpreted, outputs, target};
use ir::{BufferId, LoopId, LoopKind, Node, Program, Role, Scope};
use lower::flat::interpret::{Arguments, interpret_flat};
use lower::flat::text;
use lower::{LowerError, LowerOptions, PASSES, lower};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Arg, Factor, LoopArg, Step, Trace};
use std::collections::BTreeMap;
use tensor::{Tensor, compare};
use testkit::filtering::{agrees, filtering_trace, tolerances};
use testkit::{Kind, random_args, random_program};

/// Steps tried on one program; most random ones are refused.
const TRIES: usize = 40;

fn loop_name(p: &Program, rng: &mut Pcg64Mcg) -> Option<String> {
    let loops = p.loop_ids();
    Some(p.loop_(*loops.choose(rng)?).name.clone())
}

fn block_name(p: &Program, rng: &mut Pcg64Mcg) -> Option<String> {
    let blocks = p.block_ids();
    Some(p.block(*blocks.choose(rng)?).name.clone())
}

fn buffer_name(p: &Program, rng: &mut Pcg64Mcg) -> Option<String> {
    let buffers = p.live_buffers();
    Some(p.buffer(*buffers.choose(rng)?).name.clone())
}

/// The loop and those below it while each is the only child.
fn chain(p: &Program, from: LoopId) -> Vec<LoopId> {
    let mut out = vec![from];
    while let [Node::Loop(l)] = p.loop_(out[out.len() - 1]).body.as_slice() {
        out.push(*l);
    }
    out
}

fn scope(rng: &mut Pcg64Mcg) -> Scope {
    *[Scope::Global, Scope::Local, Scope::Register]
        .choose(rng)
        .expect("not empty")
}

fn random_step(p: &Program, rng: &mut Pcg64Mcg) -> Option<Step> {
    let loop_ = loop_name(p, rng)?;
    let at = || LoopArg::Name(loop_.clone());
    let chain = chain(p, p.loop_named(&loop_)?);
    let chain_names: Vec<String> = chain.iter().map(|l| p.loop_(*l).name.clone()).collect();
    Some(match rng.random_range(0..24) {
        0..4 => Step::Split {
            factors: vec![Factor::Rest, Factor::Arg(Arg::Lit(rng.random_range(2..6)))],
            loop_,
        },
        4 => Step::Fuse {
            outer: loop_,
            inner: chain_names.get(1)?.clone(),
        },
        5..7 => {
            let mut loops = chain_names;
            loops.shuffle(rng);
            Step::Reorder { loops }
        }
        7 => Step::Partition { loop_ },
        8 if p.loop_(chain[0]).extent <= 8 => Step::Unroll { loop_ },
        9..11 => Step::Vectorize {
            loop_: chain_names.last()?.clone(),
        },
        11 => Step::Parallel { loop_ },
        12..14 => Step::ComputeAt {
            block: block_name(p, rng)?,
            loop_: at(),
        },
        14 => Step::ReverseComputeAt {
            block: block_name(p, rng)?,
            loop_: at(),
        },
        15 => Step::ComputeInline {
            block: block_name(p, rng)?,
        },
        16 => Step::ReverseComputeInline {
            block: block_name(p, rng)?,
        },
        17 => {
            let block = block_name(p, rng)?;
            let reads = p.block(p.block_named(&block)?).reads();
            let buffer = p.buffer(*reads.choose(rng)?).name.clone();
            Step::CacheRead {
                block,
                buffer,
                scope: scope(rng),
            }
        }
        18 => Step::CacheWrite {
            block: block_name(p, rng)?,
            index: 0,
            scope: scope(rng),
        },
        19 => Step::SetScope {
            buffer: buffer_name(p, rng)?,
            scope: scope(rng),
        },
        20 => Step::Rfactor { loop_ },
        21 => Step::DecomposeReduction {
            block: block_name(p, rng)?,
            loop_,
        },
        22 => Step::Prefetch {
            buffer: buffer_name(p, rng)?,
            loop_,
            distance: Arg::Lit(2),
        },
        _ => Step::Annotate {
            loop_,
            unroll_by: Arg::Lit(rng.random_range(2..5)),
        },
    })
}

/// What became of one random program.
struct Tried {
    steps: usize,
    filtered: bool,
    lowered: bool,
    lanes: bool,
}

/// Every fourth program is of convolutions in f32, for filtering to fit some.
fn drawn(seed: u64) -> Program {
    let all = testkit::Distribution::all();
    let kinds = match seed % 4 {
        3 => vec![Kind::Conv, Kind::Elementwise],
        _ => all.kinds.clone(),
    };
    let options = testkit::Distribution {
        max_points: 3000,
        integers: seed % 4 != 3,
        kinds,
        ..all
    };
    random_program(seed, &options)
}

/// The error that each argument may have.
fn rounded(raw: &Program, trace: &Trace, args: &[Tensor]) -> BTreeMap<BufferId, f64> {
    let params = raw.params.iter().copied();
    params.zip(tolerances(raw, trace, args)).collect()
}

fn try_seed(seed: u64) -> Tried {
    let raw = drawn(seed);
    let rng = &mut Pcg64Mcg::seed_from_u64(seed ^ 0x5eed);
    let (trace, mut p) = filtering_trace(&raw, seed);
    let mut log = trace.to_string();
    let mut steps = trace.steps.len();
    let filtered = steps > 0;
    for _ in 0..TRIES {
        let Some(step) = random_step(&p, rng) else {
            continue;
        };
        if step.apply(&mut p, &[]).is_ok() {
            steps += 1;
            log = format!("{log}{step}\n");
        }
    }
    let lanes = p
        .loop_ids()
        .iter()
        .any(|l| p.loop_(*l).kind == LoopKind::Vectorized);
    let tried = |lowered| Tried {
        steps,
        filtered,
        lowered,
        lanes,
    };
    let limit = rng.random_range(0..=2 * PASSES.len());
    let options = LowerOptions {
        verify: true,
        stop_after: Some(limit),
        ..LowerOptions::standard()
    };
    let code = match lower(&p, &target(), &options) {
        Ok(code) => code,
        Err(LowerError::TooLarge { .. }) => return tried(false),
        Err(e) => panic!("seed {seed}: {e}\n{log}\n{}", ir::text::print(&p)),
    };
    let args = random_args(&raw, seed);
    let rounded = rounded(&raw, &trace, &args);
    let given: Arguments = raw
        .params
        .iter()
        .copied()
        .zip(args)
        .filter(|(b, _)| raw.buffer(*b).role != Role::Output)
        .collect();
    let expected = interpreted(&raw, &given);
    let mut actual = given.clone();
    let context = || format!("{log}\n{}\n{}", ir::text::print(&p), text::print(&code));
    // First the schedule's own judge, so that a wrong step is not taken for a wrong pass.
    let scheduled = interpreted(&p, &given);
    for b in outputs(&raw) {
        let d = compare(&scheduled[&b], &expected[&b]);
        assert!(
            d.within(1e-5) || agrees(&d, rounded[&b]),
            "seed {seed}: the schedule is wrong: {d:?}\n{}",
            context()
        );
    }
    if let Err(e) = interpret_flat(&code, &mut actual) {
        panic!("seed {seed}, {limit} passes: {e}\n{}", context());
    }
    for b in outputs(&raw) {
        let want = &expected[&b];
        let d = compare(&actual[&b].clone().reshaped(want.shape()), want);
        assert!(
            d.within(1e-5) || agrees(&d, rounded[&b]),
            "seed {seed}, {limit} passes: {d:?}\n{}",
            context()
        );
    }
    tried(true)
}

#[test]
fn random_traces_of_random_programs() {
    let tried: Vec<Tried> = (0..300).map(try_seed).collect();
    let lowered = tried.iter().filter(|t| t.lowered).count();
    let steps: usize = tried.iter().map(|t| t.steps).sum();
    let lanes = tried.iter().filter(|t| t.lanes && t.lowered).count();
    let filtered = tried.iter().filter(|t| t.filtered && t.lowered).count();
    assert!(
        lowered > 250 && steps > 1500 && lanes > 30 && filtered > 10,
        "{lowered} {steps} {lanes} {filtered}"
    );
}
