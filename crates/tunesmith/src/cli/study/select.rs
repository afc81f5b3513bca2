//! `study select`: choosing among algorithms while inferences or training steps run, beside every fixed choice.

use crate::cli::knobs::{default, doc};
use crate::cli::model_args::{StoreArgs, check_runs_here, say, target_named, warn};
use crate::cli::output::{Output, PICTURE};
use crate::cli::parse::{parse_count, parse_duration, parse_threads};
use crate::cli::table::Table;
use crate::cli::train_args::TrainArgs;
use crate::cli::{print_json, print_line, print_text};
use crate::compile::compile_plan;
use crate::online::selectors;
use ir::Target;
use onnx::ImportOptions;
use runtime::Variants;
use search::Accuracy;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use study::plots::selections;
use study::select::{ChoiceTimes, Layer, LayerTime, Selection, equal_to, measure};
use study::targets::{ByTarget, by_target};
use study::winners::{Chosen, Pass};
use tune::kernels::Origins;
use tune::known::Requirements;
use tune::machine::Machine;
use tune::threads::ThreadSettings;
use tune::{Host, Result};

/// Choose among the algorithms of each layer while inferences or training steps run, and compare with every fixed choice
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study select vgg16 resnet34 --threads 1,2 --plot select.svg\n  tunesmith study select vgg16-cifar --batch 8 --threads 1 --time 5s --json\n  tunesmith study select vgg16-cifar --train --batch 8 --threads 1,2 --plot train.svg\n  tunesmith study select vgg16-cifar --target x86-avx2,x86-avx512\n  tunesmith study select 'op:conv2d(c=64,h=56,w=56,k=64,r=3,s=3,pad=1)' --threads 1"
)]
pub struct Args {
    /// ONNX files, built-in models (see `models`), or operators as op:NAME(argument=value,...)
    #[arg(required = true)]
    models: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = parse_threads::<u32>)]
    threads: Vec<u32>,
    /// Targets that this machine can run, such as x86-avx2,x86-avx512: kinds of node whose winners are compared
    #[arg(
        long,
        value_name = "TARGET,...",
        value_delimiter = ',',
        default_value = "host"
    )]
    target: Vec<String>,
    /// The size of the batch
    #[arg(long, value_name = "SIZE", value_parser = parse_count::<usize>)]
    batch: Option<usize>,
    /// Prefixes of the names of the algorithms to choose among, as `compile --alternatives` takes them;
    /// the best known kernel of each layer, or its default, comes before them
    #[arg(
        long,
        value_name = "PREFIX,...",
        value_delimiter = ',',
        default_value = "im2row,convgemm,direct,winograd2,winograd4"
    )]
    alternatives: Vec<String>,
    #[arg(long, help = doc("accuracy"), value_name = "strict|relaxed", default_value = default("accuracy"))]
    accuracy: Accuracy,
    #[command(flatten)]
    training: TrainArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// How long to measure each model on each number of threads once it has decided
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    time: Duration,
    /// Draw the choices, the throughput of the run, and the decision tree with the times of each layer
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<()> {
    let host = crate::cli::host()?;
    let models = a.models.iter().map(PathBuf::from);
    let inputs = models.chain(a.store.files()?).collect();
    let plot = match &a.plot {
        Some(path) => Some(Output::new(path, PICTURE, inputs)?),
        None => None,
    };
    let targets = targets(a, &host.machine)?;
    let store = a.store.read_unless(a.defaults)?;
    let mut all = Vec::new();
    for model in &a.models {
        for threads in &a.threads {
            for target in &targets {
                let target = target.clone().with_threads(*threads);
                let selection = selected(a, &host, store.as_ref(), model, &target)?;
                if !a.json {
                    print(&selection, &a.alternatives)?;
                }
                all.push(selection);
            }
        }
    }
    let beside = match targets.len() {
        1 => vec![],
        _ => by_target(&all),
    };
    if let Some(plot) = plot {
        plot.write_bytes(selections(&all)?.as_bytes())?;
    }
    if !a.json {
        return beside.iter().try_for_each(print_targets);
    }
    let study = json!({
        "kind": "measured",
        "cpu": host.machine.cpu,
        "alternatives": a.alternatives,
        "accuracy": a.accuracy.name(),
        "time_s": a.time.as_secs_f64(),
    });
    print_json(&json!({"study": study, "runs": all, "by_target": beside}))
}

