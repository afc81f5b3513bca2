//! Minimal filtering in random traces: where `winograd` may come first, and how
//! far outputs may then be from the exact ones.
//!
//! Up to `EXACT_SIZE` elements a tile, the matrices hold whole numbers and
//! halves, and [`crate::programs`] bounds the terms of convolutions so that all
//! sums are exact in f32 even so. Larger tiles divide by 3 and more; what they
//! round must not reach a comparison, an index or a clamp, which may make a
//! large difference of a small one, so they are for outputs that nothing reads.

use ir::{BlockId, Expr, IterKind, Program, UnaryOp, interpret};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Arg, Step, Trace, replay};
use tensor::{Difference, Tensor};

/// Elements of a tile along an axis, `tile + taps - 1`, that halves suffice for.
pub const EXACT_SIZE: i64 = 4;

/// How much larger than its result a sum in units of 1/4 can be in a tile of
/// `EXACT_SIZE`: absolute row sums of the matrices are at most 3 (outputs), 2
/// (data) and 3/2 (filter) along each of two axes, against 3 taps a sum.
pub const EXACT_GROWTH: i64 = 36;

/// The error that tiles may leave in an output, over the largest sum of the
/// magnitudes of its products: 256 roundings of f32.
const ROUNDED: f64 = 1.0 / (1u64 << 16) as f64;

/// Tiles tried on a block.
const TILES: [i64; 6] = [2, 2, 2, 3, 4, 6];

/// Tries the steps that begin a trace: `winograd` on some of the blocks that
/// could be convolutions.
pub(crate) fn steps(
    program: &Program,
    rng: &mut Pcg64Mcg,
    step: &mut dyn FnMut(Step) -> Option<()>,
) {
    for b in program.block_ids() {
        if !sums_over_axes(program, b) || !rng.random_bool(0.8) {
            continue;
        }
        let block = &program.block(b).name;
        let mut tiles = TILES.to_vec();
        if !program
            .consumers(program.block(b).writes[0].buffer)
            .is_empty()
        {
            tiles.retain(|t| !rounds(program, block, *t));
        }
        if let Some(tile) = tiles.choose(rng) {
            let _either_way: Option<()> = step(winograd(block, *tile));
        }
    }
}

/// A trace of `winograd` steps only, perhaps of none.
pub fn filtering_trace(program: &Program, seed: u64) -> (Trace, Program) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (mut trace, mut p) = (Trace::default(), program.clone());
    steps(program, &mut rng, &mut |step| {
        step.apply(&mut p, &[]).ok()?;
        trace.steps.push(step);
        Some(())
    });
    (trace, p)
}

fn winograd(block: &str, tile: i64) -> Step {
    Step::Winograd {
        block: block.into(),
        tile: Arg::Lit(tile),
    }
}

/// Whether a block sums products over two axes or more.
fn sums_over_axes(p: &Program, b: BlockId) -> bool {
    let block = p.block(b);
    let terms = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
    block.is_reduction() && block.writes.len() == 1 && terms.count() >= 2
}

/// Whether a tile is legal and larger than `EXACT_SIZE`.
fn rounds(p: &Program, block: &str, tile: i64) -> bool {
    let mut filtered = p.clone();
    let result = winograd(block, tile).apply(&mut filtered, &[]);
    result.is_ok() && filtered_size(&filtered, block) > EXACT_SIZE
}

/// Elements along the larger axis of the tiles of a block that was filtered.
fn filtered_size(p: &Program, block: &str) -> i64 {
    let weights = format!("{block}.u");
    // The first of its blocks; a number follows where the name was taken.
    let first = p
        .block_ids()
        .into_iter()
        .map(|b| p.block(b))
        .find(|b| b.name == weights || b.name.starts_with(&format!("{weights}_")));
    let sizes = first.expect("the step makes a block of transformed weights");
    let sizes = sizes.iters[..2].iter().map(|i| i.extent);
    sizes.max().expect("there are two axes")
}

/// For each argument, the largest error that the trace explains: 0 but for
/// outputs that tiles round. `args` are the arguments before the run.
///
/// # Panics
/// If the trace or the program does not run.
pub fn tolerances(program: &Program, trace: &Trace, args: &[Tensor]) -> Vec<f64> {
    let mut tolerances = vec![0.0; args.len()];
    for (n, step) in trace.steps.iter().enumerate() {
        let Step::Winograd { block, .. } = step else {
            continue;
        };
        let until = Trace {
            steps: trace.steps[..=n].to_vec(),
            decisions: trace.decisions.clone(),
        };
        let filtered = replay(program, &until).expect("the trace is legal");
        if filtered_size(&filtered, block) <= EXACT_SIZE {
            continue;
        }
        let b = program.block_named(block).expect("the trace is legal");
        let written = program.block(b).writes[0].buffer;
        let param = program.params.iter().position(|p| *p == written);
        let param = param.expect("only outputs are rounded");
        tolerances[param] = ROUNDED * magnitude(program, b, param, args);
    }
    tolerances
}

/// The largest sum of the magnitudes of a block's terms.
fn magnitude(program: &Program, b: BlockId, param: usize, args: &[Tensor]) -> f64 {
    let mut positive = program.clone();
    let write = &mut positive.block_mut(b).writes[0];
    write.value = Expr::unary(UnaryOp::Abs, write.value.clone());
    let mut sums = args.to_vec();
    interpret::run(&positive, &mut sums).expect("random programs run");
    let sums = &sums[param];
    (0..sums.len()).fold(0.0, |most, i| sums.get_f64(i).max(most))
}

/// Whether a difference is within what [`tolerances`] allows its argument.
pub fn agrees(d: &Difference, tolerance: f64) -> bool {
    d.non_finite == 0 && d.max_abs <= tolerance
}
