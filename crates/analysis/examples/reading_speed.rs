//! How many points a second are chosen among by reading, and where the time goes: random points
//! of the spaces of some operators, on one core.
//!
//! Stage 1 reads loops: it makes the candidate and its program, lowers it and counts the cache lines
//! that move. `--replay` makes the program as a builder does, from the candidate's trace. Stage 2 also generates code,
//! decodes it and analyses it. `--columns` makes the row of a learned model, which needs stage 1: its speed is told from a
//! point on and from lowered code on. All times are CPU time of the thread. Points that cannot be built are left out.
//!
//! `cargo run --release -p analysis --example reading_speed -- [--points N] [--threads N]
//! [--loops] [--columns] [--replay] [--features FILE] [OPERATOR ...]`: `--loops` does no stage 2, and `--features`
//! writes what was read of each point, to compare two versions.

use analysis::{Entry, Features, columns, levels, loops};
use ir::{Isa, Program, Target};
use llvm::{Compiler, Decoder, Emit};
use lower::{LowerOptions, PassObserver};
use plan::{LayoutPolicy, PlanOptions, plan};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use search::{Accuracy, Point, Space, space};
use std::collections::BTreeMap;
use std::fmt::Write as _;

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
/// The processor whose cycles are counted.
const SCORED: &str = "znver3";
/// Parts in their order.
const PARTS: [&str; 8] = [
    "candidate",
    "replay",
    "lower",
    "movement",
    "columns",
    "llvm",
    "decode",
    "analyse",
];
/// Ways to read, and the parts that each takes; without its last one a way was not asked for.
const WAYS: [(&str, &[usize]); 4] = [
    ("loops", &[0, 1, 2, 3]),
    ("columns", &[0, 1, 2, 3, 4]),
    ("columns of code", &[3, 4]),
    ("machine code", &[0, 1, 2, 3, 5, 6, 7]),
];

struct Asked {
    points: usize,
    threads: u32,
    loops: bool,
    columns: bool,
    replay: bool,
    features: Option<String>,
    operators: Vec<String>,
}

impl Asked {
    fn parse() -> Asked {
        let mut asked = Asked {
            points: 50,
            threads: 1,
            loops: false,
            columns: false,
            replay: false,
            features: None,
            operators: vec![],
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
            let number = |text: String| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            match arg.as_str() {
                "--points" => asked.points = number(value()) as usize,
                "--threads" => asked.threads = number(value()),
                "--loops" => asked.loops = true,
                "--columns" => asked.columns = true,
                "--replay" => asked.replay = true,
                "--features" => asked.features = Some(value()),
                _ => asked.operators.push(arg),
            }
        }
        if asked.operators.is_empty() {
            asked.operators = OPERATORS.map(String::from).to_vec();
        }
        asked
    }
}

fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// CPU time by part.
#[derive(Clone, Default)]
struct Spent {
    points: usize,
    seconds: [f64; PARTS.len()],
    passes: BTreeMap<&'static str, f64>,
}

impl Spent {
    /// Does a part, and adds what it took.
    fn part<T>(&mut self, part: usize, f: impl FnOnce() -> T) -> T {
        let start = cpu_seconds();
        let done = f();
        self.seconds[part] += cpu_seconds() - start;
        done
    }

    fn add(&mut self, other: &Spent) {
        self.points += other.points;
        for (sum, s) in self.seconds.iter_mut().zip(other.seconds) {
            *sum += s;
        }
        for (pass, s) in &other.passes {
            *self.passes.entry(pass).or_default() += s;
        }
    }

    /// Points a second of each way to read; NaN for one that was not asked for.
    fn rates(&self) -> [f64; WAYS.len()] {
        WAYS.map(|(_, parts)| {
            let seconds = parts.iter().map(|p| self.seconds[*p]);
            match seconds.clone().next_back() {
                Some(last) if last > 0.0 => self.points as f64 / seconds.sum::<f64>(),
                _ => f64::NAN,
            }
        })
    }

    fn row(&self, name: &str) {
        let n = self.points as f64;
        let rates = self.rates().map(|r| format!(" {r:.0} |"));
        let us = self.seconds.map(|s| format!(" {:.0} |", s / n * 1e6));
        println!("| {name} | {n} |{}{}", rates.concat(), us.concat());
    }
}

struct Reader<'a> {
    asked: &'a Asked,
    target: Target,
    compiler: Compiler,
    decoder: Decoder,
}