/// The targets of the flag, each once.
fn targets(a: &Args, machine: &Machine) -> Result<Vec<Target>> {
    let mut found: Vec<Target> = Vec::new();
    for name in &a.target {
        let target = target_named(name, machine, 1)?;
        check_runs_here(&target)?;
        if !found.contains(&target) {
            found.push(target);
        }
    }
    Ok(found)
}

/// Compiles a model with the alternatives, and measures it.
fn selected(
    a: &Args,
    host: &Host,
    store: Option<&Store>,
    model: &str,
    target: &Target,
) -> Result<Selection> {
    let threads = target.threads();
    let options = ImportOptions {
        batch: a.batch,
        training: a.training.train,
        ..ImportOptions::default()
    };
    let source = a.training.step_of(crate::source::load(model, &options)?)?;
    let plan = source.plan_for(&host.machine, target, a.accuracy, store)?;
    // The plan has the only references to the constants now.
    drop(source);
    let requirements = Requirements {
        accuracy: a.accuracy,
        ..Requirements::of_knobs()
    };
    let from = Origins {
        count: 1 + a.alternatives.len(),
        algorithms: &a.alternatives,
        ..Origins::of(requirements, store)
    };
    let pool = ThreadSettings::from_environment()?.pool(threads as usize)?;
    if !a.json {
        say(&format!(
            "{model}, {}, {}: compiling",
            on(threads),
            target.name()
        ));
    }
    let compiled = compile_plan(plan, target, host, &from, &pool)?;
    warn(&compiled.warnings);
    if !a.json {
        say(&format!(
            "{model}, {}, {}: measuring",
            on(threads),
            target.name()
        ));
    }
    let variants = Arc::new(Variants::from(Arc::new(compiled.model)));
    let selectors = selectors(&variants, None)?;
    measure(&variants, target.name(), &pool, &selectors, a.time)
}

fn on(threads: u32) -> String {
    match threads {
        1 => "1 thread".to_string(),
        n => format!("{n} threads"),
    }
}

fn print(s: &Selection, alternatives: &[String]) -> Result<()> {
    let best = s.best();
    print_line(&format!(
        "{}, {}, batch {}, {}: online {:.2} images/s, {:.3}x the best fixed choice ({})",
        s.model,
        on(s.threads),
        s.batch,
        s.target,
        s.online.images_per_s,
        s.gain(best),
        name(best)
    ))?;
    print_choices(s)?;
    print_line(&costs(s))?;
    print_text("\n")?;
    layers(s, alternatives).print()?;
    for note in [without_filtering(s), not_the_least(s)]
        .into_iter()
        .flatten()
    {
        print_line(&note)?;
    }
    if s.training {
        print_text("\n")?;
        winners(s).print()?;
    }
    if !s.groups.is_empty() {
        print_text("\n")?;
        groups(s).print()?;
    }
    print_line("\nDecisions:")?;
    for l in &s.layers {
        print_line(&format!("  {}", decision(l)))?;
    }
    print_text("\n")
}

/// A choice for people.
fn name(c: &ChoiceTimes) -> &str {
    match c.choice.as_str() {
        "first" => "first alternatives",
        name => name,
    }
}

fn print_choices(s: &Selection) -> Result<()> {
    let mut t = Table::new(&[
        "choice",
        "layers",
        "median ms",
        "min ms",
        "images/s",
        "online gains",
    ]);
    for c in [&s.online].into_iter().chain(&s.fixed) {
        t.row(vec![
            name(c).to_string(),
            format!("{} of {}", c.steps, s.steps),
            format!("{:.3}", c.median_ms),
            format!("{:.3}", c.min_ms),
            format!("{:.2}", c.images_per_s),
            format!("{:.3}x", s.gain(c)),
        ]);
    }
    t.print()
}

