//! Executables of whole models.
//!
//! Such an executable has the kernels that the steps run first, the constants, and memory for activations. It takes a file
//! for each input and then one for each output. An input is a `.npy` file, or the bytes of the tensor alone; outputs
//! become `.npy` files. With `--bench N` it prints how many nanoseconds each of N inferences took, and inputs may be left
//! out: they hold zeros then.

use super::file::{Memory, Objects, STACK_BYTES};
use super::{ExecutableError, Runner};
use ir::Target;
use runtime::{BuiltKernel, Call, CompiledModel, TensorId, TensorPlace};
use std::collections::BTreeMap;
use tensor::npy_header;

const RUNNER: &str = include_str!("model.ll");

/// Words of the description, of a tensor and of a call, as the runner has them.
const DESCRIPTION: u64 = 10;
const TENSOR: u64 = 7;
const CALL: u64 = 4;

/// Of a constant's first byte; what kernels may assume of their parameters.
const CONSTANT_ALIGN: usize = 64;

/// The bytes of an executable that runs a model on one thread.
///
/// # Errors
/// If the model is for another target, has states or outputs whose sizes depend on data, or is larger than an executable may
/// be.
pub fn model_executable(
    target: &Target,
    model: &CompiledModel,
) -> Result<Vec<u8>, ExecutableError> {
    let refused = [
        (!model.states().is_empty(), "states"),
        (
            !model.crops().is_empty(),
            "outputs whose sizes depend on data",
        ),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(has, _)| *has) {
        return Err(ExecutableError::Unsupported { what });
    }
    let runner = Runner::of(target, RUNNER)?;
    let steps = model.steps().iter();
    let calls: Vec<(&str, &Call)> = steps
        .flat_map(|s| s.alternatives[0].calls.iter().map(|c| (s.name.as_str(), c)))
        .collect();
    let mut kernels: BTreeMap<usize, &BuiltKernel> = BTreeMap::new();
    for (_, call) in &calls {
        let kernel = model.kernel(call);
        runner.check(kernel)?;
        kernels.insert(call.kernel.index(), kernel);
    }
    let mut code: Vec<&[u8]> = vec![&runner.object];
    code.extend(kernels.values().map(|k| k.code.as_slice()));
    let objects = Objects::new(runner.machine, &code)?;
    let entries = kernels.iter().zip(1..);
    let entries = entries.map(|((id, k), object)| Ok((*id, objects.function(object, &k.entry)?)));
    let entries = entries.collect::<Result<_, ExecutableError>>()?;
    let workspace = kernels.values().map(|k| k.workspace_size(1)).max();
    let writer = Writer::new(model, &calls, workspace.unwrap_or(0), &objects)?;
    let stack = writer.stack;
    let (constants, data, memory) = writer.written(&calls, &entries);
    let mut symbols = objects.functions();
    symbols.insert("description".into(), memory.data);
    symbols.insert("stack".into(), stack);
    objects.file(&symbols, &constants, &data, &memory)
}

/// Bytes that the executable only reads.
struct Constants {
    bytes: Vec<u8>,
    /// By the number of the stored constant.
    stored: BTreeMap<u32, u64>,
}

impl Constants {
    /// Where bytes lie from the begin of all.
    fn add(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(CONSTANT_ALIGN);
        self.bytes.resize(at, 0);
        self.bytes.extend(bytes);
        at as u64
    }
}

/// A text among the constants: where it lies from their begin, and its bytes.
type Text = [u64; 2];

/// What a runner knows of an input or an output.
struct Port {
    tensor: TensorId,
    header: Text,
    /// The header without padding.
    compared: u64,
    complaint: Text,
}

/// The addresses that are known before the tables are written.
struct Writer<'m> {
    model: &'m CompiledModel,
    constants: Constants,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// What is said of each call that fails.
    failures: Vec<Text>,
    usage: Text,
    memory: Memory,
    stack: u64,
    workspace: u64,
    arena: u64,
    scratch: u64,
}

