//! `bench --compare`: the same ONNX file in ONNX Runtime, on equal inputs and with as many threads.
//!
//! A Python process runs it, driven over pipes. The two programs run in turns of slices, so that what
//! disturbs one disturbs both. A slice begins with an inference that is not timed: the other program took the caches.

use super::bench_figures::Figures;
use super::bench_instances::{Amount, timed};
use runtime::Model;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tensor::{DType, Tensor};
use tune::latency::Latencies;
use tune::{Error, Result};

const SCRIPT: &str = include_str!("bench_onnxruntime.py");
/// Turns of each program.
const SLICES: usize = 10;

/// What the other program took.
#[derive(Serialize)]
pub struct Compared {
    pub program: String,
    pub version: String,
    pub python: String,
    #[serde(flatten)]
    pub figures: Figures,
    /// The other program's median over this one's.
    pub ratio: f64,
}

impl Compared {
    /// The comparison in words.
    pub fn text(&self, own: &Figures, sizes: &str) -> String {
        let of = match sizes {
            "" => String::new(),
            sizes => format!("{sizes}: "),
        };
        format!(
            "{of}{} {} takes {:.2}x the time of Tunesmith: medians {:.3} and {:.3} ms, in turns of up to {SLICES} slices",
            self.program, self.version, self.ratio, self.figures.median_ms, own.median_ms
        )
    }
}

/// A tensor that the other program gets.
pub struct Feed {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Feed {
    pub fn of(name: &str, value: &Tensor) -> Feed {
        Feed {
            name: name.into(),
            dtype: value.dtype(),
            shape: value.shape().to_vec(),
            bytes: value.bytes().to_vec(),
        }
    }

    /// What a model's inputs hold now.
    pub fn of_inputs(model: &mut Model) -> Vec<Feed> {
        let compiled = model.compiled().clone();
        let ids = compiled.inputs().iter().enumerate();
        let feed = |(i, id): (usize, &runtime::TensorId)| {
            let info = compiled.tensor(*id);
            Feed {
                name: info.name.clone(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes: model.input_mut(i).to_vec(),
            }
        };
        ids.map(feed).collect()
    }
}

/// The name of an element type in NumPy.
fn numpy_type(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::I16 => "int16",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        DType::BF16 => {
            return Err(
                Error::new("NumPy has no bf16, which an input of the model is of")
                    .help("leave out --compare, or export the model with inputs of f32"),
            );
        }
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Version(String),
    Error(String),
}

/// ONNX Runtime in a process of its own, which ends with this value.
pub struct Rival {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    python: PathBuf,
    version: String,
}

impl Rival {
    /// Starts it in the Python that is named, or else in the first of `$PYTHON` and `python3` that has it.
    ///
    /// # Errors
    /// If none of them has it, or it cannot run the model.
    pub fn start(
        python: Option<&Path>,
        file: &str,
        threads: usize,
        feeds: &[Feed],
    ) -> Result<Rival> {
        let tried: Vec<OsString> = match python {
            Some(path) => vec![path.into()],
            None => std::env::var_os("PYTHON")
                .into_iter()
                .chain(["python3".into()])
                .collect(),
        };
        let mut whys = Vec::new();
        for python in tried {
            let shown = python.to_string_lossy().into_owned();
            match Rival::start_in(Path::new(&python), file, threads, feeds)? {
                Ok(rival) => return Ok(rival),
                Err(why) => whys.push(format!("{shown}: {why}")),
            }
        }
        Err(Error::new(format!(
            "ONNX Runtime cannot run {file}: {}",
            whys.join("; ")
        ))
        .help(
            "name a Python that has it with --python PATH or the variable PYTHON; `pip install onnxruntime` \
             installs it",
        ))
    }

