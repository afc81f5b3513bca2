//! Loads whose lanes lie in a pattern: compiled code against the interpreter, up
//! to the ends of guarded buffers, and the instructions that such loads become.

mod support;

use ir::{BufferId, DType, Expr, Isa, Target, VarId};
use llvm::{Compiler, Emit};
use lower::flat::interpret::{Arguments, interpret_flat};
use lower::flat::{BufferPlace, Lane, Stmt, Store};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::host_targets;

const DTYPES: [DType; 6] = [
    DType::F32,
    DType::F64,
    DType::I32,
    DType::I8,
    DType::U8,
    DType::Bool,
];

/// Iterations of the loop round the lanes.
const ROWS: i64 = 3;

/// The lane as a random function, with its value in every lane.
fn distances(lane: Lane, rng: &mut Pcg64Mcg) -> (Expr, Vec<i64>) {
    let l = Expr::var(lane.var);
    let (part, each, apart) = (
        1 << rng.random_range(0..4),
        rng.random_range(-5..=8),
        rng.random_range(-4..=9),
    );
    let all = 0..i64::from(lane.lanes);
    match rng.random_range(0..4) {
        0 => (l * each, all.map(|i| i * each).collect()),
        1 => (
            l.floor_div(part) * each,
            all.map(|i| i / part * each).collect(),
        ),
        2 => (
            l.floor_mod(part) * each,
            all.map(|i| i % part * each).collect(),
        ),
        _ => (
            l.clone().floor_div(part) * each + l.floor_mod(part) * apart,
            all.map(|i| i / part * each + i % part * apart).collect(),
        ),
    }
}

/// A store by the lanes where a condition holds.
fn masked(s: Stmt, mask: Option<Expr>) -> Stmt {
    match s {
        Stmt::Store(s) => Stmt::Store(Store { mask, ..s }),
        other => other,
    }
}

/// Which lanes load.
#[derive(Clone, Copy)]
enum Guard {
    None,
    /// The lanes below this store.
    Mask(i64),
    /// The lanes from this on load, the others have a constant.
    Select(i64),
    /// As `Select`, of the lane and the row.
    Crossing(i64),
}

impl Guard {
    fn random(lanes: i64, rng: &mut Pcg64Mcg) -> Guard {
        let some = rng.random_range(1..lanes);
        match rng.random_range(0..6) {
            0 => Guard::Mask(some),
            1 => Guard::Select(some),
            2 => Guard::Crossing(some),
            _ => Guard::None,
        }
    }

    fn loads(self, row: i64, lane: i64) -> bool {
        match self {
            Guard::None => true,
            Guard::Mask(n) => lane < n,
            Guard::Select(n) => lane >= n,
            Guard::Crossing(n) => lane + row >= n,
        }
    }
}

/// y[row, lane] = x[first + row * apart + f(lane)] + x[the same + further]. The last
/// element that is loaded is the last of x, and the bytes of x are a multiple of
/// 64, so that they end at a guard. Few elements lie before the first one loaded.
fn random_code(dtype: DType, lanes: u32, rng: &mut Pcg64Mcg) -> (Flat, BufferId, BufferId) {
    let mut f = Flat::new();
    let (row, l) = (f.var(), f.var());
    // Without ranges nothing is known to be readable beside the lanes' own elements.
    if rng.random_bool(0.5) {
        f.ranges.set_extent(row, ROWS);
    }
    let lane = Lane { var: l, lanes };
    let (function, distances) = distances(lane, rng);
    let guard = Guard::random(i64::from(lanes), rng);
    let (apart, further) = (rng.random_range(0..40), rng.random_range(0..4));
    let loaded: Vec<i64> = (0..ROWS)
        .flat_map(|r| (0..).zip(&distances).map(move |(i, d)| (r, i, d)))
        .filter(|(r, i, _)| guard.loads(*r, *i))
        .flat_map(|(r, _, d)| [r * apart + d, r * apart + d + further])
        .collect();
    let (low, high) = (loaded.iter().min().unwrap(), loaded.iter().max().unwrap());
    let size = high - low + 1;
    let elements = (size as u64).next_multiple_of(64 / dtype.size() as u64) as i64;
    let x = f.buffer(dtype, elements, BufferPlace::Input);
    let y = f.buffer(dtype, ROWS * i64::from(lanes), BufferPlace::Output);
    let v = Expr::var;
    let at = v(row) * apart + function + (elements - size - low);
    let (one, other) = (Expr::load(x, [at.clone()]), Expr::load(x, [at + further]));
    let value = match dtype {
        DType::Bool => one.and(other),
        _ => one + other,
    };
    let constant = Expr::constant(1.0, dtype);
    let (value, mask) = match guard {
        Guard::None => (value, None),
        Guard::Mask(n) => (value, Some(v(l).lt(n))),
        Guard::Select(n) => (Expr::select(Expr::int(n).le(v(l)), value, constant), None),
        Guard::Crossing(n) => {
            let inside = Expr::int(n).le(v(l) + v(row));
            (Expr::select(inside, value, constant), None)
        }
    };
    let to = v(row) * i64::from(lanes) + v(l);
    let s = masked(f.store(y, to, value, Some(lane)), mask);
    f.code.kernel = vec![f.loop_(row, ROWS, false, vec![s])];
    (f, x, y)
}

