//! `replay`: one candidate built and measured again, or the log of a run printed.
//!
//! A log is never mixed with measurements: what comes from it says *replayed*.

use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here};
use super::parse::parse_time;
use super::records::title;
use super::table::{Table, counted, ms};
use super::task_args::{Which, pick};
use measure::{Measured, Protocol, RunnerProcess, TaskData};
use runtime::BuiltKernel;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::slice::from_ref;
use std::time::Duration;
use store::{Event, EventKind, Outcome, RecordQuery, Run, Store};
use tune::compile::{Builders, fallbacks};
use tune::fills;
use tune::known::rotate_bytes;
use tune::machine::Machine;
use tune::threads::unpinned;
use tune::{Error, Result};

/// Measure one trace again, or print the log of a tuning run
#[derive(clap::Args)]
#[command(
    mut_arg("model", |a| a.required(false).required_unless_present("run")),
    override_usage = "tunesmith replay MODEL --trace FILE [--task TASK] [OPTIONS]\n       tunesmith replay --run RUN_ID [--task TASK] [--store FILE] [--json]",
    after_help = "Examples:\n  tunesmith replay resnet18 --task 3 --trace slow.trace --threads 1\n  tunesmith replay 'op:dense(m=64,n=64,k=64)' --trace best\n  tunesmith replay --run 1795231998981-20570-1"
)]
pub struct Args {
    #[command(flatten)]
    model: Option<ModelArgs>,
    #[command(flatten)]
    store: StoreArgs,
    /// Which task: its number, the start of its key, or a part of its title
    #[arg(long)]
    task: Option<String>,
    /// Which candidate: a file with a trace, or default, fallback, or best (of the store)
    #[arg(
        long,
        value_name = "FILE",
        value_parser = clap::value_parser!(Which),
        required_unless_present = "run",
    )]
    trace: Option<Which>,
    #[command(flatten)]
    machine: MachineOption,
    /// The run whose log is printed: its id, or the start of its id
    #[arg(long, value_name = "RUN_ID", conflicts_with_all = ["model", "trace"])]
    run: Option<String>,
    /// Samples to take
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Seed of the values in the task's inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time after which the runner is killed
    #[arg(long, value_parser = parse_time, default_value = "30s")]
    run_limit: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    match (&a.run, &a.model, &a.trace) {
        (Some(id), ..) => {
            let advice = "leave it out: the log says which machine measured";
            a.machine.refuse("a log is printed", advice)?;
            log(a, id)
        }
        (None, Some(model), Some(which)) => {
            which.check_machine(&a.machine, "--trace")?;
            measure_again(a, model, which)
        }
        _ => Err(Error::new("there is nothing to replay")
            .help("give MODEL and --trace FILE, or --run RUN_ID")),
    }
}

/// What measuring one trace said.
#[derive(Serialize)]
struct Replayed {
    model: String,
    task: String,
    key: String,
    algorithm: String,
    /// Whether the outputs agreed with those of the plain schedule.
    correct: bool,
    median_ms: Option<f64>,
    /// With at least 95% confidence.
    interval_ms: Option<(f64, f64)>,
    min_ms: Option<f64>,
    gflops_per_s: Option<f64>,
    code_bytes: usize,
    outcome: Outcome,
}

/// How a candidate is measured alone: the finalists' way.
fn protocol(a: &Args, tolerance: f64, machine: &Machine, target: &ir::Target) -> Protocol {
    let mut p = Protocol::new(target.threads(), target.llc_bytes());
    (p.min_samples, p.max_samples) = (a.samples, a.samples);
    p.tolerance = tolerance;
    p.limit_ns = u64::try_from(a.run_limit.as_nanos()).unwrap_or(u64::MAX);
    // All samples that were asked for, as long as the limit allows.
    p.max_ns = p.limit_ns;
    if target.threads() == 1 && machine.cpus > 1 {
        p.pin = vec![0];
    }
    p
}

