//! `tunesmith-run`: runs, measures and describes compiled models where no compiler is.

use lexopt::{Arg, Parser, ValueExt};
use runtime::{CompiledModel, Model, Pool, TensorId, Variants};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Fill, Tensor, fill_tensor, npy_file_name, read_npy_file, write_npy_file};
use tunesmith_runtime::usual_threads;

const USAGE: &str = "usage: tunesmith-run COMMAND MODEL.tsm [OPTION]...

commands:
  info    say what the model takes and gives
  run     one inference; prints what the outputs hold
  bench   measure latencies

options:
  --threads N         threads of the kernels [default: as many as the model was compiled for]
  --variant N         of a model that was compiled at several sizes, from 0 [default: 0; `run` takes that of the inputs]
  --input NAME=FILE   run: the value of an input (.npy); all others are random
  --seed N            run, bench: seed of the random inputs [default: 1]
  --out FOLDER        run: write the outputs there, as OUTPUT.npy
  --time SECONDS      bench: how long to measure [default: 3]

A compiled model is a program: run only files that you trust.
";

struct Asked {
    command: String,
    model: PathBuf,
    threads: Option<usize>,
    variant: usize,
    /// As given: NAME=FILE.
    inputs: Vec<String>,
    seed: u64,
    out: Option<PathBuf>,
    time: Duration,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match asked().and_then(|asked| asked.map_or(Ok(()), run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}\n  help: `tunesmith-run --help` lists commands and options");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for; nothing more if that was help.
fn asked() -> Outcome<Option<Asked>> {
    let mut words = Vec::new();
    let mut asked = Asked {
        command: String::new(),
        model: PathBuf::new(),
        threads: None,
        variant: 0,
        inputs: vec![],
        seed: 1,
        out: None,
        time: Duration::from_secs(3),
    };
    let mut parser = Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => {
                print!("{USAGE}");
                return Ok(None);
            }
            Arg::Long("version") => {
                println!("tunesmith-run {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            Arg::Long("threads") => asked.threads = Some(parser.value()?.parse()?),
            Arg::Long("variant") => asked.variant = parser.value()?.parse()?,
            Arg::Long("seed") => asked.seed = parser.value()?.parse()?,
            Arg::Long("out") => asked.out = Some(parser.value()?.into()),
            Arg::Long("time") => {
                asked.time = Duration::try_from_secs_f64(parser.value()?.parse()?)?;
            }
            Arg::Long("input") => {
                asked.inputs.push(parser.value()?.string()?);
            }
            Arg::Value(word) => words.push(word),
            other => return Err(other.unexpected().into()),
        }
    }
    let [command, model] = <[_; 2]>::try_from(words).map_err(|words| {
        format!(
            "a command and a model are wanted, and {} words are given",
            words.len()
        )
    })?;
    asked.command = command.string()?;
    asked.model = model.into();
    Ok(Some(asked))
}

fn run(asked: Asked) -> Outcome<()> {
    let variants = Arc::new(Variants::load(&asked.model)?);
    match asked.command.as_str() {
        "info" => info(&variants),
        "run" => infer(&asked, &variants),
        "bench" => bench(&asked, &variants),
        other => Err(format!("there is no command `{other}`: use info, run or bench").into()),
    }
}

fn info(variants: &Variants) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    let first = &variants.models()[0];
    let mega = |bytes: u64| bytes as f64 / 1e6;
    writeln!(
        out,
        "{}: for {} ({}), accuracy {}, {} steps",
        first.name(),
        first.target().cpu,
        first.target().triple,
        first.accuracy(),
        first.steps().len()
    )?;
    for (at, model) in variants.models().iter().enumerate() {
        writeln!(
            out,
            "variant {at} {}: {:.1} MB of constants, {:.1} MB of activations",
            variants.label(at),
            mega(model.constant_bytes()),
            mega(model.arena_bytes())
        )?;
        for (side, ids) in [("input", model.inputs()), ("output", model.outputs())] {
            for (i, id) in ids.iter().enumerate() {
                if side == "input" && is_state(model, i) {
                    continue;
                }
                let t = model.tensor(*id);
                writeln!(out, "  {side} {} {} {:?}", t.name, t.dtype, t.shape)?;
            }
        }
    }
    Ok(())
}

/// Whether an input keeps what an output of the inference before gave.
fn is_state(model: &CompiledModel, input: usize) -> bool {
    model.states().iter().any(|s| s.input == input)
}

/// The model, with a pool, and the variant that is asked for.
fn loaded(asked: &Asked, variants: &Arc<Variants>) -> Outcome<Model> {
    let threads = asked.threads.unwrap_or_else(|| usual_threads(variants));
    let mut model = Model::of(variants.clone(), Arc::new(Pool::new(threads)?))?;
    let all = variants.models().len();
    if asked.variant >= all {
        return Err(format!("there is no variant {}: the model has {all}", asked.variant).into());
    }
    model.select(asked.variant);
    Ok(model)
}

/// A tensor like that of the model, with random elements.
fn random(model: &Model, id: TensorId, seed: u64) -> Tensor {
    let info = model.compiled().tensor(id);
    let fill = match info.dtype.is_float() {
        true => Fill::Uniform { lo: -1.0, hi: 1.0 },
        false => Fill::Integers { lo: 0, hi: 1 },
    };
    fill_tensor(info.dtype, &info.shape, fill, seed)
}

/// NAME=FILE, where names of inputs and files may hold `=`: the longest name of an input that fits, if one does.
fn named<'a>(text: &'a str, model: &CompiledModel) -> Outcome<(&'a str, &'a str)> {
    let names = model
        .inputs()
        .iter()
        .map(|id| model.tensor(*id).name.as_str());
    let fitting = names.filter(|name| {
        let rest = text.strip_prefix(name);
        rest.is_some_and(|r| r.starts_with('='))
    });
    match fitting.max_by_key(|name| name.len()) {
        Some(name) => Ok((&text[..name.len()], &text[name.len() + 1..])),
        None => {
            let split = text.split_once('=');
            split.ok_or_else(|| format!("--input {text} is not NAME=FILE").into())
        }
    }
}

