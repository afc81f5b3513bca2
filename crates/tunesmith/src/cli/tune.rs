//! `tune`: searches schedules for every task of a model.

use super::ADVANCED;
use super::board::Top;
use super::energy_args::EnergyArgs;
use super::keys::SignArgs;
use super::knobs::{default, doc, kind, with_default};
use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, say, warn, warn_of_types};
use super::output::{ARTIFACT, DECISIONS, Output, PAGE};
use super::parse::{
    parse_count, parse_duration, parse_megabytes, parse_share, parse_threads, parse_time,
};
use super::progress::Progress;
use super::score_args::ScoreArgs;
use super::simulator_args::SimulatorArgs;
use super::table::counted;
use super::{signals, train_cold, tune_html, tune_reading, tune_report};
use crate::compile::join;
use crate::online::DecisionFile;
use ir::Target;
use measure::{Constants, Policy};
use runtime::SigningKey;
use search::{Learner, SurveyRule};
use std::collections::BTreeSet;
use store::{SIMULATE, STATIC, TIMED};
use tune::energy::Account;
use tune::evaluator::{Evaluator, Reading};
use tune::filter::{ByScore, ColdRule};
use tune::machine::Machine;
use tune::scorer::{Scorer, Simulator};
use tune::source::Source;
use tune::{
    AnswerPlace, CoreSets, CpuDivision, MakeEvaluator, MeasureSettings, Objective, Options, Report,
    Request, StopRule, Tuned, tune_all_by,
};
use tune::{Error, Result};

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tune models: search, measure, and write the tuned models
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith tune resnet18\n  tunesmith tune model.onnx --batch 1 --time 5m\n  tunesmith tune resnet18 mobilenet-v2 --time 5m\n  tunesmith tune 'op:matmul(m=1024,n=1024,k=1024)' --threads 1 --trials 200 --json\n\nCtrl-C and SIGTERM end a run in about 3 s: it ranks what is known and writes the model. The same command goes on from there. The exit status is then 130 or 143."
)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    /// More models, tuned in the same run
    #[arg(value_name = "MODEL")]
    pub more: Vec<String>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub machine: MachineOption,
    #[arg(long, value_parser = parse_time, help = doc("time"), default_value = default("time"),
        conflicts_with = "trials")]
    pub time: Duration,
    #[arg(long, value_parser = parse_count::<u64>, help = doc("trials"))]
    pub trials: Option<u64>,
    #[command(flatten)]
    energy: EnergyArgs,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "PREFIX,...", value_delimiter = ',', help = doc("algorithms"))]
    pub algorithms: Vec<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("strategy"), value_name = kind("strategy"), default_value = default("strategy"))]
    pub strategy: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("evaluate"), default_value = default("evaluate"), value_parser = [TIMED, STATIC, SIMULATE])]
    evaluate: String,
    #[command(flatten)]
    pub score: ScoreArgs,
    #[command(flatten)]
    simulator: SimulatorArgs,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("read-time"), value_parser = parse_duration)]
    read_time: Option<Duration>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("export-top"), default_value = default("export-top"), value_parser = Top::parse)]
    pub export_top: Top,
    /// With --evaluate static or simulate: measure nothing here, and write a folder with executables of the candidates that
    /// --export-top lists, of the defaults, and with a script that times them on another machine
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "DIR")]
    pub export_to: Option<PathBuf>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("budget"), value_name = kind("budget"), default_value = default("budget"))]
    budget: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("survey"), value_name = "NAME=VALUE,...", value_parser = parse_survey,
        default_value = default("survey"))]
    survey: SurveyRule,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("tuners"), value_name = "NAME,...", value_delimiter = ',', conflicts_with = "strategy")]
    tuners: Vec<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("objective"), default_value = default("objective"), value_parser = parse_objective)]
    objective: Objective,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("wanted"), value_name = "TIME,...", value_delimiter = ',', value_parser = parse_duration)]
    wanted: Vec<Duration>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("filter"), value_name = "NAME,...", value_delimiter = ',')]
    pub filter: Vec<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "FILE", help = with_default("cold-network"))]
    cold_network: Option<PathBuf>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("cold-rule"), default_value = default("cold-rule"), value_parser = ColdRule::parse)]
    cold_rule: ColdRule,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "N", help = with_default("cold-least"))]
    cold_least: Option<usize>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("chance"), default_value = default("chance"), value_parser = parse_share)]
    chance: f64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("audit"), default_value = default("audit"), value_parser = parse_share)]
    audit: f64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("seed"), default_value = default("seed"))]
    pub seed: u64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("keep-alternatives"), default_value = default("keep-alternatives"), value_parser = parse_count::<usize>)]
    keep_alternatives: usize,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("keep-columns"), value_name = "MB", default_value = default("keep-columns"), value_parser = parse_megabytes)]
    keep_columns: u64,
    /// With --keep-alternatives: write which kernels the comparison inside the model chose, for --select online
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// The file for the tuned model; with several models, a folder for them [default: NAME.tsm]
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Also write the run as one page for browsers, with pictures
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub sign: SignArgs,
    /// With --json: say on standard error how far the search is, in lines
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, requires = "json")]
    progress: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("overlap"), default_value = default("overlap"), value_parser = ["on", "off", "auto"])]
    overlap: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("start"), default_value = default("start"), value_parser = ["defaults", "random"])]
    start: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("learn-loops"), default_value = default("learn-loops"), value_parser = ["on", "off"])]
    learn_loops: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("learner"), default_value = default("learner"), value_parser = Learner::ALL.map(Learner::name))]
    learner: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("rotate"), default_value = default("rotate"), value_parser = ["on", "off"])]
    rotate: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("builders"), value_parser = parse_threads::<usize>)]
    builders: Option<usize>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("in-model-time"), value_parser = parse_duration)]
    in_model_time: Option<Duration>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("compare-time"), value_parser = parse_time, default_value = default("compare-time"))]
    compare_time: Duration,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("build-limit"), value_parser = parse_time, default_value = default("build-limit"))]
    build_limit: Duration,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("run-limit"), value_parser = parse_time, default_value = default("run-limit"))]
    run_limit: Duration,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("plain"), default_value = default("plain"), value_parser = ["on", "off"],
        num_args = 0..=1, default_missing_value = "on", require_equals = true)]
    plain: String,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("measure"), value_name = "auto|serial|serial-spawn|naive|doppler",
        default_value = default("measure"), value_parser = parse_policy)]
    measure: Asked,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("measure-batch"), default_value = default("measure-batch"),
        value_parser = parse_count::<usize>)]
    measure_batch: usize,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("devices"), default_value = default("devices"), value_parser = parse_threads::<usize>)]
    devices: usize,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("core-sets"), value_name = "N|CPUS;CPUS")]
    core_sets: Option<CoreSets>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("oversubscribe"), default_value = default("oversubscribe"),
        value_parser = parse_threads::<u32>)]
    oversubscribe: u32,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("lose"), default_value = default("lose"), value_parser = parse_share)]
    lose: f64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("rank"), default_value = default("rank"), value_parser = parse_share)]
    rank: f64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("drift"), default_value = default("drift"), value_parser = parse_share)]
    drift: f64,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("doppler"), value_name = "NAME=VALUE,...", value_parser = parse_constants,
        default_value = "", hide_default_value = true)]
    doppler: Constants,
    /// The names of the options that the user gave, without dashes.
    #[arg(skip)]
    pub given: Vec<String>,
}

