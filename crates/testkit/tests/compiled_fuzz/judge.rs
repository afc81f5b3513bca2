//! Judges one pair: what the program computes, by every way of running it.

use crate::faults::{self, Fault};
use crate::machine::Host;
use ir::{LoopKind, Program, Role, Scope, Target, interpret};
use lower::flat::interpret::{Arguments, interpret_flat};
use lower::{LowerError, LowerOptions};
use schedule::{Trace, replay};
use tensor::{Tensor, compare};
use testkit::filtering::{agrees, tolerances};
use testkit::vectors::{instruction_trace, tail_trace};
use testkit::{Kind, filtering_trace, random_args, random_program, random_trace};

/// Steps that a random trace may have, its end apart.
const STEPS: usize = 18;

/// A program, a trace of it, and what the program computes on some arguments.
pub struct Pair {
    pub seed: u64,
    pub raw: Program,
    pub trace: Trace,
    pub scheduled: Program,
    args: Vec<Tensor>,
    expected: Vec<Tensor>,
    /// For each argument.
    tolerances: Vec<f64>,
}

/// How far a pair went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All four ways. `moved`: after what only a GPU has was given to the CPU;
    /// `masked`: with lanes that do not store; `in_place`: also with an output in the
    /// memory of an input.
    Compiled {
        moved: bool,
        masked: bool,
        in_place: bool,
    },
    /// What only a GPU has cannot be given to the CPU: interpreted as scheduled only.
    Bound,
    /// Unrolling would give more statements than lowering takes.
    TooLarge,
    /// Nowhere to put the fault.
    NoPlace,
}

impl Pair {
    /// Every third program is of sums of products, in f32 or of bytes, for
    /// instructions to fit some of them.
    pub fn random(seed: u64) -> Pair {
        let products = [Kind::MatMul, Kind::Conv, Kind::Elementwise];
        let options = match seed % 6 {
            2 => testkit::Distribution {
                integers: false,
                ..testkit::Distribution::only(&products)
            },
            5 => testkit::Distribution::only(&[Kind::Bytes, Kind::Elementwise]),
            _ => testkit::Distribution::all(),
        };
        let raw = random_program(seed, &options);
        let (trace, scheduled) = scheduled(&raw, seed);
        let args = random_args(&raw, seed);
        let mut expected = args.clone();
        interpret::run(&raw, &mut expected).expect("random programs run");
        let tolerances = tolerances(&raw, &trace, &args);
        Pair {
            seed,
            raw,
            trace,
            scheduled,
            args,
            tolerances,
            expected,
        }
    }

    fn outputs(&self) -> impl Iterator<Item = (usize, ir::BufferId)> {
        let params = self.raw.params.iter().copied().enumerate();
        params.filter(|(_, b)| self.raw.buffer(*b).role == Role::Output)
    }

    /// What differs from the expected outputs, if anything; shapes apart.
    fn difference(&self, found: &Arguments) -> Option<String> {
        self.outputs().find_map(|(i, b)| {
            let (name, want) = (&self.raw.buffer(b).name, &self.expected[i]);
            let Some(got) = found.get(&b) else {
                return Some(format!("`{name}` is missing"));
            };
            let got = got.clone().reshaped(want.shape());
            // Zeros of two signs are one value: min and max may give either.
            let d = compare(&got, want);
            (!agrees(&d, self.tolerances[i])).then(|| {
                let (got, want) = (got.get_f64(d.worst), want.get_f64(d.worst));
                format!("`{name}`[{}] is {got}, not {want}", d.worst)
            })
        })
    }
}

/// A random trace; some begin with minimal filtering and an instruction, some
/// end with a vectorized tail.
fn scheduled(raw: &Program, seed: u64) -> (Trace, Program) {
    let (mut trace, opened) = match seed % 3 {
        2 => {
            let (mut trace, filtered) = filtering_trace(raw, seed);
            let (instruction, opened) = instruction_trace(&filtered, seed);
            trace.steps.extend(instruction.steps);
            (trace, opened)
        }
        _ => (Trace::default(), raw.clone()),
    };
    let (middle, mut program) = random_trace(&opened, seed, STEPS - trace.steps.len());
    trace.steps.extend(middle.steps);
    trace.decisions = middle.decisions;
    if seed.is_multiple_of(2) {
        let (end, ended) = tail_trace(&program, seed);
        trace.steps.extend(end.steps);
        program = ended;
    }
    (trace, program)
}

