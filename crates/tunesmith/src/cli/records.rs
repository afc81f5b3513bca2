//! `records`: what the store remembers, as tables and as files.

use super::model_args::StoreArgs;
use super::output::{Output, RECORDS, T4};
use super::records_label;
use super::table::{Table, counted, ms};
use super::train_cold;
use crate::imported::judge;
use crate::titles::short;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use store::{JsonLines, Record, RecordPlace, RecordQuery, Run, Store, StoreError, Task};
use tune::{Error, Result};

/// List, count, export and import tuning records
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith records --model resnet18 --outcome wrong\n  tunesmith records runs\n  tunesmith records best --op conv2d --json\n  tunesmith records counts\n  tunesmith records label --plot labels.html\n  tunesmith records export all.jsonl\n  tunesmith records import all.jsonl --store other.sqlite\n  tunesmith records t4 conv.t4.json --task 'conv2d('"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    select: Selection,
    /// Show only this many, the newest; 0 shows all [default: 40 in a table, all with --json]
    #[arg(long)]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the runs
    Runs(Query),
    /// Show the best record of every task, target and machine
    Best(Query),
    /// Count outcomes by task
    Counts(Query),
    /// Label candidates hot, cold or failed, and show what each kind took
    Label(records_label::Args),
    /// Train the network of the filter cold on all candidates
    TrainCold(train_cold::Args),
    /// Write the whole store as JSON lines
    Export(FileArgs),
    /// Add the records of an exported file to the store
    Import(ReadArgs),
    /// Write the records of one task, target and machine as a T4 file
    T4 {
        /// The T4 file to write
        file: PathBuf,
        #[command(flatten)]
        query: Query,
    },
}

#[derive(clap::Args)]
struct FileArgs {
    /// The file to write
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ReadArgs {
    /// The file to read, as `records export` wrote it
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Query {
    #[command(flatten)]
    select: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Which records; what is not given does not restrict.
#[derive(clap::Args)]
pub struct Selection {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Only runs whose model name contains this
    #[arg(long)]
    model: Option<String>,
    /// Only runs whose id starts with this
    #[arg(long)]
    run: Option<String>,
    /// Only tasks whose key starts with this, or whose title contains it
    #[arg(long)]
    task: Option<String>,
    /// Only tasks of this operator: conv2d, dense, ...
    #[arg(long)]
    op: Option<String>,
    /// Only records of this evaluator: timed, recorded, ...
    #[arg(long)]
    evaluator: Option<String>,
    /// Only records with this outcome: timed, wrong, crashed, crashed-run, rejected, ...
    #[arg(long)]
    outcome: Option<String>,
    /// Only targets whose text contains this, such as threads=1
    #[arg(long)]
    target: Option<String>,
    /// Only machines whose fingerprint starts with this
    #[arg(long)]
    machine: Option<String>,
    /// Only records of finalists, each measured alone
    #[arg(long)]
    finals: bool,
}

/// A store with what its records refer to.
pub struct Opened {
    store: Store,
    tasks: BTreeMap<String, Task>,
    pub runs: BTreeMap<String, Run>,
}

/// `op(name=value,...)`, as the plan titles tasks.
pub fn title(t: &Task) -> String {
    let value = |a: &store::Arg| match a {
        store::Arg::Int(i) => i.to_string(),
        store::Arg::Text(s) => s.clone(),
        store::Arg::Other(v) => v.to_string(),
    };
    let args: Vec<String> = t
        .args
        .iter()
        .map(|(n, v)| format!("{n}={}", value(v)))
        .collect();
    format!("{}({})", t.op, args.join(","))
}

impl Opened {
    pub fn new(args: &StoreArgs) -> Result<Opened> {
        let store = args.existing()?;
        let tasks = store.tasks()?.into_iter().map(|t| (t.key.clone(), t));
        let runs = store.runs()?.into_iter().map(|r| (r.run_id.clone(), r));
        Ok(Opened {
            tasks: tasks.collect(),
            runs: runs.collect(),
            store,
        })
    }

    pub fn title(&self, key: &str) -> String {
        self.tasks.get(key).map_or_else(|| key.to_string(), title)
    }

    /// Short titles of tasks that are shown together, by their keys.
    pub fn short_titles<'a>(
        &self,
        keys: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, String> {
        let keys: BTreeSet<&String> = keys.collect();
        let full: Vec<String> = keys.iter().map(|k| self.title(k)).collect();
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        keys.into_iter().cloned().zip(short(&full)).collect()
    }

    fn rate(&self, r: &Record) -> Option<f64> {
        let ns = r.outcome.median_ns()?;
        Some(self.tasks.get(&r.task)?.flops / ns.max(1) as f64)
    }
}

/// The only one of several, if it is.
fn only<'a>(all: &BTreeSet<&'a str>) -> Option<&'a str> {
    (all.len() == 1).then(|| all.first().copied()).flatten()
}

impl Selection {
    /// Whether any flag leaves records out.
    fn restricts(&self) -> bool {
        let given = [
            &self.model,
            &self.run,
            &self.task,
            &self.op,
            &self.evaluator,
            &self.outcome,
            &self.target,
            &self.machine,
        ];
        self.finals || given.iter().any(|flag| flag.is_some())
    }