/// What the first Ctrl-C is answered with.
pub const STOPPING: &str = "stopping: ranking what is known and writing the model, which takes about 3 s; \
                        a second Ctrl-C ends at once and writes nothing";

/// A run takes longer than twice its time and this only if it hangs.
const OVERTIME: Duration = Duration::from_secs(600);

/// A policy; none for `auto`.
type Asked = Option<Policy>;

fn parse_objective(name: &str) -> std::result::Result<Objective, String> {
    Objective::of_name(name).ok_or_else(|| {
        let names = Objective::ALL.map(Objective::name).join(", ");
        format!("use one of: {names}")
    })
}

/// A survey's rule with changes.
pub fn parse_survey(changes: &str) -> std::result::Result<SurveyRule, String> {
    SurveyRule::PAPER.with(changes)
}

fn parse_policy(name: &str) -> std::result::Result<Asked, String> {
    match name {
        "auto" => Ok(None),
        _ => Policy::named(name).map(Some).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("use auto or one of: {names}")
        }),
    }
}

/// DOPpler's constants with changes.
pub fn parse_constants(changes: &str) -> std::result::Result<Constants, String> {
    Constants::PAPER.with(changes)
}

/// Where an artifact goes: as asked, or to a file named for the model.
pub fn artifact_path(asked: Option<&Path>, model: &str) -> PathBuf {
    if let Some(path) = asked {
        return path.to_path_buf();
    }
    let safe: String = model
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    PathBuf::from(format!("{}.tsm", safe.trim_matches('_')))
}

