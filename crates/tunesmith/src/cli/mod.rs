//! The command line: one file a command.
//!
//! Results go to standard output, everything else to standard error; with
//! `--json` exactly one object goes to standard output.

mod bench;
mod bench_compare;
mod bench_energy;
mod bench_figures;
mod bench_inputs;
mod bench_instances;
mod bench_online;
mod board;
mod calibrate;
mod check;
mod compile;
mod doctor;
mod dump;
mod energy_args;
mod energy_text;
mod executable;
mod explain;
mod explain_choices;
mod explain_graph;
mod explain_html;
mod explain_picture;
mod explain_predict;
mod explain_text;
mod html;
mod info;
mod keys;
mod knobs;
mod machine_option;
mod made_for;
mod model_args;
mod models;
mod output;
mod pack;
mod panics;
mod parse;
mod plan_facts;
mod pool_args;
mod progress;
mod records;
mod records_label;
mod replay;
mod run;
mod score_args;
mod screen;
mod signals;
mod simulate;
mod simulate_collect;
mod simulator_args;
mod space;
mod ssh;
mod study;
mod table;
mod task_args;
mod tasks;
mod trace;
mod train;
mod train_args;
mod train_cold;
mod tune;
mod tune_html;
mod tune_reading;
mod tune_report;
mod usage;

use ::tune::machine::Machine;
use ::tune::{Error, Host, Result, Workers, serve_worker_if_asked};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use usage::with_fitting_examples;

#[derive(Parser)]
#[command(
    name = "tunesmith",
    version,
    about = "Searches for the fastest implementation of every tensor program in a model, and runs the compiled model",
    after_help = "Examples:\n  tunesmith tune resnet18\n  tunesmith tune model.onnx --threads 1 --time 3m --out model.tsm\n  tunesmith tune 'op:conv2d(c=64,h=56,w=56,k=64,r=3,s=3,pad=1)'\n  tunesmith bench model.tsm"
)]
struct Cli {
    /// Show tables whole, however wide the screen is
    #[arg(long, global = true)]
    wide: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Tune(Box<tune::Args>),
    Compile(compile::Args),
    Bench(bench::Args),
    Check(check::Args),
    Calibrate(calibrate::Args),
    Explain(explain::Args),
    Info(info::Args),
    Run(run::Args),
    Train(train::Args),
    Tasks(tasks::Args),
    Space(space::Args),
    Pack(pack::Args),
    Records(records::Args),
    Dump(dump::Args),
    Replay(replay::Args),
    Models(models::Args),
    Doctor(doctor::Args),
    Simulate(simulate::Args),
    Study(study::Args),
    Keys(keys::Args),
    Knobs(knobs::Args),
}

/// The heading of the options that few people need: `--help` leaves them out.
const ADVANCED: &str = "Advanced";

/// A command whose `--help` is one page; `--help-all` also has the options under [`ADVANCED`].
fn with_two_helps(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(with_two_helps);
    if !command.get_arguments().any(Arg::is_hide_short_help_set) {
        return command;
    }
    let help = Arg::new("help").short('h').long("help");
    let all = Arg::new("help-all").long("help-all");
    command
        .disable_help_flag(true)
        .arg(help.action(ArgAction::HelpShort).help("Print help"))
        .arg(
            all.action(ArgAction::HelpLong)
                .help("Print help with the advanced options"),
        )
}

/// The names of the options that the user gave.
fn given(matches: &ArgMatches) -> Vec<String> {
    let by_user =
        |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    let ids = matches.ids().filter(by_user);
    ids.map(|id| id.as_str().replace('_', "-")).collect()
}

/// Parses the arguments, runs the command, and turns an error into a report; a process that
/// another of this program started as a worker serves as one.
pub fn main() -> ExitCode {
    // At the limit of file sizes a write is to fail, not to end the program: the error
    // then says which file it was.
    // SAFETY: to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let ended = match serve_worker_if_asked() {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            panics::report_panics();
            let command = with_fitting_examples(with_two_helps(Cli::command()));
            let matches = command
                .try_get_matches()
                .unwrap_or_else(|e| usage::refuse(e));
            let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
            if let Command::Tune(a) = &mut cli.command {
                a.given = matches.subcommand_matches("tune").map_or(vec![], given);
            }
            screen::set_wide(cli.wide);
            run(cli.command)
        }
        Err(e) => Err(e),
    };
    match ended {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{}", report(&e, screen::width(&std::io::stderr())));
            ExitCode::FAILURE
        }
    }
}

/// An error for people: the message, and below it the advice, broken where the screen ends.
fn report(error: &Error, width: usize) -> String {
    let advice = error.advice().map(|advice| format!("\n  help: {advice}"));
    let text = format!("error: {error}{}", advice.unwrap_or_default());
    screen::fitted(&text, width, 4)
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Tune(a) => tune::run(&a),
        Command::Compile(a) => compile::run(&a),
        Command::Bench(mut a) => {
            a.model.take_settings(None)?;
            bench::run(&a)
        }
        Command::Check(mut a) => {
            a.take_settings()?;
            check::run(&a)
        }
        Command::Calibrate(a) => calibrate::run(&a),
        Command::Explain(mut a) => {
            a.take_settings()?;
            explain::run(&a)
        }
        Command::Info(a) => info::run(&a),
        Command::Run(a) => run::run(&a),
        Command::Train(a) => train::run(&a),
        Command::Tasks(a) => tasks::run(&a),
        Command::Space(a) => space::run(&a),
        Command::Pack(a) => pack::run(&a),
        Command::Records(a) => records::run(&a),
        Command::Dump(a) => dump::run(&a),
        Command::Replay(a) => replay::run(&a),
        Command::Models(a) => models::run(&a),
        Command::Doctor(a) => doctor::run(&a),
        Command::Simulate(a) => simulate::run(&a),
        Command::Study(a) => study::run(&a),
        Command::Keys(a) => keys::run(&a),
        Command::Knobs(a) => knobs::run(&a),
    }
}

/// This machine, and this program as its worker.
fn host() -> Result<Host> {
    Ok(Host {
        machine: Machine::host(),
        workers: Workers::of_this_program()?,
    })
}

/// Prints one JSON object.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::new(format!("cannot print the result: {e}")))?;
    print_text(&format!("{text}\n"))
}

/// Prints lines for people, broken where the screen ends.
fn print_line(line: &str) -> Result<()> {
    let width = screen::bound().unwrap_or(usize::MAX);
    print_text(&format!("{}\n", screen::fitted(line, width, 4)))
}

/// Prints text; a reader that went away is no error.
fn print_text(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}
