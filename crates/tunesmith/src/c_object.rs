//! A compiled model as one object file with a header, for C programs that are linked without Tunesmith.
//!
//! The object has the kernels as they are in the artifact, the constants, memory for activations, and a C function that
//! calls the kernels in turn on one thread. The user's C compiler makes it: `cc -r`.

use runtime::{
    ABI_VERSION, BuiltKernel, Call, CompiledModel, TensorId, TensorPlace, WORKSPACE_ALIGN,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use tensor::DType;
use tune::{Error, Result};

/// Of every constant's first byte.
const ALIGN: usize = 64;

/// Asks Linux once for the registers of AMX, which only processes have that asked.
const ASK_FOR_TILES: &str = "static int may_use_tiles(void) {
    static int allowed;
    if (!allowed) {
        long refused;
        __asm__ volatile(\"syscall\" : \"=a\"(refused) : \"a\"(158L), \"D\"(0x1023L), \"S\"(18L) : \"rcx\", \"r11\", \"memory\");
        allowed = !refused;
    }
    return allowed;
}

";
/// What a step is called that is none.
const NO_TILES: &str = "the system refuses the registers of AMX";

/// What a program includes, and what it links.
pub struct CObject {
    pub header: Vec<u8>,
    pub object: Vec<u8>,
}

/// Makes them with a C compiler for the model's target. Names begin with `prefix`, a C identifier.
///
/// # Errors
/// If the model has states or outputs whose sizes depend on data, or the compiler fails.
pub fn c_object(model: &CompiledModel, prefix: &str, cc: &str) -> Result<CObject> {
    let refused = [
        (!model.states().is_empty(), "states (a training step)"),
        (
            !model.crops().is_empty(),
            "outputs whose sizes depend on data",
        ),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(has, _)| *has) {
        let why = format!("{} has {what}, which objects cannot have", model.name());
        return Err(Error::new(why).help("write an artifact, which the runtime runs"));
    }
    let sources = Sources::new(model, prefix);
    let folder =
        tempfile::tempdir().map_err(|e| Error::new(format!("no folder for the sources: {e}")))?;
    let at = folder.path();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(at.join(name), bytes)
            .map_err(|e| Error::new(format!("cannot write {name} to {}: {e}", at.display())))
    };
    let header = sources.header();
    write(&format!("{prefix}.h"), header.as_bytes())?;
    write("model.c", sources.code().as_bytes())?;
    write("constants.S", sources.assembly().as_bytes())?;
    write("constants.bin", &sources.constants)?;
    let mut command = Command::new(cc);
    command
        .current_dir(at)
        .args(["-O2", "-r", "-nostdlib", "-o", "model.o"]);
    command.args(["model.c", "constants.S"]);
    for (i, kernel) in sources.kernels.values().enumerate() {
        let name = format!("kernel{i}.o");
        let renamed = renamed(&kernel.code, &format!("{prefix}_{i}_"));
        let bytes = renamed
            .ok_or_else(|| Error::new(format!("the object of kernel {i} is no ELF object")))?;
        write(&name, &bytes)?;
        command.arg(name);
    }
    let advice = "name a C compiler for the target with --cc, such as aarch64-linux-gnu-gcc";
    let out = command.output();
    let out =
        out.map_err(|e| Error::new(format!("cannot start the C compiler {cc}: {e}")).help(advice))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
        return Err(Error::new(format!("the C compiler {cc} failed: {said}")).help(advice));
    }
    let object = std::fs::read(at.join("model.o"));
    let object =
        object.map_err(|e| Error::new(format!("the C compiler {cc} wrote no object: {e}")))?;
    Ok(CObject {
        header: header.into_bytes(),
        object,
    })
}

struct Sources<'m> {
    model: &'m CompiledModel,
    prefix: &'m str,
    /// Of each step its name and call.
    calls: Vec<(&'m str, &'m Call)>,
    /// By their number in the model.
    kernels: BTreeMap<usize, &'m BuiltKernel>,
    constants: Vec<u8>,
    /// Where each stored constant begins.
    stored: BTreeMap<u32, usize>,
}

