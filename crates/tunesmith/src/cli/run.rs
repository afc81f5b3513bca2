//! `run`: one inference of a compiled model on given inputs.

use super::knobs::{default, with_default};
use super::model_args::{named_value, read_tensor, say_gone};
use super::output::{ARRAY, Output, TRACE, names_folder};
use super::parse::{parse_count, parse_threads};
use super::pool_args::{PoolArgs, VariantArgs};
use super::table::{Table, counted, or_unknown};
use super::trace::Trace;
use crate::online::{DecisionFile, selectors};
use runtime::{CompiledModel, Model, RunError, Selectors, TensorId, TensorInfo, Variants};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tensor::{Tensor, npy_file_name, write_npy};
use tune::latency::INTEGERS;
use tune::{Error, Result};

/// Run a compiled model once on inputs from files
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith run resnet18.tsm --input data=image.npy --out scores.npy\n  tunesmith run bert.tsm --input ids=ids.pb --random 1 --out outputs/"
)]
pub struct Args {
    /// A compiled model (.tsm)
    artifact: PathBuf,
    /// The value of an input (.npy, or .pb for an ONNX tensor)
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    #[command(flatten)]
    which: VariantArgs,
    /// Fill all other inputs with random values of this seed
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// A folder for the outputs, or a .npy file if the model has one output [default: outputs are not written]
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    #[arg(long, help = with_default("threads"), value_parser = parse_threads::<usize>)]
    threads: Option<usize>,
    #[command(flatten)]
    pool: PoolArgs,
    /// Inferences on these inputs, one after the other
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count::<usize>)]
    repeat: usize,
    /// Which alternative of a step runs, in models that have several. first: the first one; online: alternatives are
    /// tried while the model runs (--repeat), and the fastest is kept
    #[arg(long, default_value = default("select"), value_parser = ["first", "online"])]
    select: String,
    /// Keep what --select online decides in this file, and start from it; further files, of other runs or shipped with the
    /// model, say what this one does not
    #[arg(long, value_name = "FILE")]
    decisions: Vec<PathBuf>,
    /// Also write one more inference, step by step, for a viewer of traces such as ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is said of one output.
#[derive(Serialize)]
struct Summary {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// Of the finite elements; none where there are none.
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// Elements that are infinite or not a number.
    non_finite: usize,
    file: Option<String>,
}

impl Summary {
    fn new(name: &str, t: &Tensor, file: Option<&Path>) -> Summary {
        let (mut min, mut max, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        let mut finite = 0usize;
        for v in (0..t.len()).map(|i| t.get_f64(i)).filter(|v| v.is_finite()) {
            (min, max, sum) = (min.min(v), max.max(v), sum + v);
            finite += 1;
        }
        let some = |v: f64| (finite > 0).then_some(v);
        Summary {
            name: name.into(),
            dtype: t.dtype().to_string(),
            shape: t.shape().to_vec(),
            min: some(min),
            max: some(max),
            mean: some(sum / finite as f64),
            non_finite: t.len() - finite,
            file: file.map(|f| f.display().to_string()),
        }
    }
}

/// Where each output goes; makes the folder.
fn files(out: &Path, outputs: &[String]) -> Result<Vec<PathBuf>> {
    let npy = out.extension().is_some_and(|e| e == "npy");
    if npy && !names_folder(out) && !out.is_dir() {
        if outputs.len() != 1 {
            return Err(Error::new(format!(
                "the model has {} outputs and {} is one file",
                outputs.len(),
                out.display()
            ))
            .help("give a folder with --out FOLDER"));
        }
        return Ok(vec![out.to_path_buf()]);
    }
    std::fs::create_dir_all(out).map_err(|e| {
        Error::new(format!("cannot make the folder {}: {e}", out.display()))
            .help("give another with --out, or a name that ends in .npy for a single output")
    })?;
    let mut taken = BTreeSet::new();
    Ok(outputs
        .iter()
        .map(|o| out.join(npy_file_name(o, &mut taken)))
        .collect())
}

/// The files of the outputs, and that of a trace; the artifact and what it is given are none of them.
fn outputs(
    a: &Args,
    model: &CompiledModel,
    files: &[PathBuf],
) -> Result<(Vec<Output>, Option<Output>)> {
    let mut inputs = vec![a.artifact.clone()];
    for text in &a.inputs {
        let (_, file) = named_value(text, &input_names(model))?;
        inputs.push(PathBuf::from(file));
    }
    let output = |f: &PathBuf| Output::new(f, ARRAY, inputs.clone());
    let trace = |f: &PathBuf| Output::new(f, TRACE, inputs.clone());
    let outputs = files.iter().map(output).collect::<Result<_>>()?;
    Ok((outputs, a.trace.as_ref().map(trace).transpose()?))
}

fn typed(t: &TensorInfo) -> String {
    format!("`{}`, {} of shape {:?}", t.name, t.dtype, t.shape)
}

fn list<'a>(infos: impl IntoIterator<Item = &'a TensorInfo>) -> String {
    infos
        .into_iter()
        .map(|t| format!("\n  {}", typed(t)))
        .collect()
}