/// What exploring and what a decided choice cost.
fn costs(s: &Selection) -> String {
    let (e, o, unit) = (&s.exploring, &s.overhead, s.unit());
    let differing = match s.differing {
        0 => format!("The choice made online is that of {}.", name(s.best())),
        n => format!(
            "The choice made online differs from that of {} in {n} layers.",
            name(s.best())
        ),
    };
    let pays = match e.pays_after {
        Some(n) => format!("exploring has paid after {n:.0} {unit}s"),
        None if s.differing == 0 => "exploring has found nothing faster".to_string(),
        None => "exploring does not pay".to_string(),
    };
    let rates: Vec<String> = s
        .exploring_throughput()
        .iter()
        .map(|r| format!("{r:.1}"))
        .collect();
    let runs = s.runs.iter().map(|r| {
        let (n, more) = (r.inferences, 100.0 * (r.ratio - 1.0));
        format!("A run of {n} {unit}s takes {more:+.1}% against the best fixed choice.\n")
    });
    let runs: String = runs.collect();
    format!(
        "{differing}\n{} {unit}s decided, in {:.2} s; as many of the best fixed choice take {:.2} s.\n\
         In the parts of this time throughput was {} images/s.\n\
         The whole run of {} {unit}s took {:.2} s; as many of the best fixed choice take {:.2} s ({:+.1}%); {pays}.\n{runs}\
         After deciding, one {unit} takes {:.4} times what it takes with the same choices fixed (medians of {} pairs).",
        e.inferences,
        e.ms / 1e3,
        e.best_ms / 1e3,
        rates.join(", "),
        e.run_inferences,
        e.run_ms / 1e3,
        e.run_best_ms / 1e3,
        100.0 * (e.run_ms / e.run_best_ms - 1.0),
        o.ratio,
        o.pairs,
    )
}

fn title(l: &Layer) -> String {
    equal_to(&l.step, l.equal)
}

/// Why layers have no number for Winograd's algorithms where others have one.
fn without_filtering(s: &Selection) -> Option<String> {
    let filters = |l: &&Layer| {
        let mut all = l.alternatives.iter();
        all.any(|t| t.algorithm.contains("winograd"))
    };
    let (with, without): (Vec<&Layer>, Vec<&Layer>) = s.layers.iter().partition(filters);
    let names: Vec<String> = without.into_iter().map(title).collect();
    (!with.is_empty() && !names.is_empty()).then(|| {
        format!(
            "Winograd's algorithms do not apply where they are blank: they are for convolutions of stride 1 with several taps \
             on images in blocks of channels, and an image of few channels, such as one of three colours, has no blocks: {}.",
            names.join(", ")
        )
    })
}

/// Why a star is not at the least number of its row; none where all are.
fn not_the_least(s: &Selection) -> Option<String> {
    let is_slower = |chosen: Option<f64>, all: &[LayerTime]| {
        let least = all.iter().filter_map(|t| t.median_ms).reduce(f64::min);
        chosen.zip(least).is_some_and(|(own, least)| own > least)
    };
    let of = |at: usize, all: &[LayerTime]| is_slower(all[at].median_ms, all);
    let slower = s.layers.iter().filter(|l| of(l.chosen, &l.alternatives));
    let names: Vec<String> = slower.map(title).collect();
    let groups = s.groups.iter().filter(|g| of(g.chosen, &g.alternatives));
    let names: Vec<String> = names
        .into_iter()
        .chain(groups.map(|g| equal_to(&g.steps, g.equal)))
        .collect();
    let share = 100.0 * bestof::Options::early().margin;
    (!names.is_empty()).then(|| {
        format!(
            "Numbers are medians, but choices go by the least time of each alternative, and the first one stays unless another \
             is {share:.0}% faster. Chosen with a higher median: {}.",
            names.join(", ")
        )
    })
}

