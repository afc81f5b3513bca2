//! `tune --evaluate static` or `simulate` for another machine: candidates are read, and nothing is measured.

use super::board::{Bundle, Top};
use super::model_args::{say, warn, warn_of_types};
use super::progress::Progress;
use super::table::{Table, counted, ms, times};
use super::tune::{Args, STOPPING, outputs};
use super::{screen, signals};
use crate::compile::join;
use crate::titles::short;
use ir::Target;
use plan::Plan;
use runtime::Pool;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use store::Store;
use tune::chooser::{Chooser, TaskScores};
use tune::compile::{Builders, assemble_last};
use tune::filter::{Distinct, Loops};
use tune::incumbent::MeasuredOn;
use tune::known::{Elsewhere, Lookup};
use tune::scorer::Scorer;
use tune::stretches::Stretched;
use tune::{Error, Host, Result, Stop, StopRule};

/// What was read of a model.
#[derive(Serialize)]
struct ReadReport {
    model: String,
    target: String,
    threads: u32,
    /// The processor whose cycles the scores count, by LLVM's name.
    score_cpu: String,
    /// Where the rates of the scores come from: `usual`, or a file.
    rates: String,
    strategy: String,
    seed: u64,
    trials: u64,
    wall_s: f64,
    /// What scores count: predicted cycles, or what a simulator counts.
    score: String,
    /// Cycles, or what scores count, that the model's kernels are predicted to take, under default schedules and under
    /// those that were chosen.
    default_cycles: f64,
    cycles: f64,
    artifact: String,
    /// The machine whose times decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    tasks: Vec<ReadTask>,
}

#[derive(Serialize)]
struct ReadTask {
    task: String,
    key: String,
    uses: usize,
    /// Of the candidate that was chosen.
    algorithm: String,
    /// Where it comes from.
    origin: Origin,
    /// The least time of a call that the machine measured whose times decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_ms: Option<f64>,
    /// Predicted cycles of one call.
    default_cycles: Option<f64>,
    cycles: Option<f64>,
    trials: u64,
    /// Why the first candidate without a score has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unscored: Option<String>,
    /// The candidates that are predicted to be the fastest, the first one first. Of those that the machine has timed whose
    /// times decide only the fastest, before all others.
    best: Vec<ReadCandidate>,
}

/// Where a candidate comes from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Origin {
    Default,
    /// It is predicted to be clearly faster.
    Read,
    /// The machine whose times decide has measured no faster one.
    Measured,
}

impl Origin {
    fn of(s: &TaskScores) -> Origin {
        match (&s.better, &s.measured) {
            (Some(_), _) => Origin::Read,
            (None, Some(_)) => Origin::Measured,
            (None, None) => Origin::Default,
        }
    }
}

#[derive(Serialize)]
struct ReadCandidate {
    algorithm: String,
    cycles: f64,
    /// The predicted time over the default's.
    time_ratio: Option<f64>,
    trace: String,
}

/// Options that say how candidates are built for measuring, and are measured.
const MEASURING: [&str; 33] = [
    "energy",
    "cost",
    "machine-file",
    "read-time",
    "budget",
    "survey",
    "tuners",
    "objective",
    "wanted",
    "cold-network",
    "cold-rule",
    "cold-least",
    "chance",
    "audit",
    "overlap",
    "learn-loops",
    "learner",
    "rotate",
    "builders",
    "in-model-time",
    "compare-time",
    "build-limit",
    "run-limit",
    "plain",
    "measure",
    "measure-batch",
    "devices",
    "core-sets",
    "oversubscribe",
    "lose",
    "rank",
    "drift",
    "doppler",
];

/// Filters that judge candidates by themselves.
const NEED_NO_TIMES: [&str; 2] = [Loops::NAME, Distinct::NAME];