/// The sizes of the dimensions: those that the flags give, those of the inputs given, and the
/// only ones that there are.
fn sizes(a: &Args, variants: &Variants, given: &[(String, Tensor)]) -> Result<Vec<Option<usize>>> {
    let mut sizes = vec![None; variants.dims().len()];
    for (name, size) in a.which.sizes()? {
        let Some(at) = variants.dims().iter().position(|d| d.name == name) else {
            variants.with_sizes(&[(name, size)])?;
            continue;
        };
        sizes[at] = Some(size);
    }
    let inputs = variants.models()[0].inputs();
    for (at, dim) in variants.dims().iter().enumerate() {
        for (input, axis) in &dim.inputs {
            let name = &variants.models()[0].tensor(inputs[*input]).name;
            let own = given.iter().find(|(n, _)| n == name);
            let Some(own) = own.and_then(|(_, t)| t.shape().get(*axis)) else {
                continue;
            };
            let known = *sizes[at].get_or_insert(*own);
            if known != *own {
                return Err(Error::new(format!(
                    "input `{name}` has {}={own}, and {known} is given elsewhere",
                    dim.name
                ))
                .help("give all inputs the same size of a dimension"));
            }
        }
        let mut all = (0..variants.models().len()).map(|v| variants.sizes(v)[at]);
        if sizes[at].is_none()
            && let Some(first) = all.next().filter(|first| all.all(|n| n == *first))
        {
            sizes[at] = Some(first);
        }
    }
    Ok(sizes)
}

/// The shape of an input at these sizes.
fn shape(variants: &Variants, input: usize, sizes: &[Option<usize>]) -> Result<Vec<usize>> {
    let model = &variants.models()[0];
    let mut shape = model.tensor(model.inputs()[input]).shape.clone();
    for (at, dim) in variants.dims().iter().enumerate() {
        for (_, axis) in dim.inputs.iter().filter(|(i, _)| *i == input) {
            shape[*axis] = sizes[at].ok_or_else(|| {
                let all = (0..variants.models().len()).map(|v| variants.label(v));
                let all: Vec<String> = all.collect();
                Error::new(format!("the size of {} is open", dim.name)).help(format!(
                    "give it with --dim {}=SIZE, or an input that has it; the variants are: {}",
                    dim.name,
                    all.join("; ")
                ))
            })?;
        }
    }
    Ok(shape)
}

fn input_names(model: &CompiledModel) -> Vec<&str> {
    let name = |id: &TensorId| model.tensor(*id).name.as_str();
    model.inputs().iter().map(name).collect()
}