/// The winners of each layer on all targets, those that differ marked.
fn print_targets(b: &ByTarget) -> Result<()> {
    let differ = b
        .layers
        .iter()
        .filter(|l| l.differ)
        .map(|l| l.equal)
        .sum::<usize>();
    let all = b.layers.iter().map(|l| l.equal).sum::<usize>();
    print_line(&format!(
        "{}, {}: winners differ between the targets in {differ} of {all} layers",
        b.model,
        on(b.threads)
    ))?;
    let mut header = vec!["layer (winner, ms)"];
    header.extend(b.targets.iter().map(String::as_str));
    header.push("differ");
    let mut table = Table::new(&header);
    for l in &b.layers {
        let mut row = vec![equal_to(&l.layer, l.equal)];
        row.extend(l.winners.iter().map(winner));
        row.push(if l.differ { "yes" } else { "" }.to_string());
        table.row(row);
    }
    table.print()?;
    print_text("\n")
}

/// A winner with its time; blank where there is no choice.
fn winner(c: &Option<Chosen>) -> String {
    let of = |c: &Chosen| {
        let ms = c.median_ms.map(|ms| format!(" {ms:.3}"));
        format!("{}{}", c.algorithm, ms.unwrap_or_default())
    };
    c.as_ref().map_or(String::new(), of)
}

/// What each layer of a training step chose, its passes beside each other; blank where there is no choice.
fn winners(s: &Selection) -> Table {
    let mut header = vec!["layer (winner, ms)"];
    header.extend(Pass::ALL.map(Pass::name));
    let mut table = Table::new(&header);
    for w in &s.winners {
        let mut row = vec![equal_to(&w.layer, w.equal)];
        row.extend(w.passes.iter().map(winner));
        table.row(row);
    }
    table
}

/// What steps that may run together take in all: apart, and with each set.
fn groups(s: &Selection) -> Table {
    let mut table = Table::new(&["steps", "alternative (* chosen)", "ms"]);
    for g in &s.groups {
        for (at, t) in g.alternatives.iter().enumerate() {
            let mark = if at == g.chosen { "*" } else { "" };
            table.row(vec![
                equal_to(&g.steps, g.equal),
                format!("{}{mark}", t.algorithm),
                t.median_ms.map_or(String::new(), |ms| format!("{ms:.3}")),
            ]);
        }
    }
    table
}

/// The time of each algorithm in each layer, blank where it does not apply.
fn layers(s: &Selection, alternatives: &[String]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for t in s.layers.iter().flat_map(|l| &l.alternatives) {
        if !names.contains(&&*t.algorithm) {
            names.push(&t.algorithm);
        }
    }
    // Those that nobody asked for are of the first alternatives.
    names.sort_by_key(|n| alternatives.iter().position(|p| n.starts_with(&**p)));
    let mut header = vec!["layer (ms; * chosen)"];
    header.extend(&names);
    let mut table = Table::new(&header);
    let mut layers: Vec<&Layer> = s.layers.iter().collect();
    if s.training {
        let place = |l: &&Layer| {
            let (layer, pass) = Pass::of(&l.step);
            (s.winners.iter().position(|w| w.has(layer)), pass)
        };
        layers.sort_by_key(place);
    }
    for l in layers {
        let mut row = vec![title(l)];
        row.extend(names.iter().map(|name| cell(l, name)));
        table.row(row);
    }
    table
}

fn cell(l: &Layer, name: &str) -> String {
    let text = |(at, t): (usize, &LayerTime)| {
        let ms = t.median_ms.map_or(String::new(), |ms| format!("{ms:.3}"));
        format!("{ms}{}", if at == l.chosen { "*" } else { " " })
    };
    l.of_algorithm(name).map_or(String::new(), text)
}

/// The way from a layer to what was decided.
fn decision(l: &Layer) -> String {
    let mut way = vec![title(l)];
    way.extend(l.families.iter().map(|f| format!("group {f}")));
    way.push(l.alternatives[l.chosen].algorithm.clone());
    way.join(" -> ")
}