    /// As [`Rival::start`] in one Python; why not, if it cannot.
    fn start_in(
        python: &Path,
        file: &str,
        threads: usize,
        feeds: &[Feed],
    ) -> Result<std::result::Result<Rival, String>> {
        let mut inputs = Vec::new();
        for f in feeds {
            inputs.push(serde_json::json!({
                "name": f.name, "type": numpy_type(f.dtype)?, "shape": f.shape, "bytes": f.bytes.len(),
            }));
        }
        let ask = serde_json::json!({ "file": file, "threads": threads, "inputs": inputs });
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match piped.spawn() {
            Ok(child) => child,
            Err(e) => return Ok(Err(format!("it does not start: {e}"))),
        };
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Ok(Err("it has no pipes".into()));
        };
        let mut rival = Rival {
            child,
            asks,
            answers: BufReader::new(answers),
            python: python.into(),
            version: String::new(),
        };
        // A process that ended said why, or its end is the reason: the answer tells.
        let mut send = |bytes: &[u8]| rival.asks.write_all(bytes).is_ok();
        if send(format!("{ask}\n").as_bytes()) {
            feeds.iter().all(|f| send(&f.bytes));
        }
        let said = rival.asks.flush().and_then(|()| rival.line());
        let said = said.unwrap_or_default();
        Ok(match serde_json::from_str(&said) {
            Ok(Answer::Version(version)) => {
                rival.version = version;
                Ok(rival)
            }
            Ok(Answer::Error(why)) => Err(why),
            Err(_) => Err("it ended without an answer".into()),
        })
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }

    /// Nanoseconds of inferences that run now.
    fn timed(&mut self, amount: Amount) -> Result<Vec<u64>> {
        let ask = match amount {
            Amount::Runs(n) => format!("runs {n}\n"),
            Amount::Time(time) => format!("time {}\n", time.as_secs_f64()),
        };
        let sent = self.asks.write_all(ask.as_bytes());
        let said = sent
            .and_then(|()| self.asks.flush())
            .and_then(|()| self.line());
        let said = said.unwrap_or_default();
        let samples: std::result::Result<Vec<u64>, _> =
            said.split_whitespace().map(str::parse).collect();
        match samples {
            Ok(samples) if !samples.is_empty() => Ok(samples),
            _ => {
                let python = self.python.display();
                Err(
                    Error::new(format!("ONNX Runtime in {python} ended while it ran"))
                        .help("see above what it said"),
                )
            }
        }
    }

    /// Measures both in turns: the samples of this program, and what the other took.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn compared(
        &mut self,
        model: &mut Model,
        amount: Amount,
        batch: Option<usize>,
    ) -> Result<(Latencies, Compared)> {
        let (mut own, mut theirs) = (Latencies::default(), Latencies::default());
        for (turn, slice) in slices(amount).into_iter().enumerate() {
            for first in [true, false] {
                if first == (turn % 2 == 0) {
                    model.invoke()?;
                    own.samples_ns.extend(timed(model, slice)?);
                } else {
                    theirs.samples_ns.extend(self.timed(slice)?);
                }
            }
        }
        let compared = Compared {
            program: "onnxruntime".into(),
            version: self.version.clone(),
            python: self.python.display().to_string(),
            figures: Figures::in_turn(&theirs, batch),
            ratio: theirs.median_ms() / own.median_ms(),
        };
        Ok((own, compared))
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parts of an amount, equal as far as they can be.
fn slices(amount: Amount) -> Vec<Amount> {
    match amount {
        Amount::Time(time) => vec![Amount::Time(time / SLICES as u32); SLICES],
        Amount::Runs(n) => {
            let parts = n.min(SLICES);
            let part = |i: usize| Amount::Runs(n * (i + 1) / parts - n * i / parts);
            (0..parts).map(part).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_all_runs() {
        for n in [1, 3, 10, 47] {
            let runs = |a: Amount| match a {
                Amount::Runs(n) => n,
                Amount::Time(_) => 0,
            };
            let parts: Vec<usize> = slices(Amount::Runs(n)).into_iter().map(runs).collect();
            assert_eq!(parts.iter().sum::<usize>(), n);
            assert!(parts.iter().all(|p| *p > 0), "{parts:?}");
        }
    }
}
