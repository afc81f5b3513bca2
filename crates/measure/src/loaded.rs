//! A kernel in memory with its arguments, and calling it.
//!
//! Owns outputs and workspace, which no other candidate touches; the rest
//! belongs to the task and is read-only. Promises that every call takes the
//! next copy of what rotates. When to call is in `sampling`.

use crate::clock::{KernelClock, KernelTime};
use crate::cycles::Cycles;
use crate::protocol::{Activity, Span, Verdict};
use crate::task::{Copies, Task, rotates};
use runtime::{
    BuiltKernel, Ctx, GuardedBuffer, KernelFailure, KernelFn, KernelParam, LoadedCode, ParamRole,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;
use std::time::Instant;

/// Most copies of what depends on constants, and most bytes in them.
const MAX_COPIES: u64 = 64;
const MAX_COPY_BYTES: u64 = 1 << 30;
/// As much of a workspace is poisoned; the last run meets what the others left in the rest.
const POISONED_WORKSPACE: usize = 64 << 20;

/// Why a candidate has no samples.
pub type Stop = Verdict;

/// What a kernel is loaded for.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    pub ctx: &'a Ctx,
    pub threads: u32,
    /// Which kernel of a ranking this is.
    pub index: usize,
    /// Whether calls are timed by the wall even on one thread.
    pub host_clock: bool,
}

/// Cycles that time calls, and what one of them counts for.
pub struct CycleClock {
    pub counter: Rc<Cycles>,
    pub cycle_ns: f64,
}

enum Argument {
    Shared(Copies),
    Output(GuardedBuffer),
}

pub struct Loaded<'k> {
    kernel: &'k BuiltKernel,
    entry: KernelFn,
    arguments: Vec<Argument>,
    workspace: GuardedBuffer,
    /// An argument list for each copy of the constants, and the one to use next.
    pointers: Vec<Vec<*mut c_void>>,
    next: usize,
    /// Whether the copies together exceed the bytes to rotate through.
    pub rotated: bool,
    /// The largest relative error (L2) that a check found and allowed.
    pub rel_l2: f64,
    host_clock: bool,
    /// None where a clock times calls, or once the counter missed some.
    count: Option<CycleClock>,
    /// What was launched since the mark, and when that began.
    span: Span,
    began: Option<Instant>,
    /// Keeps `entry` valid.
    _code: LoadedCode,
}

