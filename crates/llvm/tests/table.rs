//! Tables with an element for each byte, looked up in lanes: every byte gives its element, and
//! the instructions that targets have for it.

mod support;

use ir::{DType, Expr, Isa, Target};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::host_targets;

/// y[i] = table[x[i]] for all bytes, in lanes.
fn lookups(dtype: DType, lanes: u32) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(DType::U8, 256, BufferPlace::Input);
    let table = f.buffer(dtype, 256, BufferPlace::Input);
    let y = f.buffer(dtype, 256, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let at = Expr::var(i) * i64::from(lanes) + Expr::var(l);
    let byte = Expr::load(x, [at.clone()]).cast(DType::I64);
    let lane = Some(Lane { var: l, lanes });
    let store = f.store(y, at, Expr::load(table, [byte]), lane);
    let store = f.loop_(i, 256 / i64::from(lanes), false, vec![store]);
    f.code.kernel = vec![store];
    f
}

#[test]
fn every_byte_gives_its_element() {
    for target in host_targets() {
        for dtype in [DType::U8, DType::I8, DType::F32] {
            for lanes in [2, 4, 8, 16, 32, 64] {
                let numbers = Fill::Integers { lo: 0, hi: 127 };
                let table = fill_tensor(dtype, &[256], numbers, 3);
                let mut x = Tensor::zeros(DType::U8, &[256]);
                (0..256).for_each(|i| x.set_i64(i, (i as i64 * 77 + 5) % 256));
                let y = Tensor::zeros(dtype, &[256]);
                let mut args = [x, table, y];
                assert_eq!(lookups(dtype, lanes).run(&target, &mut args), 0);
                for i in 0..256 {
                    let wanted = args[1].get_f64(args[0].get_i64(i) as usize);
                    let what = format!("{dtype} {lanes} lanes {target}");
                    assert_eq!(args[2].get_f64(i), wanted, "{what}");
                }
            }
        }
    }
}

#[test]
fn bytes_are_picked_out_of_vectors() {
    let emit = Emit {
        assembly: true,
        ..Emit::default()
    };
    let target = Target::generic(Isa::X86Avx512);
    let compiler = Compiler::new(&target).expect("a target of LLVM");
    let code = lookups(DType::U8, 16).code;
    let compiled = compiler.compile(&code, emit).expect("the code compiles");
    let text = compiled.assembly.expect("it was asked for");
    let picks = |l: &&str| l.contains("vpermi2d") || l.contains("vpermt2d");
    assert_eq!(text.lines().filter(picks).count(), 2, "{text}");
}
