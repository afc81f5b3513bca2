//! One candidate to one kernel.

use analysis::{CacheLevel, Features};
use ir::{Isa, Program, Target};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Code};
use runtime::{BuiltKernel, CodeFormat, KernelParam, KernelTarget, ParamRole};
use schedule::Trace;
use serde::{Deserialize, Serialize};
use simulate::{CacheSetting, Emulated, External, Own, Plugin, Simulated, Simulator, Statistics};
use std::fmt::Write as _;
use std::time::Instant;

/// Where in the pipeline something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuildStage {
    Replay,
    Lower,
    Codegen,
}

/// Why a candidate has no code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    pub stage: BuildStage,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOptions {
    /// Check the promises of programs and flat code after every step.
    pub verify: bool,
    /// Produce assembly and flat code text with loop identities.
    pub extras: bool,
    /// Read the loops and the machine code. The kernel's object then has sections of identity as
    /// well: its code is the same, and its hash is another.
    pub read: Option<ReadOptions>,
}

/// What is read off a candidate, for which processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOptions {
    /// The processor whose cycles count, by LLVM's name.
    pub cpu: String,
    /// The caches that lines are counted of, from the first level to the last; the target's where there are none.
    #[serde(default)]
    pub levels: Option<[CacheLevel; 3]>,
    /// The caches in which one call on one core is simulated as well.
    pub caches: Option<CacheSetting>,
    /// One in so many iterations of outer loops is simulated for all; none for all.
    #[serde(default)]
    pub sample_iterations: Option<u32>,
    /// What simulates one call in these caches where data decide which addresses are accessed.
    #[serde(default)]
    pub plugin: Option<Plugin>,
    /// The command that simulates one call instead.
    pub external: Option<External>,
}

/// What was read of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub features: Features,
    /// What the simulator counted, or why it cannot simulate this candidate; none if it was not asked to.
    pub statistics: Option<Result<Statistics, String>>,
}

/// What analysis and people read; made on request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    pub scheduled: String,
    pub flat: String,
    pub assembly: String,
    pub llvm_ir: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    pub kernel: BuiltKernel,
    pub extras: Option<Extras>,
    pub read: Option<Read>,
    /// Wall time of replay, lowering and code generation.
    pub replay_ns: u64,
    pub lower_ns: u64,
    pub codegen_ns: u64,
    /// Wall time of reading the code and of simulating it; 0 if neither was asked for.
    pub read_ns: u64,
}

fn failure(stage: BuildStage) -> impl Fn(String) -> BuildFailure {
    move |reason| BuildFailure { stage, reason }
}

/// Replays, lowers and compiles.
pub fn build(
    program: &Program,
    trace: &Trace,
    compiler: &Compiler,
    options: &BuildOptions,
) -> Result<Built, BuildFailure> {
    let t0 = Instant::now();
    let scheduled =
        schedule::replay(program, trace).map_err(|e| failure(BuildStage::Replay)(e.to_string()))?;
    if options.verify {
        let broken = ir::verify::verify(&scheduled);
        if let Some(first) = broken.first() {
            let text = format!(
                "the scheduled program is broken ({}): {first}",
                broken.len()
            );
            return Err(failure(BuildStage::Replay)(text));
        }
    }
    let t1 = Instant::now();
    let lower_options = lower::LowerOptions {
        verify: options.verify,
        ..lower::LowerOptions::standard()
    };
    let mut code = lower::lower(&scheduled, compiler.target(), &lower_options)
        .map_err(|e| failure(BuildStage::Lower)(e.to_string()))?;
    code.in_place = schedule::in_place(&scheduled);
    let t2 = Instant::now();
    let emit = Emit {
        assembly: options.extras,
        llvm_ir: options.extras,
        identity: options.extras || options.read.is_some(),
    };
    let compiled = compiler
        .compile(&code, emit)
        .map_err(|e| failure(BuildStage::Codegen)(e.to_string()))?;
    let t3 = Instant::now();
    let extras = options.extras.then(|| Extras {
        scheduled: ir::text::print(&scheduled),
        flat: lower::flat::text::print(&code),
        assembly: compiled.assembly.unwrap_or_default(),
        llvm_ir: compiled.llvm_ir.unwrap_or_default(),
    });
    let t4 = Instant::now();
    let mut kernel = built_kernel(
        &code,
        compiler.target(),
        compiled.object,
        schedule::print(trace),
    );
    let read = |asked| read(&code, compiler, &kernel, asked);
    let read = options.read.as_ref().map(read).transpose();
    let read = read.map_err(failure(BuildStage::Codegen))?;
    let read_ns = read.as_ref().map_or(0, |_| t4.elapsed().as_nanos() as u64);
    if kernel.prepare_entry.is_some() && runtime::check_target(&kernel.target).is_err() {
        kernel.prepare_code = Some(host_prepare(&code).map_err(failure(BuildStage::Codegen))?);
    }
    let ns = |a: Instant, b: Instant| (b - a).as_nanos() as u64;
    Ok(Built {
        kernel,
        extras,
        read,
        replay_ns: ns(t0, t1),
        lower_ns: ns(t1, t2),
        codegen_ns: ns(t2, t3),
        read_ns,
    })
}