/// Whether a variant has these inputs in these shapes; nothing fits where none is given.
fn fits(model: &CompiledModel, inputs: &[(String, Tensor)]) -> bool {
    let has = |(name, tensor): &(String, Tensor)| {
        let mut own = model.inputs().iter().map(|id| model.tensor(*id));
        own.any(|t| t.name == *name && t.shape == tensor.shape())
    };
    !inputs.is_empty() && inputs.iter().all(has)
}

fn infer(asked: &Asked, variants: &Arc<Variants>) -> Outcome<()> {
    let mut model = loaded(asked, variants)?;
    let mut inputs = Vec::new();
    for text in &asked.inputs {
        let (name, file) = named(text, model.compiled())?;
        let tensor = read_npy_file(Path::new(file)).map_err(|e| format!("{file}: {e}"))?;
        inputs.push((name.to_string(), tensor));
    }
    // Others are random, of the shapes that go with those given.
    if let Some(at) = variants.models().iter().position(|m| fits(m, &inputs)) {
        model.select(at);
    }
    let compiled = model.compiled().clone();
    for (i, id) in compiled.inputs().iter().enumerate() {
        let name = &compiled.tensor(*id).name;
        if !is_state(&compiled, i) && inputs.iter().all(|(given, _)| given != name) {
            inputs.push((name.clone(), random(&model, *id, asked.seed + i as u64)));
        }
    }
    let given: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = model.run(&given)?;
    let names = model.compiled().results().iter();
    let names = names.map(|id| model.compiled().tensor(*id).name.clone());
    let mut taken = BTreeSet::new();
    for (name, tensor) in names.zip(&outputs) {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        println!("{name} {dtype} {shape:?}: {}", range(tensor));
        if let Some(folder) = &asked.out {
            std::fs::create_dir_all(folder)?;
            let path = folder.join(npy_file_name(&name, &mut taken));
            write_npy_file(&path, tensor).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("written to {}", path.display());
        }
    }
    Ok(())
}

/// The least and the greatest finite element, and how many are not finite.
fn range(tensor: &Tensor) -> String {
    let values = (0..tensor.len()).map(|i| tensor.get_f64(i));
    let (mut least, mut most, mut finite) = (f64::INFINITY, f64::NEG_INFINITY, 0);
    for v in values.filter(|v| v.is_finite()) {
        (least, most, finite) = (least.min(v), most.max(v), finite + 1);
    }
    let said = match (tensor.len(), finite) {
        (0, _) => return "no elements".to_owned(),
        (_, 0) => "nothing finite".to_owned(),
        _ => format!("{least} to {most}"),
    };
    match tensor.len() - finite {
        0 => said,
        others => format!("{said}, {others} not finite"),
    }
}

fn bench(asked: &Asked, variants: &Arc<Variants>) -> Outcome<()> {
    let mut model = loaded(asked, variants)?;
    for (i, id) in model.compiled().inputs().to_vec().into_iter().enumerate() {
        // States have values already.
        if is_state(model.compiled(), i) {
            continue;
        }
        let tensor = random(&model, id, asked.seed + i as u64);
        model.input_mut(i).copy_from_slice(tensor.bytes());
    }
    model.invoke()?;
    let mut ms = Vec::new();
    let begin = Instant::now();
    while ms.len() < 5 || begin.elapsed() < asked.time {
        let start = Instant::now();
        model.invoke()?;
        ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms[((ms.len() - 1) as f64 * share) as usize];
    println!(
        "{}: p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, min {:.3} ms ({} runs, {} threads)",
        model.compiled().name(),
        at(0.5),
        at(0.9),
        at(0.99),
        ms[0],
        ms.len(),
        model.pool().threads()
    );
    Ok(())
}
