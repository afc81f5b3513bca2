//! `dump`: any stage between a model and machine code, as text.
//!
//! Builds in this process, with every promise checked after every step; this
//! is not the tuning parent, so code generation may happen here.

use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs};
use super::score_args::{ScoreArgs, Scoring};
use super::task_args::{Which, pick};
use ir::Target;
use plan::{Plan, Task};
use schedule::Trace;
use search::{Sketch, Space};
use serde::Serialize;
use std::process::ExitCode;
use store::Store;
use tune::machine::Machine;
use tune::scored_caches::Caches;
use tune::{Error, Result};

/// Print a task of a model at any stage between tensor expression and machine code
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith dump resnet18 --task 3 --stage space\n  tunesmith dump 'op:dense(m=64,n=64,k=64)' --stage assembly\n  tunesmith dump model.onnx --task conv2d --stage trace --candidate best > best.trace\n  tunesmith dump resnet18 --task 0 --stage passes --pass vectorize --candidate best.trace"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Which task: its number, the start of its key, or a part of its title [default: all tasks]
    #[arg(long)]
    task: Option<String>,
    /// The stage to print
    #[arg(long, value_enum)]
    stage: DumpStage,
    /// Which candidate: default, fallback, best (of the store), or a file with a trace
    #[arg(long, default_value = "default", value_parser = clap::value_parser!(Which))]
    candidate: Which,
    #[command(flatten)]
    machine: MachineOption,
    /// For the stage `passes`: print only this pass
    #[arg(long)]
    pass: Option<String>,
    #[command(flatten)]
    score: ScoreArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DumpStage {
    /// The program before any schedule
    TensorExpression,
    /// Axes, strides, windows and reuse of every reduction
    Analysis,
    /// What every rule did to make the space, or why it did not apply
    Rules,
    /// The sketches with their decisions and limits
    Space,
    /// The trace of the candidate: its steps and decisions
    Trace,
    /// The program with the trace applied
    Scheduled,
    /// The program after every pass of the lowering
    Passes,
    /// The flat program that the code generator reads
    Flat,
    /// LLVM IR after the optimiser
    Llvm,
    /// Assembly
    Assembly,
    /// Loops of the machine code: counts of instructions, cycles of LLVM's model, cache lines
    Machine,
}

#[derive(Serialize)]
struct Dumped {
    index: usize,
    task: String,
    key: String,
    /// Where the candidate came from, if the stage has one.
    algorithm: Option<String>,
    text: String,
}

/// A stage that could not be reached, with the text of those before.
struct Failed {
    before: String,
    error: Error,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed {
            before: String::new(),
            error,
        }
    }
}

