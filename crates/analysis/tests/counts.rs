//! How many blocks of the machine code of many operators have counts that are decided.

mod support;

use ir::{Isa, Program, Target};
use support::{analysed, compiled, mismatches, traces};
use testkit::setting;

/// One of each kind whose code has another shape.
const OPERATORS: &[&str] = &[
    "op:conv2d(c=16,h=14,w=14,k=16)",
    "op:conv2d(c=3,h=23,w=23,k=16,r=7,s=7,stride=2)",
    "op:depthwise_conv2d(c=16,h=14,w=14)",
    "op:conv2d_transpose(c=8,h=7,w=7,k=8)",
    "op:matmul(m=37,n=41,k=43)",
    "op:dense(m=16,n=40,k=50)",
    "op:softmax(rows=12,cols=50)",
    "op:layer_norm(rows=12,cols=50)",
    "op:max_pool2d(c=16,h=14,w=14)",
    "op:transpose(rows=30,cols=50)",
];

fn programs(spec: &str, target: &Target) -> Vec<Program> {
    let model = graph::builtin::builtin(spec, 0).expect("a built-in operator");
    let options = plan::LayoutPolicy::of_builtin(spec).expect("a built-in operator");
    let plan = plan::plan(&model, target, &options.into()).expect("the model is planned");
    plan.tasks.into_iter().map(|t| t.program).collect()
}

#[derive(Clone, Copy, Default)]
struct Tally {
    candidates: usize,
    guessed: usize,
    broken: usize,
    blocks: usize,
    guessed_blocks: usize,
    broken_blocks: usize,
}

#[test]
fn counts_of_operators_agree() {
    let points = setting("TUNESMITH_POINTS", 3) as usize;
    let only = std::env::var("TUNESMITH_ONLY").unwrap_or_default();
    let show = std::env::var("TUNESMITH_SHOW").is_ok();
    let mut wrong = Vec::new();
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        if !format!("{isa:?}").contains(only.split(':').next().unwrap()) {
            continue;
        }
        for spec in OPERATORS {
            if !spec.contains(only.split(':').nth(1).unwrap_or("")) {
                continue;
            }
            let mut t = Tally::default();
            for program in programs(spec, &target) {
                for (n, trace) in traces(&program, &target, points).into_iter().enumerate() {
                    let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
                    let (code, object) = compiled(&scheduled, &target);
                    for entry in ["kernel", "prepare"] {
                        let a = analysed(&code, &object, &target, entry);
                        let f = &a.functions;
                        let sum = |of: &dyn Fn(&analysis::FunctionReport) -> usize| -> usize {
                            f.iter().map(of).sum()
                        };
                        t.candidates += 1;
                        t.blocks += sum(&|f| f.blocks.len());
                        let (g, b) = (sum(&|f| f.guessed.len()), sum(&|f| f.broken.len()));
                        t.guessed += usize::from(g > 0);
                        t.broken += usize::from(b > 0);
                        t.guessed_blocks += g;
                        t.broken_blocks += b;
                        let name = format!("{} {spec} {n} {entry}", target.name());
                        if show && g + b > 0 {
                            let dir = std::path::Path::new("/tmp/counts");
                            std::fs::create_dir_all(dir).unwrap();
                            let file = format!(
                                "{isa:?}-{}-{n}-{entry}",
                                &spec[3..].split('(').next().unwrap()
                            );
                            std::fs::write(dir.join(format!("{file}.o")), &object).unwrap();
                            std::fs::write(
                                dir.join(format!("{file}.txt")),
                                format!(
                                    "{}\n{}",
                                    lower::flat::text::print(&code),
                                    analysis::print(&code, &a)
                                ),
                            )
                            .unwrap();
                            println!("{name}: guessed {g}, broken {b}");
                        }
                        wrong.extend(mismatches(&code, &a).iter().map(|w| format!("{name}: {w}")));
                    }
                }
            }
            println!(
                "{:?} {spec}: {} entries, guessed {} broken {}; blocks {} guessed {} broken {}",
                isa, t.candidates, t.guessed, t.broken, t.blocks, t.guessed_blocks, t.broken_blocks
            );
        }
    }
    println!("{}", wrong.join("\n"));
}
