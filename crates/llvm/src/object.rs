//! Modules to objects and assembly.

use crate::debug::DebugInfo;
use crate::emit::Emitter;
use crate::machine::{DecodeError, Decoder};
use crate::raw::Builder;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine,
    TargetTriple,
};
use ir::Target;
use lower::flat::Code;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Once;
use thiserror::Error;

/// The optimiser's pipeline. More passes made convolutions larger and no faster.
const PASSES: &str = "function(early-cse,instcombine<no-verify-fixpoint>)";

#[derive(Debug, Error)]
pub enum CodegenError {
    #[error("LLVM does not know the target {triple} with CPU `{cpu}`: {message}")]
    Target {
        triple: String,
        cpu: String,
        message: String,
    },
    #[error("LLVM refused the module of `{name}`: {message}")]
    Llvm { name: String, message: String },
}

/// What to produce besides the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emit {
    /// Assembly text, with loop names as block comments.
    pub assembly: bool,
    /// LLVM IR text after the optimiser.
    pub llvm_ir: bool,
    /// Debug locations that carry loop and access ids.
    pub identity: bool,
}

#[derive(Clone, Debug)]
pub struct Compiled {
    /// A relocatable ELF object that defines `kernel` and, if anything is prepared, `prepare`.
    pub object: Vec<u8>,
    pub assembly: Option<String>,
    pub llvm_ir: Option<String>,
}

/// The compiler's name and version, for keys and records.
pub fn version() -> String {
    use inkwell::llvm_sys::core::LLVMGetVersion;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid out-pointers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!(
        "tunesmith {} llvm {major}.{minor}.{patch}",
        env!("CARGO_PKG_VERSION")
    )
}

pub(crate) fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = InitializationConfig::default();
        LlvmTarget::initialize_x86(&config);
        LlvmTarget::initialize_aarch64(&config);
        LlvmTarget::initialize_riscv(&config);
        // Loop-strength reduction is the costliest pass and changed no run time.
        let args = [c"tunesmith".as_ptr(), c"-disable-lsr".as_ptr()];
        // SAFETY: called once, before any pass runs, with two C strings.
        unsafe {
            inkwell::llvm_sys::support::LLVMParseCommandLineOptions(2, args.as_ptr(), c"".as_ptr());
        }
    });
}

/// A code generator for one target. Not shared between threads; make one each.
pub struct Compiler {
    context: Context,
    machine: TargetMachine,
    target: Target,
    /// By the processor of the scheduling model; made when they are first asked for.
    decoders: RefCell<BTreeMap<String, Rc<Decoder>>>,
}

impl Compiler {
    pub fn new(target: &Target) -> Result<Compiler, CodegenError> {
        initialize();
        let fail = |message: String| CodegenError::Target {
            triple: target.triple().into(),
            cpu: target.level().into(),
            message,
        };
        let triple = TargetTriple::create(target.triple());
        let llvm = LlvmTarget::from_triple(&triple).map_err(|e| fail(e.to_string()))?;
        let machine = llvm
            .create_target_machine(
                &triple,
                target.level(),
                &target.features(),
                OptimizationLevel::Default,
                RelocMode::PIC,
                CodeModel::Default,
            )
            .ok_or_else(|| fail("no target machine".into()))?;
        machine.set_asm_verbosity(true);
        Ok(Compiler {
            context: Context::create(),
            machine,
            target: target.clone(),
            decoders: RefCell::default(),
        })
    }

    /// What reads objects of the target with the scheduling model of a processor.
    ///
    /// # Errors
    /// If LLVM knows no processor of that name.
    pub fn decoder(&self, cpu: &str) -> Result<Rc<Decoder>, DecodeError> {
        if let Some(known) = self.decoders.borrow().get(cpu) {
            return Ok(known.clone());
        }
        let made = Rc::new(Decoder::with_model(&self.target, cpu)?);
        self.decoders.borrow_mut().insert(cpu.into(), made.clone());
        Ok(made)
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn compile(&self, code: &Code, emit: Emit) -> Result<Compiled, CodegenError> {
        let module = self.module(code, emit.identity);
        let fail = |message: String| CodegenError::Llvm {
            name: code.name.clone(),
            message,
        };
        if cfg!(debug_assertions) {
            module.verify().map_err(|e| fail(e.to_string()))?;
        }
        module
            .run_passes(PASSES, &self.machine, PassBuilderOptions::create())
            .map_err(|e| fail(e.to_string()))?;
        let llvm_ir = emit.llvm_ir.then(|| module.print_to_string().to_string());
        let assembly = if emit.assembly {
            // Emitting changes the module, so the text comes from a copy.
            let copy = module.clone();
            let text = self
                .machine
                .write_to_memory_buffer(&copy, FileType::Assembly);
            let text = text.map_err(|e| fail(e.to_string()))?;
            Some(
                String::from_utf8_lossy(text.as_slice())
                    .trim_end_matches('\0')
                    .to_string(),
            )
        } else {
            None
        };
        let object = self
            .machine
            .write_to_memory_buffer(&module, FileType::Object)
            .map_err(|e| fail(e.to_string()))?
            .as_slice()
            .to_vec();
        Ok(Compiled {
            object,
            assembly,
            llvm_ir,
        })
    }

    /// The object of a module in LLVM's textual form, which has neither a triple nor a data layout.
    pub fn compile_text(&self, name: &str, text: &str) -> Result<Vec<u8>, CodegenError> {
        let fail = |message: String| CodegenError::Llvm {
            name: name.into(),
            message,
        };
        let memory = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), name);
        let module = self.context.create_module_from_ir(memory);
        let module = module.map_err(|e| fail(e.to_string()))?;
        module.set_triple(&self.machine.get_triple());
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
        module.verify().map_err(|e| fail(e.to_string()))?;
        let passes = format!("always-inline,{PASSES}");
        module
            .run_passes(&passes, &self.machine, PassBuilderOptions::create())
            .map_err(|e| fail(e.to_string()))?;
        let object = self
            .machine
            .write_to_memory_buffer(&module, FileType::Object);
        Ok(object.map_err(|e| fail(e.to_string()))?.as_slice().to_vec())
    }

    fn module(&self, code: &Code, identity: bool) -> Module<'_> {
        let module = self.context.create_module(&code.name);
        module.set_triple(&self.machine.get_triple());
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
        let (context, raw) = (self.context.raw(), module.as_mut_ptr());
        // SAFETY: the module belongs to the context; builder and debug info are
        // dropped before both.
        let (builder, debug) = unsafe {
            (
                Builder::new(context, raw),
                identity.then(|| DebugInfo::new(context, raw)),
            )
        };
        let Target::Cpu(cpu) = &self.target;
        let mut e = Emitter::new(builder, code, cpu, debug);
        e.entry("kernel", &code.params, &code.kernel);
        if !code.prepare.is_empty() {
            e.entry("prepare", &code.prepare_params, &code.prepare);
        }
        if let Some(d) = &e.debug {
            d.finish();
        }
        module
    }
}