/// The options that the flags ask for. From here on the joules are counted.
///
/// # Errors
/// If the file of the machine cannot be read, or the flags need what it does not say.
fn options(a: &Args, begun: Instant, cpus: usize, threads: u32) -> Result<Options> {
    let file = a.energy.machine_file(&a.store, cpus)?;
    let counted = a.trials.map_or(StopRule::Time(a.time), StopRule::Trials);
    let stop = a.energy.stop(&file)?.unwrap_or(counted);
    let mut options = Options::new(cpus, threads, stop);
    options.energy = Some(Arc::new(Account::new(file)));
    options.begun = begun;
    options.strategy.clone_from(&a.strategy);
    options.budget.clone_from(&a.budget);
    options.survey = a.survey;
    options.tuners.clone_from(&a.tuners);
    options.objective = a.objective;
    options.filters.clone_from(&a.filter);
    options.chance = a.chance;
    options.cold_rule = a.cold_rule;
    options.cold_least = a.cold_least;
    options.audit = a.audit;
    options.seed = a.seed;
    options.rotate = a.rotate == "on";
    options.learn_loops = a.learn_loops == "on";
    options.learner = Learner::of_name(&a.learner).expect("clap knows the names");
    options.start_random = a.start == "random";
    options.plain = a.plain == "on";
    options.accuracy = a.model.accuracy();
    options.space = a.model.space;
    options.algorithms.clone_from(&a.algorithms);
    options.tolerance = a.model.tolerance;
    (options.build_limit, options.run_limit) = (a.build_limit, a.run_limit);
    (options.rank, options.drift) = (a.rank, a.drift);
    options.reading = a.read_time.unwrap_or(options.reading);
    options.in_model = a.in_model_time.unwrap_or(options.in_model);
    options.comparing = a.compare_time;
    options.alternatives = a.keep_alternatives;
    options.columns_bytes = a.keep_columns;
    options.measure = MeasureSettings {
        policy: options.measure.policy,
        batch: a.measure_batch,
        devices: a.devices,
        core_set: vec![],
        oversubscribe: a.oversubscribe,
        constants: a.doppler,
        lose: a.lose,
    };
    options.core_sets = match &a.core_sets {
        Some(sets) => sets.of_process(threads)?,
        None => vec![],
    };
    let asked = CpuDivision {
        overlap: match a.overlap.as_str() {
            "auto" => None,
            on => Some(on == "on"),
        },
        builders: a.builders,
        policy: a.measure,
    };
    options.divide_cpus(cpus, threads, asked);
    Ok(options)
}

