//! `study strategies` on operators and models: real searches, each of them one `tune`.
//!
//! A search begins with an empty store and no objects compiled before, in a process of its own: the study's own program. Strategies
//! take turns. What is finished stays in a folder, and the same command goes on from there.

use super::strategies::Args;
use crate::cli::output::{Output, PICTURE, STUDY as FIGURES};
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::{host, print_json, print_line};
use graph::builtin::MODELS;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use store::{RecordQuery, Store};
use study::Finished;
use study::plots::{MEASURED, convergence};
use study::searched::{OPERATORS, Outcome, Over, Searched, WITHIN, compared, kept};
use tune::filter::filter_names;
use tune::{Error, Observer, Result};

/// Compared where none are named.
const STRATEGIES: [&str; 6] = [
    "evolutionary",
    "funnel",
    "annealing",
    "genetic",
    "droplet",
    "random",
];
const SEEDS: u64 = 3;
const TRIALS: u64 = 64;

/// What a strategy may have beside filters, and the options of `tune` that it stands for.
const ADDITIONS: [(&str, [&str; 2]); 4] = [
    ("read", ["--read-time", "3s"]),
    ("columns", ["--learn-loops", "on"]),
    ("network", ["--learner", "network"]),
    ("noise", ["--learner", "random"]),
];

/// Whether an argument names what is searched for real, and not a table.
pub fn is_model(name: &str) -> bool {
    let onnx = Path::new(name).extension().is_some_and(|e| e == "onnx");
    name.starts_with("op:") || onnx || MODELS.iter().any(|m| m.name == name)
}

/// A strategy, or one with additions joined by +.
pub fn parse_strategy(text: &str) -> std::result::Result<String, String> {
    let mut parts = text.split('+');
    let strategy = parts.next().unwrap_or_default();
    let known = search::strategy_names();
    if !known.contains(&strategy) {
        let known = known.join(", ");
        return Err(format!(
            "there is no strategy `{strategy}`; use one of: {known}"
        ));
    }
    let mut additions: Vec<&str> = ADDITIONS.iter().map(|(name, _)| *name).collect();
    additions.extend(filter_names());
    match parts.find(|part| !additions.contains(part)) {
        None => Ok(text.into()),
        Some(part) => Err(format!(
            "there is no addition `{part}`; use one of: {}",
            additions.join(", ")
        )),
    }
}

/// The options of `tune` that a strategy with additions stands for.
fn options_of(text: &str) -> Vec<String> {
    let mut parts = text.split('+');
    let mut options = vec!["--strategy", parts.next().unwrap_or_default()];
    let mut filters = Vec::new();
    for part in parts {
        match ADDITIONS.iter().find(|(name, _)| *name == part) {
            Some((_, own)) => options.extend(own),
            None => filters.push(part),
        }
    }
    // Else a run that is limited by trials would read as well.
    if !options.contains(&"--read-time") {
        options.extend(["--read-time", "0s"]);
    }
    let mut options: Vec<String> = options.into_iter().map(String::from).collect();
    if !filters.is_empty() {
        options.extend(["--filter".into(), filters.join(",")]);
    }
    options
}

