//! Counts from a share of the iterations against those from all of them.
//!
//! `TUNESMITH_LARGE=1` takes the shapes of networks, and prints how much is walked and how far each estimate is off.

#[allow(dead_code, reason = "not every test uses all")]
#[path = "../../analysis/tests/support/mod.rs"]
mod programs;

use ir::{Isa, Target};
use llvm::Decoder;
use programs::{analysed, compiled, operator, traces};
use simulate::{Kernel, Statistics, cpus, simulate};
use std::time::Instant;

const SMALL: &[&str] = &[
    "op:conv2d(c=32,h=56,w=56,k=32)",
    "op:depthwise_conv2d(c=64,h=56,w=56)",
    "op:matmul(m=192,n=256,k=256)",
];

const LARGE: &[&str] = &[
    "op:conv2d(c=3,h=224,w=224,k=64,r=7,s=7,stride=2,pad=3)",
    "op:conv2d(c=64,h=56,w=56,k=64)",
    "op:conv2d(c=64,h=56,w=56,k=128,stride=2)",
    "op:conv2d(c=256,h=14,w=14,k=512,stride=2)",
    "op:depthwise_conv2d(c=128,h=56,w=56)",
    "op:matmul(m=512,n=512,k=512)",
    "op:matmul(m=1024,n=1024,k=1024)",
];

const ONE_IN: u32 = 8;

fn misses(s: &Statistics) -> f64 {
    s.weighted() - s.instructions
}

#[test]
fn sampled_counts_are_near_those_of_all_iterations() {
    let large = std::env::var("TUNESMITH_LARGE").is_ok();
    let target = Target::generic(Isa::X86Avx2);
    let decoder = Decoder::new(&target).expect("a known target");
    let caches = cpus().remove(0).caches;
    let (mut kernels, mut sampled, mut outside) = (0, 0, Vec::new());
    for spec in if large { LARGE } else { SMALL } {
        for program in operator(spec, &target) {
            for trace in traces(&program, &target, 0) {
                let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
                let (code, object) = compiled(&scheduled, &target);
                let analysis = analysed(&code, &object, &target, "kernel");
                let functions = decoder.functions(&object).expect("the object is read");
                let kernel = Kernel {
                    code: &code,
                    functions: &functions,
                    analysis: &analysis,
                };
                let begun = Instant::now();
                let all = simulate(kernel, &caches, None).expect("no data decide");
                let (of_all, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
                let some = simulate(kernel, &caches, Some(ONE_IN)).expect("no data decide");
                let of_some = begun.elapsed().as_secs_f64();
                let about = some.sampled.clone().expect("it was sampled");
                let error = (misses(&some) - misses(&all)).abs();
                let margin = about.margins["weighted"];
                kernels += 1;
                sampled += usize::from(about.walked < 0.5);
                if error > 3.0 * margin + 0.1 * misses(&all) {
                    outside.push(format!("{spec}: {error:.0} off, margin {margin:.0}"));
                }
                assert_eq!(all.instructions, some.instructions);
                assert_eq!(all.l1i, some.l1i);
                if large {
                    println!(
                        "{spec}: {:.0} ms, {:.1} times as fast; {:.0}% walked; weighted misses {:.2}% off, margin {:.2}%; weighted score {:.2}% off",
                        of_all * 1e3,
                        of_all / of_some,
                        about.walked * 100.0,
                        100.0 * error / misses(&all),
                        100.0 * margin / misses(&all),
                        100.0 * error / all.weighted(),
                    );
                }
            }
        }
    }
    println!("{sampled} of {kernels} kernels are sampled");
    assert!(sampled >= kernels / 4, "{sampled} of {kernels}");
    assert!(outside.len() <= kernels / 8, "{}", outside.join("\n"));
}