/// Refuses options that only a run that measures heeds.
fn check(a: &Args) -> Result<()> {
    if a.report.is_some() {
        return Err(
            Error::new("--report shows what was measured, and nothing is measured here")
                .help("leave --report out; --json has what was read"),
        );
    }
    let unheard = a
        .filter
        .iter()
        .find(|f| !NEED_NO_TIMES.contains(&f.as_str()));
    if let Some(name) = unheard {
        let why =
            format!("--filter {name} learns from measured times, and nothing is measured here");
        let names = NEED_NO_TIMES.join(" or --filter ");
        return Err(Error::new(why).help(format!("give --filter {names}, or leave it out")));
    }
    let ignored = a.given.iter().find(|g| MEASURING.contains(&g.as_str()));
    match ignored {
        Some(name) => Err(Error::new(format!(
            "--{name} has no effect here: candidates for another machine are only read"
        ))
        .help(format!(
            "leave --{name} out, or tune on a machine that runs the target"
        ))),
        None => Ok(()),
    }
}

/// Says that other machines have measured tasks of the plan.
fn hint_at_times(a: &Args, chooser: &Chooser<'_>, store: &Store, plan: &Plan) -> Result<()> {
    let here = chooser.host.machine.fingerprint();
    let lookup = Lookup::new(store, plan, chooser.target, &here, chooser.requirements);
    let elsewhere = Elsewhere {
        threads: vec![],
        machines: lookup.other_machines()?,
    };
    a.machine
        .warn_of_defaults(&plan.name, chooser.target, &elsewhere);
    Ok(())
}

/// The machine whose times decide, if one is named.
fn measured_on<'a>(a: &'a Args, store: &'a Store) -> Result<Option<MeasuredOn<'a>>> {
    let named = a.machine.named(store)?;
    Ok(named.map(|machine| MeasuredOn { store, machine }))
}

pub fn run(a: &Args, begun: Instant, host: &Host, target: &Target) -> Result<ExitCode> {
    check(a)?;
    let store = a.store.read()?;
    let mut models = vec![a.model.sources()?];
    for name in &a.more {
        models.push(a.model.sources_named(name)?);
    }
    let key = a.sign.key()?;
    let outputs = outputs(a, &models)?;
    let variants = models.iter().map(Vec::len).sum::<usize>() as u32;
    let scoring = a.score.scoring(&a.store, &host.machine, target)?;
    let simulator = a.simulated(target)?;
    let chooser = Chooser {
        scorer: Scorer {
            simulator,
            ..Scorer::of_cycles(scoring.cpu, scoring.rates, target)
        },
        strategy: a.strategy.clone(),
        stop: match a.trials {
            Some(n) => StopRule::Trials(n),
            None => StopRule::Time(a.time / variants),
        },
        seed: a.seed,
        algorithms: a.algorithms.clone(),
        filters: a.filter.clone(),
        measured: measured_on(a, &store)?,
        interrupt: Stop::default(),
        ..Chooser::new(host, target, a.model.requirements())
    };
    let mut progress = Progress::new("tune", a.json);
    let speak = progress.speaker();
    let watched = signals::watch(chooser.interrupt.clone(), move || speak(STOPPING))?;
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let mut reports = Vec::new();
    let board = a.export_to.as_deref();
    let mut board = board.map(|d| Bundle::new(d, target)).transpose()?;
    for (sources, out) in models.into_iter().zip(&outputs) {
        let mut variants = None;
        for source in sources {
            warn_of_types(&source, target);
            let plan = source.plan_for(&host.machine, target, a.model.accuracy(), Some(&store))?;
            if chooser.measured.is_none() {
                hint_at_times(a, &chooser, &store, &plan)?;
            }
            let scores = chooser.read(&plan, |_| true, &mut progress)?;
            let mut report = report(&chooser, &plan, &scores, a.export_top);
            report.rates.clone_from(&scoring.source);
            report.artifact = out.path().display().to_string();
            report.wall_s = begun.elapsed().as_secs_f64();
            scores.iter().for_each(|s| warn(&s.warnings));
            reports.push(report);
            if let Some(folder) = &mut board {
                folder.add(&plan, &scores, a.export_top, host)?;
            }
            let chosen: Vec<_> = scores.iter().map(|s| s.chosen().clone()).collect();
            let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
            let kernels = builders.build_all(&plan.tasks, &chosen, target)?;
            let kernels: Vec<_> = kernels.into_iter().map(|k| vec![k]).collect();
            let (dims, accuracy) = (source.artifact_dims(), a.model.accuracy());
            drop(source);
            let none = Stretched::default();
            let model = assemble_last(plan, &kernels, &none, target, accuracy, &pool, false)?;
            variants = Some(join(variants, &dims, Arc::new(model))?);
        }
        if let Some(variants) = variants {
            out.save(&variants, key.as_ref())?;
        }
    }
    progress.finish();
    let exported = board.map(Bundle::finish).transpose()?;
    match (&reports[..], a.json) {
        ([report], true) => super::print_json(report)?,
        (reports, true) => super::print_json(&serde_json::json!({ "models": reports }))?,
        (reports, false) => {
            reports.iter().try_for_each(print)?;
            exported.map_or(Ok(()), |text| super::print_line(&text))?;
        }
    }
    Ok(watched.exit_code())
}

