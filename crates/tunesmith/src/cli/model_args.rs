//! Arguments that several commands share: the model, the target, the store.

use super::ADVANCED;
use super::knobs::{default, doc, with_default};
use super::made_for::{BATCH, MadeFor};
use super::output::DATABASE_PARTS;
use super::parse::{parse_count, parse_error, parse_threads};
use super::pool_args::only_one;
use super::screen;
use super::table::counted;
use super::train_args::TrainArgs;
use crate::source::{Sizes, load_variants, names_file};
use graph::Limit;
use ir::{Isa, Target};
use runtime::{Reason, Selectors, Variants};
use search::{Accuracy, SpaceKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};
use store::Store;
use tensor::DType;
use tune::compile::{Warning, user_folder};
use tune::known::Requirements;
use tune::machine::Machine;
use tune::source::{Precision, Source};
use tune::{Error, Result};

/// Which model, for which target.
#[derive(clap::Args, Clone)]
pub struct ModelArgs {
    /// An ONNX file, a built-in model (see `models`), or one operator as op:NAME(argument=value,...)
    // The derive puts no arguments into the group of a struct that flattens another, and an optional struct is there if
    // its group is.
    #[arg(group = "ModelArgs")]
    pub model: String,
    #[arg(long, help = with_default("threads"), value_parser = parse_threads::<u32>)]
    pub threads: Option<u32>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("target"))]
    pub target: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("tune-cpu"), value_name = "off|host|CPU")]
    pub tune_cpu: Option<String>,
    #[arg(long, help = with_default("accuracy"), value_name = "strict|relaxed")]
    pub accuracy: Option<Accuracy>,
    #[arg(long, help = with_default("precision"), value_name = "model|bf16")]
    pub precision: Option<Precision>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("space"), value_name = "rules|templates|all", default_value = default("space"))]
    pub space: SpaceKind,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("tolerance"), default_value = default("tolerance"), value_parser = parse_error)]
    pub tolerance: f64,
    /// Sizes of the batch: of open first dimensions, or of those that the file fixes where the model allows it. Several sizes make a variant for each
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_count::<usize>)]
    pub batch: Vec<usize>,
    /// Sizes of a dimension of the inputs; NAME is its name, or INPUT.AXIS. Several sizes make a variant for each
    #[arg(long = "dim", value_name = "NAME=SIZE,...")]
    pub dims: Vec<String>,
    /// Let sizes of this dimension that have no variant run on the next larger one, padded; refused unless the padding is proven to change nothing
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "NAME")]
    pub pad: Option<String>,
    /// The value of an input (.npy or .pb), fixed at compile time; shapes may depend on it
    #[arg(help_heading = ADVANCED, hide_short_help = true, long = "const", value_name = "NAME=FILE")]
    pub consts: Vec<String>,
    /// Make an initialiser of the file an input, which each run gives a value
    #[arg(help_heading = ADVANCED, hide_short_help = true, long = "open-input", value_name = "NAME")]
    pub open_inputs: Vec<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long = "limit", value_name = "NAME=NUMBER", help = limits())]
    pub limits: Vec<String>,
    #[command(flatten)]
    pub training: TrainArgs,
    /// Of an artifact that is given beside the model or in its place.
    #[arg(skip)]
    pub made: MadeFor,
}

pub fn key_value(text: &str) -> Result<(&str, &str)> {
    text.split_once('=')
        .ok_or_else(|| Error::new(format!("`{text}` is not NAME=VALUE")))
}

/// [`key_value`], where a name and a value may hold `=`, too: the name is one of these, if one fits.
pub fn named_value<'a>(text: &'a str, names: &[&str]) -> Result<(&'a str, &'a str)> {
    let fits = |name: &&&str| {
        let rest = text.strip_prefix(**name);
        rest.is_some_and(|r| r.starts_with('='))
    };
    match names.iter().filter(fits).max_by_key(|n| n.len()) {
        Some(name) => Ok((&text[..name.len()], &text[name.len() + 1..])),
        None => key_value(text),
    }
}

/// What an ONNX file may make of itself.
fn limits() -> String {
    let each = Limit::ALL.map(|l| format!("{} ({}; {})", l.name(), l.doc(), l.default_value()));
    format!(
        "Raise a limit on what an ONNX file may take, so that a small file cannot take all memory \
         or time: {}",
        each.join(", ")
    )
}

fn given_twice(flag: &str, name: &str) -> Error {
    Error::new(format!("{flag} {name} is given twice")).help("give each name one value")
}