impl<'k> Loaded<'k> {
    /// Loads the code and prepares its constants.
    pub fn new(
        kernel: &'k BuiltKernel,
        task: &mut Task,
        options: LoadOptions,
    ) -> Result<Loaded<'k>, Stop> {
        let refused = |e: String| Verdict::Refused(e);
        kernel.check_host().map_err(|e| refused(e.to_string()))?;
        let code = LoadedCode::load(&kernel.code).map_err(|e| refused(e.to_string()))?;
        let entry = code
            .kernel(&kernel.entry)
            .map_err(|e| refused(e.to_string()))?;
        let mut prepared = prepare(kernel, &code, task, options)?;
        let mut arguments = Vec::new();
        for p in &kernel.params {
            let bytes = size(p)?;
            let argument = match p.role {
                ParamRole::Output => {
                    task.expects(p)?;
                    Argument::Output(allocate(bytes)?)
                }
                ParamRole::Prepared => {
                    let made = prepared.remove(&p.name).ok_or_else(|| {
                        refused(format!("nothing prepares the parameter `{}`", p.name))
                    })?;
                    Argument::Shared(made)
                }
                ParamRole::Input | ParamRole::Constant => Argument::Shared(task.argument(&p.name)?),
            };
            if let Argument::Shared(copies) = &argument
                && copies[0].len() as u64 != bytes
            {
                let has = copies[0].len();
                return Err(refused(format!(
                    "`{}` has {has} bytes, not {bytes}",
                    p.name
                )));
            }
            arguments.push(argument);
        }
        task.trim_prepared(kernel.prepare_params.len());
        let outputs = kernel.params.iter().filter(|p| p.role == ParamRole::Output);
        let names: Vec<&String> = outputs.map(|p| &p.name).collect();
        if let Some(lacking) = task.outputs().find(|name| !names.contains(name)) {
            return Err(refused(format!("the kernel has no output `{lacking}`")));
        }
        let workspace = allocate(kernel.workspace_size(options.threads))?;
        let pointers = vec![pointers(&mut arguments, 0)];
        Ok(Loaded {
            kernel,
            entry,
            arguments,
            workspace,
            pointers,
            next: 0,
            rotated: false,
            rel_l2: 0.0,
            host_clock: options.host_clock,
            count: None,
            span: Span::default(),
            began: None,
            _code: code,
        })
    }

    /// Copies what depends on constants, so that the copies together exceed
    /// these bytes, and takes the next one in every call from here on.
    pub fn rotate(&mut self, task: &mut Task, bytes: u64) -> Result<(), Stop> {
        let mut constant_bytes: u64 = 0;
        for p in self.kernel.params.iter().filter(|p| rotates(p)) {
            constant_bytes = constant_bytes.saturating_add(size(p)?);
        }
        let copies = copies_of(constant_bytes, bytes);
        for (p, a) in self.kernel.params.iter().zip(&mut self.arguments) {
            if let Argument::Shared(shared) = a
                && rotates(p)
            {
                *shared = task.copies(&shared[0], copies as usize)?;
            }
        }
        self.pointers = (0..copies as usize)
            .map(|copy| pointers(&mut self.arguments, copy))
            .collect();
        // The last call had the first copy.
        self.next = 1 % self.pointers.len();
        self.rotated = bytes > 0 && constant_bytes.saturating_mul(copies) > bytes;
        Ok(())
    }

    /// Copies of what depends on constants only.
    pub fn copies(&self) -> usize {
        self.pointers.len()
    }

    /// Times calls by counted cycles from here on, or by a clock.
    pub fn count(&mut self, count: Option<CycleClock>) {
        self.count = count;
    }

    /// What a cycle counts for, if calls are timed by them, all so far.
    pub fn cycle_ns(&self) -> Option<f64> {
        self.count.as_ref().map(|c| c.cycle_ns)
    }

    /// What was launched since the last mark, or in all.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Forgets earlier launches, with the next one.
    pub fn mark(&mut self) {
        self.began = None;
    }

    /// Calls the kernel `calls` times; the nanoseconds that took, of this
    /// thread's CPU time or its cycles if the kernel runs on no other, else of
    /// wall time.
    pub fn batch(&mut self, ctx: &Ctx, calls: u64) -> Result<u64, Stop> {
        let workspace: *mut c_void = self.workspace.as_mut_ptr().cast();
        let mut status = 0;
        let began = *self.began.get_or_insert_with(|| {
            self.span = Span::default();
            Instant::now()
        });
        let counter = self.count.as_ref().map(|c| &*c.counter);
        let clock = KernelClock::start(self.host_clock || ctx.threads > 1, counter);
        for _ in 0..calls {
            let args = &self.pointers[self.next];
            self.next = if self.next + 1 == self.pointers.len() {
                0
            } else {
                self.next + 1
            };
            // SAFETY: the arguments have the sizes that the kernel was built for.
            // The code itself may be wrong, which is why this process may die.
            status = unsafe { (self.entry)(ctx, args.as_ptr(), workspace) };
            if status != 0 {
                break;
            }
        }
        let taken = match clock.elapsed(counter) {
            KernelTime::Cycles(cycles) => (cycles as f64 * self.cycle_ns().unwrap_or(1.0)) as u64,
            KernelTime::Ns(ns) => {
                self.count = None;
                ns
            }
        };
        self.span.launches += calls;
        self.span.device_ns += taken;
        self.span.host_ns = began.elapsed().as_nanos() as u64;
        KernelFailure::check(status).map_err(|e| Verdict::Failed(e.to_string()))?;
        Ok(taken)
    }

    /// Fills outputs with a byte, so that elements which the kernel never
    /// writes, or only adds to, are found; and the workspace, for kernels that
    /// read what they did not write. All bits set are not a number as floats;
    /// integers and truth values are found out by a second, different byte.
    pub fn poison(&mut self, byte: u8) {
        for a in &mut self.arguments {
            if let Argument::Output(buffer) = a {
                buffer.fill(byte);
            }
        }
        let poisoned = self.workspace.len().min(POISONED_WORKSPACE);
        self.workspace[..poisoned].fill(byte);
    }

    /// Finds writes close to outputs and workspace. Shared arguments need no
    /// look: writing near them faults.
    pub fn check_canaries(&self) -> Result<(), Stop> {
        let damaged =
            |what: &str, e: runtime::CanaryError| Verdict::Damaged(format!("{what}: {e}"));
        for (p, a) in self.kernel.params.iter().zip(&self.arguments) {
            if let Argument::Output(buffer) = a {
                buffer.check_canaries().map_err(|e| damaged(&p.name, e))?;
            }
        }
        self.workspace
            .check_canaries()
            .map_err(|e| damaged("workspace", e))
    }

    /// Compares the outputs with the expected ones and keeps the largest error.
    pub fn check_outputs(&mut self, task: &Task, tolerance: f64) -> Result<(), Stop> {
        for (p, a) in self.kernel.params.iter().zip(&self.arguments) {
            if let Argument::Output(buffer) = a {
                let error = task.check(p, buffer, tolerance)?;
                self.rel_l2 = self.rel_l2.max(error);
            }
        }
        Ok(())
    }

    pub fn into_outputs(self) -> Vec<(KernelParam, GuardedBuffer)> {
        let named = self.kernel.params.iter().cloned().zip(self.arguments);
        let outputs = named.filter_map(|(p, a)| match a {
            Argument::Output(buffer) => Some((p, buffer)),
            Argument::Shared(_) => None,
        });
        outputs.collect()
    }
}

