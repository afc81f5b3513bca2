//! `info`: what a file is, and what is in it.

use super::model_args::StoreArgs;
use super::table::{Table, counted, or_unknown};
use crate::file_kind::FileKind;
use crate::source::{load, names_file, open};
use onnx::{DeclaredTensor, FileSummary, ImportError, ImportOptions, ModelFile};
use runtime::{CompiledModel, TensorId, Variants};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::{RecordQuery, Store};
use tune::{Error, Result};

/// Say what a file is and what is in it: a model, a compiled model, or a store of tuning records
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith info model.onnx\n  tunesmith info model.tsm --json\n  tunesmith info records.sqlite"
)]
pub struct Args {
    /// An ONNX file, a built-in model, a compiled model (.tsm), or a store of tuning records
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Info {
    Model(ModelInfo),
    CompiledModel(ArtifactInfo),
    Store(StoreInfo),
}

#[derive(Serialize)]
struct TensorLine {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    /// None if the file does not say.
    shape: Option<Vec<Size>>,
}

/// A size of a shape: a number, or what stands for several, such as `batch`.
#[derive(Serialize)]
#[serde(untagged)]
enum Size {
    Known(u64),
    Open(String),
}

impl From<String> for Size {
    fn from(text: String) -> Size {
        text.parse().map_or(Size::Open(text), Size::Known)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Known(n) => n.fmt(f),
            Size::Open(text) => text.fmt(f),
        }
    }
}

impl TensorLine {
    fn new(name: &str, ty: String, shape: Option<Vec<String>>) -> TensorLine {
        TensorLine {
            name: name.into(),
            ty,
            shape: shape.map(|s| s.into_iter().map(Size::from).collect()),
        }
    }

    /// As people read it: `[batch, 3]`.
    fn shape_text(&self) -> String {
        let Some(sizes) = &self.shape else {
            return "?".into();
        };
        let sizes: Vec<String> = sizes.iter().map(Size::to_string).collect();
        format!("[{}]", sizes.join(", "))
    }
}

#[derive(Serialize)]
struct ModelInfo {
    /// 0 of a built-in model.
    file_bytes: u64,
    producer: String,
    opsets: BTreeMap<String, i64>,
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
    nodes: usize,
    operators: BTreeMap<String, usize>,
    weights: u64,
    weight_bytes: BTreeMap<String, u64>,
    /// Why the file cannot be imported as it is; none if it can.
    refused: Option<String>,
    /// Dimensions that have no size, by the names that `--dim` takes.
    open_sizes: Vec<String>,
}

#[derive(Serialize)]
struct ArtifactInfo {
    file_bytes: u64,
    model: String,
    /// One label each, such as `batch=8`; none of a model with one size.
    variants: Vec<String>,
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
    accuracy: String,
    /// As `--precision` has it; none if the compiler did not say.
    precision: Option<String>,
    compiler: String,
    /// That the kernels were chosen for; none if the compiler did not say.
    threads: Option<usize>,
    cpu: String,
    triple: String,
    /// Of the first variant.
    steps: usize,
    /// Of each variant.
    variant_steps: Vec<usize>,
    /// Steps that have several alternatives, of the first variant.
    steps_with_choice: usize,
    states: usize,
    /// Steps by algorithm, of the first variant.
    algorithms: BTreeMap<String, usize>,
    /// What the file's bytes are for.
    bytes: SizeByCause,
    /// Memory for activations while one variant runs, the largest.
    activation_bytes: u64,
}

/// Bytes of an artifact by what they are for.
#[derive(Default, Serialize)]
struct SizeByCause {
    /// Constants as the model has them.
    weights: u64,
    /// Constants that kernels read in another form, derived from the weights.
    prepared: u64,
    /// Such constants that the file leaves out: they are made when the model is loaded.
    left_out: u64,
    code: u64,
    /// Names, shapes, the plan of memory.
    other: u64,
}

