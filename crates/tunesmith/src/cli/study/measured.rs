//! `study measure`: policies compared on this machine.

use super::MeasureArgs;
use crate::cli::output::{Kind, Output, STUDY, STUDY_PICTURE, STUDY_REPORT};
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line, print_text};
use ir::Target;
use measure::{Policy, RoundReport};
use onnx::ImportOptions;
use search::Accuracy;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use study::plots::pictures;
use study::report::{markdown, share, tables};
use study::{
    FAMILIES, Findings, Row, Saved, Study, StudyOptions, Tasks, Variant, Workload, variants,
};
use tune::MeasureSettings;
use tune::known::Requirements;
use tune::machine::Machine;
use tune::{Error, Result};

/// Candidates of a program.
const MEASURED: usize = 128;
/// What candidates may be.
const ACCURACY: Accuracy = Accuracy::Relaxed;

fn options(a: &MeasureArgs, machine: &Machine) -> Result<StudyOptions> {
    let named = |name: &String| Policy::named(name).expect("the parser knows the names");
    let policies: Vec<Policy> = a.policies.iter().map(named).collect();
    let base = Variant {
        policy: Policy::Serial,
        swept: None,
        constants: a.doppler,
        rank: a.rank,
        samples: a.samples,
    };
    let variants =
        variants(&base, &policies, &a.sweep).map_err(|e| Error::new(format!("--sweep: {e}")))?;
    let spare = machine.cpus.saturating_sub(a.threads as usize);
    Ok(StudyOptions {
        variants,
        overlaps: match a.overlap.as_str() {
            "off" => vec![false],
            "on" => vec![true],
            _ => vec![false, true],
        },
        candidates: a.candidates.unwrap_or(MEASURED),
        repetitions: a.repetitions,
        builders: a.builders.unwrap_or(spare).max(1),
        seed: a.seed,
        accuracy: ACCURACY,
        tolerance: Requirements::of_knobs().tolerance,
        limit: a.limit,
        measure: MeasureSettings {
            policy: Policy::Serial,
            batch: a.measure_batch,
            devices: a.devices,
            core_set: vec![],
            oversubscribe: a.oversubscribe,
            constants: a.doppler,
            lose: a.lose,
        },
    })
}

/// All that a finished cell depends on, but for which cell it is.
fn header(a: &MeasureArgs, o: &StudyOptions, machine: &Machine, target: &Target) -> Value {
    json!({
        "machine": machine.fingerprint(),
        "target": target.to_string(),
        "toolchain": build::toolchain().to_string(),
        "candidates": o.candidates,
        "builders": o.builders,
        "rank": a.rank,
        "samples": a.samples,
        "measure_batch": a.measure_batch,
        "devices": a.devices,
        "oversubscribe": a.oversubscribe,
        "doppler": a.doppler,
        "lose": a.lose,
        "seed": a.seed,
        "accuracy": o.accuracy.name(),
        "tolerance": o.tolerance,
        "limit_s": o.limit.as_secs_f64(),
    })
}

/// Families first, then what was named; of an operator its main task, if its family does not say otherwise.
fn programs(a: &MeasureArgs, target: &Target) -> Result<Vec<Workload>> {
    let families = FAMILIES.iter().filter(|_| a.families);
    let families = families.map(|f| (f.name, f.operator, f.tasks));
    let named = a.models.iter().map(|m| {
        let tasks = match m.starts_with("op:") {
            true => Tasks::Main,
            false => Tasks::All,
        };
        (m.as_str(), m.as_str(), tasks)
    });
    let mut programs: Vec<Workload> = Vec::new();
    for (name, model, tasks) in families.chain(named) {
        if programs.iter().any(|p| p.name == name) {
            continue;
        }
        let source = crate::source::load(model, &ImportOptions::default())?;
        let plan = source.plan(target, ACCURACY, &[])?;
        let program = match tasks {
            Tasks::Main => Workload::main_task(name, &plan),
            Tasks::All => Some(Workload::whole(name, &plan, target, ACCURACY)),
        };
        programs.extend(program);
    }
    Ok(programs)
}

pub fn run(a: &MeasureArgs) -> Result<()> {
    let host = crate::cli::host()?;
    let target = host.machine.target(a.threads);
    let options = options(a, &host.machine)?;
    let header = header(a, &options, &host.machine, &target);
    let saved = match &a.out {
        Some(folder) => {
            let saved = Saved::open(folder, &header)?;
            output(a, folder, "study.json", STUDY)?;
            output(a, folder, "study.md", STUDY_REPORT)?;
            saved
        }
        None => Saved::default(),
    };
    let programs = programs(a, &target)?;
    let mut progress = Progress::new("study", a.json);
    let mut study = Study::new(&host, &target, &options, saved, &mut progress)?;
    let outcome = study.run(&programs)?;
    progress.finish();
    let all = json!({
        "kind": "measured",
        "study": header,
        "rows": outcome.rows,
        "models": outcome.models,
    });
    if let Some(folder) = &a.out {
        let about = format!(
            "{}; {} candidates for each operator, and for all tasks of a model together; {} repetitions; \
             kernels of {} threads; accuracy {}.",
            host.machine.cpu,
            options.candidates,
            options.repetitions,
            target.threads(),
            options.accuracy
        );
        save(a, folder, &outcome, &all, &about)?;
    }
    if a.json {
        return print_json(&all);
    }
    for grid in tables(&outcome) {
        let mut t = Table::new(&grid.header);
        for row in grid.rows {
            t.row(row);
        }
        print_line(&grid.title)?;
        t.print()?;
        print_text("\n")?;
    }
    if a.rounds {
        print_rounds(&outcome.rows)?;
    }
    Ok(())
}

/// A file of the report, which no model of the study is.
fn output(a: &MeasureArgs, folder: &Path, name: &str, kind: Kind) -> Result<Output> {
    let inputs = a.models.iter().map(PathBuf::from).collect();
    Output::new(&folder.join(name), kind, inputs)
}

/// Writes the report beside what was finished.
fn save(
    a: &MeasureArgs,
    folder: &Path,
    outcome: &Findings,
    all: &Value,
    about: &str,
) -> Result<()> {
    let write = |name: &str, kind: Kind, text: &str| {
        output(a, folder, name, kind)?.write_bytes(text.as_bytes())
    };
    let text = serde_json::to_string(all).expect("a study has no odd keys");
    write("study.json", STUDY, &text)?;
    let mut files = Vec::new();
    for picture in pictures(outcome, a.doppler.react.tau)? {
        write(&picture.file, STUDY_PICTURE, &picture.svg)?;
        files.push(picture.file);
    }
    let report = markdown(outcome, about, &files);
    write("study.md", STUDY_REPORT, &report)
}

/// How DOPpler's degree of parallelism went, and what came with each.
fn print_rounds(rows: &[Row]) -> Result<()> {
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
                format!("{} {} #{}", row.variant(), row.task, row.repetition + 1),
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
    print_text("\n")?;
    t.print()?;
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
    print_text("\n")?;
    t.print()?;
    Ok(())
}
