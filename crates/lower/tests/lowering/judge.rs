//! Runs a raw program by the interpreter of programs and a scheduled one as
//! flat code, on the same values.

use ir::{BufferId, Program, Role, Target};
use lower::flat::interpret::{Arguments, interpret_flat};
use lower::flat::{Code, Stmt, text};
use lower::{LowerOptions, PASSES, PassObserver, lower_observed};

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
    let options = LowerOptions {
        verify: true,
        stop_after,
        ..LowerOptions::standard()
    };
    let mut observer = PassObserver {
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
        let shape = shape(p, *b);
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
        let actual = run(&code, &in_memory(raw, given));
        for b in outputs(raw) {
            let want = &expected[&b];
            let got = out_of_memory(raw, b, &actual[&b]);
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

/// The arguments as their views lie in their parent allocations.
fn in_memory(p: &Program, given: &Arguments) -> Arguments {
    let parent = |b: &BufferId, t: &Tensor| {
        let Some(at) = offsets(p, *b) else {
            return t.clone();
        };
        let end = at.iter().max().map_or(0, |last| last + 1);
        let mut memory = Tensor::zeros(t.dtype(), &[end]);
        for (i, at) in at.into_iter().enumerate() {
            memory.set_f64(at, t.get_f64(i));
        }
        memory
    };
    given.iter().map(|(b, t)| (*b, parent(b, t))).collect()
}

/// A parameter's elements out of its allocation.
fn out_of_memory(p: &Program, b: BufferId, memory: &Tensor) -> Tensor {
    let shape = shape(p, b);
    let Some(at) = offsets(p, b) else {
        return memory.clone().reshaped(&shape);
    };
    let mut out = Tensor::zeros(memory.dtype(), &shape);
    for (i, at) in at.into_iter().enumerate() {
        out.set_f64(i, memory.get_f64(at));
    }
    out
}

fn shape(p: &Program, b: BufferId) -> Vec<usize> {
    p.buffer(b).shape.iter().map(|n| *n as usize).collect()
}

/// Where each element of a view lies; `None` for what is dense.
fn offsets(p: &Program, b: BufferId) -> Option<Vec<usize>> {
    let view = p.buffer(b).view.as_ref()?;
    let dims = p.buffer(b).shape.iter().zip(&view.strides);
    let all = dims.fold(vec![view.offset], |starts, (n, stride)| {
        let along = |at: &i64| (0..*n).map(|i| at + i * stride).collect::<Vec<_>>();
        starts.iter().flat_map(along).collect()
    });
    Some(all.into_iter().map(|at| at as usize).collect())
}

/// The program's outputs by the interpreter that defines programs.
pub fn interpreted(p: &Program, given: &Arguments) -> Arguments {
    let zeros = |b: &BufferId| Tensor::zeros(p.buffer(*b).dtype, &shape(p, *b));
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