#[test]
fn random_patterns_load_what_the_interpreter_does() {
    let targets = host_targets();
    for seed in 0..300 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let dtype = DTYPES[rng.random_range(0..DTYPES.len())];
        let lanes = 1 << rng.random_range(1..6);
        let (f, x, y) = random_code(dtype, lanes, &mut rng);
        let elements = |b: BufferId| [f.code.buffers[b.index()].elements as usize];
        let values = match dtype {
            DType::Bool => Fill::Integers { lo: 0, hi: 1 },
            _ => Fill::Integers { lo: 1, hi: 50 },
        };
        let given = fill_tensor(dtype, &elements(x), values, seed);
        let mut arguments: Arguments = [(x, given.clone())].into();
        let text = lower::flat::text::print(&f.code);
        interpret_flat(&f.code, &mut arguments).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
        for target in &targets {
            let mut args = [given.clone(), Tensor::zeros(dtype, &elements(y))];
            assert_eq!(f.run(target, &mut args), 0);
            assert_eq!(
                args[1],
                arguments[&y],
                "{seed} on {}\n{text}",
                target.name()
            );
        }
    }
}

/// The LLVM IR of a row of 16 lanes that loads at each of the offsets.
fn code_of(target: &Target, offsets: &dyn Fn(Expr) -> Vec<Expr>, mask: Option<i64>) -> String {
    let mut f = Flat::new();
    let (row, l) = (f.var(), f.var());
    f.ranges.set_extent(row, 4);
    let x = f.buffer(DType::F32, 4 * 64, BufferPlace::Input);
    let y = f.buffer(DType::F32, 4 * 16, BufferPlace::Output);
    let v = |v: VarId| Expr::var(v);
    let loads = offsets(v(l)).into_iter();
    let value = loads.map(|at| Expr::load(x, [v(row) * 64 + at]));
    let value = value.reduce(|a, b| a + b).expect("some loads");
    let lane = Some(Lane { var: l, lanes: 16 });
    let mask = mask.map(|n| v(l).lt(v(row) + n));
    let s = masked(f.store(y, v(row) * 16 + v(l), value, lane), mask);
    f.code.kernel = vec![f.loop_(row, 4, false, vec![s])];
    let emit = Emit {
        llvm_ir: true,
        ..Emit::default()
    };
    let compiler = Compiler::new(target).expect("a known target");
    let compiled = compiler.compile(&f.code, emit).expect("compiles");
    compiled.llvm_ir.expect("asked for")
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|l| l.contains(what)).count()
}

#[test]
fn patterns_take_as_few_loads_as_their_span() {
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        let Target::Cpu(cpu) = &target;
        let width = cpu.vector_bits as usize / 32;
        if width == 0 {
            continue;
        }
        let check = |offsets: &dyn Fn(Expr) -> Vec<Expr>, span: usize, mask: Option<i64>| {
            let text = code_of(&target, offsets, mask);
            let loads = count(&text, "= load <");
            assert_eq!(loads, span.div_ceil(width), "{isa:?}\n{text}");
            assert_eq!(count(&text, "= load float"), 0, "{isa:?}\n{text}");
            assert_eq!(count(&text, "@llvm.masked.gather"), 0, "{isa:?}\n{text}");
        };
        let grouped = |l: &Expr, tap: i64| l.clone().floor_div(4) * 4 + tap;
        check(&|l| vec![grouped(&l, 1)], 16, None);
        check(&|l| (0..4).map(|tap| grouped(&l, tap)).collect(), 16, None);
        check(&|l| vec![l * 2], 32, None);
        check(&|l| vec![l.clone() * 2, l * 2 + 1], 32, None);
        // Readable, whatever the mask.
        check(&|l| vec![l * 2 + 1], 32, Some(3));
        check(&|l| vec![Expr::int(15) - l], 16, None);
    }
}

#[test]
fn under_a_mask_what_may_lie_outside_is_loaded_under_it() {
    let target = Target::generic(Isa::X86Avx512);
    let text = code_of(&target, &|l| vec![l * 2 + 40], Some(3));
    assert_eq!(
        count(&text, "call <16 x float> @llvm.masked.load"),
        2,
        "{text}"
    );
    assert_eq!(count(&text, "= load <"), 0, "{text}");
    // Several lanes would share an element's mask.
    let text = code_of(&target, &|l| vec![l.floor_div(2) + 60], Some(3));
    assert_eq!(count(&text, "@llvm.masked.gather"), 2, "{text}");
}