/// A tensor from a `.npy` file or an ONNX tensor (`.pb`).
pub fn read_tensor(path: &Path) -> Result<tensor::Tensor> {
    let fail = |e: String| Error::new(format!("{}: {e}", path.display()));
    if path.extension().is_some_and(|e| e == "pb") {
        let named = onnx::read_tensor_proto_file(path);
        return named.map(|(_, t)| t).map_err(|e| fail(e.to_string()));
    }
    tensor::read_npy_file(path).map_err(|e| fail(e.to_string()))
}

impl ModelArgs {
    pub fn requirements(&self) -> Requirements {
        Requirements {
            accuracy: self.accuracy(),
            space: self.space,
            tolerance: self.tolerance,
        }
    }

    /// The files that the model is read from; names that are none do no harm.
    pub fn files(&self) -> Vec<PathBuf> {
        let consts = self.consts.iter().filter_map(|c| c.split_once('='));
        let consts = consts.map(|(_, file)| PathBuf::from(file));
        consts.chain([PathBuf::from(&self.model)]).collect()
    }

    /// The compiled model that the name is of, where a command takes either.
    pub fn artifact(&self) -> Option<PathBuf> {
        let path = Path::new(&self.model);
        let begins = || {
            let mut start = [0; runtime::ARTIFACT_MAGIC.len()];
            let mut file = std::fs::File::open(path).ok()?;
            std::io::Read::read_exact(&mut file, &mut start).ok()?;
            Some(start == runtime::ARTIFACT_MAGIC)
        };
        let is = path.extension().is_some_and(|e| e == "tsm") || begins() == Some(true);
        is.then(|| path.to_path_buf())
    }

    pub fn accuracy(&self) -> Accuracy {
        let usual = || Requirements::of_knobs().accuracy;
        self.accuracy.unwrap_or_else(usual)
    }

    /// Of the code; without a flag those of the artifact, if there is one.
    pub fn threads(&self) -> Option<u32> {
        self.threads.or(self.made.threads)
    }

    /// The one variant of an artifact that has the sizes of the flags.
    pub fn variant(&self, variants: &Variants) -> Result<usize> {
        let found = self.which(variants)?;
        only_one(variants, &found)
    }

    /// The variants of an artifact that have the sizes of the flags, which are those of a model beside it. An artifact
    /// whose dimensions have no names has one variant, of any sizes.
    pub fn which_beside(&self, variants: &Variants) -> Result<Vec<usize>> {
        match variants.dims() {
            [] => Ok((0..variants.models().len()).collect()),
            _ => self.which(variants),
        }
    }

    /// The variants of an artifact that have the sizes of the flags.
    pub fn which(&self, variants: &Variants) -> Result<Vec<usize>> {
        let sizes = self.sizes()?;
        // The size of a dimension without a name is a setting, which was compared.
        let named = !sizes.batch.is_empty() && !variants.models()[0].settings().contains_key(BATCH);
        let batch = named.then_some((BATCH, &sizes.batch));
        let dims = sizes.dims.iter().map(|(name, all)| (name.as_str(), all));
        let mut found: Vec<usize> = (0..variants.models().len()).collect();
        for (name, all) in batch.into_iter().chain(dims) {
            let mut of_dim = BTreeSet::new();
            for size in all {
                of_dim.extend(variants.with_sizes(&[(name.to_string(), *size)])?);
            }
            found.retain(|v| of_dim.contains(v));
        }
        match found.is_empty() {
            true => Err(Error::new("the artifact has no variant of these sizes")
                .help("`tunesmith info FILE` lists its variants")),
            false => Ok(found),
        }
    }

    /// The model, for commands that take it at one size.
    pub fn source(&self) -> Result<Source> {
        only_source(self.sources()?)
    }

    /// The model at every combination of sizes.
    pub fn sources(&self) -> Result<Vec<Source>> {
        self.sources_named(&self.model)
    }

    /// The model at the sizes of a variant of an artifact.
    pub fn source_of(&self, variants: &Variants, at: usize) -> Result<Source> {
        // What is padded is known of the artifact.
        let mut sizes = Sizes {
            pad: None,
            ..self.sizes()?
        };
        for (dim, size) in variants.dims().iter().zip(variants.sizes(at)) {
            match dim.name.as_str() {
                BATCH => {
                    sizes.dims.remove(BATCH);
                    sizes.batch = vec![size];
                }
                name => _ = sizes.dims.insert(name.into(), vec![size]),
            }
        }
        only_source(self.load(&self.model, &sizes)?)
    }