pub fn run(a: &Args) -> Result<ExitCode> {
    if a.stage != DumpStage::Machine {
        a.score.refuse("give --stage machine with it")?;
    }
    if let Some(pass) = &a.pass {
        check_pass(pass, a.stage)?;
    }
    a.candidate.check_machine(&a.machine, "--candidate")?;
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    let source = a.model.source()?;
    let store = a.store.read()?;
    let plan = source.plan_for(&machine, &target, a.model.accuracy(), Some(&store))?;
    let chosen = match &a.task {
        Some(wanted) => vec![pick(&plan, wanted)?],
        None => (0..plan.tasks.len()).collect(),
    };
    let mut all = Vec::new();
    for index in &chosen {
        let task = &plan.tasks[*index];
        let header = match chosen.len() {
            1 => String::new(),
            _ => format!("; task {index}: {}\n", task.title()),
        };
        match dump(a, &plan, task, &machine, &target, &store) {
            Err(failed) => {
                if !a.json {
                    super::print_text(&(header + &failed.before))?;
                }
                return Err(failed.error);
            }
            Ok((algorithm, text)) if a.json => all.push(Dumped {
                index: *index,
                task: task.title(),
                key: task.key.clone(),
                algorithm,
                text,
            }),
            Ok((_, text)) => super::print_text(&(header + &text))?,
        }
    }
    if a.json {
        super::print_json(&serde_json::json!({
            "model": source.name,
            "target": target.name(),
            "stage": clap::ValueEnum::to_possible_value(&a.stage).map(|v| v.get_name().to_string()),
            "tasks": all,
        }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check_pass(pass: &str, stage: DumpStage) -> Result<()> {
    if stage != DumpStage::Passes {
        return Err(Error::new("--pass is for the stage `passes` only"));
    }
    if lower::PASSES.contains(&pass) {
        return Ok(());
    }
    Err(Error::new(format!("no pass is called `{pass}`"))
        .help(format!("the passes are: {}", lower::PASSES.join(", "))))
}

/// The algorithm, where the stage has a candidate, and the text.
fn dump(
    a: &Args,
    plan: &Plan,
    task: &Task,
    machine: &Machine,
    target: &Target,
    store: &Store,
) -> std::result::Result<(Option<String>, String), Failed> {
    match a.stage {
        DumpStage::TensorExpression => return Ok((None, ir::text::print(&task.program))),
        DumpStage::Analysis => return Ok((None, search::analysis_text(&task.program))),
        DumpStage::Rules => return Ok((None, search::rules_text(&task.program, target))),
        DumpStage::Space => {
            let s = search::space(&task.program, target, a.model.requirements().allowed());
            return Ok((None, space(&s)));
        }
        _ => {}
    }
    let requirements = a.model.requirements();
    let measured_on = a.machine.fingerprint(store, machine)?;
    let candidate = a
        .candidate
        .candidate(plan, task, &measured_on, target, requirements, store)?;
    let text = match a.stage {
        DumpStage::TensorExpression | DumpStage::Analysis | DumpStage::Rules | DumpStage::Space => {
            unreachable!("answered above")
        }
        DumpStage::Trace => schedule::print(&candidate.trace),
        DumpStage::Scheduled => ir::text::print(&scheduled(task, &candidate.trace)?),
        DumpStage::Passes => passes(task, &candidate.trace, target, a.pass.as_deref())?,
        DumpStage::Flat => lower::flat::text::print(&flat(task, &candidate.trace, target)?),
        DumpStage::Machine => {
            let scoring = a.score.scoring(&a.store, machine, target)?;
            machine_code(&scoring, task, &candidate.trace, target)?
        }
        DumpStage::Llvm | DumpStage::Assembly => {
            let extras = extras(task, &candidate.trace, target)?;
            match a.stage {
                DumpStage::Llvm => extras.llvm_ir,
                _ => extras.assembly,
            }
        }
    };
    Ok((Some(candidate.algorithm), text))
}

const VERIFIED: lower::LowerOptions = lower::LowerOptions {
    verify: true,
    ..lower::LowerOptions::standard()
};

fn refused(task: &Task, why: &impl ToString) -> Error {
    Error::new(format!("{}: {}", task.title(), why.to_string()))
}

fn scheduled(task: &Task, trace: &Trace) -> Result<ir::Program> {
    schedule::replay(&task.program, trace).map_err(|e| {
        refused(task, &e).help("a trace fits only the task it was made for; see --stage trace")
    })
}

fn flat(task: &Task, trace: &Trace, target: &Target) -> Result<lower::flat::Code> {
    let program = scheduled(task, trace)?;
    lower::lower(&program, target, &VERIFIED).map_err(|e| refused(task, &e))
}

fn machine_code(scoring: &Scoring, task: &Task, trace: &Trace, target: &Target) -> Result<String> {
    let code = flat(task, trace, target)?;
    let emit = llvm::Emit {
        identity: true,
        ..llvm::Emit::default()
    };
    let compiler = llvm::Compiler::new(target).map_err(|e| refused(task, &e))?;
    let compiled = compiler.compile(&code, emit);
    let object = compiled.map_err(|e| refused(task, &e))?.object;
    let decoder = compiler
        .decoder(&scoring.cpu)
        .map_err(|e| refused(task, &e))?;
    let functions = decoder.functions(&object).map_err(|e| refused(task, &e))?;
    let entry = analysis::Entry {
        name: "kernel",
        threads: target.threads(),
    };
    let found = analysis::analyse(&code, &functions, decoder.model(), entry);
    let levels = Caches::of(&scoring.cpu, target).levels();
    let Target::Cpu(target) = target;
    let moved = analysis::print_movement(&code, &code.kernel, target, levels);
    let features = analysis::Features {
        machine: Some(analysis::machine(&code, &found, target)),
        ..analysis::loops(&code, target, levels)
    };
    let score = format!("score {:.0}\n", scoring.rates.cycles(&features));
    Ok(analysis::print(&code, &found) + &moved + &score)
}

fn passes(
    task: &Task,
    trace: &Trace,
    target: &Target,
    only: Option<&str>,
) -> std::result::Result<String, Failed> {
    let program = scheduled(task, trace)?;
    let mut text = String::new();
    let mut dump = |pass: &str, after: &str| {
        if only.is_none_or(|o| o == pass) {
            text += &format!("; after {pass}\n{}\n", after.trim_end());
        }
    };
    let mut observer = lower::PassObserver {
        dump: Some(&mut dump),
        timings: vec![],
    };
    let lowered = lower::lower_observed(&program, target, &VERIFIED, &mut observer);
    match lowered {
        Ok(_) => Ok(text),
        Err(e) => Err(Failed {
            before: text,
            error: refused(task, &e),
        }),
    }
}

fn extras(task: &Task, trace: &Trace, target: &Target) -> Result<build::Extras> {
    let compiler = llvm::Compiler::new(target).map_err(|e| refused(task, &e))?;
    let options = build::BuildOptions {
        verify: true,
        extras: true,
        ..build::BuildOptions::default()
    };
    let built = build::build(&task.program, trace, &compiler, &options)
        .map_err(|e| refused(task, &format!("{:?}: {}", e.stage, e.reason)))?;
    Ok(built.extras.expect("extras were asked for"))
}

/// Every sketch, and why others could not be written.
fn space(s: &Space) -> String {
    let mut text = String::new();
    for (i, sketch) in s.sketches.iter().enumerate() {
        text += &format!(
            "; sketch {i}: {}, {} points\n",
            sketch.name,
            sketch.cardinality()
        );
        text += &open_trace(sketch);
    }
    for refused in &s.refused {
        text += &format!("; refused: {refused}\n");
    }
    text
}

/// The decisions at their defaults, the limits on them, and the steps.
fn open_trace(s: &Sketch) -> String {
    let decisions = Trace {
        steps: vec![],
        decisions: s.decisions.clone(),
    };
    let mut text = schedule::print(&decisions);
    for l in &s.limits {
        let terms: Vec<String> = l
            .terms
            .iter()
            .map(|t| {
                let values = t.values.iter();
                let values = values.map(|v| format!(" * ${}.{}", v.decision, v.part));
                format!("{}{}", t.factor, values.collect::<String>())
            })
            .collect();
        text += &format!("; limit {}: {} <= {}\n", l.what, terms.join(" + "), l.max);
    }
    for step in &s.steps {
        text += &format!("{step}\n");
    }
    text
}
