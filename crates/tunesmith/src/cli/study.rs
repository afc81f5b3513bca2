//! `study`: what measuring takes under varied conditions.

use super::table::{Table, ms};
use super::tune::{parse_constants, parse_share};
use crate::check::RELAXED_TOLERANCE;
use crate::compile::Builders;
use crate::error::Result;
use crate::machine::Machine;
use crate::study::compare::{Options, Row as Compared, compare};
use crate::study::model::{MEASURING, PAPER, PARAMETERS, Parameters, Prediction, predict};
use crate::tune::{Progress, Settings};
use graph::onnx::ImportOptions;
use measure::{Constants, Policy, RoundReport};
use search::Accuracy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Study how policies of measuring compare
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study measure 'op:matmul(m=512,n=512,k=512)' resnet18\n  tunesmith study measure 'op:matmul(m=64,n=64,k=64)' --policies serial,doppler --doppler tau=0.1\n  tunesmith study measure --model"
)]
pub struct Args {
    #[command(subcommand)]
    study: Study,
}

#[derive(clap::Subcommand)]
enum Study {
    /// Compare policies on the same candidates of some tasks; or predict, with --model
    Measure(MeasureArgs),
}

#[derive(clap::Args)]
struct MeasureArgs {
    /// ONNX files, built-in models, or operators, op:NAME(argument=value,...)
    #[arg(required_unless_present = "modelled")]
    models: Vec<String>,
    /// Predict with a discrete-event model of more devices than there are; says that it is modelled
    #[arg(long = "model", conflicts_with = "models")]
    modelled: bool,
    /// Candidates of each task, or of each prediction [default: 128, or 10000 with --model]
    #[arg(long)]
    candidates: Option<usize>,
    /// Policies to compare
    #[arg(long, value_delimiter = ',', value_parser = Policy::ALL.map(Policy::name),
        default_values = Policy::ALL.map(Policy::name))]
    policies: Vec<String>,
    /// How often each policy measures all candidates
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Threads of the kernels
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Candidates that are measured together
    #[arg(long, default_value_t = 64)]
    measure_batch: usize,
    /// Sets that the CPUs are divided into, each a device of its own
    #[arg(long, default_value_t = 1)]
    devices: usize,
    /// Single-threaded kernels that share a CPU
    #[arg(long, default_value_t = 1)]
    oversubscribe: u32,
    /// Constants of doppler to change; `knobs` lists them
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = parse_constants, default_value = "")]
    doppler: Constants,
    /// Share of candidates as fast as the best of a batch that may be given up early
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    lose: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also list doppler's rounds, and its errors by degree of parallelism
    #[arg(long, conflicts_with = "modelled")]
    rounds: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Candidates of a prediction.
const PREDICTED: usize = 10_000;
/// Candidates of a task that are measured.
const MEASURED: usize = 128;
/// Time of a candidate where the policy does not adapt it.
const LIMIT: Duration = Duration::from_secs(10);

/// Compares the policies on every task of the models.
fn measured(a: &MeasureArgs) -> Result<Vec<Compared>> {
    let machine = Machine::host();
    let target = machine.target(a.threads.max(1));
    let named = |name: &String| Policy::named(name).expect("the parser knows the names");
    let options = Options {
        policies: a.policies.iter().map(named).collect(),
        candidates: a.candidates.unwrap_or(MEASURED).max(1),
        repetitions: a.repetitions.max(1),
        seed: a.seed,
        accuracy: Accuracy::Relaxed,
        tolerance: RELAXED_TOLERANCE,
        limit: LIMIT,
        measure: Settings {
            policy: Policy::Serial,
            batch: a.measure_batch,
            devices: a.devices,
            oversubscribe: a.oversubscribe,
            constants: a.doppler,
            lose: a.lose,
        },
    };
    let mut builders = Builders::new(&target, machine.cpus)?;
    let progress = Progress::new(a.json);
    let mut rows = Vec::new();
    for model in &a.models {
        let source = crate::source::load(model, &ImportOptions::default())?;
        let plan = source.plan(&target, &[])?;
        for task in &plan.tasks {
            progress.stage(&format!("comparing policies: {}", task.title()));
            rows.extend(compare(task, &machine, &target, &mut builders, &options)?);
        }
    }
    progress.finish();
    Ok(rows)
}