/// Runs the pair every way there is; with a fault only as machine code, into
/// which the fault is put. The error says which way went wrong and shows all.
pub fn judge(pair: &Pair, host: &Host, fault: Option<Fault>) -> Result<Outcome, String> {
    let fail = |why: String, code: &str| {
        let (seed, trace) = (pair.seed, &pair.trace);
        let (raw, scheduled) = (ir::text::print(&pair.raw), ir::text::print(&pair.scheduled));
        format!("seed {seed}: {why}\n{raw}\n{trace}\n{scheduled}\n{code}")
    };
    if fault.is_none() {
        let again = replay(&pair.raw, &pair.trace).map_err(|e| fail(e.to_string(), ""))?;
        if again != pair.scheduled {
            return Err(fail("the replay differs".into(), ""));
        }
        interpreted(pair, &pair.scheduled)
            .map_err(|why| fail(format!("scheduled program: {why}"), ""))?;
    }
    let on_cpu = for_cpu(&pair.scheduled);
    let moved = on_cpu != pair.scheduled;
    if moved && !ir::verify::verify(&on_cpu).is_empty() {
        return Ok(Outcome::Bound);
    }
    let compiler = host.compiler(pair.seed);
    let mut code = match lowered(&on_cpu, compiler.target()) {
        Ok(code) => code,
        Err(LowerError::TooLarge { .. }) => return Ok(Outcome::TooLarge),
        Err(e) => return Err(fail(format!("lowering: {e}"), "")),
    };
    code.in_place = schedule::in_place(&on_cpu);
    let text = lower::flat::text::print(&code);
    let masked = faults::inject(&mut code.clone(), Fault::LostMask);
    let given: Arguments = pair
        .raw
        .params
        .iter()
        .copied()
        .zip(pair.args.iter().cloned())
        .collect();
    if let Some(fault) = fault {
        if !faults::inject(&mut code, fault) {
            return Ok(Outcome::NoPlace);
        }
    } else {
        let mut arguments = given.clone();
        let ran = interpret_flat(&code, &mut arguments).map_err(|e| e.to_string());
        let result = ran.map_or_else(Some, |()| pair.difference(&arguments));
        result.map_or(Ok(()), |why| Err(fail(format!("flat code: {why}"), &text)))?;
    }
    let slack = fault.map_or(0, |_| faults::SLACK);
    let ran = host.run(&code, compiler, &given, slack);
    let result = ran.map_or_else(Some, |found| pair.difference(&found));
    let family = compiler.target().name();
    match result {
        Some(why) => Err(fail(format!("machine code for {family}: {why}"), &text)),
        None => Ok(Outcome::Compiled {
            moved,
            masked,
            in_place: !code.in_place.is_empty(),
        }),
    }
}

fn interpreted(pair: &Pair, p: &Program) -> Result<(), String> {
    if let Some(broken) = ir::verify::verify(p).first() {
        return Err(broken.to_string());
    }
    let mut found = pair.args.clone();
    interpret::run(p, &mut found).map_err(|e| e.to_string())?;
    let found: Arguments = pair.raw.params.iter().copied().zip(found).collect();
    pair.difference(&found).map_or(Ok(()), Err)
}

fn lowered(p: &Program, target: &Target) -> Result<lower::flat::Code, LowerError> {
    let options = LowerOptions {
        verify: true,
        ..LowerOptions::standard()
    };
    lower::lower(p, target, &options)
}

/// The same program without what only a GPU has: its memories become main
/// memory, its hardware axes serial loops.
fn for_cpu(p: &Program) -> Program {
    let mut out = p.clone();
    for b in p.live_buffers() {
        if matches!(p.buffer(b).scope, Scope::Shared | Scope::Warp) {
            out.buffer_mut(b).scope = Scope::Global;
        }
    }
    for l in p.loop_ids() {
        if matches!(p.loop_(l).kind, LoopKind::Bound(_)) {
            out.loop_mut(l).kind = LoopKind::Serial;
        }
    }
    out
}