fn report(chooser: &Chooser<'_>, plan: &Plan, scores: &[TaskScores], top: Top) -> ReadReport {
    let uses = plan.uses();
    let one = |(i, s): (usize, &TaskScores)| ReadTask {
        task: plan.tasks[i].title(),
        key: plan.tasks[i].key.clone(),
        uses: uses[i],
        algorithm: s.chosen().algorithm.clone(),
        origin: Origin::of(s),
        measured_ms: s.measured.as_ref().map(|m| m.known.ns as f64 / 1e6),
        default_cycles: s.default_score,
        cycles: s.chosen_score(),
        trials: s.trials,
        unscored: s.unscored.clone(),
        best: s
            .to_time(top.of(s.best.len()))
            .into_iter()
            .map(candidate)
            .collect(),
    };
    let tasks: Vec<ReadTask> = scores.iter().enumerate().map(one).collect();
    let sum = |of: fn(&ReadTask) -> Option<f64>| -> f64 {
        let cycles = tasks.iter().map(|t| of(t).unwrap_or(0.0) * t.uses as f64);
        cycles.sum()
    };
    ReadReport {
        model: plan.name.clone(),
        target: chooser.target.name().into(),
        threads: chooser.target.threads(),
        score_cpu: chooser.scorer.cpu.clone(),
        score: chooser.scorer.kind(false),
        rates: String::new(),
        strategy: chooser.strategy.clone(),
        seed: chooser.seed,
        trials: tasks.iter().map(|t| t.trials).sum(),
        wall_s: 0.0,
        default_cycles: sum(|t| t.default_cycles),
        cycles: sum(|t| t.cycles),
        artifact: String::new(),
        machine: chooser.measured.map(|m| m.machine.to_string()),
        tasks,
    }
}

fn candidate(s: &tune::chooser::Scored) -> ReadCandidate {
    ReadCandidate {
        algorithm: s.candidate.algorithm.clone(),
        cycles: s.score,
        time_ratio: s.time_ratio,
        trace: schedule::print(&s.candidate.trace),
    }
}

/// What scores are shown in.
struct Unit {
    scale: f64,
    /// Before what is counted, with a space behind it.
    word: &'static str,
    digits: usize,
}

impl Unit {
    /// In which the largest of some scores has one to four digits before the point.
    fn of(largest: f64) -> Unit {
        let unit = |scale, word, digits| Unit {
            scale,
            word,
            digits,
        };
        match largest {
            v if v >= 1e6 => unit(1e6, "million ", 2),
            v if v >= 1e4 => unit(1e3, "thousand ", 1),
            _ => unit(1.0, "", 0),
        }
    }

    fn number(&self, score: f64) -> String {
        format!("{:.*}", self.digits, score / self.scale)
    }

    /// Of a column.
    fn heading(&self, name: &str) -> String {
        match self.word.trim_end() {
            "" => name.into(),
            word => format!("{name}, {word}s"),
        }
    }
}

/// What the times of a machine decided.
fn measured_text(machine: &str, tasks: &[ReadTask]) -> String {
    let known = tasks.iter().filter(|t| t.measured_ms.is_some());
    let (mut all, mut kept) = (0, 0);
    for t in known {
        all += 1;
        kept += usize::from(t.origin == Origin::Measured);
    }
    format!(
        "{machine} has measured {all} of {}; its fastest candidate stays in {kept}, and one that it has not timed and that is predicted to be clearly faster \
         replaces it in {}",
        counted(tasks.len() as u32, "task"),
        all - kept
    )
}