/// Reads a kernel whose object has identity.
fn read(
    code: &Code,
    compiler: &Compiler,
    built: &BuiltKernel,
    asked: &ReadOptions,
) -> Result<Read, String> {
    let Target::Cpu(cpu) = compiler.target();
    let decoder = compiler.decoder(&asked.cpu).map_err(|e| e.to_string())?;
    let functions = decoder.functions(&built.code).map_err(|e| e.to_string())?;
    let entry = analysis::Entry {
        name: "kernel",
        threads: cpu.threads,
    };
    let found = analysis::analyse(code, &functions, decoder.model(), entry);
    let kernel = Simulated {
        target: compiler.target(),
        code: simulate::Kernel {
            code,
            functions: &functions,
            analysis: &found,
        },
        built,
    };
    let features = Features {
        machine: Some(analysis::machine(code, &found, cpu)),
        ..analysis::loops(code, cpu, asked.levels.unwrap_or(analysis::levels(cpu)))
    };
    Ok(Read {
        features,
        statistics: asked.count(kernel),
    })
}

impl ReadOptions {
    /// What simulates a candidate. The first one that can do so counts: QEMU takes longer than reading the code.
    fn simulators(&self) -> Vec<Box<dyn Simulator + '_>> {
        let mut all: Vec<Box<dyn Simulator + '_>> = Vec::new();
        if let Some(external) = &self.external {
            all.push(Box::new(external.clone()));
            return all;
        }
        let Some(caches) = &self.caches else {
            return all;
        };
        all.push(Box::new(Own {
            caches,
            sample_iterations: self.sample_iterations,
        }));
        if let Some(plugin) = &self.plugin {
            all.push(Box::new(Emulated { plugin, caches }));
        }
        all
    }

    /// What was counted, or why each simulator counted nothing; none if there is no simulator.
    fn count(&self, kernel: Simulated<'_>) -> Option<Result<Statistics, String>> {
        let mut reasons = Vec::new();
        for simulator in self.simulators() {
            match simulator.count(kernel) {
                Ok(counted) => return Some(Ok(counted)),
                Err(why) => reasons.push(why.to_string()),
            }
        }
        if reasons.is_empty() {
            return None;
        }
        if self.external.is_none() && self.plugin.is_none() {
            reasons.push(format!(
                "QEMU counts it where kernels have one thread and {} lies beside this program",
                Plugin::FILE
            ));
        }
        Some(Err(reasons.join("; ")))
    }
}

/// What reading the loops of a candidate tells, without a code generator: about ten times as fast as
/// reading its machine code.
///
/// # Errors
/// If the trace is refused, or the program cannot be lowered.
pub fn read_loops(
    program: &Program,
    trace: &Trace,
    target: &Target,
) -> Result<Features, BuildFailure> {
    let Target::Cpu(cpu) = target;
    let code = lowered(program, trace, target)?;
    Ok(analysis::loops(&code, cpu, analysis::levels(cpu)))
}

/// What the loops of a candidate tell a learner ([`analysis::columns`]), without building its code.
///
/// # Errors
/// As [`read_loops`].
pub fn read_columns(
    program: &Program,
    trace: &Trace,
    target: &Target,
) -> Result<Vec<f64>, BuildFailure> {
    let Target::Cpu(cpu) = target;
    let code = lowered(program, trace, target)?;
    let found = analysis::loops(&code, cpu, analysis::levels(cpu));
    Ok(analysis::columns(&code, &found, cpu))
}