    /// The keys of tasks that may match.
    fn tasks<'o>(&self, o: &'o Opened) -> Result<BTreeSet<&'o str>> {
        let matches = |t: &&Task| {
            let named = |w: &String| t.key.starts_with(w.as_str()) || title(t).contains(w.as_str());
            self.task.as_ref().is_none_or(named) && self.op.as_ref().is_none_or(|op| *op == t.op)
        };
        let found: BTreeSet<&str> = o
            .tasks
            .values()
            .filter(matches)
            .map(|t| t.key.as_str())
            .collect();
        if found.is_empty() && (self.task.is_some() || self.op.is_some()) {
            let ops: BTreeSet<&str> = o.tasks.values().map(|t| t.op.as_str()).collect();
            let ops: Vec<&str> = ops.into_iter().collect();
            return Err(
                Error::new(format!("no task in the store {} matches", o.store.path())).help(
                    format!(
                        "`records counts` lists the tasks; the operators are: {}",
                        ops.join(", ")
                    ),
                ),
            );
        }
        Ok(found)
    }

    /// The ids of runs that may match.
    fn runs<'o>(&self, o: &'o Opened) -> Result<BTreeSet<&'o str>> {
        let matches = |r: &&Run| {
            let id = |w: &String| r.run_id.starts_with(w.as_str());
            self.run.as_ref().is_none_or(id)
                && self.model.as_ref().is_none_or(|m| r.model.contains(m))
        };
        let found: BTreeSet<&str> = o
            .runs
            .values()
            .filter(matches)
            .map(|r| r.run_id.as_str())
            .collect();
        if found.is_empty() && (self.run.is_some() || self.model.is_some()) {
            return Err(
                Error::new(format!("no run in the store {} matches", o.store.path()))
                    .help("`records runs` lists the runs with their models"),
            );
        }
        Ok(found)
    }

    /// Whether a record is one of those that are asked for.
    fn takes(&self, tasks: &BTreeSet<&str>, runs: &BTreeSet<&str>, r: &Record) -> bool {
        let outcome = |label: &str| {
            self.outcome.as_ref().is_none_or(|w| {
                label
                    .strip_prefix(w.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
        };
        let machine = |m: &String| r.machine.starts_with(m.as_str());
        self.target.as_ref().is_none_or(|t| r.target.contains(t))
            && self.machine.as_ref().is_none_or(machine)
            && tasks.contains(r.task.as_str())
            && runs.contains(r.run_id.as_str())
            && (!self.finals || r.final_)
            && self.evaluator.as_ref().is_none_or(|e| r.evaluator == *e)
            && outcome(r.outcome.label())
    }

    /// Hands on the records that match, in the order they were stored.
    pub fn visit(&self, o: &Opened, mut f: impl FnMut(Record)) -> Result<()> {
        let (tasks, runs) = (self.tasks(o)?, self.runs(o)?);
        let filter = RecordQuery {
            task: only(&tasks),
            run: only(&runs),
            evaluator: self.evaluator.as_deref(),
            final_: self.finals.then_some(true),
            ..RecordQuery::default()
        };
        o.store.visit_records(&filter, |_, r| {
            if self.takes(&tasks, &runs, &r) {
                f(r);
            }
            Ok(())
        })?;
        Ok(())
    }
}

pub fn run(a: &Args) -> Result<ExitCode> {
    if a.action.is_some() && (a.limit.is_some() || a.select.restricts()) {
        return Err(
            Error::new("flags that choose records stand before the subcommand")
                .help("give them behind it, as in `records counts --model resnet18`"),
        );
    }
    match &a.action {
        None => list(a)?,
        Some(Action::Runs(q)) => runs(q)?,
        Some(Action::Best(q)) => best(q)?,
        Some(Action::Counts(q)) => counts(q)?,
        Some(Action::Label(l)) => records_label::run(l)?,
        Some(Action::TrainCold(t)) => train_cold::run(t)?,
        Some(Action::Export(f)) => export(f)?,
        Some(Action::Import(f)) => import(f)?,
        Some(Action::T4 { file, query }) => t4(file, query)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn rate(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{v:.1}"))
}

fn median_ms(r: &Record) -> Option<f64> {
    r.outcome.median_ns().map(|ns| ns as f64 / 1e6)
}

/// A record with what tables show of it.
#[derive(Serialize)]
struct Shown {
    title: String,
    median_ns: Option<u64>,
    gflops_per_s: Option<f64>,
    #[serde(flatten)]
    record: Record,
}

impl Shown {
    fn new(o: &Opened, record: Record) -> Shown {
        Shown {
            title: o.title(&record.task),
            median_ns: record.outcome.median_ns(),
            gflops_per_s: o.rate(&record),
            record,
        }
    }
}

/// Records that a table shows without being asked for more.
const LAST: usize = 40;

fn list(a: &Args) -> Result<()> {
    let o = Opened::new(&a.select.store)?;
    let mut found = Vec::new();
    a.select.visit(&o, |r| found.push(r))?;
    let total = found.len();
    let limit = match (a.limit, a.json) {
        (None, true) | (Some(0), _) => total,
        (None, false) => LAST,
        (Some(n), _) => n,
    };
    found.drain(..total.saturating_sub(limit));
    if a.json {
        let records: Vec<Shown> = found.into_iter().map(|r| Shown::new(&o, r)).collect();
        return super::print_json(&serde_json::json!({"total": total, "records": records}));
    }
    let mut t = Table::new(&[
        "task",
        "key",
        "trial",
        "evaluator",
        "outcome",
        "ms",
        "GFLOP/s",
        "algorithm",
        "strategy",
        "run",
    ])
    .dispensable(&[
        "run",
        "strategy",
        "evaluator",
        "key",
        "GFLOP/s",
        "algorithm",
    ]);
    let titles = o.short_titles(found.iter().map(|r| &r.task));
    for r in &found {
        let last = if r.final_ { " final" } else { "" };
        t.row(vec![
            titles[&r.task].clone(),
            r.task.chars().take(8).collect(),
            format!("{}{last}", r.trial),
            r.evaluator.clone(),
            r.outcome.label().into(),
            ms(median_ms(r)),
            rate(o.rate(r)),
            r.algorithm.clone(),
            r.strategy.clone(),
            r.run_id.clone(),
        ]);
    }
    let note = match total - found.len() {
        0 => String::new(),
        hidden => format!("; {hidden} older ones are not shown (--limit 0 shows all)"),
    };
    super::print_text(&format!("{}\n{total} records{note}\n", t.text()))
}

/// How long ago, in the largest fitting unit.
fn age(now_ms: u64, then_ms: u64) -> String {
    let s = now_ms.saturating_sub(then_ms) / 1000;
    match s {
        0..120 => format!("{s} s ago"),
        120..7200 => format!("{} min ago", s / 60),
        7200..172_800 => format!("{} h ago", s / 3600),
        _ => format!("{} d ago", s / 86_400),
    }
}

#[derive(Serialize)]
struct RunRow<'a> {
    records: u64,
    timed: u64,
    #[serde(flatten)]
    run: &'a Run,
}

fn runs(q: &Query) -> Result<()> {
    let o = Opened::new(&q.select.store)?;
    let mut records: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    q.select.visit(&o, |r| {
        let n = records.entry(r.run_id.clone()).or_default();
        n.0 += 1;
        n.1 += u64::from(r.outcome.median_ns().is_some());
    })?;
    let matching = q.select.runs(&o)?;
    let mut rows: Vec<RunRow> = o
        .runs
        .values()
        .filter(|r| matching.contains(r.run_id.as_str()))
        .map(|run| {
            let (records, timed) = records.get(&run.run_id).copied().unwrap_or_default();
            RunRow {
                records,
                timed,
                run,
            }
        })
        .collect();
    rows.sort_by_key(|r| (r.run.started_unix_ms, &r.run.run_id));
    if q.json {
        return super::print_json(&serde_json::json!({ "runs": rows }));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64);
    let mut t = Table::new(&[
        "run",
        "model",
        "strategy",
        "seed",
        "started",
        "took",
        "records",
        "before ms",
        "after ms",
    ])
    .dispensable(&["seed", "strategy", "records", "took"]);
    for r in &rows {
        let of = |name: &str| ms(r.run.summary[name].as_f64());
        let took = r.run.ended_unix_ms.map_or("not ended".into(), |end| {
            let ms = end.saturating_sub(r.run.started_unix_ms);
            format!("{:.1} s", ms as f64 / 1e3)
        });
        t.row(vec![
            r.run.run_id.clone(),
            r.run.model.clone(),
            r.run.strategy.clone(),
            r.run.seed.to_string(),
            age(now, r.run.started_unix_ms),
            took,
            r.records.to_string(),
            of("latency_default_ms"),
            of("latency_after_ms"),
        ]);
    }
    super::print_text(&t.text())
}

/// Task, target and machine.
type OwnedPlace = (String, String, String);

fn place(p: &OwnedPlace) -> RecordPlace<'_> {
    RecordPlace {
        task: &p.0,
        target: &p.1,
        machine: &p.2,
    }
}

/// The places of the records that match, with how many there are.
fn places(o: &Opened, select: &Selection) -> Result<BTreeMap<OwnedPlace, u64>> {
    let mut places: BTreeMap<OwnedPlace, u64> = BTreeMap::new();
    select.visit(o, |r| {
        *places.entry((r.task, r.target, r.machine)).or_default() += 1;
    })?;
    Ok(places)
}

/// CPU and threads of a target, for people.
fn short_target(o: &Opened, text: &str) -> Result<String> {
    let target = o.store.target(text)?;
    Ok(target.map_or_else(
        || text.to_string(),
        |t| format!("{}, {}", t.cpu, counted(t.threads, "thread")),
    ))
}

fn best(q: &Query) -> Result<()> {
    let o = Opened::new(&q.select.store)?;
    let (tasks, runs) = (q.select.tasks(&o)?, q.select.runs(&o)?);
    let mut found = Vec::new();
    for (p, records) in places(&o, &q.select)? {
        let takes = |r: &Record| Ok(q.select.takes(&tasks, &runs, r));
        if let Some(r) = o.store.best_that(&place(&p), 0.0, takes)? {
            found.push((records, r));
        }
    }
    if q.json {
        let best: Vec<_> = found
            .into_iter()
            .map(|(records, r)| serde_json::json!({"records": records, "best": Shown::new(&o, r)}))
            .collect();
        return super::print_json(&serde_json::json!({ "best": best }));
    }
    let mut t = Table::new(&[
        "task",
        "target",
        "machine",
        "ms",
        "GFLOP/s",
        "algorithm",
        "alone",
        "records",
    ])
    .dispensable(&["machine", "records", "alone", "target", "GFLOP/s"]);
    let titles = o.short_titles(found.iter().map(|(_, r)| &r.task));
    for (records, r) in &found {
        t.row(vec![
            titles[&r.task].clone(),
            short_target(&o, &r.target)?,
            r.machine.chars().take(8).collect(),
            ms(median_ms(r)),
            rate(o.rate(r)),
            r.algorithm.clone(),
            if r.final_ { "yes" } else { "no" }.into(),
            records.to_string(),
        ]);
    }
    super::print_text(&t.text())
}

fn counts(q: &Query) -> Result<()> {
    let o = Opened::new(&q.select.store)?;
    let mut by_task: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
    let mut total: BTreeMap<&'static str, u64> = BTreeMap::new();
    q.select.visit(&o, |r| {
        let label = r.outcome.label();
        *by_task.entry(r.task).or_default().entry(label).or_default() += 1;
        *total.entry(label).or_default() += 1;
    })?;
    if q.json {
        let tasks: Vec<_> = by_task
            .iter()
            .map(|(key, n)| serde_json::json!({"key": key, "title": o.title(key), "counts": n}))
            .collect();
        return super::print_json(&serde_json::json!({"counts": total, "tasks": tasks}));
    }
    let labels: Vec<&str> = total.keys().copied().collect();
    let mut header = vec!["task", "key", "all"];
    header.extend(&labels);
    let mut t = Table::new(&header);
    let row = |first: [String; 2], n: &BTreeMap<&str, u64>| {
        let mut cells = first.to_vec();
        cells.push(n.values().sum::<u64>().to_string());
        cells.extend(
            labels
                .iter()
                .map(|l| n.get(l).map_or("-".into(), u64::to_string)),
        );
        cells
    };
    let titles = o.short_titles(by_task.keys());
    for (key, n) in &by_task {
        t.row(row([titles[key].clone(), key.chars().take(8).collect()], n));
    }
    t.row(row(["all tasks".into(), String::new()], &total));
    super::print_text(&t.text())
}

/// An error of an export, with its file where that is at fault.
fn said(out: &Output, error: StoreError) -> Error {
    match error {
        StoreError::Io { source, .. } => out.failed(&source),
        other => other.into(),
    }
}

/// Prints what an export says of itself, but not among its own lines.
fn print_summary(out: &Output, text: &str) -> Result<()> {
    if out.is_standard_output() {
        eprint!("{text}");
        return Ok(());
    }
    super::print_text(text)
}

fn export(f: &FileArgs) -> Result<()> {
    let store = f.store.existing()?;
    let out = Output::new(&f.file, RECORDS, f.store.files()?)?;
    let e = out.write(|w| store::export_jsonl(&store, w).map_err(|e| said(&out, e)))?;
    let file = f.file.display().to_string();
    let json = serde_json::json!({
        "file": file, "records": e.records, "events": e.events, "lines": e.lines,
    });
    let text = match f.json {
        true => format!("{json:#}\n"),
        false => format!(
            "{} records and {} events written to {file}\n",
            e.records, e.events
        ),
    };
    print_summary(&out, &text)
}

/// Bad lines of an import that an error lists before it stops.
const BAD_LINES: usize = 10;

/// The error of an import, with its file where that is at fault.
fn not_imported(file: &Path, error: StoreError) -> Error {
    let file = file.display();
    let (lines, torn) = match error {
        StoreError::BadLines { lines, torn } => (lines, torn),
        StoreError::Io { source, .. } => {
            return Error::new(format!("cannot read {file}: {source}"))
                .help("give a file that `records export` wrote");
        }
        other => return other.into(),
    };
    let line = |b: &store::BadLine| format!("\n  {file}:{}: {}", b.line, b.reason);
    let mut list: String = lines.iter().take(BAD_LINES).map(line).collect();
    if lines.len() > BAD_LINES {
        list += &format!("\n  and {} more", lines.len() - BAD_LINES);
    }
    Error::new(format!(
        "{file} was not imported: these lines are bad:{list}"
    ))
    .help(match torn {
        true => "only the last line is bad: remove that line, and the others can be imported",
        false => "give a file as `records export` wrote it",
    })
}

/// Reads what is to be imported, before anything waits for it.
fn read_lines(file: &Path) -> Result<JsonLines> {
    let fail = |source| StoreError::Io {
        doing: "reading the import",
        source,
    };
    let read = || {
        let opened = File::open(file).map_err(fail)?;
        let kind = opened.metadata().map_err(fail)?.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            return Err(fail(std::io::Error::other("it is a device")));
        }
        JsonLines::read(BufReader::new(opened))
    };
    read().map_err(|e| not_imported(file, e))
}

fn import(f: &ReadArgs) -> Result<()> {
    let lines = read_lines(&f.file)?;
    let import = |store: &Store| {
        store::import_jsonl(store, &lines, judge).map_err(|e| not_imported(&f.file, e))
    };
    if !f.store.is_there()? {
        // What is refused makes no store.
        import(&Store::open_in_memory()?)?;
    }
    let store = f.store.write()?;
    let i = import(&store)?;
    if f.json {
        return super::print_json(&serde_json::json!({
            "store": store.path(),
            "added": i.added,
            "added_records": i.added_records,
            "known": i.known,
        }));
    }
    super::print_line(&format!(
        "{} records and {} other lines were added to {}; {} lines were in it already",
        i.added_records,
        i.added - i.added_records,
        store.path(),
        i.known
    ))
}

fn t4(file: &Path, q: &Query) -> Result<()> {
    let o = Opened::new(&q.select.store)?;
    let places = places(&o, &q.select)?;
    let line = |(p, n): (&OwnedPlace, &u64)| -> Result<String> {
        Ok(format!(
            "\n  --task {} --target {} --machine {}: {n}, {}",
            p.0.get(..8).unwrap_or(&p.0),
            p.1.rsplit(' ').next().unwrap_or_default(),
            p.2.get(..8).unwrap_or(&p.2),
            o.tasks.get(&p.0).map_or("?", |t| t.op.as_str())
        ))
    };
    let help =
        "a T4 file holds one task, target and machine; choose with --task, --target, --machine";
    let one = match (places.len(), places.first_key_value()) {
        (1, Some((p, _))) => p.clone(),
        (0, _) | (_, None) => return Err(Error::new("no record matches").help(help)),
        (n, _) => {
            let lines = places.iter().take(12).map(line);
            let lines: String = lines.collect::<Result<String>>()?;
            let error = Error::new(format!(
                "the records belong to {n} combinations of task, target and machine"
            ));
            return Err(error.help(format!("{help}:{lines}")));
        }
    };
    let (tasks, runs) = (q.select.tasks(&o)?, q.select.runs(&o)?);
    let takes = |r: &Record| q.select.takes(&tasks, &runs, r);
    let out = Output::new(file, T4, q.select.store.files()?)?;
    let t = out
        .write(|w| store::export_t4(&o.store, &place(&one), takes, w).map_err(|e| said(&out, e)))?;
    let file = file.display().to_string();
    let json = serde_json::json!({
        "file": file, "task": one.0, "target": one.1, "machine": one.2,
        "results": t.results, "left_out": t.left_out,
    });
    let text = match q.json {
        true => format!("{json:#}\n"),
        false => format!(
            "{} results of {} were written to {file}; {} records with neither a time nor a failure were left out\n",
            t.results,
            o.title(&one.0),
            t.left_out
        ),
    };
    print_summary(&out, &text)
}
