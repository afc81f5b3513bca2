//! `bench`: the latency distribution of a compiled model.

use super::bench_online::{self, Measured, OnlineSummary};
use super::compile::Written;
use super::keys::SignArgs;
use super::knobs::{default, doc, with_default};
use super::output::{ARTIFACT, Output};
use super::parse::{parse_duration, parse_threads};
use super::pool_args::{PoolArgs, VariantArgs};
use super::table::{Table, or_unknown};
use crate::compile::join;
use crate::explain::{Profile, profiles};
use crate::online::{DecisionFile, decided};
use runtime::{CompiledModel, Model, Pool, Variants};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tune::ceiling::exchange_ns;
use tune::latency::{fill_inputs, interleaved};
use tune::{Error, Result};

/// Measure the latency of a compiled model, of each of its variants
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith bench resnet18.tsm --threads 1 --json\n  tunesmith compile vgg16 --keep-alternatives 3 --out vgg16.tsm\n  tunesmith bench vgg16.tsm --select each --decisions vgg16.decisions\n  tunesmith bench vgg16.tsm --select online --out decided.tsm"
)]
pub struct Args {
    /// A compiled model (.tsm)
    artifact: PathBuf,
    #[arg(long, help = with_default("threads"), value_parser = parse_threads::<usize>)]
    threads: Option<usize>,
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    which: VariantArgs,
    #[arg(long, help = doc("select"), default_value = default("select"), value_parser = ["first", "online", "each"])]
    select: String,
    /// Keep what is decided in this file, and start from it
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Write the model without the alternatives that lost: a smaller file, and less memory when it runs
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sign: SignArgs,
    /// How long to measure
    #[arg(long, value_parser = parse_duration, default_value = "3s")]
    time: Duration,
    /// Also print the time of every step
    #[arg(long, conflicts_with = "json")]
    profile: bool,
    /// Also run on one thread, and show the parallel efficiency of every step
    #[arg(long, conflicts_with = "json")]
    scaling: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    model: String,
    /// Of the variant, such as `batch=1 seq=32`.
    #[serde(skip_serializing_if = "String::is_empty")]
    sizes: String,
    threads: usize,
    /// How exact the model says to be; empty if it does not say.
    accuracy: String,
    runs: usize,
    median_ms: f64,
    min_ms: f64,
    p90_ms: f64,
    /// How far apart the threads' CPUs were: `doctor` says what it means.
    exchange_ns: Option<f64>,
    /// What choosing among alternatives brought, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<OnlineSummary>,
    /// The model without the alternatives that lost, if that was asked for and it is the only variant.
    #[serde(flatten)]
    written: Option<Written>,
}

const MIN_ROUNDS: usize = 5;

