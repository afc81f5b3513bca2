//! Flat code by hand, compiled and run in this process.

use ir::affine::Ranges;
use ir::{BufferId, DType, Expr, Target, VarId};
use llvm::{Compiler, Emit};
use lower::flat::{
    AccessId, AccessInfo, BufferPlace, Code, FlatBuffer, FlatLoop, Lane, LaneOffsets, LoopInfo,
    Stmt, Store,
};
use runtime::{GuardedBuffer, LoadedCode, Pool};
use std::ffi::c_void;
use tensor::Tensor;

pub struct Flat {
    pub code: Code,
    /// Of variables, as far as the code's writer says them before the stores.
    pub ranges: Ranges,
}

impl Flat {
    pub fn new() -> Flat {
        Flat {
            code: Code {
                name: "test".into(),
                vars: vec![],
                buffers: vec![],
                params: vec![],
                prepare_params: vec![],
                kernel: vec![],
                in_place: vec![],
                prepare: vec![],
                workspace_bytes: 0,
                worker_workspace_bytes: 0,
                loops: vec![],
                accesses: vec![],
            },
            ranges: Ranges::new(),
        }
    }

    pub fn buffer(&mut self, dtype: DType, elements: i64, place: BufferPlace) -> BufferId {
        let id = BufferId(self.code.buffers.len() as u32);
        if matches!(place, BufferPlace::Input | BufferPlace::Output) {
            self.code.params.push(id);
        }
        let name = format!("b{}", id.0);
        self.code.buffers.push(FlatBuffer {
            name,
            dtype,
            elements,
            shape: vec![elements],
            place,
            spill: None,
        });
        id
    }

    pub fn var(&mut self) -> VarId {
        self.code.vars.push(format!("v{}", self.code.vars.len()));
        VarId(self.code.vars.len() as u32 - 1)
    }

    pub fn store(&mut self, b: BufferId, offset: Expr, value: Expr, lane: Option<Lane>) -> Stmt {
        let mut loads = Vec::new();
        for e in [&value, &offset] {
            e.visit_loads(&mut |b, at| loads.push((b, at[0].clone())));
        }
        let loads: Vec<AccessId> = loads
            .iter()
            .map(|(b, at)| self.access(*b, false, at, lane))
            .collect();
        Stmt::Store(Store {
            id: self.access(b, true, &offset, lane),
            buffer: b,
            offset,
            value,
            lane,
            mask: None,
            loads,
        })
    }

    fn access(&mut self, b: BufferId, is_store: bool, at: &Expr, lane: Option<Lane>) -> AccessId {
        let elements = self.code.buffers[b.index()].elements;
        self.code.accesses.push(AccessInfo {
            buffer: b,
            is_store,
            parent: None,
            lanes: lane.map_or(0, |l| l.lanes),
            offsets: LaneOffsets::of(at, lane, elements, &self.ranges),
        });
        self.code.accesses.len() as AccessId - 1
    }

    pub fn loop_(&mut self, var: VarId, extent: i64, parallel: bool, body: Vec<Stmt>) -> Stmt {
        let id = self.code.loops.len() as u32;
        let name = format!("v{}", var.0);
        self.code.loops.push(LoopInfo {
            name,
            parent: None,
            extent,
            parallel,
            prepare: false,
        });
        Stmt::Loop(FlatLoop {
            id,
            var,
            extent,
            parallel,
            body,
        })
    }

    /// Compiles for `target` and runs once; see [`Loaded::run`].
    pub fn run(&self, target: &Target, args: &mut [Tensor]) -> i32 {
        self.loaded(target).run(args)
    }

    /// Compiles for `target`.
    pub fn loaded(&self, target: &Target) -> Loaded {
        let compiler = Compiler::new(target).expect("a host target");
        let emit = Emit {
            identity: true,
            ..Emit::default()
        };
        let compiled = compiler
            .compile(&self.code, emit)
            .expect("the code compiles");
        Loaded {
            code: LoadedCode::load(&compiled.object).expect("the object loads"),
            pool: Pool::new(2).expect("a pool"),
        }
    }
}

/// Code that can be run many times.
pub struct Loaded {
    code: LoadedCode,
    pool: Pool,
}

impl Loaded {
    /// Runs on two workers; returns the kernel's status. Every argument ends less than 64 bytes
    /// before an unreadable page.
    pub fn run(&self, args: &mut [Tensor]) -> i32 {
        let guarded = |t: &Tensor| {
            let mut buffer = GuardedBuffer::new(t.bytes().len()).expect("some pages");
            buffer.copy_from_slice(t.bytes());
            buffer
        };
        let mut memory: Vec<GuardedBuffer> = args.iter().map(guarded).collect();
        let pointers = memory.iter_mut().map(|m| m.as_mut_ptr().cast());
        let status = self.call(pointers.collect());
        for (t, m) in args.iter_mut().zip(&memory) {
            m.check_canaries().expect("nothing is written outside");
            t.bytes_mut().copy_from_slice(m);
        }
        status
    }

    fn call(&self, mut pointers: Vec<*mut c_void>) -> i32 {
        let kernel = self.code.kernel("kernel").expect("the entry exists");
        let mut workspace = tensor::AlignedBytes::zeroed(1 << 20);
        // SAFETY: arguments match the code's parameters; the workspace is large enough.
        unsafe {
            kernel(
                self.pool.ctx(),
                pointers.as_mut_ptr().cast(),
                workspace.as_mut_ptr().cast(),
            )
        }
    }
}