    /// Another model, whose sizes are given by the same flags.
    pub fn sources_named(&self, name: &str) -> Result<Vec<Source>> {
        self.load(name, &self.sizes()?)
    }

    pub(super) fn sizes(&self) -> Result<Sizes> {
        let mut options = Sizes {
            batch: self.batch.clone(),
            pad: self.pad.clone(),
            training: self.training.train,
            ..Sizes::default()
        };
        for d in &self.dims {
            let (name, sizes) = key_value(d)?;
            let parse = |size: &str| {
                parse_count(size.trim())
                    .map_err(|e| Error::new(format!("--dim {d}: the size is wrong: {e}")))
            };
            let sizes = sizes
                .split(',')
                .map(parse)
                .collect::<Result<Vec<usize>>>()?;
            if options.dims.insert(name.into(), sizes).is_some() {
                return Err(given_twice("--dim", name));
            }
        }
        for l in &self.limits {
            let (name, value) = key_value(l)?;
            let limit = Limit::ALL.into_iter().find(|l| l.name() == name);
            let limit = limit.ok_or_else(|| {
                let names = Limit::ALL.map(Limit::name).join(", ");
                Error::new(format!("--limit {l}: there is no limit `{name}`"))
                    .help(format!("name one of: {names}"))
            })?;
            let value = value
                .parse()
                .map_err(|e| Error::new(format!("--limit {l}: the number is wrong: {e}")))?;
            options.limits.set(limit, value);
        }
        for c in &self.consts {
            let (name, file) = key_value(c)?;
            let value = Arc::new(read_tensor(Path::new(file))?);
            if options.consts.insert(name.into(), value).is_some() {
                return Err(given_twice("--const", name));
            }
        }
        options.open_inputs = self.open_inputs.iter().cloned().collect();
        Ok(options)
    }

    fn load(&self, name: &str, sizes: &Sizes) -> Result<Vec<Source>> {
        let for_files = *sizes != Sizes::default() && !names_file(name);
        let loaded = load_variants(name, sizes).map_err(|e| match (for_files, e.advice()) {
            (true, Some(advice)) => {
                let advice = format!(
                    "{advice}; --batch, --dim, --const, --open-input and --limit are for ONNX files"
                );
                e.help(advice)
            }
            _ => e,
        })?;
        let notes: BTreeSet<&String> = loaded.iter().flat_map(|s| &s.notes).collect();
        for note in notes {
            say_once(&format!("warning: {note}"));
        }
        let precise = |source: Source| Source {
            precision: self.precision(),
            settings: self.settings(&source, sizes),
            ..source
        };
        if self.training.train && (loaded.len() > 1 || self.pad.is_some()) {
            return Err(Error::new("a training step has one size")
                .help("give one --batch and one size with each --dim, and no --pad"));
        }
        let loaded = loaded.into_iter().map(precise);
        loaded.map(|source| self.training.step_of(source)).collect()
    }

    /// The target; for another family than the host's, a generic machine of it.
    pub fn resolve_target(&self, machine: &Machine) -> Result<Target> {
        let threads = self.threads().unwrap_or(machine.cpus as u32);
        self.target_with(machine, threads)
    }

    /// As [`ModelArgs::resolve_target`], for an executable.
    pub fn target_of_executable(&self, machine: &Machine) -> Result<Target> {
        match self.threads.unwrap_or(1) {
            1 => self.target_with(machine, 1),
            n => Err(Error::new(format!("an executable has one thread, not {n}"))
                .help("give --threads 1, or leave it out")),
        }
    }

    fn target_with(&self, machine: &Machine, threads: u32) -> Result<Target> {
        if let Some(target) = &self.made.target {
            return Ok(target.clone().with_threads(threads));
        }
        self.target_of_flags(machine, threads)
    }

    pub(super) fn target_of_flags(&self, machine: &Machine, threads: u32) -> Result<Target> {
        let name = self.target.as_deref().unwrap_or(default("target"));
        let tune_cpu = self.tune_cpu.as_deref().unwrap_or(default("tune-cpu"));
        if name == "host" || name == machine.isa.name() {
            warn_of_cpus(threads as usize);
            return match tune_cpu {
                "off" => Ok(machine.target(threads)),
                "host" => Ok(machine.tuned_target(threads)),
                cpu => tuned_for(machine.target(threads), cpu),
            };
        }
        let isa = isa_named(name)?;
        let target = Target::generic(isa).with_threads(threads);
        match tune_cpu {
            "off" => Ok(target),
            "host" => Err(
                Error::new(format!("--tune-cpu host is no processor of {}", isa.name()))
                    .help("name one, as LLVM does, or leave the flag out"),
            ),
            cpu => tuned_for(target, cpu),
        }
    }
}