fn measure_again(a: &Args, model: &ModelArgs, which: &Which) -> Result<ExitCode> {
    let host = super::host()?;
    let machine = &host.machine;
    let target = model.resolve_target(machine)?;
    check_runs_here(&target)?;
    let source = model.source()?;
    let store = a.store.read()?;
    let plan = source.plan_for(machine, &target, model.accuracy(), Some(&store))?;
    let index = match &a.task {
        Some(wanted) => pick(&plan, wanted)?,
        None if plan.tasks.len() == 1 => 0,
        None => pick(&plan, "")?,
    };
    let task = &plan.tasks[index];
    let requirements = model.requirements();
    let measured_on = a.machine.fingerprint(&store, machine)?;
    let candidate = which.candidate(&plan, task, &measured_on, &target, requirements, &store)?;
    let mut builders = Builders::new(&host.workers, 1)?;
    let here = machine.target(target.threads());
    let plain = fallbacks(from_ref(task), &here)?;
    let oracle = builders.build_all(from_ref(task), &plain, &here)?.remove(0);
    let built = builders
        .build_all(from_ref(task), from_ref(&candidate), &target)?
        .remove(0);
    let data = TaskData {
        id: 0,
        seed: a.seed,
        args: fills(&task.program),
        oracle: BuiltKernel::clone(&oracle),
    };
    let mut runner = unpinned(|| RunnerProcess::new(&host.workers.runner))?;
    let mut protocol = protocol(a, model.tolerance, machine, &target);
    protocol.rotate_bytes = rotate_bytes(&plan, &target, protocol.rotate_bytes);
    runner.load_task(&data, &protocol)?;
    let m: Measured = runner.measure(&data, &built, &protocol, None, false);
    let median_ns = m.outcome.median_ns();
    let in_ms = |ns: u64| ns as f64 / 1e6;
    let samples: &[u64] = match &m.outcome {
        Outcome::Timed { samples_ns, .. } => samples_ns,
        _ => &[],
    };
    let r = Replayed {
        model: source.name.clone(),
        task: task.title(),
        key: task.key.clone(),
        algorithm: candidate.algorithm,
        correct: median_ns.is_some(),
        median_ms: median_ns.map(in_ms),
        interval_ms: store::median_interval(samples, 0.95).map(|i| (in_ms(i.low), in_ms(i.high))),
        min_ms: store::min(samples).map(in_ms),
        gflops_per_s: median_ns.map(|ns| task.flops / ns.max(1) as f64),
        code_bytes: built.code.len(),
        outcome: m.outcome,
    };
    if a.json {
        super::print_json(&r)?;
    } else {
        super::print_text(&replayed_text(&r))?;
    }
    Ok(match r.correct {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn replayed_text(r: &Replayed) -> String {
    let head = format!(
        "{}: {}, {} bytes of code\n",
        r.task, r.algorithm, r.code_bytes
    );
    let Outcome::Timed {
        samples_ns,
        conditions,
        ..
    } = &r.outcome
    else {
        let what = serde_json::to_string(&r.outcome).unwrap_or_default();
        return format!("{head}{}: {what}\n", r.outcome.label());
    };
    let samples: Vec<String> = samples_ns
        .iter()
        .map(|ns| format!("{:.6}", *ns as f64 / 1e6))
        .collect();
    let interval = r.interval_ms.map_or(String::new(), |(low, high)| {
        format!(" (95% within {low:.6} to {high:.6})")
    });
    format!(
        "{head}samples (ms) {}\nmedian {} ms{interval}, min {} ms, {:.1} GFLOP/s\n\
         correct against the plain schedule; {}, {} calls a sample, {} copies of constants, {}\n",
        samples.join(" "),
        r.median_ms.map_or("-".into(), |v| format!("{v:.6}")),
        r.min_ms.map_or("-".into(), |v| format!("{v:.6}")),
        r.gflops_per_s.unwrap_or(0.0),
        counted(conditions.threads, "thread"),
        conditions.repeats,
        conditions.const_copies,
        if conditions.pinned {
            "pinned"
        } else {
            "not pinned"
        },
    )
}

/// One line of a replayed log.
#[derive(Serialize)]
struct Line {
    seq: u64,
    kind: String,
    task: Option<String>,
    /// The best time of the task after this event.
    best_ns: Option<u64>,
    payload: serde_json::Value,
    #[serde(skip)]
    event: EventKind,
}

/// What the log says of one task.
#[derive(Default, Serialize)]
struct TaskLog {
    title: String,
    asks: u64,
    tells: u64,
    best_ns: Option<u64>,
    best_trial: Option<u64>,
}

#[derive(Serialize)]
struct Replay {
    /// Always: nothing here was measured now.
    replayed: bool,
    run: Run,
    events: Vec<Line>,
    tasks: BTreeMap<String, TaskLog>,
    /// Tells that say something else than the record of their trial.
    contradictions: Vec<u64>,
}

/// The one run whose id starts so.
fn find_run(store: &Store, id: &str) -> Result<Run> {
    let mut found: Vec<Run> = store.runs()?;
    found.retain(|r| r.run_id.starts_with(id));
    if let Some(exact) = found.iter().position(|r| r.run_id == id) {
        return Ok(found.remove(exact));
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(
            Error::new(format!("the store {} has no run `{id}`", store.path()))
                .help("`records runs` lists the runs"),
        ),
        n => Err(Error::new(format!("`{id}` is the start of {n} run ids"))
            .help("give more of it; `records runs` lists the runs")),
    }
}

/// The times of a run's records, by task, trial and evaluator.
type Recorded = BTreeMap<(String, u64, String), Option<u64>>;

/// Goes through the events of a run in their order.
fn replay(store: &Store, run: Run, task: Option<&str>) -> Result<Replay> {
    let titles: BTreeMap<String, String> = store
        .tasks()?
        .into_iter()
        .map(|t| (t.key.clone(), title(&t)))
        .collect();
    let mut recorded = Recorded::new();
    let filter = RecordQuery {
        run: Some(&run.run_id),
        final_: Some(false),
        ..RecordQuery::default()
    };
    store.visit_records(&filter, |_, r| {
        let ns = r.outcome.median_ns();
        recorded.insert((r.task, r.trial, r.evaluator), ns);
        Ok(())
    })?;
    let events = store.events(&run.run_id)?;
    let mut out = Replay {
        replayed: true,
        run,
        events: vec![],
        tasks: BTreeMap::new(),
        contradictions: vec![],
    };
    for e in events {
        let name = e.task.as_ref().and_then(|k| titles.get(k)).cloned();
        let named = |w: &str| {
            let title = name.as_ref().is_some_and(|t| t.contains(w));
            title || e.task.as_ref().is_some_and(|k| k.starts_with(w))
        };
        if task.is_none_or(named) {
            take(&mut out, &recorded, e, name)?;
        }
    }
    Ok(out)
}

fn take(out: &mut Replay, recorded: &Recorded, e: Event, name: Option<String>) -> Result<()> {
    let mut best_ns = None;
    if let Some(key) = &e.task {
        let t = out.tasks.entry(key.clone()).or_insert_with(|| TaskLog {
            title: name.clone().unwrap_or_else(|| key.clone()),
            ..TaskLog::default()
        });
        match &e.kind {
            EventKind::Ask(_) => t.asks += 1,
            EventKind::Tell(told) => {
                t.tells += 1;
                let record = (key.clone(), told.trial, told.evaluator.clone());
                let ns = told.median_ns;
                if recorded.get(&record).is_some_and(|r| *r != ns) {
                    out.contradictions.push(e.seq);
                }
                if ns.is_some_and(|ns| t.best_ns.is_none_or(|best| ns < best)) {
                    (t.best_ns, t.best_trial) = (ns, Some(told.trial));
                }
            }
            _ => {}
        }
        best_ns = t.best_ns;
    }
    let payload = e.kind.payload();
    let payload = payload.map_err(|e| Error::new(format!("an event cannot be written: {e}")))?;
    out.events.push(Line {
        seq: e.seq,
        kind: e.kind.name().to_string(),
        task: name.or(e.task),
        best_ns,
        payload,
        event: e.kind,
    });
    Ok(())
}

/// What an event says, besides its trial.
fn said(l: &Line) -> String {
    match &l.event {
        EventKind::Ask(ask) => {
            let values: Vec<String> = ask.values.iter().map(u64::to_string).collect();
            format!("{} [{}]", ask.algorithm, values.join(","))
        }
        EventKind::Tell(told) => told.outcome.clone(),
        EventKind::Seen(_) => "later candidates are compared with it".into(),
        EventKind::Kept(k) => format!("{} keeps {:?}", k.filter, k.trials),
        EventKind::Revised(r) => format!("of run {}: {} {}", r.run, r.score.value, r.score.kind),
        _ => l.payload.to_string(),
    }
}

fn log(a: &Args, id: &str) -> Result<ExitCode> {
    let store = a.store.existing()?;
    let run = find_run(&store, id)?;
    let r = replay(&store, run, a.task.as_deref())?;
    if r.events.is_empty() {
        let error = Error::new(format!(
            "the log of run {} has no matching event",
            r.run.run_id
        ));
        return Err(error.help(
            "leave out --task; a run that found every candidate in the store asks for none",
        ));
    }
    if a.json {
        super::print_json(&r)?;
    } else {
        super::print_text(&log_text(&r))?;
    }
    if r.contradictions.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Error::new(format!(
        "{} results in the log contradict their records; the first is event {}",
        r.contradictions.len(),
        r.contradictions[0]
    ))
    .help("the store was edited or mixed; import the runs again from where they were measured"))
}

fn log_text(r: &Replay) -> String {
    let mut t = Table::new(&["task", "event", "kind", "trial", "what", "ms", "best ms"]);
    let in_ms = |ns: Option<u64>| ms(ns.map(|ns| ns as f64 / 1e6));
    for l in &r.events {
        let (trial, took) = match &l.event {
            EventKind::Ask(ask) => (Some(ask.trial), String::new()),
            EventKind::Tell(told) => (Some(told.trial), in_ms(told.median_ns)),
            EventKind::Seen(seen) => (Some(seen.trial), String::new()),
            EventKind::Revised(revised) => (Some(revised.trial), String::new()),
            _ => (None, String::new()),
        };
        t.row(vec![
            l.task.clone().unwrap_or_else(|| "-".into()),
            l.seq.to_string(),
            l.kind.clone(),
            trial.map_or("-".into(), |n| n.to_string()),
            said(l),
            took,
            in_ms(l.best_ns),
        ]);
    }
    let mut s = Table::new(&["task", "asks", "tells", "best ms", "trial"]);
    for l in r.tasks.values() {
        s.row(vec![
            l.title.clone(),
            l.asks.to_string(),
            l.tells.to_string(),
            in_ms(l.best_ns),
            l.best_trial.map_or("-".into(), |n| n.to_string()),
        ]);
    }
    format!(
        "{}\n{}\nreplayed: run {} of {} ({}, seed {}), {} events; nothing was measured now\n",
        t.text(),
        s.text(),
        r.run.run_id,
        r.run.model,
        r.run.strategy,
        r.run.seed,
        r.events.len()
    )
}