/// The argument list with the copy `copy` of each parameter that has several.
fn pointers(arguments: &mut [Argument], copy: usize) -> Vec<*mut c_void> {
    let one = |a: &mut Argument| match a {
        Argument::Output(buffer) => buffer.as_mut_ptr().cast(),
        Argument::Shared(copies) => copies[copy % copies.len()].as_argument(),
    };
    arguments.iter_mut().map(one).collect()
}

fn size(p: &KernelParam) -> Result<u64, Stop> {
    let wrong = || Verdict::Refused(format!("`{}` has the shape {:?}", p.name, p.shape));
    p.bytes().ok_or_else(wrong)
}

fn allocate(bytes: u64) -> Result<GuardedBuffer, Stop> {
    let wanted = |e: String| Verdict::OutOfMemory(format!("{bytes} bytes: {e}"));
    let bytes = usize::try_from(bytes).map_err(|e| wanted(e.to_string()))?;
    GuardedBuffer::new(bytes).map_err(|e| wanted(e.to_string()))
}

/// Bytes of constants that a kernel holds when they rotate through so many.
pub(crate) fn rotated_bytes(kernel: &BuiltKernel, rotate_bytes: u64) -> u64 {
    let constants = kernel.params.iter().filter(|p| rotates(p));
    let sizes = constants.map(|p| p.bytes().unwrap_or(0));
    let bytes = sizes.fold(0, u64::saturating_add);
    bytes.saturating_mul(copies_of(bytes, rotate_bytes))
}

/// Copies of `bytes` that together exceed `rotate_bytes`, within reason.
fn copies_of(bytes: u64, rotate_bytes: u64) -> u64 {
    if bytes == 0 || rotate_bytes == 0 {
        return 1;
    }
    (rotate_bytes / bytes)
        .saturating_add(1)
        .min(MAX_COPIES)
        .min((MAX_COPY_BYTES / bytes).max(1))
}

/// What the prepare entry makes, by name; it runs unless an equal one did before.
fn prepare(
    kernel: &BuiltKernel,
    code: &LoadedCode,
    task: &mut Task,
    options: LoadOptions,
) -> Result<HashMap<String, Copies>, Stop> {
    let Some(name) = &kernel.prepare_entry else {
        return Ok(HashMap::new());
    };
    if let Some(made) = task.prepared_before(kernel.prepare_hash) {
        return Ok(made.into_iter().collect());
    }
    let mut made = Vec::new();
    for (output, buffer) in run_prepare(kernel, name, code, task, options)? {
        made.push((output, task.prepared(buffer)?));
    }
    task.remember_prepared(kernel.prepare_hash, &made);
    Ok(made.into_iter().collect())
}

/// Runs the prepare entry `name`; what it wrote, by name.
fn run_prepare(
    kernel: &BuiltKernel,
    name: &str,
    code: &LoadedCode,
    task: &mut Task,
    options: LoadOptions,
) -> Result<Vec<(String, GuardedBuffer)>, Stop> {
    let refused = |e: String| Verdict::Refused(format!("preparing constants: {e}"));
    let apart = kernel
        .prepare_code
        .as_deref()
        .map(LoadedCode::load)
        .transpose();
    let apart = apart.map_err(|e| refused(e.to_string()))?;
    let entry = apart
        .as_ref()
        .unwrap_or(code)
        .kernel(name)
        .map_err(|e| refused(e.to_string()))?;
    let (mut sources, mut made, mut args) = (Vec::new(), Vec::new(), Vec::new());
    for p in &kernel.prepare_params {
        if p.role == ParamRole::Prepared {
            let mut buffer = allocate(size(p)?)?;
            args.push(buffer.as_mut_ptr().cast());
            made.push((p.name.clone(), buffer));
        } else {
            let source = task.argument(&p.name)?.remove(0);
            if source.len() as u64 != size(p)? {
                return Err(refused(format!("`{}` has {} bytes", p.name, source.len())));
            }
            args.push(source.as_argument());
            sources.push(source);
        }
    }
    let mut workspace = allocate(kernel.prepare_workspace_size(options.threads))?;
    Activity::Prepare.tell(options.index);
    // SAFETY: as for `Loaded::batch`.
    let status = unsafe { entry(options.ctx, args.as_ptr(), workspace.as_mut_ptr().cast()) };
    Activity::Load.tell(options.index);
    KernelFailure::check(status).map_err(|e| refused(e.to_string()))?;
    for b in made.iter().map(|(_, b)| b).chain([&workspace]) {
        b.check_canaries()
            .map_err(|e| Verdict::Damaged(format!("preparing constants: {e}")))?;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exceed_what_is_to_be_rotated_within_reason() {
        assert_eq!(copies_of(0, 100), 1);
        assert_eq!(copies_of(10, 0), 1);
        assert_eq!(copies_of(10, 100), 11);
        assert_eq!(copies_of(101, 100), 1);
        assert_eq!(copies_of(1, u64::MAX), MAX_COPIES);
        assert_eq!(copies_of(MAX_COPY_BYTES, u64::MAX), 1);
        assert_eq!(copies_of(u64::MAX, u64::MAX), 1);
    }
}
