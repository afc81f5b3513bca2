//! Runs a raw program by the interpreter of programs and a scheduled one as
//! flat code, on the same values.

use ir::{BufferId, Program, Role, Target};
use lower::flat::interpret::{Arguments, interpret_flat};
use lower::flat::{Code, Stmt, text};
use lower::{Observer, Options, PASSES, lower_observed};

use tensor::{DType, Fill, Tensor, compare, fill_tensor};

pub fn target() -> Target {
    Target::generic(ir::Isa::X86Avx2)
}

/// Lowers with verification after every pass.
pub fn code(p: &Program) -> Code {
    code_after(p, None)
}

pub fn code_after(p: &Program, stop_after: Option<usize>) -> Code {
    let mut log = String::new();
    let mut dump = |pass: &str, text: &str| log = format!("{log}\n-- {pass}\n{text}");
    let options = Options {
        verify: true,
        stop_after,
        ..Options::standard()
    };
    let mut observer = Observer {
        dump: Some(&mut dump),
        timings: vec![],
    };
    let result = lower_observed(p, &target(), &options, &mut observer);
    result.unwrap_or_else(|e| panic!("{e}\n{log}"))
}

/// Small whole numbers, so that sums are exact in any order.
pub fn values(p: &Program) -> Arguments {
    let mut out = Arguments::new();
    for (seed, b) in p.params.iter().enumerate() {
        let buffer = p.buffer(*b);
        if buffer.role == Role::Output {
            continue;
        }
        let shape: Vec<usize> = buffer.shape.iter().map(|n| *n as usize).collect();
        let lo = if matches!(buffer.dtype, DType::U8 | DType::I64 | DType::Bool) {
            0
        } else {
            -3
        };
        let kind = Fill::Integers { lo, hi: 3 };
        out.insert(*b, fill_tensor(buffer.dtype, &shape, kind, seed as u64 + 1));
    }
    out
}

pub fn outputs(p: &Program) -> Vec<BufferId> {
    p.params
        .iter()
        .copied()
        .filter(|b| p.buffer(*b).role == Role::Output)
        .collect()
}

pub fn run(code: &Code, given: &Arguments) -> Arguments {
    let mut arguments = given.clone();
    if let Err(e) = interpret_flat(code, &mut arguments) {
        panic!("{e}\n{}", text::print(code));
    }
    arguments
}

/// Judges a scheduled program, for every step limit of the pipeline, and
/// returns its full code.
pub fn judge(raw: &Program, scheduled: &Program) -> Code {
    judge_on(raw, scheduled, &values(raw), 0.0)
}

pub fn judge_on(raw: &Program, scheduled: &Program, given: &Arguments, tolerance: f64) -> Code {
    let expected = interpreted(raw, given);
    for stop_after in (0..=PASSES.len()).map(Some) {
        let code = code_after(scheduled, stop_after);
        let actual = run(&code, given);
        for b in outputs(raw) {
            let want = &expected[&b];
            let got = actual[&b].clone().reshaped(want.shape());
            let d = compare(&got, want);
            let name = &raw.buffer(b).name;
            assert!(
                d.within(tolerance),
                "{name} {d:?} after {stop_after:?}\n{}",
                text::print(&code)
            );
        }
    }
    code(scheduled)
}

/// The program's outputs by the interpreter that defines programs.
pub fn interpreted(p: &Program, given: &Arguments) -> Arguments {
    let zeros = |b: &BufferId| {
        let buffer = p.buffer(*b);
        let shape: Vec<usize> = buffer.shape.iter().map(|n| *n as usize).collect();
        Tensor::zeros(buffer.dtype, &shape)
    };
    let argument = |b: &BufferId| given.get(b).cloned().unwrap_or_else(|| zeros(b));
    let mut arguments: Vec<Tensor> = p.params.iter().map(argument).collect();
    ir::interpret::run(p, &mut arguments).unwrap_or_else(|e| panic!("{e}"));
    p.params.iter().copied().zip(arguments).collect()
}

/// All statements of a list and below.
pub fn all(stmts: &[Stmt]) -> Vec<&Stmt> {
    let mut out = Vec::new();
    for s in stmts {
        out.push(s);
        match s {
            Stmt::Loop(l) => out.extend(all(&l.body)),
            Stmt::If {
                then, otherwise, ..
            } => {
                out.extend(all(then));
                out.extend(all(otherwise));
            }
            _ => {}
        }
    }
    out
}