/// Predictions beside the two baselines under the same conditions.
#[derive(Serialize)]
struct Row {
    /// What was varied, and to what.
    varied: String,
    #[serde(flatten)]
    prediction: Prediction,
    /// Changes of the time of measuring, in per cent.
    against_serial_spawn: f64,
    against_serial: f64,
    /// Change of all tuning time against serial-spawn, if nothing else of it
    /// takes less.
    of_tuning: f64,
}

fn row(varied: String, policy: Policy, max_dp: u32, p: Parameters, a: &MeasureArgs) -> Row {
    let candidates = a.candidates.unwrap_or(PREDICTED);
    let of = |policy, max_dp| predict(policy, max_dp, p, candidates, a.seed);
    let prediction = of(policy, max_dp);
    let change = |base: Policy| 100.0 * (prediction.seconds / of(base, 1).seconds - 1.0);
    let against_serial_spawn = change(Policy::SerialSpawn);
    Row {
        varied,
        against_serial_spawn,
        of_tuning: MEASURING * against_serial_spawn,
        against_serial: change(Policy::Serial),
        prediction,
    }
}

/// One condition after the other, the rest as in the paper.
fn rows(a: &MeasureArgs) -> Vec<Row> {
    let mut rows = Vec::new();
    for dp in [1, 2, 4, 8, 16, 32, 64] {
        for policy in [Policy::Naive, Policy::Doppler] {
            rows.push(row(format!("DP {dp}"), policy, dp, PAPER, a));
        }
    }
    for devices in [1, 2, 4, 8] {
        let p = Parameters { devices, ..PAPER };
        rows.push(row(format!("{devices} devices"), Policy::Doppler, 64, p, a));
    }
    for cpus in [1, 2, 4, 8, 16] {
        let kernel_s = 0.1 * PAPER.kernel_s;
        let p = Parameters {
            cpus,
            kernel_s,
            devices: 8,
            ..PAPER
        };
        let varied = format!("{cpus} CPUs, 8 devices, kernels x 0.1");
        rows.push(row(varied, Policy::Doppler, 64, p, a));
    }
    for size in [0.1, 0.3, 1.0, 3.0, 10.0] {
        let p = Parameters {
            kernel_s: size * PAPER.kernel_s,
            ..PAPER
        };
        rows.push(row(format!("kernels x {size}"), Policy::Doppler, 64, p, a));
    }
    for contention in [0.0005, 0.001, 0.005, 0.02] {
        let p = Parameters {
            contention,
            ..PAPER
        };
        let varied = format!("contention {contention}");
        rows.push(row(varied, Policy::Doppler, 64, p, a));
    }
    for parameter in PARAMETERS {
        for factor in [0.5, 2.0] {
            let mut p = PAPER;
            (parameter.set)(&mut p, factor * (parameter.get)(&PAPER));
            let varied = format!("{} x {factor}", parameter.name);
            rows.push(row(varied, Policy::Doppler, 64, p, a));
        }
    }
    rows
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let Study::Measure(a) = &a.study;
    if !a.modelled {
        let rows = measured(a)?;
        if a.json {
            super::print_json(&serde_json::json!({ "kind": "measured", "rows": rows }))?;
        } else {
            print_measured(&rows);
            if a.rounds {
                print_rounds(&rows)?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = rows(a);
    if a.json {
        let parameters: Vec<_> = PARAMETERS
            .iter()
            .map(|p| {
                serde_json::json!({
                    "name": p.name, "value": (p.get)(&PAPER), "doc": p.doc, "source": p.source,
                })
            })
            .collect();
        super::print_json(&serde_json::json!({
            "kind": "modelled", "parameters": parameters, "rows": rows,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_modelled(&rows)?;
    Ok(ExitCode::SUCCESS)
}

fn print_measured(rows: &[Compared]) {
    let percent = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:+.1}%"));
    let share = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.2}%", 100.0 * v));
    let mut t = Table::new(&[
        "task",
        "policy",
        "wall s",
        "load",
        "check",
        "run",
        "again s",
        "again",
        "mean DP",
        "delta",
        "left",
        "left each",
        "error",
        "best ms",
        "failed",
        "against serial",
        "against spawn",
        "of bound",
    ]);
    for r in rows {
        t.row(vec![
            format!("{} #{}", r.task, r.repetition + 1),
            r.policy.name().into(),
            format!("{:.2}", r.wall_s),
            format!("{:.2}", r.load_s),
            format!("{:.2}", r.check_s),
            format!("{:.2}", r.run_s),
            format!("{:.2}", r.alone_s),
            r.sampled.to_string(),
            r.mean_dp.map_or("-".into(), |dp| format!("{dp:.1}")),
            share(r.delta),
            share(r.left_uniform),
            share(r.left_per_candidate),
            share(r.error),
            ms(r.best_ns.map(|ns| ns as f64 / 1e6)),
            r.failures.values().sum::<usize>().to_string(),
            percent(r.against_serial),
            percent(r.against_serial_spawn),
            r.of_bound
                .map_or("-".into(), |b| format!("{:.0}%", 100.0 * b)),
        ]);
    }
    t.print();
}

/// How DOPpler's degree of parallelism went, and what came with each.
fn print_rounds(rows: &[Compared]) -> Result<()> {
    let share = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.2}%", 100.0 * v));
    let worst = |r: &RoundReport| r.delta.iter().flatten().copied().reduce(f64::max);
    let mut t = Table::new(&[
        "rounds of",
        "round",
        "DP",
        "candidates",
        "limit s",
        "failed",
        "timed out",
        "recovered",
        "again",
        "delta",
        "next DP",
    ]);
    let mut by_dp: BTreeMap<u32, Vec<&RoundReport>> = BTreeMap::new();
    for row in rows {
        for (i, r) in row.rounds.iter().enumerate() {
            by_dp.entry(r.dp).or_default().push(r);
            t.row(vec![
                format!("{} #{}", row.task, row.repetition + 1),
                (i + 1).to_string(),
                r.dp.to_string(),
                r.candidates.to_string(),
                format!("{:.1}", r.limit_ms as f64 / 1e3),
                r.failed.to_string(),
                r.timed_out.to_string(),
                r.recovered.to_string(),
                r.sampled.to_string(),
                share(worst(r)),
                r.next.dp.to_string(),
            ]);
        }
    }
    super::print_text("\n")?;
    t.print();
    let mut t = Table::new(&["DP", "rounds", "candidates", "delta", "failed", "recovered"]);
    for (dp, rounds) in by_dp {
        let sum = |of: fn(&RoundReport) -> usize| rounds.iter().map(|r| of(r)).sum::<usize>();
        let known: Vec<f64> = rounds.iter().filter_map(|r| worst(r)).collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        t.row(vec![
            dp.to_string(),
            rounds.len().to_string(),
            sum(|r| r.candidates).to_string(),
            share((!known.is_empty()).then_some(mean)),
            sum(|r| r.failed).to_string(),
            sum(|r| r.recovered).to_string(),
        ]);
    }
    super::print_text("\n")?;
    t.print();
    Ok(())
}

fn print_modelled(rows: &[Row]) -> Result<()> {
    super::print_line("modelled, not measured; one condition is varied at a time\n")?;
    let mut t = Table::new(&["parameter", "value", "meaning", "source"]);
    for p in PARAMETERS {
        let value = format!("{:.3}", (p.get)(&PAPER));
        t.row(vec![p.name.into(), value, p.doc.into(), p.source.into()]);
    }
    t.print();
    super::print_text("\n")?;
    let mut t = Table::new(&[
        "varied",
        "policy",
        "s a candidate",
        "against serial-spawn",
        "of all tuning",
        "against serial",
        "mean DP",
        "CPUs busy",
        "devices busy",
        "timed out",
    ]);
    for r in rows {
        let p = &r.prediction;
        t.row(vec![
            r.varied.clone(),
            p.policy.name().into(),
            format!("{:.4}", p.seconds / p.candidates.max(1) as f64),
            format!("{:+.1}%", r.against_serial_spawn),
            format!("{:+.1}%", r.of_tuning),
            format!("{:+.1}%", r.against_serial),
            p.mean_dp.map_or("-".into(), |dp| format!("{dp:.1}")),
            format!("{:.0}%", 100.0 * p.cpu_busy),
            format!("{:.0}%", 100.0 * p.device_busy),
            p.timed_out.to_string(),
        ]);
    }
    t.print();
    super::print_line(
        "\nThe paper measured -50.5% of all tuning time against serial-spawn over all of its \
         programs, and -32.4% for large ones.\nWhere candidates time out, less was measured: \
         times are not to be compared.",
    )?;
    Ok(())
}
