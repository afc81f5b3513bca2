//! Statements whose loads are transposed in registers: compiled code against the
//! interpreter, up to the ends of guarded buffers, and the instructions that they become.

mod support;

use ir::{BufferId, DType, Expr, Isa, Target};
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

/// Iterations of the loop round the statements.
const TILES: i64 = 2;

fn masked(s: Stmt, mask: Option<Expr>) -> Stmt {
    match s {
        Stmt::Store(s) => Stmt::Store(Store { mask, ..s }),
        other => other,
    }
}

/// For each tile and row: y[tile, row, lane] = x[tile + row + f(lane)] + z[row, lane], where
/// f(lane) is `lane * apart`, or that of short axes, and some lanes and rows do not load.
/// The last element of x that is loaded is the last one of x, and lies at a guard.
fn random_code(dtype: DType, lanes: u32, rng: &mut Pcg64Mcg) -> (Flat, [BufferId; 3]) {
    let mut f = Flat::new();
    let (tile, l) = (f.var(), f.var());
    if rng.random_bool(0.5) {
        f.ranges.set_extent(tile, TILES);
    }
    let rows = rng.random_range(1..=24);
    let (apart, between) = (rng.random_range(rows..rows + 30), rng.random_range(0..90));
    let short = 1 << rng.random_range(0..3);
    let distance = |i: i64| i % short * apart + i / short * (apart * short + between);
    let v = Expr::var;
    let function =
        v(l).floor_mod(short) * apart + v(l).floor_div(short) * (apart * short + between);
    // Lanes from `below` on do not load, nor do the lanes of rows from `crossing` on.
    let count = i64::from(lanes);
    let below = [count, rng.random_range(1..=count)][usize::from(rng.random_bool(0.6))];
    let crossing = [rows, rng.random_range(0..rows)][usize::from(rng.random_bool(0.2))];
    let (by_mask, by_select) = (rng.random_bool(0.5), rng.random_bool(0.5));
    let all = (0..TILES).flat_map(|t| (0..rows).map(move |r| (t, r)));
    let loaded = all.flat_map(|(t, r)| {
        let most = if r < crossing { count } else { below };
        let most = if by_mask || by_select { most } else { count };
        (0..most).map(move |i| t + r + distance(i))
    });
    let size = loaded.max().unwrap() + 1;
    let elements = (size as u64).next_multiple_of(64 / dtype.size() as u64) as i64;
    let x = f.buffer(dtype, elements, BufferPlace::Input);
    let z = f.buffer(dtype, rows * count, BufferPlace::Input);
    let y = f.buffer(dtype, TILES * rows * count, BufferPlace::Output);
    let mut body = vec![];
    for row in 0..rows {
        let at = v(tile) + (row + elements - size) + function.clone();
        let moved = Expr::load(x, [at]);
        let guard = (row >= crossing || below < count).then(|| {
            v(l).lt(match row < crossing {
                true => count,
                false => below,
            })
        });
        let moved = match guard.clone().filter(|_| by_select) {
            Some(guard) => Expr::select(guard, moved, Expr::constant(1.0, dtype)),
            None => moved,
        };
        let other = Expr::load(z, [v(l) + row * count]);
        let value = match dtype {
            DType::Bool => other.and(moved),
            _ => moved + other,
        };
        let to = v(tile) * (rows * count) + row * count + v(l);
        let lane = Some(Lane { var: l, lanes });
        let s = f.store(y, to, value, lane);
        body.push(masked(s, guard.filter(|_| by_mask)));
    }
    f.code.kernel = vec![f.loop_(tile, TILES, false, body)];
    (f, [x, z, y])
}

#[test]
fn transposed_statements_load_what_the_interpreter_does() {
    let targets = host_targets();
    for seed in 0..80 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let dtype = DTYPES[rng.random_range(0..DTYPES.len())];
        let lanes = 1 << rng.random_range(1..6);
        let (f, [x, z, y]) = random_code(dtype, lanes, &mut rng);
        let elements = |b: BufferId| [f.code.buffers[b.index()].elements as usize];
        let values = match dtype {
            DType::Bool => Fill::Integers { lo: 0, hi: 1 },
            _ => Fill::Integers { lo: 1, hi: 50 },
        };
        let given = [x, z].map(|b| fill_tensor(dtype, &elements(b), values, seed));
        let [tx, tz] = given.clone();
        let mut arguments: Arguments = [(x, tx), (z, tz)].into();
        let text = lower::flat::text::print(&f.code);
        interpret_flat(&f.code, &mut arguments).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
        for target in &targets {
            let [tx, tz] = given.clone();
            let mut args = [tx, tz, Tensor::zeros(dtype, &elements(y))];
            assert_eq!(f.run(target, &mut args), 0);
            let name = target.name();
            assert_eq!(args[2], arguments[&y], "{seed} on {name}\n{text}");
        }
    }
}

/// The LLVM IR of `rows` statements: what lies behind each other in x lies 16 elements apart
/// in y. The last element that is loaded is the last one of x.
fn code_of(target: &Target, rows: i64, lanes: u32, in_place: bool) -> String {
    let mut f = Flat::new();
    let l = f.var();
    let x = f.buffer(
        DType::F32,
        (i64::from(lanes) - 1) * 1000 + rows,
        BufferPlace::Input,
    );
    let y = f.buffer(DType::F32, 16 * 1000, BufferPlace::Output);
    if in_place {
        f.code.in_place.push((y, x));
    }
    let v = Expr::var;
    let lane = Some(Lane { var: l, lanes });
    let store = |row| f.store(y, v(l) + row * 16, Expr::load(x, [v(l) * 1000 + row]), lane);
    f.code.kernel = (0..rows).map(store).collect();
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
fn rows_are_loaded_as_vectors_and_shuffled() {
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        let Target::Cpu(cpu) = &target;
        let width = (cpu.vector_bits.max(128) / 32).min(16) as usize;
        let width = width.min(cpu.vector_registers as usize / 2);
        let text = code_of(&target, 16, width as u32, false);
        // Every element in one vector load.
        assert_eq!(count(&text, "= load <"), 16, "{isa:?}\n{text}");
        assert_eq!(count(&text, "= load float"), 0, "{isa:?}\n{text}");
        let stages = 16 * width.ilog2() as usize;
        assert_eq!(count(&text, "= shufflevector"), stages, "{isa:?}\n{text}");
    }
}

#[test]
fn few_rows_and_memory_that_is_written_meanwhile_are_loaded_one_by_one() {
    let target = Target::generic(Isa::X86Avx512);
    for text in [
        code_of(&target, 1, 16, false),
        code_of(&target, 16, 16, true),
    ] {
        assert_eq!(count(&text, "= load <"), 0, "{text}");
        assert_eq!(count(&text, "= shufflevector"), 0, "{text}");
    }
}

#[test]
fn rows_that_are_no_power_of_two_are_loaded_under_a_mask_if_that_is_one_instruction() {
    let text = code_of(&Target::generic(Isa::X86Avx512), 7, 16, false);
    assert_eq!(
        count(&text, "call <8 x float> @llvm.masked.load"),
        16,
        "{text}"
    );
    assert_eq!(count(&text, "= load float"), 0, "{text}");
    let text = code_of(&Target::generic(Isa::AArch64Neon), 7, 4, false);
    assert_eq!(count(&text, "= load <4 x float>"), 4, "{text}");
    assert_eq!(count(&text, "= load <2 x float>"), 4, "{text}");
    assert_eq!(count(&text, "= load float"), 4, "{text}");
}
