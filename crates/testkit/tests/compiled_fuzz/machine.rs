//! Compiles flat code for the families of this processor and runs it as the
//! runtime would: loaded objects, guarded memory, a pool of two workers.

use ir::{BufferId, Target};
use llvm::{Compiler, Emit};
use lower::flat::interpret::Arguments;
use lower::flat::{BufferPlace, Code};
use runtime::{GuardedBuffer, KernelFailure, LoadedCode, Pool, workspace_size};
use std::collections::BTreeMap;
use std::ffi::c_void;
use tensor::Tensor;
use testkit::host::host_targets;

/// What memory holds that nothing wrote: large as a float and as an integer.
const GARBAGE: u8 = 0x4b;

/// What the processor is asked to run.
pub struct Host {
    compilers: Vec<Compiler>,
    pool: Pool,
}

impl Host {
    pub fn new() -> Host {
        let compiler = |t: &Target| Compiler::new(t).expect("a host target");
        Host {
            compilers: host_targets().iter().map(compiler).collect(),
            pool: Pool::new(2).expect("two threads"),
        }
    }

    /// The families take turns.
    pub fn compiler(&self, seed: u64) -> &Compiler {
        &self.compilers[(seed % self.compilers.len() as u64) as usize]
    }

    /// Runs prepare and the kernel on copies of the arguments; the outputs come
    /// back one-dimensional. `slack` bytes round every buffer may be read, and
    /// written without a fault; nothing may have been written there.
    pub fn run(
        &self,
        code: &Code,
        compiler: &Compiler,
        given: &Arguments,
        slack: usize,
    ) -> Result<Arguments, String> {
        let compiled = compiler.compile(code, Emit::default());
        let loaded = compiled.map_err(|e| e.to_string())?;
        let loaded = LoadedCode::load(&loaded.object).map_err(|e| e.to_string())?;
        let mut memory: BTreeMap<BufferId, Memory> = BTreeMap::new();
        for id in code.params.iter().chain(&code.prepare_params) {
            let buffer = &code.buffers[id.index()];
            let bytes = buffer.elements.max(0) as usize * buffer.dtype.size();
            let values = match buffer.place {
                BufferPlace::Prepared => None,
                _ => given.get(id).map(Tensor::bytes),
            };
            memory
                .entry(*id)
                .or_insert_with(|| Memory::new(bytes, slack, values));
        }
        let threads = self.pool.ctx().threads;
        let bytes = workspace_size(code.workspace_bytes, code.worker_workspace_bytes, threads);
        if !code.prepare.is_empty() {
            let mut workspace = Memory::new(bytes as usize, slack, None);
            self.call(
                &loaded,
                "prepare",
                &code.prepare_params,
                &mut memory,
                &mut workspace,
            )?;
            workspace.check("the workspace of prepare")?;
        }
        let mut workspace = Memory::new(bytes as usize, slack, None);
        self.call(&loaded, "kernel", &code.params, &mut memory, &mut workspace)?;
        workspace.check("the workspace")?;
        self.in_place(code, &loaded, &mut memory, &mut workspace)?;
        let mut outputs = Arguments::new();
        for (id, m) in &memory {
            let buffer = &code.buffers[id.index()];
            m.check(&buffer.name)?;
            let kept = |t: &&Tensor| m.data() == &t.bytes()[..m.len];
            match (buffer.place, given.get(id)) {
                (BufferPlace::Output, _) => {
                    let shape = [buffer.elements.max(0) as usize];
                    let t = Tensor::from_bytes(buffer.dtype, &shape, m.data());
                    outputs.insert(*id, t.expect("as many bytes as the elements have"));
                }
                (BufferPlace::Input | BufferPlace::Constant, Some(t)) if !kept(&t) => {
                    return Err(format!("the input `{}` has changed", buffer.name));
                }
                _ => {}
            }
        }
        Ok(outputs)
    }

    /// Runs the kernel again with each output in the memory of an input, where
    /// the code says that this may be; the memory is left as it was.
    fn in_place(
        &self,
        code: &Code,
        loaded: &LoadedCode,
        memory: &mut BTreeMap<BufferId, Memory>,
        workspace: &mut Memory,
    ) -> Result<(), String> {
        for (output, input) in &code.in_place {
            let (given, expected) = (
                memory[input].data().to_vec(),
                memory[output].data().to_vec(),
            );
            let shared = code
                .params
                .iter()
                .map(|p| if p == output { *input } else { *p });
            let shared: Vec<BufferId> = shared.collect();
            self.call(loaded, "kernel", &shared, memory, workspace)?;
            let m = memory.get_mut(input).expect("every parameter");
            if m.data() != expected {
                let name = |b: &BufferId| &code.buffers[b.index()].name;
                let (output, input) = (name(output), name(input));
                return Err(format!("`{output}` differs in the memory of `{input}`"));
            }
            m.check("a shared memory")?;
            m.data_mut().copy_from_slice(&given);
        }
        Ok(())
    }

    fn call(
        &self,
        loaded: &LoadedCode,
        entry: &str,
        params: &[BufferId],
        memory: &mut BTreeMap<BufferId, Memory>,
        workspace: &mut Memory,
    ) -> Result<(), String> {
        let function = loaded.kernel(entry).map_err(|e| e.to_string())?;
        let pointer = |id: &BufferId| memory.get_mut(id).expect("every parameter").pointer();
        let mut pointers: Vec<*mut c_void> = params.iter().map(pointer).collect();
        // SAFETY: one pointer a parameter, each to as many elements as the code
        // says, and a workspace of the size that the code asks for.
        let status =
            unsafe { function(self.pool.ctx(), pointers.as_mut_ptr(), workspace.pointer()) };
        KernelFailure::check(status).map_err(|e| e.to_string())
    }
}

/// Guarded memory with slack on both sides.
struct Memory {
    buffer: GuardedBuffer,
    slack: usize,
    len: usize,
}

impl Memory {
    fn new(len: usize, slack: usize, values: Option<&[u8]>) -> Memory {
        let mut buffer = GuardedBuffer::new(len + 2 * slack).expect("some pages");
        buffer.fill(GARBAGE);
        if let Some(values) = values {
            buffer[slack..slack + len].copy_from_slice(&values[..len]);
        }
        Memory { buffer, slack, len }
    }

    fn pointer(&mut self) -> *mut c_void {
        self.buffer.as_mut_ptr().wrapping_add(self.slack).cast()
    }

    fn data(&self) -> &[u8] {
        &self.buffer[self.slack..self.slack + self.len]
    }

    fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.slack..self.slack + self.len]
    }

    fn check(&self, name: &str) -> Result<(), String> {
        let canaries = self.buffer.check_canaries();
        canaries.map_err(|e| format!("`{name}`: {e}"))?;
        let (before, rest) = self.buffer.split_at(self.slack);
        let mut outside = before.iter().chain(&rest[self.len..]);
        match outside.all(|b| *b == GARBAGE) {
            true => Ok(()),
            false => Err(format!("`{name}` was written outside its elements")),
        }
    }
}
