//! The runner process: loads built code into guarded memory, checks its first
//! run against the expected output, and times it.

use crate::protocol::{ArgFill, Gap, Protocol, Reply, Request, TaskData, Verdict};
use crate::sampling::enough;
use runtime::{
    BuiltKernel, GuardedBuffer, KernelFailure, KernelFn, KernelParam, LoadedCode, ParamRole, Pool,
    PoolOptions,
};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::time::Instant;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

/// Tasks whose data a runner keeps.
const KEPT_TASKS: usize = 2;
/// Most copies of the constants, and most bytes in them.
const MAX_COPIES: u64 = 64;
const MAX_COPY_BYTES: u64 = 1 << 30;

/// The runner process: answers requests until its input ends.
pub fn serve() -> std::io::Result<()> {
    let mut runner = Runner::default();
    worker::serve(move |request: Request| runner.answer(request))
}

#[derive(Default)]
struct Runner {
    tasks: VecDeque<Task>,
    pool: Option<(u32, Vec<usize>, Pool)>,
}

/// A task's arguments and expected outputs, by parameter name.
struct Task {
    id: u64,
    seed: u64,
    args: HashMap<String, Tensor>,
    expected: HashMap<String, Tensor>,
}

/// Why a candidate has no samples.
type Stop = Verdict;

fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Runner {
    fn answer(&mut self, request: Request) -> Reply {
        let cpu = cpu_ns();
        let mut times = Times::default();
        let verdict = self
            .measure(&request, &mut times)
            .unwrap_or_else(|stop| stop);
        let Times {
            load_ns,
            check_ns,
            run_ns,
        } = times;
        Reply {
            verdict,
            load_ns,
            check_ns,
            run_ns,
            cpu_ns: cpu_ns() - cpu,
        }
    }

    fn measure(&mut self, r: &Request, times: &mut Times) -> Result<Verdict, Stop> {
        self.use_threads(&r.protocol)?;
        let at = self.task(&r.task)?;
        let (_, _, pool) = self.pool.as_ref().expect("set above");
        let task = &self.tasks[at];
        let start = Instant::now();
        let mut loaded = Loaded::new(&r.kernel, task, &r.protocol, pool)?;
        times.load_ns = start.elapsed().as_nanos() as u64;
        let start = Instant::now();
        loaded.poison_outputs();
        loaded.run(pool, 0)?;
        let first_ns = start.elapsed().as_nanos() as u64;
        loaded.check_canaries()?;
        loaded.check_outputs(task, r.protocol.tolerance)?;
        times.check_ns = start.elapsed().as_nanos() as u64;
        let start = Instant::now();
        let timed = loaded.sample(pool, &r.protocol, r.best_ns, first_ns)?;
        times.run_ns = start.elapsed().as_nanos() as u64;
        loaded.check_canaries()?;
        Ok(timed)
    }

    fn use_threads(&mut self, p: &Protocol) -> Result<(), Stop> {
        if self
            .pool
            .as_ref()
            .is_some_and(|(t, pin, _)| *t == p.threads && *pin == p.pin)
        {
            return Ok(());
        }
        let threads = p.threads.max(1) as usize;
        let pinned = p.pin.len() == threads;
        let mut options = PoolOptions::new(threads);
        options.pin = pinned.then(|| p.pin.clone());
        if pinned {
            // Best effort: an absent CPU leaves the thread unpinned.
            let _ = runtime::pin_current_thread(p.pin[0]);
        }
        let pool = Pool::with_options(&options).map_err(|e| Verdict::Refused(e.to_string()))?;
        self.pool = Some((p.threads, p.pin.clone(), pool));
        Ok(())
    }

    /// The index of the task's data, made if it is not here.
    fn task(&mut self, data: &TaskData) -> Result<usize, Stop> {
        let same = |t: &Task| t.id == data.id && t.seed == data.seed;
        if let Some(at) = self.tasks.iter().position(same) {
            return Ok(at);
        }
        while self.tasks.len() >= KEPT_TASKS {
            self.tasks.pop_front();
        }
        let args = data.args.iter().enumerate();
        let args = args.map(|(i, a)| (a.name.clone(), make_argument(a, data.seed, i)));
        let mut task = Task {
            id: data.id,
            seed: data.seed,
            args: args.collect(),
            expected: HashMap::new(),
        };
        let (_, _, pool) = self.pool.as_ref().expect("set by the caller");
        let plain = Protocol {
            rotate_bytes: 0,
            ..Protocol::new(1, 0)
        };
        let mut oracle = Loaded::new(&data.oracle, &task, &plain, pool)?;
        oracle.run(pool, 0)?;
        for (i, p) in data.oracle.params.iter().enumerate() {
            if p.role == ParamRole::Output {
                let bytes: &[u8] = &oracle.buffers[i].copies[0];
                let t = Tensor::from_bytes(p.dtype, &dims(p), bytes);
                task.expected
                    .insert(p.name.clone(), t.expect("allocated to this size"));
            }
        }
        self.tasks.push_back(task);
        Ok(self.tasks.len() - 1)
    }
}