/// The host, or a generic machine of another family of instructions.
pub(super) fn target_named(name: &str, machine: &Machine, threads: u32) -> Result<Target> {
    if name == "host" || name == machine.isa.name() {
        return Ok(machine.target(threads));
    }
    Ok(Target::generic(isa_named(name)?).with_threads(threads))
}

fn isa_named(name: &str) -> Result<Isa> {
    let found = Isa::ALL.into_iter().find(|i| i.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Isa::ALL.iter().map(|i| i.name()).collect();
        Error::new(format!("there is no target `{name}`"))
            .help(format!("use host or one of: {}", names.join(", ")))
    })
}

fn only_source(mut sources: Vec<Source>) -> Result<Source> {
    match (sources.pop(), sources.len()) {
        (Some(source), 0) => Ok(source),
        (_, others) => Err(Error::new(format!(
            "the flags give {} combinations of sizes, and this command takes one",
            others + 1
        ))
        .help("give one size with each --dim and --batch")),
    }
}

/// A target whose code is ordered for a processor of LLVM's.
fn tuned_for(target: Target, cpu: &str) -> Result<Target> {
    llvm::check_scoring_cpu(&target, cpu)
        .map_err(|why| Error::new(format!("--tune-cpu {cpu}: {why}")))?;
    let Target::Cpu(facts) = target;
    Ok(Target::Cpu(ir::CpuTarget {
        tune_cpu: Some(cpu.into()),
        ..facts
    }))
}

/// Refuses a target whose code this machine cannot run.
pub fn check_runs_here(target: &Target) -> Result<()> {
    runtime::check_target(&build::kernel_target(target)).map_err(|why| {
        let name = target.name();
        Error::new(format!("code for {name} cannot run here: {why}")).help(
            "tune on a machine that can run it, or measure nothing: `tune --evaluate static`, or `compile`",
        )
    })
}

/// Says something on standard error, in lines that fit it.
pub fn say(text: &str) {
    let width = match screen::is_wide() {
        true => usize::MAX,
        false => screen::width(&std::io::stderr()),
    };
    eprintln!("{}", screen::wrapped(text, width, 2));
}

/// As [`say`], but nothing that was said before: variants of a model have equal notes.
fn say_once(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let said = SAID.lock();
    if said.is_ok_and(|mut said| said.insert(text.to_string())) {
        say(text);
    }
}

/// Prints on standard error that defaults are not what their templates meant.
pub fn warn(warnings: &[Warning]) {
    for w in warnings {
        say(&format!("warning: {w}"));
    }
}

/// Steps that are named in one line.
const STEPS_NAMED: usize = 4;

/// Says on standard error which decisions do not hold.
pub fn say_gone(selectors: &Selectors) {
    let of = |reason: Reason| selectors.gone().iter().filter(move |g| g.reason == reason);
    for gone in of(Reason::NoKernel) {
        say(&format!(
            "warning: {}: `{}` was decided on, and this compiled model has no such kernel; the step decides anew",
            gone.step, gone.algorithm
        ));
    }
    for (reason, why) in [
        (
            Reason::InGroup,
            "in groups of steps in this compiled model, and decided alone",
        ),
        (
            Reason::NoGroup,
            "in no group of steps in this compiled model, and decided in one",
        ),
    ] {
        let mut steps: Vec<String> = of(reason).map(|g| g.step.clone()).collect();
        if steps.is_empty() {
            continue;
        }
        let more = steps.len().saturating_sub(STEPS_NAMED);
        steps.truncate(STEPS_NAMED);
        if more > 0 {
            steps.push(format!("{more} more"));
        }
        say(&format!(
            "warning: decisions do not hold for steps that are {why}; these decide anew: {}",
            steps.join(", ")
        ));
    }
}

/// Says on standard error, once, that threads share CPUs.
pub fn warn_of_cpus(threads: usize) {
    static SAID: Once = Once::new();
    let cpus = Machine::host().cpus;
    if threads > cpus {
        SAID.call_once(|| {
            say(&format!(
                "warning: {threads} threads share {}, which is slower than one thread for each; give --threads {cpus} \
                 or fewer",
                counted(cpus as u32, "CPU")
            ));
        });
    }
}

/// Says on standard error of which element types a model is that this target is slow at.
pub fn warn_of_types(source: &Source, target: &Target) {
    for reason in slow_types(source, target) {
        say(&format!("warning: {}: {reason}", source.name));
    }
}

