//! `study`: what measuring takes under varied conditions.

mod measured;
mod modelled;
mod strategies;

use super::parse::{parse_count, parse_share, parse_threads, parse_time};
use super::tune::parse_constants;
use measure::{Constants, Policy};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use study::Sweep;
use tune::Result;

/// Study how policies of measuring compare
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study measure 'op:matmul(m=512,n=512,k=512)' resnet18\n  tunesmith study measure --families --candidates 500 --overlap both --out study\n  tunesmith study measure 'op:matmul(m=64,n=64,k=64)' --policies serial,doppler --sweep tau=.05,.1,.25\n  tunesmith study measure --model\n  tunesmith study strategies convolution_T4.json.gz --trials 200"
)]
pub struct Args {
    #[command(subcommand)]
    study: Study,
}

#[derive(clap::Subcommand)]
enum Study {
    /// Compare policies on the same candidates of some tasks; or predict, with --model
    Measure(MeasureArgs),
    Strategies(strategies::Args),
}

#[derive(clap::Args)]
struct MeasureArgs {
    /// ONNX files, built-in models, or operators, op:NAME(argument=value,...)
    #[arg(required_unless_present_any = ["modelled", "families"])]
    models: Vec<String>,
    /// Also an operator of each of the usual families
    #[arg(long)]
    families: bool,
    /// Predict with a discrete-event model of more devices than there are; says that it is modelled
    #[arg(long = "model", conflicts_with_all = ["models", "families"])]
    modelled: bool,
    /// Candidates of each operator, of all tasks of a model together, or of each prediction
    /// [default: 128, or 10000 with --model]
    #[arg(long, value_parser = parse_count::<usize>)]
    candidates: Option<usize>,
    /// Policies to compare
    #[arg(long, value_delimiter = ',', value_parser = Policy::ALL.map(Policy::name),
        default_values = Policy::ALL.map(Policy::name))]
    policies: Vec<String>,
    /// Whether candidates are built while others are measured, or all of them before
    #[arg(long, value_parser = ["off", "on", "both"], default_value = "off")]
    overlap: String,
    /// Builders that work meanwhile [default: the CPUs that kernels leave, at least one]
    #[arg(long, value_parser = parse_threads::<usize>)]
    builders: Option<usize>,
    /// Share of the candidates that is ranked alone at the end, at least one
    #[arg(long, default_value_t = 0.01, value_parser = parse_share)]
    rank: f64,
    /// Samples of every candidate [default: as many as their variance asks for]
    #[arg(long, value_parser = parse_count::<u32>)]
    samples: Option<u32>,
    /// Another row for each value of a constant of doppler (`knobs` lists them), or of dp (the
    /// largest round, also naive's), timeout (fixed, in seconds), rank or samples
    #[arg(long, value_name = "NAME=V1,V2,...", value_parser = Sweep::parse)]
    sweep: Vec<Sweep>,
    /// How often each policy measures all candidates
    #[arg(long, default_value_t = 3, value_parser = parse_count::<usize>)]
    repetitions: usize,
    /// Threads of the kernels
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    threads: u32,
    /// Candidates that are measured together
    #[arg(long, default_value_t = 64, value_parser = parse_count::<usize>)]
    measure_batch: usize,
    /// Sets that the CPUs are divided into, each a device of its own
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<usize>)]
    devices: usize,
    /// Single-threaded kernels that share a CPU
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    oversubscribe: u32,
    /// Constants of doppler to change; `knobs` lists them with their defaults
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = parse_constants, default_value = "",
        hide_default_value = true)]
    doppler: Constants,
    /// Share of candidates as fast as the best so far that may be given up early, beside what is
    /// clearly slow; 0 gives up none
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    lose: f64,
    /// Time after which a runner is killed; doppler's rounds go by eta and iota of --doppler instead
    #[arg(long, value_parser = parse_time, default_value = "10s", conflicts_with = "modelled")]
    limit: Duration,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder for what is finished, as it is, and for the report. Started again with the
    /// same settings, a study goes on there
    #[arg(long, value_name = "FOLDER", conflicts_with = "modelled")]
    out: Option<PathBuf>,
    /// Also list doppler's rounds, and its errors by degree of parallelism
    #[arg(long, conflicts_with = "modelled")]
    rounds: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    match &a.study {
        Study::Measure(a) if a.modelled => modelled::run(a)?,
        Study::Measure(a) => measured::run(a)?,
        Study::Strategies(a) => strategies::run(a)?,
    }
    Ok(ExitCode::SUCCESS)
}