#[derive(Default)]
struct Times {
    load_ns: u64,
    check_ns: u64,
    run_ns: u64,
}

fn make_argument(a: &ArgFill, seed: u64, index: usize) -> Tensor {
    let shape: Vec<usize> = a.shape.iter().map(|d| *d as usize).collect();
    let fill = Fill::Uniform { lo: a.lo, hi: a.hi };
    fill_tensor(
        a.dtype,
        &shape,
        fill,
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64,
    )
}

fn dims(p: &KernelParam) -> Vec<usize> {
    p.shape.iter().map(|d| *d as usize).collect()
}

fn allocate(bytes: u64) -> Result<GuardedBuffer, Stop> {
    GuardedBuffer::new(bytes as usize)
        .map_err(|e| Verdict::OutOfMemory(format!("{bytes} bytes: {e}")))
}

/// One argument; constants and prepared buffers may have several copies.
struct Argument {
    copies: Vec<GuardedBuffer>,
}

/// A kernel in memory with its arguments.
struct Loaded<'k> {
    kernel: &'k BuiltKernel,
    entry: KernelFn,
    buffers: Vec<Argument>,
    workspace: GuardedBuffer,
    copies: usize,
    /// Keeps `entry` valid.
    _code: LoadedCode,
}

impl<'k> Loaded<'k> {
    fn new(
        kernel: &'k BuiltKernel,
        task: &Task,
        protocol: &Protocol,
        pool: &Pool,
    ) -> Result<Loaded<'k>, Stop> {
        let refused = |e: String| Verdict::Refused(e);
        kernel.check_host().map_err(|e| refused(e.to_string()))?;
        let code = LoadedCode::load(&kernel.code).map_err(|e| refused(e.to_string()))?;
        let entry = code
            .kernel(&kernel.entry)
            .map_err(|e| refused(e.to_string()))?;
        let bytes = |p: &KernelParam| {
            p.bytes()
                .ok_or_else(|| refused(format!("shape of {}", p.name)))
        };
        let rotates = |p: &KernelParam| matches!(p.role, ParamRole::Constant | ParamRole::Prepared);
        let mut constant_bytes = 0;
        for p in kernel.params.iter().filter(|p| rotates(p)) {
            constant_bytes += bytes(p)?;
        }
        let copies = copies_of(constant_bytes, protocol.rotate_bytes);
        let prepared = prepare(kernel, &code, task, pool)?;
        let mut buffers = Vec::new();
        for p in &kernel.params {
            let source: Option<&[u8]> = match p.role {
                ParamRole::Output => None,
                ParamRole::Prepared => Some(&prepared[&p.name]),
                _ => Some(
                    task.args
                        .get(&p.name)
                        .ok_or_else(|| refused(format!("no argument named {}", p.name)))?
                        .bytes(),
                ),
            };
            let size = bytes(p)?;
            if source.is_some_and(|s| s.len() as u64 != size) {
                return Err(refused(format!("argument {} has another size", p.name)));
            }
            let mut all = Vec::new();
            for _ in 0..if rotates(p) { copies } else { 1 } {
                let mut b = allocate(size)?;
                if let Some(s) = source {
                    b.copy_from_slice(s);
                }
                all.push(b);
            }
            buffers.push(Argument { copies: all });
        }
        let workspace = allocate(kernel.workspace_size(pool.threads() as u32))?;
        Ok(Loaded {
            kernel,
            entry,
            buffers,
            workspace,
            copies: copies as usize,
            _code: code,
        })
    }

    fn run(&mut self, pool: &Pool, call: usize) -> Result<(), Stop> {
        let args = self.pointers(call % self.copies);
        self.call(pool, &args)
    }

    fn pointers(&mut self, copy: usize) -> Vec<*mut c_void> {
        self.buffers
            .iter_mut()
            .map(|b| {
                let n = b.copies.len();
                b.copies[copy % n].as_mut_ptr().cast()
            })
            .collect()
    }

    fn call(&mut self, pool: &Pool, args: &[*mut c_void]) -> Result<(), Stop> {
        // SAFETY: the arguments have the sizes that the kernel was built for. The
        // code itself may be wrong, which is why this process may die.
        let status = unsafe {
            (self.entry)(
                pool.ctx(),
                args.as_ptr(),
                self.workspace.as_mut_ptr().cast(),
            )
        };
        KernelFailure::check(status).map_err(|e| Verdict::Failed(e.to_string()))
    }

    /// Fills outputs with a pattern that is not a number, so that elements
    /// which the kernel never writes are found.
    fn poison_outputs(&mut self) {
        for (p, b) in self.kernel.params.iter().zip(&mut self.buffers) {
            if p.role == ParamRole::Output {
                b.copies[0].fill(0xff);
            }
        }
    }

    fn check_canaries(&self) -> Result<(), Stop> {
        let all = self
            .buffers
            .iter()
            .flat_map(|b| &b.copies)
            .chain([&self.workspace]);
        for b in all {
            b.check_canaries()
                .map_err(|e| Verdict::Failed(e.to_string()))?;
        }
        Ok(())
    }

    fn check_outputs(&self, task: &Task, tolerance: f64) -> Result<(), Stop> {
        for (p, b) in self.kernel.params.iter().zip(&self.buffers) {
            if p.role != ParamRole::Output {
                continue;
            }
            let expected = &task.expected[&p.name];
            if p.dtype == DType::F32 && close(&b.copies[0], expected, tolerance) {
                continue;
            }
            let actual = Tensor::from_bytes(p.dtype, &dims(p), &b.copies[0]);
            let d = compare(&actual.expect("allocated to this size"), expected);
            if !d.within(tolerance) {
                return Err(Verdict::Wrong(Gap {
                    rel_l2: d.rel_l2,
                    max_over_rms: d.max_over_rms,
                    max_abs: d.max_abs,
                    worst: d.worst as u64,
                    non_finite: d.non_finite as u64,
                    output: p.name.clone(),
                }));
            }
        }
        Ok(())
    }

    fn sample(
        &mut self,
        pool: &Pool,
        p: &Protocol,
        best_ns: Option<u64>,
        first_ns: u64,
    ) -> Result<Verdict, Stop> {
        let args: Vec<Vec<*mut c_void>> = (0..self.copies).map(|c| self.pointers(c)).collect();
        let mut call = 0;
        let mut batch = |me: &mut Self, calls: u64| -> Result<u64, Stop> {
            let start = Instant::now();
            for _ in 0..calls {
                me.call(pool, &args[call % args.len()])?;
                call += 1;
            }
            Ok(start.elapsed().as_nanos() as u64 / calls)
        };
        // The first run was cold; a candidate far behind needs no warm-up.
        let hopeless = best_ns.is_some_and(|b| first_ns as f64 > 4.0 * p.slow_factor * b as f64);
        let warm_ns = if hopeless {
            first_ns
        } else {
            batch(self, 1)?.max(1)
        };
        let calls = (p.min_sample_ns / warm_ns.max(1) + 1).min(10_000);
        let mut samples = Vec::new();
        let start = Instant::now();
        while !enough(p, &samples, best_ns, start.elapsed().as_nanos() as u64) {
            samples.push(batch(self, calls)?);
        }
        let copies = self.copies as u32;
        Ok(Verdict::Timed {
            samples_ns: samples,
            calls: calls as u32,
            copies,
        })
    }
}