impl Reader<'_> {
    /// What is read of a point, and the row of it; none if it cannot be built.
    fn read(
        &self,
        program: &Program,
        space: &Space,
        point: &Point,
        spent: &mut Spent,
    ) -> Option<(Features, Vec<f64>)> {
        let Target::Cpu(cpu) = &self.target;
        let mut own = Spent {
            points: 1,
            ..Spent::default()
        };
        let scheduled = match self.asked.replay {
            true => {
                let candidate = own.part(0, || space.candidate(program, point)).ok()?;
                own.part(1, || schedule::replay(program, &candidate.trace))
                    .ok()?
            }
            false => own.part(0, || space.scheduled(program, point)).ok()?.1,
        };
        let mut seen = PassObserver::default();
        let options = LowerOptions::standard();
        let lowered = || lower::lower_observed(&scheduled, &self.target, &options, &mut seen);
        let code = own.part(2, lowered).ok()?;
        for t in &seen.timings {
            *own.passes.entry(t.pass).or_default() += t.time_ns as f64 * 1e-9;
        }
        let mut features = own.part(3, || loops(&code, cpu, levels(cpu)));
        let mut row = vec![];
        if self.asked.columns {
            row = own.part(4, || columns(&code, &features, cpu));
        }
        if !self.asked.loops {
            let emit = Emit {
                identity: true,
                ..Emit::default()
            };
            let compiled = own.part(5, || self.compiler.compile(&code, emit)).ok()?;
            let functions = own.part(6, || self.decoder.functions(&compiled.object));
            let functions = functions.ok()?;
            let entry = Entry {
                name: "kernel",
                threads: cpu.threads,
            };
            let model = self.decoder.model();
            features.machine = Some(own.part(7, || {
                let found = analysis::analyse(&code, &functions, model, entry);
                analysis::machine(&code, &found, cpu)
            }));
        }
        spent.add(&own);
        Some((features, row))
    }

    /// Reads points of an operator's tasks; the text has what was read of each.
    fn operator(&self, name: &str, text: &mut String) -> Spent {
        let model = graph::builtin::builtin(name, 1).unwrap_or_else(|e| panic!("{e}"));
        let layouts = LayoutPolicy::of_builtin(name).unwrap_or_else(|e| panic!("{e}"));
        let options = PlanOptions::from(layouts);
        let plan = plan(&model, &self.target, &options).unwrap_or_else(|e| panic!("{e}"));
        let mut spent = Spent::default();
        for task in &plan.tasks {
            let space = space(&task.program, &self.target, Accuracy::Strict);
            let mut rng = Pcg64Mcg::seed_from_u64(1);
            for _ in 0..self.asked.points {
                let point = space.sample(&mut rng);
                let read = self.read(&task.program, &space, &point, &mut spent);
                let _ = writeln!(text, "{name} {point:?} {read:?}");
            }
        }
        spent
    }
}

fn main() {
    let asked = Asked::parse();
    let target = Target::generic(Isa::X86Avx2).with_threads(asked.threads);
    let reader = Reader {
        asked: &asked,
        compiler: Compiler::new(&target).unwrap_or_else(|e| panic!("{e}")),
        decoder: Decoder::with_model(&target, SCORED).unwrap_or_else(|e| panic!("{e}")),
        target,
    };
    let rates = WAYS.map(|(way, _)| format!(" {way}/s |"));
    let names = PARTS.map(|p| format!(" {p} us |"));
    println!("| operator | points |{}{}", rates.concat(), names.concat());
    println!("|---|{}", "---:|".repeat(1 + WAYS.len() + PARTS.len()));
    let mut all = Spent::default();
    let mut text = String::new();
    let mut logarithms = [0.0; WAYS.len()];
    for name in &asked.operators {
        let spent = reader.operator(name, &mut text);
        spent.row(name);
        all.add(&spent);
        for (sum, rate) in logarithms.iter_mut().zip(spent.rates()) {
            *sum += rate.ln();
        }
    }
    all.row("all points");
    let n = asked.operators.len() as f64;
    let means = logarithms.map(|sum| format!(" {:.0} |", (sum / n).exp()));
    println!(
        "| geometric mean | |{}{}",
        means.concat(),
        " |".repeat(PARTS.len())
    );
    println!("\nLowering, by pass:");
    let mut passes: Vec<_> = all.passes.iter().collect();
    passes.sort_by(|a, b| b.1.total_cmp(a.1));
    for (pass, s) in passes {
        println!("{:8.1} us  {pass}", s / all.points as f64 * 1e6);
    }
    if let Some(file) = &asked.features {
        std::fs::write(file, text).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}
