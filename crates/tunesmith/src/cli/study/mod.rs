//! `study`: compares policies of measuring, strategies by real searches and on recorded tables, random points of a space
//! with each other and with what is predicted of them, predictors on simulated samples, and choosing
//! online with fixed choices.

mod cold;
mod learning;
mod measured;
mod modelled;
pub(super) mod points;
mod scores;
mod searches;
mod select;
mod simulate;
mod strategies;
mod survey;
mod trim;
mod trim_records;

use super::knobs::{default, doc};
use super::parse::{parse_count, parse_share, parse_threads, parse_time};
use super::tune::parse_constants;
use measure::{Constants, Policy};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use study::Sweep;
use tune::Result;

/// Compare policies of measuring, strategies by real searches and on recorded tables, points of a space, or choices of algorithms
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study measure 'op:matmul(m=512,n=512,k=512)' resnet18\n  tunesmith study measure --families --candidates 500 --overlap both --out study\n  tunesmith study measure 'op:matmul(m=64,n=64,k=64)' --policies serial,doppler --sweep tau=.05,.1,.25\n  tunesmith study measure --model\n  tunesmith study strategies convolution_T4.json.gz --trials 200\n  tunesmith study strategies 'op:conv2d(c=16,h=32,w=32,k=32,r=5,s=5)' --strategies funnel,random\n  tunesmith study rank 'op:matmul(m=512,n=512,k=512)' --points 200\n  tunesmith study spread 'op:matmul(m=512,n=512,k=512)' --points 300\n  tunesmith study select vgg16 --threads 1,2 --plot select.svg"
)]
pub struct Args {
    #[command(subcommand)]
    study: Study,
}

#[derive(clap::Subcommand)]
enum Study {
    /// Measure the same candidates with every policy; or predict the times, with --model
    Measure(MeasureArgs),
    Strategies(strategies::Args),
    Rank(points::RankArgs),
    Spread(points::SpreadArgs),
    Static(scores::Args),
    /// What a cold filter and a survey of tuners save, and what of a store's records went where (Trimmer)
    Trim {
        #[command(subcommand)]
        part: Trim,
    },
    Learn(learning::Args),
    Select(select::Args),
    Simulate(simulate::Args),
}

#[derive(clap::Subcommand)]
enum Trim {
    Cold(cold::Args),
    Survey(survey::Args),
    Records(trim_records::Args),
}

#[derive(clap::Args)]
struct MeasureArgs {
    /// ONNX files, built-in models (see `models`), or operators as op:NAME(argument=value,...)
    #[arg(required_unless_present_any = ["modelled", "families"])]
    models: Vec<String>,
    /// Also measure one operator of each usual family
    #[arg(long)]
    families: bool,
    /// Predict with a discrete-event model of more devices than this machine has; the output says *modelled*
    #[arg(long = "model", conflicts_with_all = ["models", "families"])]
    modelled: bool,
    /// Number of candidates: for each operator, for all tasks of a model together, or for each
    /// prediction [default: 128; 10000 with --model]
    #[arg(long, value_parser = parse_count::<usize>)]
    candidates: Option<usize>,
    /// Policies to compare
    #[arg(long, value_delimiter = ',', value_parser = Policy::ALL.map(Policy::name),
        default_values = Policy::ALL.map(Policy::name))]
    policies: Vec<String>,
    /// on: build candidates while others are measured; off: build all candidates first; both: study on and off
    #[arg(long, value_parser = ["off", "on", "both"], default_value = "off")]
    overlap: String,
    /// Builder processes [default: the CPUs that kernels leave; at least 1]
    #[arg(long, value_parser = parse_threads::<usize>)]
    builders: Option<usize>,
    /// Share of the candidates (at least one) that is measured again alone at the end and ranked
    #[arg(long, default_value_t = 0.01, value_parser = parse_share)]
    rank: f64,
    /// Samples of every candidate [default: as many as their variance requires]
    #[arg(long, value_parser = parse_count::<u32>)]
    samples: Option<u32>,
    /// Add a row for each value of NAME: a constant of doppler (`knobs` lists them), dp (the largest
    /// round, also that of naive), timeout (a fixed one, in seconds), rank, or samples
    #[arg(long, value_name = "NAME=V1,V2,...", value_parser = Sweep::parse)]
    sweep: Vec<Sweep>,
    /// How often each policy measures all candidates
    #[arg(long, default_value_t = 3, value_parser = parse_count::<usize>)]
    repetitions: usize,
    /// Threads of the kernels
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    threads: u32,
    #[arg(long, help = doc("measure-batch"), default_value = default("measure-batch"),
        value_parser = parse_count::<usize>)]
    measure_batch: usize,
    #[arg(long, help = doc("devices"), default_value = default("devices"), value_parser = parse_threads::<usize>)]
    devices: usize,
    #[arg(long, help = doc("oversubscribe"), default_value = default("oversubscribe"),
        value_parser = parse_threads::<u32>)]
    oversubscribe: u32,
    #[arg(long, help = doc("doppler"), value_name = "NAME=VALUE,...", value_parser = parse_constants,
        default_value = "", hide_default_value = true)]
    doppler: Constants,
    #[arg(long, help = doc("lose"), default_value = default("lose"), value_parser = parse_share)]
    lose: f64,
    #[arg(long, help = doc("run-limit"), value_parser = parse_time, default_value = "10s", conflicts_with = "modelled")]
    limit: Duration,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the finished parts of the study and for its report. The same command continues
    /// an interrupted study there
    #[arg(long, value_name = "FOLDER", conflicts_with = "modelled")]
    out: Option<PathBuf>,
    /// Also print doppler's rounds, and its errors at each degree of parallelism
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
        Study::Rank(a) => points::rank(a)?,
        Study::Spread(a) => points::spread(a)?,
        Study::Static(a) => scores::run(a)?,
        Study::Trim { part } => match part {
            Trim::Cold(a) => cold::run(a)?,
            Trim::Survey(a) => survey::run(a)?,
            Trim::Records(a) => trim_records::run(a)?,
        },
        Study::Learn(a) => learning::run(a)?,
        Study::Select(a) => select::run(a)?,
        Study::Simulate(a) => simulate::run(a)?,
    }
    Ok(ExitCode::SUCCESS)
}
