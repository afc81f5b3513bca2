//! Programs of several kinds, and their analysis on any target.

use analysis::{Analysis, Entry, Fate, analyse};
use ir::{DType, Expr, Program, ProgramBuilder, Reducer, Target};
use llvm::{Compiler, Decoder, Emit};
use lower::flat::Code;
use schedule::Trace;
use search::{Accuracy, space};

/// C[m, n] = A[m, k] B[k, n].
pub fn product(m: i64, n: i64, k: i64) -> Program {
    let mut b = ProgramBuilder::new("product");
    let x = b.input("A", DType::F32, &[m, k]);
    let w = b.constant("B", DType::F32, &[k, n]);
    let axes = [("m", m), ("n", n)];
    let main = b.reduce("main", &axes, &[("k", k)], Reducer::Sum, |o, t| {
        let a = Expr::load(x, [o[0].clone(), t[0].clone()]);
        a * Expr::load(w, [t[0].clone(), o[1].clone()])
    });
    b.finish(&[main])
}

/// A convolution of 3 x 3 taps over a plain image, with padding.
pub fn convolution(channels: i64, maps: i64, size: i64) -> Program {
    let mut b = ProgramBuilder::new("convolution");
    let x = b.input("X", DType::F32, &[channels, size, size]);
    let w = b.constant("W", DType::F32, &[maps, channels, 3, 3]);
    let axes = [("k", maps), ("y", size), ("x", size)];
    let terms = [("c", channels), ("r", 3), ("s", 3)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = [&o[1] + &t[1] - 1, &o[2] + &t[2] - 1];
        let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(size));
        let inside = within(&at[0]).and(within(&at[1]));
        let [row, column] = at;
        let data = Expr::load(x, [t[0].clone(), row, column]);
        let data = Expr::select(inside, data, Expr::f32(0.0));
        data * Expr::load(w, [o[0].clone(), t[0].clone(), t[1].clone(), t[2].clone()])
    });
    b.finish(&[main])
}

/// The programs of a built-in operator's tasks.
pub fn operator(spec: &str, target: &Target) -> Vec<Program> {
    let model = graph::builtin::builtin(spec, 0).expect("a built-in operator");
    let options = plan::LayoutPolicy::of_builtin(spec).expect("a built-in operator");
    let plan = plan::plan(&model, target, &options.into()).expect("the model is planned");
    plan.tasks.into_iter().map(|t| t.program).collect()
}

/// The programs of a model's tasks.
pub fn planned(model: &graph::Model, target: &Target) -> Vec<Program> {
    let options = plan::LayoutPolicy::Blocked.into();
    let plan = plan::plan(model, target, &options).expect("the model is planned");
    plan.tasks.into_iter().map(|t| t.program).collect()
}

/// The traces of a program's space: defaults of sketches, and some points of each.
pub fn traces(program: &Program, target: &Target, points: usize) -> Vec<Trace> {
    let space = space(program, target, Accuracy::Strict);
    let mut traces = Vec::new();
    for (i, sketch) in space.sketches.iter().enumerate() {
        let mut chosen = space.samples(i, points, 7);
        chosen.push(search::Point {
            sketch: i,
            values: sketch.default.clone(),
        });
        let candidates = chosen
            .iter()
            .filter_map(|p| space.candidate(program, p).ok());
        traces.extend(candidates.map(|c| c.trace));
    }
    traces
}

/// Flat code and its object, with identity.
pub fn compiled(scheduled: &Program, target: &Target) -> (Code, Vec<u8>) {
    let options = lower::LowerOptions::standard();
    let mut code = lower::lower(scheduled, target, &options).expect("the program is lowered");
    code.in_place = schedule::in_place(scheduled);
    let emit = Emit {
        identity: true,
        ..Emit::default()
    };
    let compiler = Compiler::new(target).expect("a known target");
    let object = compiler
        .compile(&code, emit)
        .expect("the code compiles")
        .object;
    (code, object)
}

pub fn analysed(code: &Code, object: &[u8], target: &Target, entry: &str) -> Analysis {
    let decoder = Decoder::new(target).expect("a known target");
    let functions = decoder.functions(object).expect("the object is read");
    let entry = Entry {
        name: entry,
        threads: target.threads(),
    };
    analyse(code, &functions, decoder.model(), entry)
}

/// What is wrong with how loops were matched.
pub fn mismatches(code: &Code, a: &Analysis) -> Vec<String> {
    let mut wrong = Vec::new();
    for (fate, info) in a.fates.iter().zip(&code.loops) {
        match fate {
            Fate::Matched(m) if !m.nested_alike => wrong.push(format!("{}: nested", info.name)),
            Fate::Matched(m) if m.bound_agrees == Some(false) => {
                wrong.push(format!("{}: bound", info.name));
            }
            Fate::Unmatched => wrong.push(format!("{}: unmatched", info.name)),
            _ => {}
        }
    }
    wrong.extend(a.unknown_loops().iter().map(|l| format!("{l:?}: unknown")));
    let broken = a.functions.iter().filter(|f| !f.broken.is_empty());
    wrong.extend(broken.map(|f| format!("{} {:?}: inconsistent", f.name, f.broken)));
    wrong
}