/// The files that the command reads or keeps.
fn inputs(a: &Args) -> Result<Vec<PathBuf>> {
    let all = [
        a.model.files(),
        a.store.files()?,
        a.sign.files(),
        a.score.files(),
        a.energy.files(),
    ];
    Ok(all.concat())
}

/// The files that the tuned models go to.
pub fn outputs(a: &Args, models: &[Vec<Source>]) -> Result<Vec<Output>> {
    let mut inputs = inputs(a)?;
    inputs.extend(a.more.iter().map(PathBuf::from));
    if let (Some(folder), 2..) = (&a.out, models.len()) {
        std::fs::create_dir_all(folder).map_err(|e| {
            Error::new(format!("cannot make the folder {}: {e}", folder.display()))
                .help("name another folder with --out FOLDER")
        })?;
    }
    let one = |variants: &Vec<Source>| {
        let name = &variants[0].name;
        let path = match (&a.out, models.len()) {
            (Some(folder), 2..) => folder.join(artifact_path(None, name)),
            (out, _) => artifact_path(out.as_deref(), name),
        };
        Output::new(&path, ARTIFACT, inputs.clone())
    };
    models.iter().map(one).collect()
}

/// The page that is asked for.
fn page(a: &Args) -> Result<Option<Output>> {
    let inputs = inputs(a)?;
    let page = a.report.as_deref();
    page.map(|path| Output::new(path, PAGE, inputs)).transpose()
}

impl Args {
    /// What candidates are simulated on, if they are.
    ///
    /// # Errors
    /// If the flags name what the simulator does not know, or have no effect.
    pub fn simulated(&self, target: &Target) -> Result<Option<Simulator>> {
        if self.evaluate == SIMULATE {
            return self.simulator.simulator(target).map(Some);
        }
        self.simulator.refuse()?;
        Ok(None)
    }
}

/// Refuses what only a run that measures nothing heeds, times where scores are no times, and decisions about nothing.
fn check_measured(a: &Args) -> Result<()> {
    if a.evaluate != TIMED && !a.wanted.is_empty() {
        let why = format!(
            "--wanted has no effect with --evaluate {}: scores are no times",
            a.evaluate
        );
        return Err(Error::new(why).help("leave --wanted out, or tune by measurement"));
    }
    if a.evaluate != TIMED && a.core_sets.is_some() {
        let why = "--core-sets has no effect here: this run reads candidates and measures none";
        return Err(Error::new(why).help("leave --core-sets out, or tune by measurement"));
    }
    if a.decisions.is_some() && a.keep_alternatives < 2 {
        return Err(Error::new(
            "--decisions are about models that keep several kernels for a step",
        )
        .help("add --keep-alternatives 3"));
    }
    let export = ["export-to", "export-top"];
    let export = export.iter().find(|e| a.given.iter().any(|g| g == **e));
    let measures = "this run measures candidates on this machine";
    match (a.evaluate.as_str(), export) {
        (TIMED, Some(name)) => Err(Error::new(format!("--{name} has no effect here: {measures}")).help(
            "add --evaluate static or simulate to read candidates for another machine; `tunesmith tasks` and `records` list what was measured",
        )),
        (_, Some(name)) => Err(Error::new(format!("--{name} has no effect here: {measures}"))
            .help("add --export-to FOLDER to read candidates for another machine")),
        (_, None) => a.machine.refuse(
            measures,
            "add --evaluate simulate --export-to FOLDER to read candidates for another machine, or leave --machine out",
        ),
    }
}

/// Refuses a file of decisions that could not be written when the model is tuned.
fn check_decisions(a: &Args, models: &[Vec<Source>], threads: u32) -> Result<()> {
    let Some(path) = &a.decisions else {
        return Ok(());
    };
    if models.len() > 1 {
        return Err(
            Error::new("--decisions names one file, which is about one model")
                .help("tune each model with a file of its own"),
        );
    }
    for source in models.iter().flatten() {
        DecisionFile::of_name(path, &source.model.name, threads as usize).load()?;
    }
    let inputs = [inputs(a)?, a.out.iter().cloned().collect()].concat();
    Output::new(path, DECISIONS, inputs).map(|_| ())
}

