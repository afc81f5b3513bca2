//! Random arguments: small whole numbers, so that sums and products are exact
//! in every element type, and index data that stays inside what it indexes.

use ir::affine::{Ranges, bounds};
use ir::{BufferId, DType, Expr, ExprKind, Program, Role, VarId};
use tensor::{Fill, Tensor, fill_tensor};

/// Values are in `-SMALL..=SMALL`, or `0..=SMALL` where the type has no sign.
pub const SMALL: i64 = 4;

/// What output arguments hold before a run.
pub const UNWRITTEN: i64 = 77;

/// One dense tensor for each parameter, in argument order. Integer parameters
/// that index other buffers hold values in range; outputs hold `UNWRITTEN`
/// (1 if bool), which no test may find in them by accident of zeroed memory.
///
/// # Panics
/// If an extent is negative; the verifier refuses such programs.
pub fn random_args(program: &Program, seed: u64) -> Vec<Tensor> {
    let arg = |(i, id): (usize, &BufferId)| {
        let b = program.buffer(*id);
        let extent = |e: &i64| usize::try_from(*e).expect("extents are positive");
        let shape: Vec<usize> = b.shape.iter().map(extent).collect();
        let (lo, hi) = match (b.role, b.dtype) {
            (Role::Output, _) => (UNWRITTEN, UNWRITTEN),
            (_, DType::Bool) => (0, 1),
            (_, d) => match index_limit(program, *id) {
                Some(hi) => (0, hi.min(most(d))),
                None => (if d.is_signed() { -SMALL } else { 0 }, SMALL),
            },
        };
        let seed = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(i as u64);
        fill_tensor(b.dtype, &shape, Fill::Integers { lo, hi }, seed)
    };
    program.params.iter().enumerate().map(arg).collect()
}

/// The largest value that a type of index data holds, up to i32.
fn most(dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i64::from(i8::MAX),
        DType::U8 => i64::from(u8::MAX),
        _ => i64::from(i32::MAX),
    }
}

/// The largest value that every index which loads from `data` bears; `None`
/// if none does, or all bear `-SMALL..=SMALL`.
fn index_limit(program: &Program, data: BufferId) -> Option<i64> {
    let mut limit: Option<i64> = None;
    for id in program.block_ids() {
        let block = program.block(id);
        let mut ranges = Ranges::new();
        let points = block
            .tensor
            .iter()
            .flat_map(|t| t.iters.iter().map(|i| (i.0, i.1)));
        for (v, extent) in block.iters.iter().map(|i| (i.var, i.extent)).chain(points) {
            ranges.set(v, 0, extent - 1);
        }
        for (buffer, indices) in block.loads() {
            for (index, extent) in indices.iter().zip(&program.buffer(buffer).shape) {
                if index.any(&|e| matches!(e.kind(), ExprKind::Load(b, _) if *b == data)) {
                    let own = largest(program, index, *extent, &ranges, data);
                    limit = match (limit, own) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
            }
        }
    }
    limit
}

/// The largest value of `data`'s elements, by halving, for which `index` is
/// below `extent`; `None` if all small values will do.
fn largest(
    program: &Program,
    index: &Expr,
    extent: i64,
    ranges: &Ranges,
    data: BufferId,
) -> Option<i64> {
    // Stands for any element of `data`; no variable of the program has this id.
    let element = VarId(program.var_count() as u32);
    let symbolic = index.rewrite(&mut |e| match e.kind() {
        ExprKind::Load(b, _) if *b == data => Some(Expr::var(element)),
        ExprKind::Cast(d, a) if d.is_int() => Some(a.clone()),
        _ => None,
    });
    let holds = |lo: i64, hi: i64| {
        let mut ranges = ranges.clone();
        ranges.set(element, lo, hi);
        bounds(&symbolic, &ranges).is_some_and(|i| i.lo >= 0 && i.hi < extent)
    };
    if holds(-SMALL, SMALL) {
        return None;
    }
    let mut hi = extent - 1;
    while hi > 0 && !holds(0, hi) {
        hi /= 2;
    }
    Some(hi)
}
