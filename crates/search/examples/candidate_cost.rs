//! What making a candidate from a point costs: for every sketch of every task of
//! some models the median time over random points, each made three times of which
//! the fastest counts, and how many of the candidates do not replay.
//!
//! `cargo run --release -p search --example candidate_cost [MODEL ...]`

use ir::{Isa, Target};
use plan::{LayoutPolicy, PlanOptions, Task, plan};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Space, space};
use std::time::Instant;

const MODELS: [&str; 3] = ["resnet50", "mobilenet-v2", "vgg16"];
const POINTS: usize = 60;
/// How often each candidate is made.
const TIMES: usize = 3;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let models = match named.is_empty() {
        true => MODELS.map(String::from).to_vec(),
        false => named,
    };
    let target = Target::generic(Isa::X86Avx512).with_threads(2);
    println!("| median us | least us | space us | illegal of {POINTS} | task |");
    println!("|---:|---:|---:|---:|---|");
    for name in models {
        let model = graph::builtin::builtin(&name, 1).unwrap_or_else(|e| panic!("{e}"));
        let layouts = LayoutPolicy::of_builtin(&name).unwrap_or_else(|e| panic!("{e}"));
        let options = PlanOptions::from(layouts);
        let plan = plan(&model, &target, &options).unwrap_or_else(|e| panic!("{e}"));
        for task in &plan.tasks {
            row(&name, task, &target);
        }
    }
}

/// The table's row of a task.
fn row(model: &str, task: &Task, target: &Target) {
    let start = Instant::now();
    let all = space(&task.program, target, Accuracy::Relaxed);
    let space_us = start.elapsed().as_secs_f64() * 1e6;
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut rows = Vec::new();
    for s in all.sketches {
        let own = Space::of(vec![s]);
        let mut illegal = 0;
        let mut times = Vec::new();
        for _ in 0..POINTS {
            let p = own.sample(&mut rng);
            let mut least = f64::INFINITY;
            for _ in 0..TIMES {
                let start = Instant::now();
                std::hint::black_box(own.candidate(&task.program, &p).is_ok());
                least = least.min(start.elapsed().as_secs_f64() * 1e6);
            }
            times.push(least);
            let made = own.candidate(&task.program, &p);
            let replays = made.is_ok_and(|c| schedule::replay(&task.program, &c.trace).is_ok());
            illegal += usize::from(!replays);
        }
        times.sort_by(f64::total_cmp);
        let sketch = own.sketches[0].name.clone();
        rows.push((times[times.len() / 2], times[0], illegal, sketch));
    }
    for (median, least, illegal, sketch) in rows {
        println!(
            "| {median:.0} | {least:.0} | {space_us:.0} | {illegal} | {model} {} {sketch} |",
            task.title()
        );
    }
}