/// A value for every input of the model.
fn inputs(a: &Args, model: &Model) -> Result<Vec<(String, Tensor)>> {
    let compiled = model.compiled();
    let expected: Vec<&TensorInfo> = compiled
        .inputs()
        .iter()
        .map(|id| compiled.tensor(*id))
        .collect();
    let mut given = Vec::new();
    for text in &a.inputs {
        let (name, file) = named_value(text, &input_names(compiled))?;
        if !expected.iter().any(|e| e.name == name) {
            return Err(Error::new(format!("the model has no input `{name}`"))
                .help(format!("its inputs are:{}", list(expected))));
        }
        given.push((name.to_string(), read_tensor(Path::new(file))?));
    }
    let sizes = sizes(a, model.variants(), &given)?;
    let mut missing = Vec::new();
    let is_state = |i: usize| compiled.states().iter().any(|s| s.input == i);
    for (i, info) in expected.into_iter().enumerate() {
        // States have values already.
        if is_state(i) || given.iter().any(|(n, _)| *n == info.name) {
            continue;
        }
        match a.random {
            Some(seed) => {
                let seed = seed.wrapping_add(i as u64);
                let shape = shape(model.variants(), i, &sizes)?;
                let t = tune::latency::input(info.dtype, &shape, INTEGERS[0], seed);
                given.push((info.name.clone(), t));
            }
            None => missing.push(info),
        }
    }
    if missing.is_empty() {
        return Ok(given);
    }
    Err(
        Error::new(format!("these inputs have no value:{}", list(missing))).help(
            "give each with --input NAME=FILE (.npy or .pb), or fill them with --random SEED",
        ),
    )
}