#[derive(Serialize)]
struct StoreInfo {
    file_bytes: u64,
    records: usize,
    tasks: usize,
    models: Vec<String>,
    runs: usize,
    machines: Vec<String>,
    targets: Vec<String>,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let info = match FileKind::of(&a.file) {
        Some(FileKind::Artifact) => Info::CompiledModel(artifact(&a.file)?),
        Some(FileKind::Store) => Info::Store(store(&a.file)?),
        Some(kind) => {
            let what = format!("{} is {}", a.file.display(), kind.name());
            return Err(Error::new(what).help(kind.instead_of_model()));
        }
        None => Info::Model(model(&a.file)?),
    };
    if a.json {
        super::print_json(&info)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &info {
        Info::Model(m) => print_model(&a.file, m)?,
        Info::CompiledModel(m) => print_artifact(&a.file, m)?,
        Info::Store(s) => print_store(&a.file, s)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn file_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}

fn model(path: &Path) -> Result<ModelInfo> {
    let name = path.to_string_lossy();
    let is_file = names_file(&name);
    let file = match is_file {
        true => open(&name)?,
        // A built-in model is described by the file that it exports.
        false => {
            let source = load(&name, &ImportOptions::default())?;
            let bytes = onnx::export(&source.model).map_err(|e| Error::new(e.to_string()))?;
            ModelFile::read(&bytes).map_err(|e| Error::new(e.to_string()))?
        }
    };
    let FileSummary {
        producer,
        opsets,
        inputs,
        outputs,
        operators,
        weights,
        weight_bytes,
    } = file.summary();
    let (refused, open_sizes) = match file.import(&ImportOptions::default()) {
        Ok(_) => (None, vec![]),
        Err(ImportError::UnboundDims(dims)) => {
            let keys: BTreeSet<String> = dims.iter().map(onnx::UnboundDim::key).collect();
            (None, keys.into_iter().collect())
        }
        Err(e) => (Some(e.to_string()), vec![]),
    };
    Ok(ModelInfo {
        file_bytes: if is_file { file_bytes(path) } else { 0 },
        producer,
        opsets,
        inputs: inputs.into_iter().map(declared).collect(),
        outputs: outputs.into_iter().map(declared).collect(),
        nodes: operators.values().sum(),
        operators,
        weights,
        weight_bytes,
        refused,
        open_sizes,
    })
}

fn declared(t: DeclaredTensor) -> TensorLine {
    TensorLine::new(&t.name, t.ty, t.shape)
}

/// The shape of an output, with the names of the dimensions that it follows from variant to
/// variant, or else its sizes in all of them: `batch`, `2*seq`, `3/7`.
fn output_shape(variants: &Variants, output: usize) -> Vec<String> {
    let models = variants.models();
    let shape = |v: usize| &models[v].tensor(models[v].outputs()[output]).shape;
    let axis = |axis: usize| {
        let sizes: Vec<usize> = (0..models.len()).map(|v| shape(v)[axis]).collect();
        if sizes.iter().all(|n| *n == sizes[0]) {
            return sizes[0].to_string();
        }
        let of_dim = |at: usize| {
            let given = |v: usize| variants.sizes(v)[at];
            let each = sizes[0] / given(0).max(1);
            let follows = (0..models.len()).all(|v| sizes[v] == each * given(v));
            let name = &variants.dims()[at].name;
            follows.then(|| match each {
                1 => name.clone(),
                each => format!("{each}*{name}"),
            })
        };
        let named = (0..variants.dims().len()).find_map(of_dim);
        let all: BTreeSet<usize> = sizes.iter().copied().collect();
        let all: Vec<String> = all.iter().map(usize::to_string).collect();
        named.unwrap_or_else(|| all.join("/"))
    };
    (0..shape(0).len()).map(axis).collect()
}

fn artifact(path: &Path) -> Result<ArtifactInfo> {
    let variants = Variants::load(path)?;
    let models = variants.models();
    let first = &models[0];
    let line = |id: &TensorId, shape: Vec<String>| {
        let t = first.tensor(*id);
        TensorLine::new(&t.name, t.dtype.to_string(), Some(shape))
    };
    let outputs = first.outputs().iter().enumerate();
    let states: BTreeSet<usize> = first.states().iter().map(|s| s.input).collect();
    let inputs = first.inputs().iter().enumerate();
    let inputs = inputs.filter(|(i, _)| !states.contains(i));
    let mut algorithms = BTreeMap::new();
    for step in first.steps() {
        for call in step.alternatives[0].calls.iter().take(1) {
            let name = or_unknown(&first.kernel(call).algorithm).to_string();
            *algorithms.entry(name).or_insert(0) += 1;
        }
    }
    let label = |at| match models.len() {
        1 => None,
        _ => Some(variants.label(at)),
    };
    let total = file_bytes(path);
    Ok(ArtifactInfo {
        file_bytes: total,
        model: first.name().to_string(),
        variants: (0..models.len()).filter_map(label).collect(),
        inputs: inputs
            .map(|(i, id)| line(id, variants.input_shape(i)))
            .collect(),
        outputs: outputs
            .map(|(i, id)| line(id, output_shape(&variants, i)))
            .collect(),
        accuracy: first.accuracy().to_string(),
        precision: first.settings().get("precision").cloned(),
        compiler: first.compiler().to_string(),
        threads: first.threads(),
        cpu: first.target().cpu.clone(),
        triple: first.target().triple.clone(),
        steps: first.steps().len(),
        variant_steps: models.iter().map(|m| m.steps().len()).collect(),
        steps_with_choice: first.steps_with_choice().count(),
        states: states.len(),
        algorithms,
        bytes: SizeByCause {
            left_out: variants.derived_bytes(),
            ..by_cause(models, total)
        },
        activation_bytes: models.iter().map(|m| m.arena_bytes()).max().unwrap_or(0),
    })
}

/// Variants share kernels and constants, so what several have counts once.
fn by_cause(models: &[Arc<CompiledModel>], total: u64) -> SizeByCause {
    let mut sizes = SizeByCause::default();
    let mut seen = BTreeSet::new();
    for model in models {
        for (bytes, prepared) in model.constants() {
            if seen.insert((bytes.as_ptr() as usize, bytes.len())) {
                let cause = match prepared {
                    true => &mut sizes.prepared,
                    false => &mut sizes.weights,
                };
                *cause += bytes.len() as u64;
            }
        }
        for kernel in model.kernels() {
            if seen.insert((kernel.code.as_ptr() as usize, kernel.code.len())) {
                sizes.code += kernel.code.len() as u64;
                sizes.code += kernel.prepare_code.as_ref().map_or(0, Vec::len) as u64;
            }
        }
    }
    let known = sizes.weights + sizes.prepared + sizes.code;
    sizes.other = total.saturating_sub(known);
    sizes
}

fn store(path: &Path) -> Result<StoreInfo> {
    let args = StoreArgs {
        store: Some(path.to_path_buf()),
    };
    let store: Store = args.existing()?;
    let mut records = 0;
    store.visit_records(&RecordQuery::default(), |_, _| {
        records += 1;
        Ok(())
    })?;
    let runs = store.runs()?;
    let models: BTreeSet<String> = runs.iter().map(|r| r.model.clone()).collect();
    let machines = store.machines()?.into_iter().map(|m| m.description);
    let targets = store.targets()?.into_iter().map(|t| t.text());
    Ok(StoreInfo {
        file_bytes: file_bytes(path),
        records,
        tasks: store.tasks()?.len(),
        models: models.into_iter().collect(),
        runs: runs.len(),
        machines: machines.collect(),
        targets: targets.collect(),
    })
}

/// The file without its folder.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A count of bytes with its unit.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b} bytes"),
    }
}