/// How candidates are scored, if they are.
fn score(a: &Args, options: &mut Options, machine: &Machine, target: &Target) -> Result<()> {
    let sifts = options.filters.iter().any(|name| name == ByScore::NAME);
    if a.evaluate != TIMED || !options.reading.is_zero() || sifts {
        let scoring = a.score.scoring(&a.store, machine, target)?;
        (options.score_cpu, options.rates) = (Some(scoring.cpu), scoring.rates);
    } else {
        a.score
            .refuse("give --read-time with it, --filter score or --evaluate static")?;
    }
    options.simulator = a.simulated(target)?;
    Ok(())
}

/// Refuses what divides trials between models where nothing does: one model has all of them, and some budgets do not ask
/// what a model's time counts. A survey ends when what is wanted is reached.
fn check_objective(a: &Args, models: usize) -> Result<()> {
    let Some(mut budget) = search::budget(&a.budget, a.survey) else {
        return Ok(());
    };
    let surveys = budget.survey().is_some();
    let weighs = budget.compares_costs() && !surveys;
    for name in ["objective", "wanted"] {
        let heeded = (weighs && models > 1) || (surveys && name == "wanted");
        if heeded || !a.given.iter().any(|g| g == name) {
            continue;
        }
        let why = match (weighs, models) {
            (true, _) => "one model gets all trials".into(),
            (false, _) => format!("the budget {} does not compare models by it", a.budget),
        };
        let help = match name {
            "wanted" => {
                "leave --wanted out; `--budget survey` ends when one model is as fast as wanted, and promise and gradient compare several"
            }
            _ => {
                "leave --objective out; it is for several models, with the budgets promise and gradient"
            }
        };
        return Err(Error::new(format!("--{name} has no effect here: {why}")).help(help));
    }
    Ok(())
}