/// What a user can do about inputs that do not fit.
fn with_advice(e: RunError) -> Error {
    let advice = match &e {
        RunError::NoVariant { .. } => {
            "give one of these sizes, or compile the model with this one among those of --batch or --dim"
        }
        _ => "give each input once, with the type and shape that the model takes",
    };
    Error::from(e).help(advice)
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let variants = Arc::new(a.pool.load(&a.artifact)?);
    let threads = PoolArgs::threads(a.threads, &variants);
    let mut model = Model::of(variants, a.pool.pool(threads)?)?;
    let values = inputs(a, &model)?;
    let compiled = model.compiled().clone();
    let names: Vec<String> = compiled
        .results()
        .iter()
        .map(|id| compiled.tensor(*id).name.clone())
        .collect();
    let files = a.out.as_deref().map(|o| files(o, &names)).transpose()?;
    let (outputs, trace_file) = outputs(a, &compiled, &files.unwrap_or_default())?;
    let kept = decision_file(a, &compiled, threads)?;
    let choosing = online(a, &mut model, kept.as_ref())?;
    let given: Vec<(&str, &Tensor)> = values.iter().map(|(n, t)| (n.as_str(), t)).collect();
    // Whoever has it keeps the memory of alternatives that lost.
    drop(compiled);
    let mut released = 0;
    let mut results = Vec::new();
    for at in 0..a.repeat {
        if let Some(selectors) = choosing.as_ref().filter(|s| at > 0 && s.are_decided()) {
            released += model.retire(selectors)?;
        }
        results = model.run(&given).map_err(with_advice)?;
    }
    if let (Some(kept), Some(selectors)) = (&kept, &choosing) {
        kept.save(selectors)?;
    }
    let ran = match model.variants().models().len() {
        1 => String::new(),
        _ => model.variants().label(model.variant()),
    };
    if let Some(file) = &trace_file {
        let mut trace = Trace::default();
        trace.add(&mut model, &ran)?;
        trace.write(file)?;
    }
    let compiled = model.compiled();
    let mut summaries = Vec::new();
    for (i, (name, t)) in names.iter().zip(&results).enumerate() {
        let out = outputs.get(i);
        if let Some(out) = out {
            out.write(|w| write_npy(w, t).map_err(|e| out.failed(&e)))?;
        }
        summaries.push(Summary::new(name, t, out.map(Output::path)));
    }
    if a.json {
        super::print_json(&serde_json::json!({
            "model": compiled.name(),
            "variant": ran,
            "threads": threads,
            "accuracy": compiled.accuracy(),
            "decided": choosing.as_ref().map(Selectors::are_decided),
            "released_bytes": released,
            "outputs": summaries,
        }))?;
    } else {
        super::print_text(&table(&summaries).text())?;
        let ran = match ran.as_str() {
            "" => String::new(),
            ran => format!(" {ran}"),
        };
        super::print_line(&format!(
            "{}{ran}: {}, accuracy {}",
            compiled.name(),
            counted(threads as u32, "thread"),
            or_unknown(compiled.accuracy())
        ))?;
        if let Some(selectors) = &choosing {
            super::print_line(&decided_text(a, selectors, released))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether all is decided; where not, what decides, as the times of a run are lost when it ends.
fn decided_text(a: &Args, selectors: &Selectors, released: u64) -> String {
    if selectors.are_decided() {
        let mbytes = match released {
            0 => String::new(),
            bytes => format!("; {:.2} MB of what lost are released", bytes as f64 / 1e6),
        };
        return format!("every step has decided among its alternatives{mbytes}");
    }
    let file = a.decisions.first();
    let file = file.map_or("FILE".into(), |f| f.display().to_string());
    format!(
        "steps still try their alternatives, and what was measured of them is lost now: give more --repeat, or decide by\n\
         tunesmith bench {} --select online --decisions {file}",
        a.artifact.display()
    )
}

fn decision_file(a: &Args, model: &CompiledModel, threads: usize) -> Result<Option<DecisionFile>> {
    if a.select != "first" && a.trace.is_some() {
        return Err(
            Error::new("--trace shows the first alternative of every step")
                .help("leave out --select online"),
        );
    }
    if a.select == "first" && !a.decisions.is_empty() {
        return Err(Error::new("--decisions keeps what --select online decides")
            .help("add --select online"));
    }
    Ok(DecisionFile::of_files(&a.decisions, model, threads))
}

/// Has the model choose among alternatives, if it is asked to.
fn online(a: &Args, model: &mut Model, kept: Option<&DecisionFile>) -> Result<Option<Selectors>> {
    if a.select == "first" {
        return Ok(None);
    }
    let selectors = match kept {
        Some(kept) => kept.selectors(model.variants())?,
        None => selectors(model.variants(), None)?,
    };
    say_gone(&selectors);
    model.set_selector(Some(selectors.online()));
    Ok(Some(selectors))
}

/// Six digits, whatever the size.
fn number(v: f64) -> String {
    match v.abs() {
        0.0 => "0".into(),
        size if (1e-3..1e7).contains(&size) => format!("{v:.6}"),
        _ => format!("{v:.5e}"),
    }
}

fn table(outputs: &[Summary]) -> Table {
    let mut t = Table::new(&[
        "output",
        "type",
        "shape",
        "min",
        "max",
        "mean",
        "not finite",
        "file",
    ])
    .dispensable(&["type", "not finite", "mean"]);
    let number = |v: Option<f64>| v.map_or("-".into(), number);
    for o in outputs {
        t.row(vec![
            o.name.clone(),
            o.dtype.clone(),
            format!("{:?}", o.shape),
            number(o.min),
            number(o.max),
            number(o.mean),
            o.non_finite.to_string(),
            o.file.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_leave_out_what_is_not_finite() {
        let t = Tensor::from_slice(&[4], &[1.0f32, f32::NAN, 3.0, f32::INFINITY]);
        let s = Summary::new("y", &t, None);
        assert_eq!(
            (s.min, s.max, s.mean, s.non_finite),
            (Some(1.0), Some(3.0), Some(2.0), 2)
        );
        let empty = Summary::new("y", &Tensor::from_slice::<f32>(&[0], &[]), None);
        assert_eq!((empty.min, empty.mean, empty.non_finite), (None, None, 0));
    }
}
