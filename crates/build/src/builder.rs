//! Builder processes: they replay, lower and generate code; the parent never
//! calls LLVM, so a crash of the compiler costs one candidate.

use crate::cache::ObjectCache;
use crate::pipeline::{BuildFailure, BuildOptions, BuildStage, Built, build};
use ir::{Program, Target};
use llvm::Compiler;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use worker::{ChildLimits, CommandLine, Death, Pool, PoolError, TimeLimit};

/// One candidate as text, ready for a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildRequest {
    /// `ir::text` form.
    pub program: String,
    /// `schedule::Trace` form.
    pub trace: String,
    /// `ir::Target` form.
    pub target: String,
    pub options: BuildOptions,
    pub cache: Option<PathBuf>,
    /// Tests only: what goes wrong while this candidate is built.
    pub fault: Option<Fault>,
}

/// Injected faults, for tests of what must survive them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    Abort,
    Hang,
    ExhaustMemory,
    /// Ended from outside, unless `killed` is in the cache, which then is there.
    KillOnce,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    result: Result<Built, BuildFailure>,
    cached: bool,
}

/// The result of one request.
#[derive(Debug)]
pub struct BuildResult {
    pub id: u64,
    /// Inner error: the candidate has no code. Outer error: the builder died.
    pub result: Result<Result<Built, BuildFailure>, Death>,
    pub wall: Duration,
    /// CPU time of the builder.
    pub cpu: Duration,
    /// Whether the object came from the cache.
    pub cached: bool,
}

/// Builder processes fed from one queue.
pub struct BuilderPool {
    pool: Pool<BuildRequest, Reply>,
}

/// Enough for LLVM on the largest unrolled kernels seen, far below a machine's memory.
const ADDRESS_SPACE: u64 = 8 << 30;

impl BuilderPool {
    /// `command` must end up in `serve`.
    pub fn new(command: &CommandLine, builders: usize) -> Result<BuilderPool, PoolError> {
        let limits = ChildLimits {
            address_space: Some(ADDRESS_SPACE),
            // The object cache.
            writes_files: true,
        };
        Ok(BuilderPool {
            pool: Pool::new(command, builders, limits)?,
        })
    }

    pub fn submit(&mut self, id: u64, request: BuildRequest, limit: Duration) {
        let limit = TimeLimit::of_threads(limit, 1);
        self.pool.submit_stateless(id, request, limit);
    }

    pub fn pending(&self) -> usize {
        self.pool.pending()
    }

    pub fn next(&mut self, wait: Duration) -> Option<BuildResult> {
        let answer = self.pool.next(wait)?;
        let (result, cached) = match answer.result {
            Ok(reply) => (Ok(reply.result), reply.cached),
            Err(death) => (Err(death), false),
        };
        Some(BuildResult {
            id: answer.id,
            result,
            wall: answer.wall,
            cpu: answer.cpu,
            cached,
        })
    }

    /// Drops queued requests and returns their ids.
    pub fn clear(&mut self) -> Vec<u64> {
        self.pool.clear()
    }

    /// Nothing that begins from here on is built beyond `end` ([`Pool::end_by`]).
    pub fn end_by(&mut self, end: Option<Instant>) {
        self.pool.end_by(end);
    }

    /// Waits for running builds and starts none until `resume`.
    pub fn pause(&mut self) {
        self.pool.pause();
    }

    pub fn resume(&mut self) {
        self.pool.resume();
    }
}

/// State that a builder keeps between requests.
#[derive(Default)]
struct Builder {
    compilers: HashMap<String, Compiler>,
    programs: HashMap<String, Program>,
}

impl Builder {
    fn answer(&mut self, request: &BuildRequest) -> Reply {
        inject(request);
        let cache = request
            .cache
            .as_deref()
            .and_then(|f| ObjectCache::open(f).ok());
        let key = ObjectCache::key(&request.program, &request.trace, &request.target);
        // Extras are not cached: they are asked for rarely and are large. Features are not: the key
        // names what decides code, and that is not all that decides features.
        let BuildOptions { extras, read, .. } = &request.options;
        let usable = cache.as_ref().filter(|_| !extras && read.is_none());
        if let Some(built) = usable.and_then(|c| c.get(&key)) {
            return Reply {
                result: Ok(built),
                cached: true,
            };
        }
        let result = self.build(request);
        if let (Some(cache), Ok(built)) = (usable, &result) {
            // A full disk only makes later builds slower.
            let _ = cache.put(&key, built);
        }
        Reply {
            result,
            cached: false,
        }
    }

    fn build(&mut self, request: &BuildRequest) -> Result<Built, BuildFailure> {
        let fail = |stage, reason: String| BuildFailure { stage, reason };
        if !self.compilers.contains_key(&request.target) {
            let target: Target = request
                .target
                .parse()
                .map_err(|e| fail(BuildStage::Codegen, e))?;
            let compiler =
                Compiler::new(&target).map_err(|e| fail(BuildStage::Codegen, e.to_string()))?;
            self.compilers.insert(request.target.clone(), compiler);
        }
        if !self.programs.contains_key(&request.program) {
            let program = ir::text::parse(&request.program)
                .map_err(|e| fail(BuildStage::Replay, e.to_string()))?;
            self.programs.insert(request.program.clone(), program);
        }
        let trace =
            schedule::parse(&request.trace).map_err(|e| fail(BuildStage::Replay, e.to_string()))?;
        build(
            &self.programs[&request.program],
            &trace,
            &self.compilers[&request.target],
            &request.options,
        )
    }
}

fn inject(request: &BuildRequest) {
    match request.fault {
        None => {}
        Some(Fault::Abort) => std::process::abort(),
        Some(Fault::Hang) => loop {
            std::thread::sleep(Duration::from_secs(60));
        },
        Some(Fault::ExhaustMemory) => {
            let hog = vec![1u8; 2 * ADDRESS_SPACE as usize];
            std::hint::black_box(&hog);
        }
        Some(Fault::KillOnce) => {
            let marker = request.cache.as_ref().map(|c| c.join("killed"));
            if marker.is_some_and(|m| std::fs::File::create_new(m).is_ok()) {
                // SAFETY: ending this process is the point.
                unsafe { libc::raise(libc::SIGKILL) };
            }
        }
    }
}

/// The builder process: answers requests until its input ends.
pub fn serve() -> std::io::Result<()> {
    let mut builder = Builder::default();
    worker::serve(move |request: BuildRequest| builder.answer(&request))
}