/// The names in another order each round, rotated and every other round reversed: nobody always follows the same neighbour.
fn turned<T: Clone>(names: &[T], round: usize) -> Vec<T> {
    let mut order = names.to_vec();
    order.rotate_left(round % names.len().max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Tells the content of a file from that of others.
fn content(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

/// What of the options tells one study from others.
struct Plan {
    models: Vec<String>,
    /// Of each model, the content of its file if it is one.
    contents: Vec<Option<String>>,
    strategies: Vec<String>,
    starts: Vec<String>,
    seeds: u64,
    trials: u64,
    threads: u32,
    program: PathBuf,
}

impl Plan {
    fn of(a: &Args) -> Result<Plan> {
        let mut models = a.subjects.clone();
        if a.operators {
            models.extend(OPERATORS.map(String::from));
        }
        let of_file = |name: &String| {
            let path = Path::new(name);
            let file = !name.starts_with("op:") && path.is_file();
            file.then(|| content(path)).transpose()
        };
        let contents = models.iter().map(of_file).collect::<Result<_>>()?;
        let strategies = match a.strategies.is_empty() {
            true => STRATEGIES.map(String::from).to_vec(),
            false => a.strategies.clone(),
        };
        let program = std::env::current_exe()
            .map_err(|e| Error::new(format!("cannot tell where this program lies: {e}")))?;
        Ok(Plan {
            models,
            contents,
            strategies,
            starts: match a.start.is_empty() {
                true => vec!["defaults".into()],
                false => a.start.clone(),
            },
            seeds: a.seeds.unwrap_or(SEEDS),
            trials: a.trials.unwrap_or(TRIALS),
            threads: a.threads.unwrap_or(1),
            program,
        })
    }

    /// The search of one model, if it is finished.
    fn finished<'a>(&self, all: &'a [Searched], s: &Wanted<'_>) -> Option<&'a Searched> {
        let same = |f: &&Searched| {
            (&f.model, &f.content) == (&self.models[s.model], &self.contents[s.model])
                && (f.strategy.as_str(), f.start.as_str(), f.seed) == (s.strategy, s.start, s.seed)
        };
        all.iter().find(same)
    }

    /// The searches that are compared with each other directly, group by group in the order in which they run.
    fn groups(&self) -> Vec<Vec<Wanted<'_>>> {
        let mut groups = Vec::new();
        for seed in 1..=self.seeds {
            for model in 0..self.models.len() {
                let round = groups.len() / self.starts.len();
                for start in &self.starts {
                    let one = |strategy| Wanted {
                        model,
                        strategy,
                        start,
                        seed,
                    };
                    let turn: Vec<&str> = self.strategies.iter().map(String::as_str).collect();
                    groups.push(turned(&turn, round).into_iter().map(one).collect());
                }
            }
        }
        groups
    }
}

/// A search that the study is to have.
struct Wanted<'a> {
    /// By its place.
    model: usize,
    strategy: &'a str,
    start: &'a str,
    seed: u64,
}

/// Tunes a model once.
fn searched(plan: &Plan, s: &Wanted<'_>) -> Result<Searched> {
    let model = &plan.models[s.model];
    let failed = |e: std::io::Error| Error::new(format!("cannot run `tune`: {e}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let store = folder.path().join("store.sqlite");
    let mut tune = Command::new(&plan.program);
    tune.args(["tune", model, "--json", "--start", s.start])
        .args(["--threads", &plan.threads.to_string()])
        .args(["--trials", &plan.trials.to_string()])
        .args(["--seed", &s.seed.to_string()])
        .args(options_of(s.strategy))
        .args(["--compare-time", "100ms", "--in-model-time", "0s"])
        .arg("--store")
        .arg(&store)
        .arg("--out")
        .arg(folder.path().join("tuned.tsm"))
        // Else the objects of one search would be ready for the next one.
        .env("XDG_CACHE_HOME", folder.path());
    // SAFETY: a call that takes numbers only. A search that outlived a killed study would disturb the next one.
    unsafe {
        tune.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let done = tune.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        let last = said.trim_end().lines().rev().take(3).collect::<Vec<_>>();
        let why = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
        return Err(Error::new(format!(
            "`tune` ended with {}: {why}",
            done.status
        )));
    }
    let report: Value = serde_json::from_slice(&done.stdout)
        .map_err(|e| Error::new(format!("`tune --json` printed no JSON: {e}")))?;
    let tasks = report["tasks"].as_array().into_iter().flatten();
    let uses = tasks.filter_map(|t| Some((t["key"].as_str()?.to_string(), t["uses"].as_u64()?)));
    let uses: BTreeMap<String, u64> = uses.collect();
    let store = Store::open_to_read(&store)?;
    let began = store.runs()?.first().map_or(0, |run| run.started_unix_ms);
    let records = store.records_for(&RecordQuery::default())?;
    let (trials, cpu_s) = kept(&records, began, &uses);
    if !trials.iter().any(|t| t.ns.is_some()) {
        return Err(Error::new("no candidate has a time"));
    }
    Ok(Searched {
        model: model.clone(),
        content: plan.contents[s.model].clone(),
        strategy: s.strategy.into(),
        start: s.start.into(),
        seed: s.seed,
        trials,
        cpu_s,
    })
}

/// Runs what is not finished; the searches of all groups that are whole, and what failed in the others. Strategies are compared where all
/// of them searched.
fn search_all(
    plan: &Plan,
    finished: &mut Finished<Searched>,
    progress: &mut Progress,
) -> Result<(Vec<Searched>, Vec<String>)> {
    let groups = plan.groups();
    let all: usize = groups.iter().map(Vec::len).sum();
    let (mut searches, mut failures, mut done) = (vec![], vec![], 0);
    for group in &groups {
        let mut own = Vec::new();
        for s in group {
            let what = format!(
                "{}, seed {}, from {}: {}",
                plan.models[s.model], s.seed, s.start, s.strategy
            );
            progress.part(done as f64 / all as f64, &what);
            done += 1;
            if plan.finished(&finished.entries, s).is_none() {
                match searched(plan, s) {
                    Ok(search) => finished.add(search)?,
                    Err(e) => failures.push(format!("{what}: {e}")),
                }
            }
            own.extend(plan.finished(&finished.entries, s).cloned());
        }
        if own.len() == group.len() {
            searches.extend(own);
        }
    }
    // In the order in which they were asked for, and not in that of the first turn.
    let place = |s: &Searched| plan.strategies.iter().position(|name| *name == s.strategy);
    searches.sort_by_key(place);
    Ok((searches, failures))
}

pub fn run(a: &Args) -> Result<()> {
    let plan = Plan::of(a)?;
    let inputs = plan.models.iter().map(PathBuf::from);
    let inputs: Vec<PathBuf> = inputs.filter(|path| path.is_file()).collect();
    let picture = match &a.curves {
        Some(path) => Some(Output::new(path, PICTURE, inputs.clone())?),
        None => None,
    };
    let machine = host()?.machine;
    let header = json!({
        "kind": "measured",
        "trials": plan.trials,
        "threads": plan.threads,
        "program": content(&plan.program)?,
        "machine": machine.description(),
    });
    let mut finished: Finished<Searched> = match &a.out {
        Some(folder) => Finished::open(folder, &header)?,
        None => Finished::default(),
    };
    let mut progress = Progress::new("study", a.json);
    let done = search_all(&plan, &mut finished, &mut progress);
    progress.finish();
    let (searches, failures) = done?;
    if searches.is_empty() {
        return Err(failed(&failures));
    }
    let (mut outcomes, curves) = compared(&searches, plan.trials as usize, machine.cpus);
    // The best first, and what has no mean last.
    let rank = |o: &Outcome| o.equal_trials.mean.unwrap_or(f64::INFINITY);
    outcomes.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let figures = json!({
        "kind": "measured",
        "study": header,
        "searches": searches,
        "strategies": outcomes,
        "progress": curves,
        "within": WITHIN,
        "left_out": failures,
    });
    if let Some(folder) = &a.out {
        let out = Output::new(&folder.join("strategies.json"), FIGURES, inputs)?;
        out.write_bytes(figures.to_string().as_bytes())?;
    }
    match a.json {
        true => print_json(&figures)?,
        false => print(&plan, &machine.description(), &outcomes)?,
    }
    if let Some(picture) = picture {
        picture.write_bytes(convergence(&curves, MEASURED)?.as_bytes())?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failed(&failures)),
    }
}

fn failed(failures: &[String]) -> Error {
    let (n, all) = (failures.len(), failures.join("; "));
    Error::new(format!("{n} of the searches failed: {all}")).help(
        "strategies were compared where all of them searched; the same command with --out tries again",
    )
}

fn cell(over: &Over) -> String {
    let spread = over.spread.map(|s| format!(" ± {:.1}%", 100.0 * s));
    let mean = over.mean.map_or("-".into(), |m| format!("{m:.3}"));
    mean + &spread.unwrap_or_default()
}

fn print(plan: &Plan, machine: &str, outcomes: &[Outcome]) -> Result<()> {
    let threads = plan.threads;
    print_line(&format!(
        "measured on {machine}; threads of kernels: {threads}"
    ))?;
    let near: Vec<[String; 3]> = WITHIN
        .iter()
        .map(|w| {
            let goal = format!("{:.0}%", 100.0 * w);
            [
                format!("trials to {goal}"),
                format!("s to {goal}"),
                format!("within {goal}"),
            ]
        })
        .collect();
    for start in &plan.starts {
        print_line(&format!("\nfrom {start}:"))?;
        let mut columns = vec!["strategy", "searches", "equal trials", "equal s"];
        columns.extend(near.iter().flatten().map(String::as_str));
        columns.extend(["trials/s", "search", "build", "measure", "idle"]);
        let mut t = Table::new(&columns).dispensable(&[
            "idle",
            "measure",
            "build",
            "search",
            "within 2%",
            "s to 2%",
            "trials to 2%",
            "trials/s",
            "s to 5%",
        ]);
        for o in outcomes.iter().filter(|o| o.start == *start) {
            let mut row = vec![o.strategy.clone(), o.searches.to_string()];
            row.extend([cell(&o.equal_trials), cell(&o.equal_seconds)]);
            for n in &o.near {
                row.push(n.trials.map_or("-".into(), |n| format!("{n:.0}")));
                row.push(n.seconds.map_or("-".into(), |s| format!("{s:.1}")));
                row.push(format!("{} of {}", n.reached, o.searches));
            }
            row.push(format!("{:.1}", o.trials_per_s));
            let s = &o.shares;
            let shares = [s.search, s.build, s.measure, s.idle];
            row.extend(shares.map(|share| format!("{:.0}%", 100.0 * share)));
            t.row(row);
        }
        t.print()?;
    }
    print_line(&format!(
        "Equal trials: the latency after {} trials over the best of all searches, as a geometric mean; ± is the standard deviation between seeds.",
        plan.trials
    ))?;
    print_line(
        "Equal s: the same after as many seconds as the first strategy took for its trials of the same model and seed; - where a search has no kernel of each task then.",
    )?;
    print_line(
        "Trials and s to 5% and 2%: medians until a search is so near the best of all; - where it is a search that does not get there.",
    )?;
    print_line(
        "Search, build, measure, idle: parts of the time of all CPUs; search has what strategies and filters take, with their models and features.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_with_additions_stands_for_options() {
        let wanted = "--strategy funnel --read-time 3s --filter score,neighbours";
        let found = parse_strategy("funnel+read+score+neighbours").unwrap();
        assert_eq!(options_of(&found).join(" "), wanted);
        let wanted = "--strategy es --learn-loops on --read-time 0s";
        assert_eq!(options_of("es+columns").join(" "), wanted);
        assert!(
            parse_strategy("es+fast")
                .unwrap_err()
                .contains("no addition `fast`")
        );
        assert!(
            parse_strategy("fast")
                .unwrap_err()
                .contains("no strategy `fast`")
        );
    }

    #[test]
    fn strategies_take_turns() {
        let names = ["a", "b", "c"];
        assert_eq!(turned(&names, 0), ["a", "b", "c"]);
        assert_eq!(turned(&names, 1), ["a", "c", "b"]);
        assert_eq!(turned(&names, 2), ["c", "a", "b"]);
    }

    #[test]
    fn tables_are_no_models() {
        assert!(["op:matmul(m=4)", "a/b.onnx", "resnet18"].map(is_model) == [true; 3]);
        assert!(["t4.json.gz", "store.sqlite", "export.jsonl"].map(is_model) == [false; 3]);
    }
}
