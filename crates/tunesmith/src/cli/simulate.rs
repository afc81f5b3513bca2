//! `simulate`: what candidates do on a processor that is not here, and samples that predictors learn from.

use super::board;
use super::parse::parse_time;
use super::simulate_collect;
use super::table::Table;
use ir::{Isa, Target};
use serde_json::json;
use simulate::{
    Emulator, EmulatorError, FeatureSet, Method, Metrics, Plugin, Predictor, PredictorError,
    SHIPPED, Sample, Shipped, TrainOptions, by_group, timed_once,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use study::predictors::LEAST;
use tune::scorer::Simulator;
use tune::{Error, Result};

/// Simulate candidates, and collect what predictors of their times learn from
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith simulate collect 'op:conv2d(c=64,h=56,w=56,k=64)' --points 200 --out samples.jsonl\n  tunesmith simulate collect 'op:matmul(m=256,n=256,k=256)' --target aarch64-neon --cpu cortex-a72 --out a72.jsonl\n  tunesmith study simulate samples.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Collect(simulate_collect::CollectArgs),
    Train(TrainArgs),
    Predictors(PredictorsArgs),
    Import(board::ImportArgs),
    Count(CountArgs),
}

pub fn run(a: &Args) -> Result<ExitCode> {
    match &a.command {
        Command::Collect(c) => simulate_collect::collect(c),
        Command::Train(t) => train(t),
        Command::Predictors(p) => predictors(p),
        Command::Import(i) => board::import(i),
        Command::Count(c) => count(c),
    }
}