impl<'m> Sources<'m> {
    fn new(model: &'m CompiledModel, prefix: &'m str) -> Sources<'m> {
        let of_step = |s: &'m runtime::ModelStep| {
            let calls = s.alternatives[0].calls.iter();
            calls.map(|c| (s.name.as_str(), c)).collect::<Vec<_>>()
        };
        let calls: Vec<_> = model.steps().iter().flat_map(of_step).collect();
        let kernels = calls
            .iter()
            .map(|(_, c)| (c.kernel.index(), model.kernel(c)));
        let kernels = kernels.collect();
        let (mut constants, mut stored) = (Vec::new(), BTreeMap::new());
        let ends = model.inputs().iter().chain(model.outputs());
        for id in calls.iter().flat_map(|(_, c)| &c.args).chain(ends) {
            if let (TensorPlace::Constant { blob }, _) = model.root_place(*id)
                && !stored.contains_key(&blob)
            {
                constants.resize(constants.len().next_multiple_of(ALIGN), 0);
                stored.insert(blob, constants.len());
                constants.extend(model.stored(blob));
            }
        }
        // A section without bytes has no symbol in it.
        constants.resize(constants.len().max(1), 0);
        Sources {
            model,
            prefix,
            calls,
            kernels,
            constants,
            stored,
        }
    }

    /// The address of a tensor in C.
    fn address(&self, id: TensorId) -> String {
        match self.model.root_place(id) {
            (TensorPlace::Arena { offset }, own) => format!("arena + {}", offset + own),
            (TensorPlace::Constant { blob }, own) => {
                let at = self.stored[&blob] as u64 + own;
                format!("(unsigned char *){}_constants + {at}", self.prefix)
            }
            (TensorPlace::View { .. } | TensorPlace::Discarded, _) => {
                panic!("`{}` is used and not stored", self.model.tensor(id).name)
            }
        }
    }

    /// A comment for each of these tensors.
    fn described(&self, what: &str, ids: &[TensorId]) -> String {
        let mut text = String::new();
        for (i, id) in ids.iter().enumerate() {
            let t = self.model.tensor(*id);
            let name = t.name.replace("*/", "* /");
            let (ty, bytes) = (c_type(t.dtype), t.span_bytes().unwrap_or(0));
            _ = writeln!(
                text,
                "   {what} {i}: `{name}`, {ty} {:?}, {bytes} bytes",
                t.shape
            );
        }
        text
    }

    fn header(&self) -> String {
        let (p, upper, model) = (self.prefix, self.prefix.to_uppercase(), self.model);
        let (inputs, outputs) = (model.inputs(), model.outputs());
        format!(
            "/* {name}, compiled by {compiler} for {cpu} ({triple}).\n\n{described}\n   Tensors are dense and row-major. The memory of the \
             model is static: one thread at a time may call these functions. */\n\
             #ifndef {upper}_H\n#define {upper}_H\n\n#include <stddef.h>\n\n\
             #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
             #define {upper}_INPUTS {n_inputs}\n#define {upper}_OUTPUTS {n_outputs}\n\n\
             /* One inference: copies the inputs in and the outputs out. Gives 0, or the number of the step that failed, or -1 if the \
             system lacks what all steps need. */\n\
             int {p}_run(const void *const inputs[{upper}_INPUTS], void *const outputs[{upper}_OUTPUTS]);\n\n\
             /* The same without copies: write the inputs, invoke, read the outputs. */\n\
             void *{p}_input(size_t input);\nint {p}_invoke(void);\nconst void *{p}_output(size_t output);\n\n\
             /* The name of a step that failed, or what the system lacks. */\nconst char *{p}_step(int step);\n\n\
             #ifdef __cplusplus\n}}\n#endif\n\n#endif\n",
            name = model.name().replace("*/", "* /"),
            compiler = model.compiler(),
            cpu = model.target().cpu,
            triple = model.target().triple,
            described = self.described("input", inputs) + &self.described("output", outputs),
            n_inputs = inputs.len(),
            n_outputs = outputs.len(),
        )
    }

    fn code(&self) -> String {
        let (p, model) = (self.prefix, self.model);
        let workspace = self.kernels.values().map(|k| k.workspace_size(1)).max();
        let workspace = workspace.unwrap_or(0).max(1);
        let arena = model.arena_bytes().max(1);
        let mut text = format!(
            "#include \"{p}.h\"\n#include <stdint.h>\n#include <string.h>\n\n\
             typedef struct Context Context;\n\
             typedef int32_t (*Body)(const Context *, void *, int64_t begin, int64_t end, int32_t worker);\n\
             struct Context {{\n    uint32_t abi_version, threads;\n    \
             int32_t (*parallel_for)(const Context *, Body, void *, int64_t extent);\n    const void *pool;\n}};\n\
             typedef int32_t Kernel(const Context *, void *const *, void *);\n\n\
             static int32_t in_turn(const Context *context, Body body, void *environment, int64_t extent) {{\n    \
             return extent > 0 ? body(context, environment, 0, extent, 0) : 0;\n}}\n\n\
             static const Context context = {{{ABI_VERSION}, 1, in_turn, 0}};\n\
             extern const unsigned char {p}_constants[];\n\
             static _Alignas({WORKSPACE_ALIGN}) unsigned char arena[{arena}], workspace[{workspace}];\n\n"
        );
        let numbers: BTreeMap<usize, usize> = self.kernels.keys().copied().zip(0..).collect();
        for (id, kernel) in &self.kernels {
            _ = writeln!(text, "extern Kernel {p}_{}_{};", numbers[id], kernel.entry);
        }
        for (i, (_, call)) in self.calls.iter().enumerate() {
            let all: Vec<String> = call.args.iter().map(|id| self.address(*id)).collect();
            _ = writeln!(
                text,
                "static void *const arguments{i}[] = {{{}}};",
                all.join(", ")
            );
        }
        text += "\nstatic const struct {\n    Kernel *kernel;\n    void *const *arguments;\n    const char *name;\n} steps[] = {\n";
        for (i, (name, call)) in self.calls.iter().enumerate() {
            let kernel = self.kernels[&call.kernel.index()];
            let (number, entry) = (numbers[&call.kernel.index()], &kernel.entry);
            _ = writeln!(
                text,
                "    {{{p}_{number}_{entry}, arguments{i}, {}}},",
                quoted(name)
            );
        }
        text += "};\n\n";
        for (what, ids) in [("inputs", model.inputs()), ("outputs", model.outputs())] {
            _ = writeln!(
                text,
                "static const struct {{\n    void *data;\n    size_t bytes;\n}} {what}_of[] = {{"
            );
            for id in ids {
                let bytes = model.tensor(*id).span_bytes().unwrap_or(0);
                _ = writeln!(text, "    {{{}, {bytes}}},", self.address(*id));
            }
            text += "};\n\n";
        }
        let tiles = model.target().features.contains("+amx-tile");
        let (allowed, refused, reason) = match tiles {
            true => (
                ASK_FOR_TILES,
                "    if (!may_use_tiles()) return -1;\n",
                NO_TILES,
            ),
            false => ("", "", ""),
        };
        _ = write!(
            text,
            "{allowed}void *{p}_input(size_t i) {{ return i < {inputs} ? inputs_of[i].data : 0; }}\n\
             const void *{p}_output(size_t i) {{ return i < {outputs} ? outputs_of[i].data : 0; }}\n\
             const char *{p}_step(int step) {{ return step > 0 && step <= {steps} ? steps[step - 1].name : \"{reason}\"; }}\n\n\
             int {p}_invoke(void) {{\n{refused}    for (int i = 0; i < {steps}; i++)\n        \
             if (steps[i].kernel(&context, steps[i].arguments, workspace)) return i + 1;\n    return 0;\n}}\n\n\
             int {p}_run(const void *const inputs[], void *const outputs[]) {{\n    \
             for (size_t i = 0; i < {inputs}; i++) memcpy(inputs_of[i].data, inputs[i], inputs_of[i].bytes);\n    \
             int failed = {p}_invoke();\n    \
             for (size_t i = 0; !failed && i < {outputs}; i++) memcpy(outputs[i], outputs_of[i].data, outputs_of[i].bytes);\n    \
             return failed;\n}}\n",
            inputs = model.inputs().len(),
            outputs = model.outputs().len(),
            steps = self.calls.len(),
        );
        text
    }

    fn assembly(&self) -> String {
        let p = self.prefix;
        format!(
            ".section .rodata.{p}, \"a\"\n.balign {ALIGN}\n.globl {p}_constants\n{p}_constants:\n.incbin \"constants.bin\"\n\
             .section .note.GNU-stack, \"\", %progbits\n"
        )
    }
}

fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::Bool => "bool (a byte, 0 or 1)",
        DType::F16 => "half (16 bits)",
        DType::BF16 => "bfloat16 (16 bits)",
    }
}

/// A string of C.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | b'?' => _ = write!(quoted, "\\{}", byte as char),
            b' '..=b'~' => quoted.push(byte as char),
            byte => _ = write!(quoted, "\\{byte:03o}"),
        }
    }
    quoted + "\""
}

/// An ELF object in which the names of all symbols that it gives to others begin with a prefix; none if it is no
/// object of 64 bits.
fn renamed(object: &[u8], prefix: &str) -> Option<Vec<u8>> {
    const SECTION: usize = 64;
    const SYMBOL: usize = 24;
    const SYMBOL_TABLE: u32 = 2;
    const GLOBAL: u8 = 1;
    let mut bytes = object.to_vec();
    let word = |bytes: &[u8], at: usize, size: usize| -> Option<u64> {
        let mut value = [0; 8];
        value[..size].copy_from_slice(bytes.get(at..at + size)?);
        Some(u64::from_le_bytes(value))
    };
    let elf64 = object.starts_with(b"\x7fELF\x02\x01");
    let (table, count) = (
        word(object, 0x28, 8)? as usize,
        word(object, 0x3c, 2)? as usize,
    );
    let section = |i: usize| table + i * SECTION;
    let is_symbols = |i: &usize| word(object, section(*i) + 4, 4) == Some(u64::from(SYMBOL_TABLE));
    let symbols = (0..count).find(is_symbols).filter(|_| elf64)?;
    let of = |i: usize, field: usize| word(object, section(i) + field, 8).map(|v| v as usize);
    let strings = word(object, section(symbols) + 40, 4)? as usize;
    let (start, len) = (of(strings, 24)?, of(strings, 32)?);
    let mut names = object.get(start..start + len)?.to_vec();
    let (first, size) = (of(symbols, 24)?, of(symbols, 32)?);
    for at in (first..first + size).step_by(SYMBOL) {
        let (info, of_section) = (*object.get(at + 4)?, word(object, at + 6, 2)?);
        if info >> 4 == GLOBAL && of_section != 0 {
            let name = word(object, at, 4)? as usize;
            let end = name + names.get(name..)?.iter().position(|b| *b == 0)?;
            let new = [prefix.as_bytes(), &names[name..end], &[0]].concat();
            bytes[at..at + 4].copy_from_slice(&u32::try_from(names.len()).ok()?.to_le_bytes());
            names.extend(new);
        }
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let (place, size) = (bytes.len() as u64, names.len() as u64);
    let header = section(strings);
    bytes[header + 24..header + 32].copy_from_slice(&place.to_le_bytes());
    bytes[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
    bytes.extend(names);
    Some(bytes)
}