fn print_tensors(inputs: &[TensorLine], outputs: &[TensorLine]) -> Result<()> {
    let mut t = Table::new(&["", "name", "type", "shape"]);
    let sides = [("input", inputs), ("output", outputs)];
    for (side, tensors) in sides {
        for tensor in tensors {
            t.row(vec![
                side.into(),
                tensor.name.clone(),
                tensor.ty.clone(),
                tensor.shape_text(),
            ]);
        }
    }
    t.print()
}

/// Counts by name, the largest first.
fn counts(of: &BTreeMap<String, usize>) -> String {
    let mut all: Vec<(&String, &usize)> = of.iter().collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let each: Vec<String> = all.iter().map(|(name, n)| format!("{n} {name}")).collect();
    each.join(", ")
}

fn print_model(path: &Path, m: &ModelInfo) -> Result<()> {
    let opsets: Vec<String> = m.opsets.iter().map(|(d, v)| format!("{d} {v}")).collect();
    super::print_line(&format!(
        "{}: {}, written by {}, operator set {}",
        name(path),
        match m.file_bytes {
            0 => "a built-in model".into(),
            n => format!("a model ({})", size(n)),
        },
        or_unknown(&m.producer),
        opsets.join(", ")
    ))?;
    print_tensors(&m.inputs, &m.outputs)?;
    super::print_line(&format!("{} nodes: {}", m.nodes, counts(&m.operators)))?;
    let bytes: Vec<String> = m
        .weight_bytes
        .iter()
        .map(|(ty, n)| format!("{} {ty}", size(*n)))
        .collect();
    super::print_line(&format!("{} weights: {}", m.weights, bytes.join(", ")))?;
    match (&m.refused, m.open_sizes.as_slice()) {
        (Some(why), _) => super::print_line(&format!("it cannot be compiled as it is: {why}")),
        (None, []) => {
            super::print_line(&format!("compile it: tunesmith compile {}", path.display()))
        }
        (None, open) => {
            let flags: Vec<String> = open.iter().map(|d| format!("--dim {d}=SIZE")).collect();
            super::print_line(&format!(
                "sizes are open; compile it with {}",
                flags.join(" ")
            ))
        }
    }
}

