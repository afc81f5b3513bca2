//! How many points a second the drafts of strategies judge, by learner: encoding and prediction of random points of the
//! spaces of some operators, on one thread. Each learner knows 200 answers of the task. Times are the
//! least of five; the rates of operators are over all their tasks.
//!
//! `cargo run --release -p search --example draft_speed [OPERATOR ...]`

use ir::{Isa, Target};
use plan::{LayoutPolicy, PlanOptions, Task, plan};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Analytic, Asked, Context, CostModel, Learned, Learner, Point, space};
use std::time::Instant;

const OPERATORS: [&str; 8] = [
    "op:matmul(m=512,k=512,n=512)",
    "op:conv2d(c=64,h=56,w=56,k=64)",
    "op:conv2d(c=64,h=56,w=56,k=256,r=1,s=1)",
    "op:depthwise_conv2d(c=512,h=14,w=14)",
    "op:softmax(rows=1536,cols=128)",
    "op:max_pool2d(c=64,h=112,w=112)",
    "op:layer_norm(rows=128,cols=768)",
    "op:conv2d_transpose(c=256,h=8,w=8,k=128,stride=2)",
];
const ANSWERS: usize = 200;
/// Points of each task: as many as the funnel evolves in two generations.
const POINTS: usize = 1024;
const TIMES: usize = 5;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let operators = match named.is_empty() {
        true => OPERATORS.map(String::from).to_vec(),
        false => named,
    };
    let target = Target::generic(Isa::X86Avx512).with_threads(1);
    let names = Learner::ALL.map(|l| format!(" {}/s |", l.name()));
    let fits = Learner::ALL.map(|l| format!(" fit of {}, ms |", l.name()));
    println!("| operator |{}{}", names.concat(), fits.concat());
    println!("|---|{}", "---:|".repeat(2 * Learner::ALL.len()));
    let mut logarithms = [0.0; Learner::ALL.len()];
    for name in &operators {
        let model = graph::builtin::builtin(name, 1).unwrap_or_else(|e| panic!("{e}"));
        let layouts = LayoutPolicy::of_builtin(name).unwrap_or_else(|e| panic!("{e}"));
        let options = PlanOptions::from(layouts);
        let plan = plan(&model, &target, &options).unwrap_or_else(|e| panic!("{e}"));
        let mut seconds = [[0.0; 2]; Learner::ALL.len()];
        for task in &plan.tasks {
            for (learner, sums) in Learner::ALL.into_iter().zip(&mut seconds) {
                let [fit, predict] = of_task(task, &target, learner);
                *sums = [sums[0] + fit, sums[1] + predict];
            }
        }
        let points = (plan.tasks.len() * POINTS) as f64;
        let rates = seconds.map(|s| points / s[1]);
        for (sum, rate) in logarithms.iter_mut().zip(rates) {
            *sum += rate.ln();
        }
        let rates = rates.map(|r| format!(" {r:.0} |"));
        let fits = seconds.map(|s| format!(" {:.1} |", s[0] * 1e3 / plan.tasks.len() as f64));
        println!("| {name} |{}{}", rates.concat(), fits.concat());
    }
    let n = operators.len() as f64;
    let means = logarithms.map(|sum| format!(" {:.0} |", (sum / n).exp()));
    let empty = " |".repeat(Learner::ALL.len());
    println!("| geometric mean |{}{empty}", means.concat());
}

/// Seconds of fitting a draft, and of what it says of all points.
fn of_task(task: &Task, target: &Target, learner: Learner) -> [f64; 2] {
    let space = space(&task.program, target, Accuracy::Strict);
    let context = Context {
        program: Some(&task.program),
        target: Some(target),
        learner,
        ..Context::of(&space)
    };
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut learned = Learned::new(1);
    let answers: Vec<Point> = (0..ANSWERS).map(|_| space.sample(&mut rng)).collect();
    let subject = context.subject().expect("the task has a program");
    let by_rules = Analytic(subject).predict(&Asked::all(&answers));
    for (p, cost) in answers.iter().zip(by_rules) {
        // Costs are within a factor of some ten, as measured ones, and no model knows them quite: so trees grow
        // as large as they may.
        let of_values: u64 = p.values.iter().sum();
        let cost = cost.unwrap_or(1e6).max(10.0).ln() * (1.0 + (of_values % 7) as f64);
        learned.add(p, Some(cost));
    }
    let start = Instant::now();
    assert!(learned.update(&context), "{ANSWERS} answers are enough");
    let fit = start.elapsed().as_secs_f64();
    let points: Vec<Point> = (0..POINTS).map(|_| space.sample(&mut rng)).collect();
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        let start = Instant::now();
        std::hint::black_box(learned.scores(&context, &points));
        least = least.min(start.elapsed().as_secs_f64());
    }
    [fit, least]
}
