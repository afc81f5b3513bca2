//! `train`: runs a compiled training step over batches of data.

use super::knobs::with_default;
use super::model_args::{key_value, read_tensor, say};
use super::parse::{parse_count, parse_threads};
use super::pool_args::PoolArgs;
use super::table::{Table, counted};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use runtime::{CompiledModel, Model, TensorId, TensorInfo};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Tensor, write_npy_file};
use tune::{Error, Result};

/// Run a compiled training step over batches of data, for some epochs
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith compile vgg16-cifar --batch 64 --train --out step.tsm\n  tunesmith train step.tsm --input image=images.npy --input labels=labels.npy --epochs 3 --out weights/"
)]
pub struct Args {
    /// A training step (.tsm), as `compile --train` or `tune --train` makes it
    artifact: PathBuf,
    /// All rows of an input (.npy): the first axis counts them, and each step takes a batch
    #[arg(long = "input", value_name = "NAME=FILE", required = true)]
    inputs: Vec<String>,
    /// How often all rows are gone through
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count::<usize>)]
    epochs: usize,
    /// The seed by which each epoch draws the order of the rows; without it, rows keep their order
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// A folder of .npy files that an earlier `train --out` wrote: states begin with them
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// A folder for the states: every weight, velocity and statistic as .npy
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[arg(long, help = with_default("threads"), value_parser = parse_threads::<usize>)]
    threads: Option<usize>,
    #[command(flatten)]
    pool: PoolArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    model: String,
    threads: usize,
    batch: usize,
    /// Rows of an epoch; what is left of the last batch is not used.
    rows: usize,
    epochs: Vec<Epoch>,
    /// Of every step.
    losses: Vec<f64>,
    /// Where the states are.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<String>,
}