/// The precision for people: of an artifact that does not say it, what its accuracy does.
fn precision(m: &ArtifactInfo) -> String {
    let narrow = m.accuracy.contains("bf16");
    match (m.precision.as_deref(), narrow) {
        (Some("model"), true) => "model (bf16)".into(),
        (None, true) => "bf16".into(),
        (said, _) => or_unknown(said.unwrap_or_default()).into(),
    }
}

fn print_artifact(path: &Path, m: &ArtifactInfo) -> Result<()> {
    super::print_line(&format!(
        "{}: {} compiled by {}, accuracy {}, precision {}, for {} of {} ({})",
        name(path),
        m.model,
        or_unknown(&m.compiler),
        or_unknown(m.accuracy.split(", ").next().unwrap_or_default()),
        precision(m),
        m.threads
            .map_or("any number of threads".into(), |n| counted(
                n as u32, "thread"
            )),
        m.cpu,
        m.triple
    ))?;
    if !m.variants.is_empty() {
        super::print_line(&format!("variants: {}", m.variants.join("; ")))?;
    }
    print_tensors(&m.inputs, &m.outputs)?;
    if m.states > 0 {
        super::print_line(&format!(
            "{} states, which an inference changes (weights of a training step)",
            m.states
        ))?;
    }
    let choice = match m.steps_with_choice {
        0 => String::new(),
        n => format!(", {n} with alternatives"),
    };
    let (of_first, others) = match m.variants.as_slice() {
        [] => (String::new(), String::new()),
        [first, others @ ..] => {
            let steps = others.iter().zip(&m.variant_steps[1..]);
            let steps = steps.map(|(label, n)| format!("; {label} has {n} steps"));
            (format!(" of {first}"), steps.collect())
        }
    };
    super::print_line(&format!(
        "{} steps{of_first}{choice}: {}{others}",
        m.steps,
        counts(&m.algorithms)
    ))?;
    let b = &m.bytes;
    super::print_line(&format!(
        "{} in the file: {} weights, {} prepared for kernels, {} code, {} other; {} of memory for activations",
        size(m.file_bytes),
        size(b.weights),
        size(b.prepared),
        size(b.code),
        size(b.other),
        size(m.activation_bytes)
    ))?;
    match b.left_out {
        0 => Ok(()),
        bytes => super::print_line(&format!(
            "{} of constants are not in the file: they are made of the weights when the model is loaded",
            size(bytes)
        )),
    }
}

/// Models that are named for people.
const MOST_NAMES: usize = 8;

fn print_store(path: &Path, s: &StoreInfo) -> Result<()> {
    super::print_line(&format!(
        "{}: a store of tuning records ({}): {} records of {} tasks in {}",
        name(path),
        size(s.file_bytes),
        s.records,
        s.tasks,
        counted(s.runs as u32, "run")
    ))?;
    let rest = match s.models.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        n => format!(", and {n} more (`records runs` lists them)"),
    };
    let models = &s.models[..s.models.len().min(MOST_NAMES)];
    super::print_line(&format!("models: {}{rest}", models.join(", ")))?;
    super::print_line(&format!("machines: {}", s.machines.join("; ")))?;
    super::print_line(&format!("targets: {}", s.targets.join("; ")))
}