/// Rows of the table without `--wide`.
const ROWS: usize = 15;

fn print(r: &ReadReport) -> Result<()> {
    let largest = r.tasks.iter().filter_map(|t| t.default_cycles.or(t.cycles));
    let of_tasks = Unit::of(largest.fold(0.0, f64::max));
    let [default, chosen] = ["default", "chosen"].map(|name| of_tasks.heading(name));
    let header = [
        "task",
        "uses",
        &default,
        &chosen,
        "gain",
        "read",
        "algorithm",
    ];
    let measured = r.machine.as_ref().map(|_| "measured ms");
    let header: Vec<&str> = header.into_iter().chain(measured).collect();
    let mut t = Table::new(&header).dispensable(&["uses", "read", "algorithm"]);
    let titles: Vec<&str> = r.tasks.iter().map(|t| t.task.as_str()).collect();
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    for (task, title) in r.tasks.iter().zip(short(&titles)) {
        let shown = |cycles: Option<f64>| cycles.map_or("-".into(), |c| of_tasks.number(c));
        let gain = task.default_cycles.zip(task.cycles).map(|(d, c)| d / c);
        let mut row = vec![
            title,
            task.uses.to_string(),
            shown(task.default_cycles),
            shown(task.cycles),
            gain.map_or("-".into(), times),
            task.trials.to_string(),
            task.algorithm.clone(),
        ];
        row.extend(measured.map(|_| ms(task.measured_ms)));
        rows.push((task.cycles.unwrap_or(0.0) * task.uses as f64, row));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shown = if screen::is_wide() { rows.len() } else { ROWS };
    let left = rows.len().saturating_sub(shown);
    rows.into_iter().take(shown).for_each(|(_, row)| t.row(row));
    t.print()?;
    if left > 0 {
        super::print_line(&format!("{left} more tasks (--wide shows all)"))?;
    }
    let unit = Unit::of(r.default_cycles.max(r.cycles));
    let compared = match r.tasks.iter().any(|t| t.default_cycles.is_some()) {
        true => format!(
            "{} {}{}, {} with defaults ({})",
            unit.number(r.cycles),
            unit.word,
            r.score,
            unit.number(r.default_cycles),
            times(r.default_cycles / r.cycles.max(1.0)),
        ),
        false => "nothing is known of its kernels".into(),
    };
    if let Some(machine) = &r.machine {
        super::print_line(&measured_text(machine, &r.tasks))?;
    }
    super::print_line(&format!(
        "{}: {compared}; {} candidates read in {:.0} s, none run",
        r.model, r.trials, r.wall_s,
    ))?;
    let mut unread: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for t in r.tasks.iter().filter(|t| t.default_cycles.is_none()) {
        *unread.entry(t.unscored.as_deref()).or_default() += 1;
    }
    for (why, n) in unread {
        say(&match why {
            Some(why) => {
                format!("warning: the defaults of {n} tasks have no score, and they stay: {why}")
            }
            None => format!(
                "warning: the defaults of {n} tasks were not read, and they stay; give more --time"
            ),
        });
    }
    super::print_line(&format!("written to {}", r.artifact))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_unit_shows_small_scores_and_large_ones() {
        let shown = |v: f64| format!("{} {}cycles", Unit::of(v).number(v), Unit::of(v).word);
        let expected = [
            (312.4, "312 cycles"),
            (9_999.0, "9999 cycles"),
            (12_345.0, "12.3 thousand cycles"),
            (3_456_789.0, "3.46 million cycles"),
        ];
        for (v, text) in expected {
            assert_eq!(shown(v), text);
        }
        assert_eq!(Unit::of(5e4).heading("default"), "default, thousands");
        assert_eq!(Unit::of(5.0).heading("default"), "default");
    }

    #[test]
    fn refused_options_are_those_of_the_command() {
        let cli = super::super::Cli::command();
        let tune = cli.find_subcommand("tune").expect("there is tune");
        let names: Vec<&str> = tune.get_arguments().filter_map(|a| a.get_long()).collect();
        for name in MEASURING {
            assert!(names.contains(&name), "--{name}");
        }
    }
}