/// The wanted time of each variant of each model; nothing if none is wanted.
fn wanted_ns(a: &Args, models: &[Vec<Source>]) -> Result<Vec<f64>> {
    let (wanted, n) = (a.wanted.len(), models.len());
    if wanted != 0 && wanted != n {
        let (times, models) = (counted(wanted as u32, "time"), counted(n as u32, "model"));
        return Err(Error::new(format!("--wanted has {times} for {models}"))
            .help("give one time for each model, or leave --wanted out"));
    }
    let of_variants = |(m, time): (&Vec<Source>, &Duration)| vec![time.as_nanos() as f64; m.len()];
    Ok(models.iter().zip(&a.wanted).flat_map(of_variants).collect())
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let begun = Instant::now();
    let host = super::host()?;
    let machine = &host.machine;
    let target = a.model.resolve_target(machine)?;
    let runs = check_runs_here(&target);
    if a.evaluate != TIMED && (a.export_to.is_some() || runs.is_err()) {
        return tune_reading::run(a, begun, &host, &target);
    }
    runs?;
    check_measured(a)?;
    let mut options = options(a, begun, machine.cpus, target.threads())?;
    options.check()?;
    score(a, &mut options, machine, &target)?;
    let store = a.store.write()?;
    let using = (&a.filter[..], a.cold_rule);
    options.cold = train_cold::network(a.cold_network.as_deref(), using, &a.store, &store)?;
    // The variants of each model.
    let mut models = vec![a.model.sources()?];
    for name in &a.more {
        models.push(a.model.sources_named(name)?);
    }
    for source in models.iter().filter_map(|m| m.first()) {
        warn_of_types(source, &target);
    }
    let key = a.sign.key()?;
    options.wanted_ns = wanted_ns(a, &models)?;
    check_objective(a, models.iter().map(Vec::len).sum())?;
    check_decisions(a, &models, target.threads())?;
    let outputs = outputs(a, &models)?;
    let page = page(a)?;
    let request = |source| Request {
        source,
        target: &target,
        strategy: None,
    };
    let requests: Vec<Request<'_>> = models.iter().flatten().map(request).collect();
    let names: Vec<&str> = models.iter().map(|m| m[0].name.as_str()).collect();
    let mut progress = Progress::new(&names.join(", "), a.json && !a.progress);
    let speak = progress.speaker();
    let watched = signals::watch(options.interrupt.clone(), move || speak(STOPPING))?;
    if let StopRule::Time(time) = options.stop {
        signals::end_in(2 * time + OVERTIME, libc::SIGTERM);
    }
    let reading = |target: &Target, place: &AnswerPlace| -> Result<Box<dyn Evaluator>> {
        let scorer = Scorer::of(&options, target);
        Ok(Box::new(Reading::new(scorer, place.clone())))
    };
    let by: Option<&MakeEvaluator<'_>> = match &*a.evaluate {
        TIMED => None,
        _ => Some(&reading),
    };
    let tuned = tune_all_by(&requests, &host, &store, &options, by, &mut progress);
    progress.finish();
    let mut tuned = tuned?.into_iter();
    let mut reports = Vec::new();
    for (sources, out) in models.iter().zip(&outputs) {
        let own = tuned.by_ref().take(sources.len()).collect();
        reports.extend(written(a, sources, own, out, key.as_ref())?);
    }
    let reports: Vec<&Report> = reports.iter().collect();
    warn_of(a, &reports);
    if let Some(page) = &page {
        page.write_bytes(tune_html::page(&reports).as_bytes())?;
    }
    match (&reports[..], a.json) {
        ([report], true) => super::print_json(report)?,
        (reports, true) => super::print_json(&serde_json::json!({ "models": reports }))?,
        (reports, false) => reports.iter().try_for_each(|r| tune_report::print(r))?,
    }
    Ok(watched.exit_code())
}

/// Says what disturbed the run, and which decisions it could not make.
fn warn_of(a: &Args, reports: &[&Report]) {
    let disturbances = reports.iter().flat_map(|r| &r.disturbances);
    for disturbance in disturbances.collect::<BTreeSet<_>>() {
        say(&format!("warning: {disturbance}"));
    }
    for report in reports.iter().filter(|_| a.decisions.is_some()) {
        if let Some(why) = &report.in_model.skipped {
            say(&format!(
                "warning: {}: no decisions are written, as kernels were not compared inside the model: {why}",
                report.model
            ));
        }
    }
}

/// Writes the tuned variants of a model; their reports.
fn written(
    a: &Args,
    sources: &[Source],
    tuned: Vec<Tuned>,
    out: &Output,
    key: Option<&SigningKey>,
) -> Result<Vec<Report>> {
    let (mut variants, mut reports) = (None, Vec::new());
    for (source, t) in sources.iter().zip(tuned) {
        variants = Some(join(variants, &source.artifact_dims(), t.model)?);
        let mut report = t.report;
        report.model.clone_from(&source.name);
        if sources.len() > 1 {
            report.model += &format!(" {}", source.sizes());
        }
        report.artifact = Some(out.path().display().to_string());
        warn(&report.warnings);
        reports.push(report);
    }
    let help =
        "the records are in the store: `compile` with another --out FILE writes the same model";
    if let Some(variants) = variants {
        out.save(&variants, key).map_err(|e| e.help(help))?;
        for (at, report) in reports.iter().enumerate() {
            if let (Some(path), None) = (&a.decisions, &report.in_model.skipped) {
                let file = DecisionFile::new(path, &variants.models()[at], report.threads as usize);
                file.save_firsts(&variants, at, report.threads)?;
            }
        }
    }
    Ok(reports)
}