/// Why a model may be slower than its element types promise.
fn slow_types(source: &Source, target: &Target) -> Vec<&'static str> {
    let Target::Cpu(cpu) = target;
    let has = |wanted: &[DType]| {
        let mut weights = source.model.constants().map(|(_, t)| t);
        weights.any(|t| t.shape().len() > 1 && wanted.contains(&t.dtype()))
    };
    let mut reasons = Vec::new();
    if has(&[DType::F16]) {
        reasons.push(
            "it has weights of f16, and no CPU here computes in f16: products take about as long as in f32, \
             plus conversions. Export it in f32 or bf16 if speed matters more than size",
        );
    }
    if has(&[DType::BF16]) && cpu.half_dot.is_none() {
        reasons.push(
            "it has weights of bf16, and the target has no products of bf16: they take about as long \
             as in f32, plus conversions. Export it in f32 if speed matters more than size",
        );
    }
    if source.precision == Precision::Bf16 && cpu.half_dot.is_none() && cpu.tile_dot.is_none() {
        reasons.push(
            "--precision bf16 rounds factors, and the target has no products of bf16: products take as long as in f32, \
             and rounding takes time. Leave it out unless you want to see what bf16 does to the results",
        );
    }
    if has(&[DType::I8, DType::U8]) && cpu.byte_dot.is_none() {
        reasons.push(
            "it is quantised, and the target has no dot products of bytes: it may be slower than the \
             same model in f32",
        );
    }
    reasons
}

/// Where tuning records are kept.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// The store of tuning records [default: tunesmith.sqlite in the user's data folder]
    #[arg(long, value_name = "FILE", global = true)]
    pub store: Option<PathBuf>,
}

impl StoreArgs {
    /// The store and the files beside it that are parts of it, there or not.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let Some(path) = self.place() else {
            return Ok(vec![]);
        };
        let mut files = vec![path.clone()];
        for part in DATABASE_PARTS {
            let mut beside = path.clone().into_os_string();
            beside.push(part);
            files.push(beside.into());
        }
        Ok(files)
    }

    /// Where the store is; none where no flag says so and the user has no home folder.
    fn place(&self) -> Option<PathBuf> {
        self.store.clone().or_else(|| {
            let data = user_folder("XDG_DATA_HOME", ".local/share")?;
            Some(data.join("tunesmith").join("tunesmith.sqlite"))
        })
    }

    pub fn path(&self) -> Result<PathBuf> {
        self.place().ok_or_else(|| {
            Error::new("there is no home folder for the store").help("give one with --store FILE")
        })
    }

    /// The store to write to, which is made if there is none.
    pub fn write(&self) -> Result<Store> {
        let path = self.path()?;
        if self.store.is_none()
            && let Some(folder) = path.parent()
        {
            std::fs::create_dir_all(folder).map_err(|e| {
                Error::new(format!("cannot create {}: {e}", folder.display()))
                    .help("give a store with --store FILE")
            })?;
        }
        Ok(Store::open(path)?)
    }

    /// Whether there is one.
    pub fn is_there(&self) -> Result<bool> {
        let Some(path) = self.place() else {
            return Ok(false);
        };
        path.try_exists().map_err(|e| {
            Error::new(format!("cannot reach the store {}: {e}", path.display()))
                .help("allow reading its folder, or name another store with --store FILE")
        })
    }

    /// The store to read from, which must be there and may be one that cannot be written.
    pub fn existing(&self) -> Result<Store> {
        let path = self.path()?;
        if !self.is_there()? {
            return Err(Error::new(format!("there is no store {}", path.display()))
                .help("name one with --store FILE, or tune something first"));
        }
        Ok(Store::open_to_read(path)?)
    }

    /// As [`existing`](StoreArgs::existing), but an empty store where there is none, for
    /// reading makes none.
    pub fn read(&self) -> Result<Store> {
        if self.is_there()? {
            return self.existing();
        }
        if let Some(path) = &self.store {
            let (shown, folder) = (path.display(), path.parent());
            if let Some(folder) = folder.filter(|f| *f != Path::new("") && !f.is_dir()) {
                let folder = folder.display();
                return Err(Error::new(format!(
                    "there is no store {shown}, nor the folder {folder}"
                ))
                .help("name one with --store FILE"));
            }
            eprintln!("warning: there is no store {shown}, so no measurements are known");
        }
        Ok(Store::open_in_memory()?)
    }

    /// Nothing where only defaults are wanted.
    pub fn read_unless(&self, defaults: bool) -> Result<Option<Store>> {
        (!defaults).then(|| self.read()).transpose()
    }
}