/// Copies of `bytes` that together exceed `rotate_bytes`, within reason.
fn copies_of(bytes: u64, rotate_bytes: u64) -> u64 {
    if bytes == 0 || rotate_bytes == 0 {
        return 1;
    }
    (rotate_bytes / bytes + 1)
        .min(MAX_COPIES)
        .min((MAX_COPY_BYTES / bytes).max(1))
}

/// Whether two `f32` buffers agree: the common case, without conversions.
fn close(actual: &[u8], expected: &Tensor, tolerance: f64) -> bool {
    let expected = expected.as_slice::<f32>();
    let (chunks, _) = actual.as_chunks::<4>();
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (a, e) in chunks.iter().zip(expected) {
        let d = f64::from(f32::from_le_bytes(*a)) - f64::from(*e);
        error += d * d;
        norm += f64::from(*e) * f64::from(*e);
    }
    // A NaN or infinity makes the comparison false, and the full one decides.
    error <= tolerance * tolerance * norm
}

/// Runs the prepare entry; its outputs by name.
fn prepare(
    kernel: &BuiltKernel,
    code: &LoadedCode,
    task: &Task,
    pool: &Pool,
) -> Result<HashMap<String, GuardedBuffer>, Stop> {
    let refused = |e: String| Verdict::Refused(e);
    let Some(name) = &kernel.prepare_entry else {
        return Ok(HashMap::new());
    };
    let entry = code.kernel(name).map_err(|e| refused(e.to_string()))?;
    let mut buffers = Vec::new();
    for p in &kernel.prepare_params {
        let size = p
            .bytes()
            .ok_or_else(|| refused(format!("shape of {}", p.name)))?;
        let mut b = allocate(size)?;
        if p.role == ParamRole::Constant {
            let source = task.args.get(&p.name);
            let source = source.ok_or_else(|| refused(format!("no argument {}", p.name)))?;
            b.copy_from_slice(source.bytes());
        }
        buffers.push(b);
    }
    let mut workspace = allocate(kernel.prepare_workspace_size(pool.threads() as u32))?;
    let args: Vec<*mut c_void> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
    // SAFETY: as for `Loaded::call`.
    let status = unsafe { entry(pool.ctx(), args.as_ptr(), workspace.as_mut_ptr().cast()) };
    KernelFailure::check(status).map_err(|e| Verdict::Failed(e.to_string()))?;
    for b in buffers.iter().chain([&workspace]) {
        b.check_canaries()
            .map_err(|e| Verdict::Failed(e.to_string()))?;
    }
    let named = kernel.prepare_params.iter().zip(buffers);
    Ok(named
        .filter(|(p, _)| p.role == ParamRole::Prepared)
        .map(|(p, b)| (p.name.clone(), b))
        .collect())
}