pub fn run(a: &Args) -> Result<ExitCode> {
    check(a)?;
    let threads = a
        .threads
        .unwrap_or_else(|| tune::machine::Machine::host().cpus);
    let variants = Arc::new(a.pool.load(&a.artifact)?);
    let which = variants.with_sizes(&a.which.sizes()?)?;
    let pool = a.pool.pool(threads)?;
    let key = a.sign.key()?;
    let inputs = [vec![a.artifact.clone()], a.sign.files()].concat();
    let inputs = inputs.into_iter().chain(a.decisions.clone()).collect();
    let out = match &a.out {
        Some(path) => Some(Output::new(path, ARTIFACT, inputs)?),
        None => None,
    };
    let (mut summaries, mut left) = (Vec::new(), None);
    // Each alone: the memory of another instance would push this one's out of the caches.
    for at in which {
        let (summary, model) = measured(a, &variants, at, &pool)?;
        summaries.push(summary);
        if let Some(model) = model {
            left = Some(join(left, variants.dims(), Arc::new(model))?);
        }
    }
    let written = match (out, left) {
        (Some(out), Some(left)) => Some(Written {
            bytes: out.save(&left, key.as_ref())?,
            artifact: out.path().display().to_string(),
        }),
        _ => None,
    };
    match (a.json, written) {
        (true, written) => print_json(summaries, written)?,
        (false, Some(written)) => super::print_line(&format!(
            "written to {} ({:.1} MB)",
            written.artifact,
            written.bytes as f64 / 1e6
        ))?,
        (false, None) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what has no effect without `--select`.
fn check(a: &Args) -> Result<()> {
    let refuse = |what: &str| Err(Error::new(what).help("add --select online"));
    if a.select != "first" {
        return Ok(());
    }
    if a.decisions.is_some() {
        return refuse("--decisions keeps what --select online or each decides");
    }
    match a.out {
        Some(_) => refuse("--out writes what --select online or each decides"),
        None => Ok(()),
    }
}

fn print_json(mut summaries: Vec<Summary>, written: Option<Written>) -> Result<()> {
    if let [one] = summaries.as_mut_slice() {
        one.written = written;
        return super::print_json(one);
    }
    let mut all = serde_json::json!({ "variants": summaries });
    if let Some(written) = written {
        all["artifact"] = written.artifact.into();
        all["bytes"] = written.bytes.into();
    }
    super::print_json(&all)
}

/// Measures a variant, and prints what it takes unless all are printed together; gives it without the
/// alternatives that lost if that is to be written.
fn measured(
    a: &Args,
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
) -> Result<(Summary, Option<CompiledModel>)> {
    let threads = pool.threads();
    let compiled = variants.models()[at].clone();
    let mut model = Model::new(compiled.clone(), pool.clone())?;
    fill_inputs(&mut model, 1);
    let mut left = None;
    let (online, l) = match a.select.as_str() {
        "first" => (
            None,
            interleaved(&mut [&mut model], a.time, MIN_ROUNDS)?.remove(0),
        ),
        select => {
            let kept = a
                .decisions
                .as_deref()
                .map(|path| DecisionFile::new(path, &compiled, threads));
            let each = select == "each";
            let Measured {
                summary,
                latencies,
                selectors,
            } = bench_online::measured(variants, at, pool, a.time, each, kept.as_ref())?;
            if a.out.is_some() {
                let model = decided(variants, at, &selectors, pool.ctx().threads);
                left = Some(model.map_err(|e| e.help("give more --time"))?);
            }
            (Some(summary), latencies)
        }
    };
    let summary = Summary {
        model: model.compiled().name().to_string(),
        sizes: match variants.models().len() {
            1 => String::new(),
            _ => variants.label(at),
        },
        threads,
        accuracy: model.compiled().accuracy().to_string(),
        runs: l.samples_ns.len(),
        median_ms: l.median_ms(),
        min_ms: l.min_ms(),
        p90_ms: l.p90_ms(),
        exchange_ns: exchange_ns(threads),
        online,
        written: None,
    };
    if a.json {
        return Ok((summary, left));
    }
    print(&summary)?;
    if a.profile || a.scaling {
        let mut running = vec![(compiled.clone(), model.pool().clone())];
        if a.scaling {
            running.push((compiled.clone(), a.pool.pool(1)?));
        }
        // The memory of another instance would push this one's out of the caches.
        drop(model);
        super::print_text(&steps_text(
            &compiled,
            threads,
            &profiles(&running, a.time)?,
        ))?;
    }
    Ok((summary, left))
}

fn print(summary: &Summary) -> Result<()> {
    let sizes = match summary.sizes.as_str() {
        "" => String::new(),
        sizes => format!(" {sizes}"),
    };
    super::print_line(&format!(
        "{}{sizes}: median {:.3} ms, min {:.3} ms, 90th percentile {:.3} ms ({} runs, {} threads, accuracy {})",
        summary.model,
        summary.median_ms,
        summary.min_ms,
        summary.p90_ms,
        summary.runs,
        summary.threads,
        or_unknown(&summary.accuracy)
    ))?;
    match &summary.online {
        Some(online) => super::print_text(&bench_online::text(online)),
        None => Ok(()),
    }
}

/// The time of every step, and with a second profile what one thread takes.
fn steps_text(compiled: &CompiledModel, threads: usize, taken: &[Profile]) -> String {
    let mut header = vec!["step", "ms", "share"];
    if taken.len() > 1 {
        header.extend(["one thread ms", "efficiency"]);
    }
    let mut t = Table::new(&header);
    let total: f64 = taken[0].steps.iter().map(|s| s.median_ms).sum();
    let efficiency = |one: f64, all: f64| format!("{:.0}%", 100.0 * one / all / threads as f64);
    for (i, s) in compiled.steps().iter().enumerate() {
        let ms = taken[0].steps[i].median_ms;
        let mut row = vec![
            s.name.clone(),
            format!("{ms:.3}"),
            format!("{:.1}%", 100.0 * ms / total),
        ];
        if let Some(single) = taken.get(1) {
            let one = single.steps[i].median_ms;
            row.extend([format!("{one:.3}"), efficiency(one, ms)]);
        }
        t.row(row);
    }
    let mut text = t.text();
    if let Some(single) = taken.get(1) {
        let (one, all) = (single.whole.median_ms, taken[0].whole.median_ms);
        text += &format!(
            "one thread {one:.3} ms: {:.2}x on {threads} threads, {} efficiency\n",
            one / all,
            efficiency(one, all)
        );
    }
    text
}