impl<'m> Writer<'m> {
    fn new(
        model: &'m CompiledModel,
        calls: &[(&str, &Call)],
        workspace: u64,
        objects: &Objects<'_>,
    ) -> Result<Writer<'m>, ExecutableError> {
        let mut constants = Constants {
            bytes: Vec::new(),
            stored: BTreeMap::new(),
        };
        let ends = model.inputs().iter().chain(model.outputs());
        let arguments = calls.iter().flat_map(|(_, c)| &c.args);
        for id in ends.chain(arguments) {
            if let (TensorPlace::Constant { blob }, _) = model.root_place(*id)
                && !constants.stored.contains_key(&blob)
            {
                let at = constants.add(model.stored(blob));
                constants.stored.insert(blob, at);
            }
        }
        let mut text = |text: &str| [constants.add(text.as_bytes()), text.len() as u64];
        let failed = |(step, _): &(&str, _)| text(&format!("step `{step}` failed\n"));
        let failures = calls.iter().map(failed).collect();
        let usage = text(&usage(model));
        let mut port = |id: &TensorId| port(model, *id, &mut constants);
        let inputs: Vec<Port> = model.inputs().iter().map(&mut port).collect();
        let outputs: Vec<Port> = model.outputs().iter().map(&mut port).collect();
        let mut memory = objects.memory(constants.bytes.len() as u64);
        let of_calls: u64 = calls.iter().map(|(_, c)| CALL + c.args.len() as u64).sum();
        let ports = (inputs.len() + outputs.len()) as u64;
        memory.hold(8 * (DESCRIPTION + TENSOR * ports + of_calls));
        let longest = inputs.iter().map(|p| p.header[1]).max().unwrap_or(0);
        Ok(Writer {
            stack: memory.take("the stack", Some(STACK_BYTES))? + STACK_BYTES,
            workspace: memory.take("the workspace", Some(workspace))?,
            arena: memory.take("the activations", Some(model.arena_bytes()))?,
            scratch: memory.take("the headers", Some(longest))?,
            model,
            constants,
            inputs,
            outputs,
            failures,
            usage,
            memory,
        })
    }

    /// The constants, and the data with the description at their begin.
    fn written(
        self,
        calls: &[(&str, &Call)],
        entries: &BTreeMap<usize, u64>,
    ) -> (Vec<u8>, Vec<u8>, Memory) {
        let inputs = self.memory.data + 8 * DESCRIPTION;
        let outputs = inputs + 8 * TENSOR * self.inputs.len() as u64;
        let table = outputs + 8 * TENSOR * self.outputs.len() as u64;
        let mut arguments = table + 8 * CALL * calls.len() as u64;
        let counts = [self.inputs.len(), self.outputs.len(), calls.len()].map(|n| n as u64);
        let [usage, usage_bytes] = self.text(self.usage);
        let mut words = vec![inputs, counts[0], outputs, counts[1], table, counts[2]];
        words.extend([self.workspace, usage, usage_bytes, self.scratch]);
        for port in self.inputs.iter().chain(&self.outputs) {
            let bytes = self.model.tensor(port.tensor).span_bytes();
            let bytes = bytes.expect("a stored tensor has a size");
            words.extend([self.address(port.tensor), bytes]);
            words.extend(self.text(port.header));
            words.push(port.compared);
            words.extend(self.text(port.complaint));
        }
        for ((_, call), failure) in calls.iter().zip(&self.failures) {
            words.extend([entries[&call.kernel.index()], arguments]);
            words.extend(self.text(*failure));
            arguments += 8 * call.args.len() as u64;
        }
        for (_, call) in calls {
            words.extend(call.args.iter().map(|id| self.address(*id)));
        }
        let data = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        (self.constants.bytes, data, self.memory)
    }

    fn text(&self, [at, bytes]: Text) -> [u64; 2] {
        [self.memory.constants + at, bytes]
    }

    fn address(&self, id: TensorId) -> u64 {
        match self.model.root_place(id) {
            (TensorPlace::Arena { offset: root }, offset) => self.arena + root + offset,
            (TensorPlace::Constant { blob }, offset) => {
                self.memory.constants + self.constants.stored[&blob] + offset
            }
            (TensorPlace::View { .. } | TensorPlace::Discarded, _) => {
                panic!("`{}` is used and not stored", self.model.tensor(id).name)
            }
        }
    }
}

/// A header without its padding.
fn dictionary_end(header: &[u8]) -> usize {
    let last = header.iter().rposition(|b| *b == b'}');
    last.expect("a header has a dictionary") + 1
}

fn port(model: &CompiledModel, tensor: TensorId, constants: &mut Constants) -> Port {
    let info = model.tensor(tensor);
    let header = npy_header(info.dtype, &info.shape);
    let compared = dictionary_end(&header);
    let complaint = format!(
        " is no value of `{}`: give a .npy file with the header {}, or {} bytes and nothing else\n",
        info.name,
        String::from_utf8_lossy(&header[10..compared]),
        info.span_bytes().unwrap_or(0)
    );
    Port {
        tensor,
        header: [constants.add(&header), header.len() as u64],
        compared: compared as u64,
        complaint: [constants.add(complaint.as_bytes()), complaint.len() as u64],
    }
}

/// How the executable is called.
fn usage(model: &CompiledModel) -> String {
    let line = |what: &str, id: &TensorId| {
        let t = model.tensor(*id);
        format!("  {what} {}: {} {:?}\n", t.name, t.dtype, t.shape)
    };
    let inputs = model.inputs().iter().map(|id| line("input", id));
    let outputs = model.outputs().iter().map(|id| line("output", id));
    let ports: String = inputs.chain(outputs).collect();
    format!(
        "{}: give a file for each input, and then one for each output:\n{ports}Inputs are .npy files, or bytes without a \
         header. Outputs become .npy files.\nWith --bench N [INPUT...] the nanoseconds of N inferences are printed.\n",
        model.name()
    )
}
