//! What loops tell a learner is a row of one length, whose numbers are those of the code.

use analysis::{column_names, columns, levels, loops};
use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};

fn product() -> Program {
    let mut b = ProgramBuilder::new("product");
    let x = b.input("A", DType::F32, &[64, 96]);
    let w = b.input("B", DType::F32, &[96, 128]);
    let axes = [("m", 64), ("n", 128)];
    let main = b.reduce("main", &axes, &[("k", 96)], Reducer::Sum, |o, t| {
        let a = Expr::load(x, [o[0].clone(), t[0].clone()]);
        a * Expr::load(w, [t[0].clone(), o[1].clone()])
    });
    b.finish(&[main])
}

/// The row of a schedule, by name.
fn row(steps: &str) -> impl Fn(&str) -> f64 + use<> {
    let trace = schedule::parse(steps).unwrap();
    let scheduled = schedule::replay(&product(), &trace).unwrap();
    let target = Target::generic(Isa::X86Avx2);
    let code = lower::lower(&scheduled, &target, &lower::LowerOptions::standard()).unwrap();
    let Target::Cpu(cpu) = &target;
    let row = columns(&code, &loops(&code, cpu, levels(cpu)), cpu);
    let names = column_names();
    assert_eq!(row.len(), names.len());
    move |name| {
        let at = names.iter().position(|n| n == name);
        row[at.unwrap_or_else(|| panic!("no column `{name}`"))]
    }
}

fn log(n: f64) -> f64 {
    (1.0 + n).log2()
}

#[test]
fn work_is_counted_by_kind() {
    let of = row("");
    let products = 64.0 * 96.0 * 128.0;
    assert_eq!(of("work: float multiply"), log(products));
    assert_eq!(of("work: load lanes") + of("work: store lanes"), 0.0);
    assert_eq!(of("kernel: vector share"), 0.0);
    assert_eq!(of("heart: extent 0"), log(96.0));
    assert_eq!(of("heart: runs"), log(products));
}

#[test]
fn lanes_and_reuse_are_seen() {
    let of =
        row("split main.n [16, 8]\nreorder main.m main.n.0 main.k main.n.1\nvectorize main.n.1");
    let products = 64.0 * 96.0 * 128.0;
    assert_eq!(of("work: float multiply"), log(products));
    assert!(of("kernel: vector share") > 0.5);
    assert_eq!(of("heart: lanes"), 8.0);
    assert_eq!(of("heart: runs"), log(products / 8.0));
    // B is the largest: 96 rows of 128, which the loop of `m` uses again.
    assert_eq!(of("buffer 0: unique bytes"), log(4.0 * 96.0 * 128.0));
    assert_eq!(
        (of("buffer 0: reused in loop"), of("buffer 0: times")),
        (1.0, log(64.0))
    );
    // The curve ends with all operations over all bytes.
    let bytes = 4.0 * (96.0 * 128.0 + 64.0 * 96.0 + 64.0 * 128.0);
    let last = of("heart: intensity 9");
    assert!(last > of("heart: intensity 0") && last <= log(2.0 * products / bytes) + 1e-9);
}