fn lowered(program: &Program, trace: &Trace, target: &Target) -> Result<Code, BuildFailure> {
    let scheduled =
        schedule::replay(program, trace).map_err(|e| failure(BuildStage::Replay)(e.to_string()))?;
    lower::lower(&scheduled, target, &lower::LowerOptions::standard())
        .map_err(|e| failure(BuildStage::Lower)(e.to_string()))
}

/// The target in the form that kernels and compiled models hold: which
/// instructions their code uses.
pub fn kernel_target(target: &Target) -> KernelTarget {
    let Target::Cpu(cpu) = target;
    KernelTarget {
        triple: target.triple().into(),
        cpu: target.level().into(),
        features: target.features(),
        vector_bits: cpu.vector_bits,
    }
}

/// Describes an object of `code` so that it can be run and stored.
pub fn built_kernel(
    code: &Code,
    target: &Target,
    object: Vec<u8>,
    schedule: String,
) -> BuiltKernel {
    let params = |ids: &[ir::BufferId]| -> Vec<KernelParam> {
        ids.iter()
            .map(|b| {
                let info = &code.buffers[b.index()];
                let role = match info.place {
                    BufferPlace::Input => ParamRole::Input,
                    BufferPlace::Constant => ParamRole::Constant,
                    BufferPlace::Output => ParamRole::Output,
                    BufferPlace::Prepared => ParamRole::Prepared,
                    other => unreachable!("parameter {} lives in {other:?}", info.name),
                };
                // A prepared buffer has no logical shape of its own.
                let shape = match info.place {
                    BufferPlace::Prepared => vec![info.elements],
                    _ => info.shape.clone(),
                };
                KernelParam {
                    name: info.name.clone(),
                    dtype: info.dtype,
                    shape,
                    role,
                }
            })
            .collect()
    };
    let prepares = !code.prepare.is_empty();
    let at = |b: &ir::BufferId| code.params.iter().position(|p| p == b);
    let in_place = code.in_place.iter().filter_map(|(output, input)| {
        let pair = (at(output)?, at(input)?);
        Some((pair.0 as u32, pair.1 as u32))
    });
    BuiltKernel {
        algorithm: String::new(),
        target: kernel_target(target),
        format: CodeFormat::Elf,
        code: object,
        entry: "kernel".into(),
        params: params(&code.params),
        prepare_entry: prepares.then(|| "prepare".into()),
        prepare_params: if prepares {
            params(&code.prepare_params)
        } else {
            vec![]
        },
        prepare_code: None,
        prepare_hash: if prepares { prepare_hash(code) } else { 0 },
        in_place: in_place.collect(),
        workspace_bytes: code.workspace_bytes,
        worker_workspace_bytes: code.worker_workspace_bytes,
        prepare_workspace_bytes: if prepares { code.workspace_bytes } else { 0 },
        prepare_worker_workspace_bytes: if prepares {
            code.worker_workspace_bytes
        } else {
            0
        },
        schedule,
        compiler: llvm::version(),
    }
}

/// A hash of all that decides what the prepare entry writes.
fn prepare_hash(code: &Code) -> u64 {
    let mut text = lower::flat::text::print_prepare(code);
    for b in &code.prepare_params {
        let b = &code.buffers[b.index()];
        let _ = writeln!(
            text,
            "{}: {}[{}] {:?}",
            b.name, b.dtype, b.elements, b.place
        );
    }
    // 0 is kept for kernels that say nothing.
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()).max(1)
}

/// The prepare entry as code for the building host: what depends on constants
/// only is computed where the model is compiled, whatever it is compiled for.
fn host_prepare(code: &Code) -> Result<Vec<u8>, String> {
    let architecture = std::env::consts::ARCH;
    let isa = Isa::baseline(architecture)
        .ok_or_else(|| format!("no code generator for this host ({architecture})"))?;
    let host = Compiler::new(&Target::generic(isa)).map_err(|e| e.to_string())?;
    let only_prepare = Code {
        kernel: vec![],
        ..code.clone()
    };
    let compiled = host
        .compile(&only_prepare, Emit::default())
        .map_err(|e| e.to_string())?;
    Ok(compiled.object)
}