#[derive(Serialize)]
struct Epoch {
    /// Mean of its steps.
    loss: f64,
    /// Share of rows whose largest logit is that of their label, each before the step that learns from it.
    accuracy: f64,
    seconds: f64,
    rows_per_s: f64,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let variants = Arc::new(a.pool.load(&a.artifact)?);
    let threads = PoolArgs::threads(a.threads, &variants);
    let mut model = Model::of(variants, a.pool.pool(threads)?)?;
    let compiled = model.compiled().clone();
    let places = Places::of(&compiled)?;
    let data = Data::read(&a.inputs, &compiled, &places)?;
    if let Some(folder) = &a.resume {
        resume(&mut model, folder)?;
    }
    if let Some(folder) = &a.out {
        std::fs::create_dir_all(folder).map_err(|e| {
            Error::new(format!("cannot make the folder {}: {e}", folder.display()))
                .help("give another with --out")
        })?;
    }
    let steps = data.rows / data.batch;
    let mut summary = Summary {
        model: compiled.name().into(),
        threads,
        batch: data.batch,
        rows: steps * data.batch,
        epochs: vec![],
        losses: vec![],
        out: None,
    };
    let mut order: Vec<usize> = (0..data.rows).collect();
    let mut random = a.shuffle.map(Pcg64Mcg::seed_from_u64);
    let bar = progress(steps * a.epochs, a.json);
    for epoch in 1..=a.epochs {
        if let Some(random) = &mut random {
            order.shuffle(random);
        }
        let begin = Instant::now();
        let mut right = 0;
        for rows in order.chunks_exact(data.batch) {
            data.fill(&mut model, rows);
            model.invoke()?;
            let of_step = model.output_tensor(places.loss).get_f64(0);
            summary.losses.push(of_step);
            right += data.right(&model, &places, rows);
            bar.set_message(format!("epoch {epoch} of {}: loss {of_step:.4}", a.epochs));
            bar.inc(1);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let of_epoch = &summary.losses[summary.losses.len() - steps..];
        summary.epochs.push(Epoch {
            loss: of_epoch.iter().sum::<f64>() / steps as f64,
            accuracy: right as f64 / summary.rows as f64,
            seconds,
            rows_per_s: summary.rows as f64 / seconds,
        });
    }
    bar.finish_and_clear();
    if let Some(folder) = &a.out {
        save(&model, folder)?;
        summary.out = Some(folder.display().to_string());
    }
    match a.json {
        true => super::print_json(&summary)?,
        false => print(&summary)?,
    }
    if summary.losses.last().is_some_and(|l| !l.is_finite()) {
        say(
            "warning: the loss is no number any more; compile the step with a smaller --learning-rate",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a training step has what no state is and every step has.
struct Places {
    /// An input; the others are outputs.
    labels: usize,
    loss: usize,
    logits: usize,
}

impl Places {
    fn of(compiled: &CompiledModel) -> Result<Places> {
        let named = |ids: &[TensorId], name: &str| {
            let mut all = ids.iter();
            all.position(|id| compiled.tensor(*id).name == name)
        };
        let output = |name| named(compiled.outputs(), name);
        let labels = named(compiled.inputs(), graph::LABELS);
        let found = (labels, output(graph::LOSS), output(graph::LOGITS));
        match found {
            (Some(labels), Some(loss), Some(logits)) if !compiled.states().is_empty() => {
                Ok(Places {
                    labels,
                    loss,
                    logits,
                })
            }
            _ => Err(
                Error::new(format!("{} is no training step", compiled.name()))
                    .help("make one with `tunesmith compile MODEL --train --out step.tsm`"),
            ),
        }
    }

    fn classes(&self, compiled: &CompiledModel) -> usize {
        let logits = compiled.outputs()[self.logits];
        compiled.tensor(logits).shape.last().copied().unwrap_or(0)
    }
}

/// All rows of the inputs that are no states.
struct Data {
    /// By position of the input.
    tensors: Vec<(usize, Tensor)>,
    rows: usize,
    batch: usize,
}

impl Data {
    fn read(inputs: &[String], compiled: &CompiledModel, places: &Places) -> Result<Data> {
        let is_state = |i: usize| compiled.states().iter().any(|s| s.input == i);
        let infos: Vec<&TensorInfo> = compiled
            .inputs()
            .iter()
            .map(|id| compiled.tensor(*id))
            .collect();
        let wanted: Vec<usize> = (0..infos.len()).filter(|i| !is_state(*i)).collect();
        let names: Vec<&str> = wanted.iter().map(|i| infos[*i].name.as_str()).collect();
        let mut data = Data {
            tensors: vec![],
            rows: 0,
            batch: 0,
        };
        for text in inputs {
            let (name, file) = key_value(text)?;
            let at = wanted.iter().find(|i| infos[**i].name == name);
            let at = *at.ok_or_else(|| {
                Error::new(format!("the training step takes no data `{name}`"))
                    .help(format!("it takes: {}", names.join(", ")))
            })?;
            let t = read_tensor(Path::new(file))?;
            let info = infos[at];
            let fits = t.dtype() == info.dtype
                && !info.shape.is_empty()
                && t.shape().get(1..) == info.shape.get(1..);
            if !fits {
                return Err(Error::new(format!(
                    "{file} has {} of shape {:?}; `{name}` takes {} of shape {:?} in each step, and its first \
                     axis may be longer",
                    t.dtype(),
                    t.shape(),
                    info.dtype,
                    info.shape
                )));
            }
            if at == places.labels {
                check_labels(file, &t, places.classes(compiled))?;
            }
            let (rows, batch) = (t.shape()[0], info.shape[0]);
            if !data.tensors.is_empty() && (rows, batch) != (data.rows, data.batch) {
                return Err(Error::new(format!(
                    "{file} has {rows} rows in batches of {batch}, and the input before it {} in batches of {}",
                    data.rows, data.batch
                )));
            }
            if rows < batch || batch == 0 {
                return Err(Error::new(format!(
                    "{file} has {rows} rows, and one step takes {batch}"
                ))
                .help("compile the step with a smaller --batch"));
            }
            (data.rows, data.batch) = (rows, batch);
            data.tensors.retain(|(i, _)| *i != at);
            data.tensors.push((at, t));
        }
        let given = |i: &usize| data.tensors.iter().any(|(at, _)| at == i);
        match wanted.iter().find(|i| !given(i)) {
            Some(i) => Err(
                Error::new(format!("`{}` has no data", infos[*i].name)).help(format!(
                    "give --input NAME=FILE.npy for: {}",
                    names.join(", ")
                )),
            ),
            None => Ok(data),
        }
    }

    /// Puts these rows into the inputs.
    fn fill(&self, model: &mut Model, rows: &[usize]) {
        for (input, all) in &self.tensors {
            let row = all.bytes().len() / self.rows;
            let to = model.input_mut(*input).chunks_exact_mut(row.max(1));
            for (to, from) in to.zip(rows) {
                to.copy_from_slice(&all.bytes()[from * row..][..row]);
            }
        }
    }

    /// How many of these rows have their largest logit at their label.
    fn right(&self, model: &Model, places: &Places, rows: &[usize]) -> usize {
        let logits = model.output_tensor(places.logits);
        let labels = self.tensors.iter().find(|(i, _)| *i == places.labels);
        let Some((_, labels)) = labels else {
            unreachable!("a training step is given labels");
        };
        let classes = logits.len() / rows.len();
        let is_right = |(at, row): &(usize, &usize)| {
            let value = |class: usize| logits.get_f64(at * classes + class);
            let own = labels.get_f64(**row) as usize;
            (0..classes).all(|class| class == own || value(class) < value(own))
        };
        rows.iter().enumerate().filter(is_right).count()
    }
}

/// Refuses labels that are no classes.
fn check_labels(file: &str, t: &Tensor, classes: usize) -> Result<()> {
    let is_none = |row: &usize| !(0.0..classes as f64).contains(&t.get_f64(*row));
    match (0..t.len()).find(is_none) {
        Some(row) => Err(Error::new(format!(
            "{file}: the label of row {row} is {}, and the model has {classes} classes: from 0 to {}",
            t.get_f64(row),
            classes - 1
        ))
        .help("leave out rows that have no class, or train a model with more classes")),
        None => Ok(()),
    }
}

/// The file of a state in a folder.
fn file_of(compiled: &CompiledModel, input: usize, folder: &Path) -> PathBuf {
    let name = &compiled.tensor(compiled.inputs()[input]).name;
    let safe = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
        true => c,
        false => '_',
    };
    // The number tells names apart that differ in other characters only.
    let name: String = name.chars().map(safe).collect();
    folder.join(format!("{input:03}.{name}.npy"))
}

fn resume(model: &mut Model, folder: &Path) -> Result<()> {
    let compiled = model.compiled().clone();
    for s in compiled.states() {
        let file = file_of(&compiled, s.input, folder);
        let t = read_tensor(&file)?;
        let info = compiled.tensor(compiled.inputs()[s.input]);
        if (t.dtype(), t.shape()) != (info.dtype, &info.shape[..]) {
            return Err(Error::new(format!(
                "{} has shape {:?}, and `{}` has {:?}",
                file.display(),
                t.shape(),
                info.name,
                info.shape
            ))
            .help("resume with the states of the same training step"));
        }
        model.input_mut(s.input).copy_from_slice(t.bytes());
    }
    Ok(())
}

fn save(model: &Model, folder: &Path) -> Result<()> {
    let compiled = model.compiled();
    for s in compiled.states() {
        let file = file_of(compiled, s.input, folder);
        let t = model.output_tensor(s.output);
        write_npy_file(&file, &t).map_err(|e| Error::new(format!("{}: {e}", file.display())))?;
    }
    Ok(())
}

fn progress(steps: usize, quiet: bool) -> ProgressBar {
    let target = match quiet {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr_with_hz(4),
    };
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
    let style = ProgressStyle::with_template("{bar:24} step {pos} of {len}, {eta} left; {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn print(s: &Summary) -> Result<()> {
    let mut t = Table::new(&["epoch", "mean loss", "accuracy", "seconds", "rows/s"]);
    for (i, e) in s.epochs.iter().enumerate() {
        t.row(vec![
            (i + 1).to_string(),
            format!("{:.4}", e.loss),
            format!("{:.3}", e.accuracy),
            format!("{:.1}", e.seconds),
            format!("{:.1}", e.rows_per_s),
        ]);
    }
    t.print()?;
    let ends = s.losses.first().zip(s.losses.last());
    let (first, last) = ends.unwrap_or((&f64::NAN, &f64::NAN));
    super::print_line(&format!(
        "{}: {} steps of {} rows, loss {first:.4} in the first step and {last:.4} in the last; {}",
        s.model,
        s.losses.len(),
        s.batch,
        counted(s.threads as u32, "thread")
    ))?;
    match &s.out {
        Some(out) => super::print_line(&format!("states written to {out}")),
        None => Ok(()),
    }
}