/// Learn from timed samples how fast candidates of a type of kernel are
#[derive(clap::Args)]
struct TrainArgs {
    /// Files that `simulate collect` wrote
    #[arg(required = true)]
    samples: Vec<PathBuf>,
    /// The type of kernel that is learned, where the files have several
    #[arg(long)]
    kind: Option<String>,
    /// The processor that is learned, where the files have several
    #[arg(long)]
    cpu: Option<String>,
    /// The instruction set that is learned, where the files have several
    #[arg(long)]
    target: Option<String>,
    /// What learns
    #[arg(long, default_value = "log-trees", value_parser = simulate::METHODS.map(|m| m.name))]
    method: String,
    /// What it learns from. counts: what the simulator counted; score: the static score as well; reading: and all
    /// else that reading the code tells, such as cycles and instructions of each class
    #[arg(long, value_parser = FeatureSet::ALL.map(FeatureSet::name), default_value = FeatureSet::Reading.name())]
    features: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File of the predictor, for `tune --evaluate simulate --predictor`
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Keeps the samples of one type of kernel, of one processor, or of one instruction set: the one that is asked for, or the only one.
fn only(
    samples: &mut Vec<&Sample>,
    flag: &str,
    asked: Option<&str>,
    of: fn(&Sample) -> &String,
) -> Result<()> {
    let found: BTreeSet<&str> = samples.iter().map(|s| of(s).as_str()).collect();
    let names: Vec<&str> = found.into_iter().collect();
    let wanted = match (asked, &names[..]) {
        (_, []) => {
            return Err(Error::new("the files have no timed samples").help(
                "collect some with `tunesmith simulate collect` on a machine that runs the target",
            ));
        }
        (Some(asked), names) if names.contains(&asked) => asked.to_string(),
        (None, [one]) => (*one).to_string(),
        _ => {
            let said = |name: &&str| if name.is_empty() { "unknown" } else { name }.to_string();
            let names: Vec<String> = names.iter().map(said).collect();
            let why = format!("the samples are of {}", names.join(", "));
            return Err(Error::new(why).help(format!("give one of these with {flag}")));
        }
    };
    samples.retain(|s| *of(s) == wanted);
    Ok(())
}

fn train(a: &TrainArgs) -> Result<ExitCode> {
    let mut all = Vec::new();
    for path in &a.samples {
        let read = Sample::read_file(path).map_err(|e| {
            Error::new(e.to_string()).help("give files that `tunesmith simulate collect` wrote")
        })?;
        all.extend(read);
    }
    let mut chosen = timed_once(&all);
    only(&mut chosen, "--kind", a.kind.as_deref(), |s| &s.kind)?;
    only(&mut chosen, "--cpu", a.cpu.as_deref(), |s| &s.cpu)?;
    only(&mut chosen, "--target", a.target.as_deref(), |s| &s.target)?;
    // One candidate has nothing to be compared with.
    let groups: BTreeMap<&str, usize> = by_group(&chosen)
        .into_iter()
        .map(|(g, all)| (g, all.len()))
        .collect();
    chosen.retain(|s| groups[&*s.group] > 1);
    if chosen.len() < LEAST {
        let few = chosen.len();
        return Err(Error::new(format!(
            "{few} timed schedules are too few to learn from; at least {LEAST} are needed"
        ))
        .help("collect more with `tunesmith simulate collect MODEL --points 200 --out FILE`"));
    }
    let options = TrainOptions {
        method: Method::named(&a.method).expect("the command line knows the names"),
        features: FeatureSet::named(&a.features).expect("the command line knows the names"),
        seed: a.seed,
        validation: 0.2,
    };
    let made = Predictor::train(&chosen, options).map_err(|e| {
        Error::new(e.to_string()).help("collect timed samples with `tunesmith simulate collect`")
    })?;
    made.save(&a.out)
        .map_err(|e| Error::new(e.to_string()).help("choose another file with --out"))?;
    if a.json {
        super::print_json(made.about())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["group", "E_top1 %", "R_top1 %", "Q_low %", "Q_high %"]);
    for (group, m) in &made.about().validation {
        table.row([vec![group.clone()], percents(*m)].concat());
    }
    table.print()?;
    super::print_line(&format!(
        "{} learned from {} samples of {} on {}; the table is of a fifth of them, by a learner that did not see these\nwritten to {}",
        a.method,
        chosen.len(),
        made.about().kind,
        made.about().cpu,
        a.out.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The generic target of a name.
pub fn named(name: &str) -> Result<Target> {
    let isa = Isa::ALL.into_iter().find(|i| i.name() == name);
    let isa = isa.ok_or_else(|| {
        let names: Vec<&str> = Isa::ALL.iter().map(|i| i.name()).collect();
        Error::new(format!("there is no target `{name}`"))
            .help(format!("give one of {}", names.join(", ")))
    })?;
    Ok(Target::generic(isa))
}

/// List the predictors of this program, which `tune --evaluate simulate --predictor NAME` takes
#[derive(clap::Args)]
struct PredictorsArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn predictors(a: &PredictorsArgs) -> Result<ExitCode> {
    let fail = |e: PredictorError| {
        Error::new(e.to_string()).help("make it again with bench/predictors.py")
    };
    let all = SHIPPED
        .iter()
        .map(|s| Ok((s, s.predictor().map_err(fail)?)));
    let all = all.collect::<Result<Vec<_>>>()?;
    if a.json {
        let one = |(s, p): &(&Shipped, Predictor)| json!({ "name": s.name, "bytes": s.bytes(), "about": p.about() });
        let all: Vec<_> = all.iter().map(one).collect();
        super::print_json(&json!({ "predictors": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        "name",
        "kernel",
        "processor",
        "target",
        "learner",
        "samples",
        "shapes",
        "E_top1 %",
        "R_top1 %",
        "Q_low %",
        "Q_high %",
    ])
    .dispensable(&["kernel", "learner", "Q_high %", "Q_low %", "shapes"]);
    for (shipped, predictor) in &all {
        let about = predictor.about();
        let of_groups: Vec<Metrics> = about.validation.values().copied().collect();
        let mut row = vec![
            shipped.name.to_string(),
            about.kind.clone(),
            about.cpu.clone(),
            about.target.clone(),
            about.method.clone(),
            about.samples.to_string(),
            of_groups.len().to_string(),
        ];
        row.extend(Metrics::mean(&of_groups).map_or(vec![], percents));
        table.row(row);
    }
    table.print()?;
    super::print_line(
        "The metrics are means over shapes, of a fifth of the samples, by a learner that did not see these. `study simulate` says what they mean.",
    )?;
    Ok(ExitCode::SUCCESS)
}

fn percents(m: Metrics) -> Vec<String> {
    let all = [m.e_top1, m.r_top1, m.q_low, m.q_high];
    all.map(|v| format!("{v:.2}")).to_vec()
}

/// Count what an executable of `tune --export-to` does, in QEMU with the plugin of the crate `simulate`
#[derive(clap::Args)]
struct CountArgs {
    executable: PathBuf,
    /// Instruction set of the executable, such as aarch64-neon
    #[arg(long)]
    target: String,
    /// The processor whose caches are simulated, such as cortex-a72 [default: one with the target's]
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
    /// The plugin: `cargo build --release --package simulate --example qemu_counts` makes
    /// target/release/examples/libqemu_counts.so [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Time that the executable may take
    #[arg(long, value_parser = parse_time, default_value = "60s")]
    limit: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn count(a: &CountArgs) -> Result<ExitCode> {
    let target = named(&a.target)?;
    let caches = Simulator::named(a.cpu.as_deref(), &target)?.caches;
    let fail = |e: EmulatorError| {
        let help = match &e {
            EmulatorError::Missing { .. } | EmulatorError::NoPlugins(_) => {
                "install Debian's package qemu-user, or another QEMU of user processes with plugins"
            }
            EmulatorError::TimedOut(_) => "give more time with --limit",
            EmulatorError::File(_) => {
                "give an executable in a folder that can be written: what is counted lies beside it"
            }
            _ => {
                "give an executable of `tune --export-to`, its --target, and the plugin of this program's source"
            }
        };
        Error::new(format!("{}: {e}", a.executable.display())).help(help)
    };
    let file = |what: &str, path: &Path| match path.is_file() {
        true => Ok(()),
        false => {
            Err(Error::new(format!("{} is no file", path.display())).help(format!("give {what}")))
        }
    };
    file("an executable of `tune --export-to`", &a.executable)?;
    let emulator = Emulator::find(&target).map_err(fail)?;
    let beside = || Plugin::beside(a.limit).map(|p| p.path);
    let plugin = a.plugin.clone().or_else(beside).ok_or_else(|| {
        Error::new(format!("{} is not beside this program", Plugin::FILE)).help(
            "build it with `cargo build --release --package simulate --example qemu_counts`, or name it with --plugin FILE",
        )
    })?;
    file("the plugin with --plugin FILE", &plugin)?;
    let counted = emulator.counts(&plugin, &a.executable, &caches, a.limit);
    let counted = counted.map_err(fail)?;
    if a.json {
        super::print_json(&counted)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["count", "number"]);
    for (name, number) in counted.named() {
        table.row(vec![name, format!("{number:.0}")]);
    }
    table.print()?;
    Ok(ExitCode::SUCCESS)
}
