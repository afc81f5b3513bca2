//! Constants that the file of a model leaves out: prepare entries make them of other constants when the model is made
//! ready to run.
//!
//! Owns what a file says of them, its check, and the making. A model that was just built has the bytes of all of its
//! constants; one that was loaded lacks these until [`made`].

use crate::abi::KernelFailure;
use crate::artifact::LoadError;
use crate::builder::BuildModelError;
use crate::constants::{Blob, Buffer};
use crate::elf::LoadedCode;
use crate::guard::GuardedBuffer;
use crate::kernel::{BuiltKernel, KernelParam, ParamRole};
use crate::model::{CompiledModel, Inconsistent, KernelId, Manifest};
use crate::pool::Pool;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use tensor::AlignedBytes;

/// Stored constants that the prepare entry of a kernel makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Derivation {
    pub(crate) kernel: KernelId,
    /// The stored constants that the entry reads, each from a byte on, in the order of its parameters.
    pub(crate) inputs: Vec<(u32, u64)>,
    /// Those that it makes, likewise.
    pub(crate) outputs: Vec<u32>,
}

impl Derivation {
    fn parameters(kernel: &BuiltKernel, made: bool) -> impl Iterator<Item = &KernelParam> {
        let all = kernel.prepare_params.iter();
        all.filter(move |p| (p.role == ParamRole::Prepared) == made)
    }

    /// The stored constants that it makes, with their lengths; none if the kernel does not fit.
    fn lengths<'a>(&'a self, manifest: &'a Manifest) -> Option<Vec<(u32, u64)>> {
        let kernel = manifest.kernels.get(self.kernel.index())?;
        kernel.prepare_entry.as_ref()?;
        let bytes = Derivation::parameters(kernel, true).map(KernelParam::bytes);
        let bytes: Vec<u64> = bytes.collect::<Option<_>>()?;
        let fits = bytes.len() == self.outputs.len()
            && Derivation::parameters(kernel, false).count() == self.inputs.len();
        fits.then(|| self.outputs.iter().copied().zip(bytes).collect())
    }
}

/// The stored constants of a model that derivations make.
pub(crate) fn outputs(derivations: &[Derivation]) -> BTreeSet<u32> {
    let all = derivations.iter().flat_map(|d| &d.outputs);
    all.copied().collect()
}

/// Checks the derivations of a model whose stored constants have these lengths, and puts in those that they make.
pub(crate) fn declare(manifest: &Manifest, lengths: &mut [u64]) -> Result<(), Inconsistent> {
    let fail = |what: &str| Err(Inconsistent(format!("a derived constant {what}")));
    let made = outputs(&manifest.derivations);
    for derivation in &manifest.derivations {
        let Some(declared) = derivation.lengths(manifest) else {
            return fail("has no kernel that makes it");
        };
        for (blob, bytes) in declared {
            match lengths.get_mut(blob as usize) {
                Some(length) if *length == 0 || *length == bytes => *length = bytes,
                _ => return fail("is not stored, or has another length"),
            }
        }
        let kernel = &manifest.kernels[derivation.kernel.index()];
        let params = Derivation::parameters(kernel, false);
        for (param, (blob, from)) in params.zip(&derivation.inputs) {
            let stored = lengths.get(*blob as usize).filter(|_| !made.contains(blob));
            let end = param.bytes().and_then(|b| from.checked_add(b));
            if stored.zip(end).is_none_or(|(stored, end)| end > *stored) {
                return fail("is made of bytes that are not stored");
            }
        }
    }
    Ok(())
}

impl CompiledModel {
    /// Whether prepare entries have to make some of the constants before the model can run.
    pub(crate) fn lacks_constants(&self) -> bool {
        let stored = |blob: u32| self.constants[blob as usize].bytes.len() as u64;
        self.derived().any(|(blob, bytes)| stored(blob) < bytes)
    }

    /// The stored constants that its file leaves out, with their lengths.
    pub(crate) fn derived(&self) -> impl Iterator<Item = (u32, u64)> {
        let all = self.manifest.derivations.iter();
        let lengths = all.flat_map(|d| d.lengths(&self.manifest).expect("a model is checked"));
        lengths.collect::<BTreeMap<u32, u64>>().into_iter()
    }
}

/// What a derivation computes, and of which memory: equal ones make equal constants.
type Work = (u64, String, Vec<(usize, u64)>);

/// Makes the constants that models lack. Those of equal origin are made once.
///
/// # Errors
/// If a prepare entry fails, or there is no memory.
pub(crate) fn made(
    models: &[Arc<CompiledModel>],
    pool: &Pool,
) -> Result<Vec<Arc<CompiledModel>>, LoadError> {
    let mut all: HashMap<Work, Arc<Buffer>> = HashMap::new();
    let mut ready = Vec::with_capacity(models.len());
    for model in models {
        let manifest = &model.manifest;
        let mut constants = model.constants.clone();
        for derivation in &manifest.derivations {
            let lengths = derivation.lengths(manifest).expect("a model is checked");
            let missing = |(blob, bytes): &(u32, u64)| {
                (model.constants[*blob as usize].bytes.len() as u64) < *bytes
            };
            if !lengths.iter().any(missing) {
                continue;
            }
            let kernel = &manifest.kernels[derivation.kernel.index()];
            let inputs = derivation.inputs.iter();
            let inputs: Vec<&[u8]> = inputs
                .map(|(blob, from)| &model.constants[*blob as usize].bytes[*from as usize..])
                .collect();
            let params = Derivation::parameters(kernel, false);
            let read = inputs.iter().zip(params);
            let work = (
                kernel.prepare_work(),
                kernel.prepare_entry.clone().unwrap_or_default(),
                read.map(|(i, p)| (i.as_ptr() as usize, p.bytes().unwrap_or(0)))
                    .collect(),
            );
            let ranges = ranges(&lengths);
            let buffer = match all.get(&work) {
                Some(known) => known.clone(),
                None => {
                    let buffer = one(kernel, &inputs, &ranges, pool)?;
                    all.entry(work).or_insert(buffer).clone()
                }
            };
            for ((blob, _), range) in lengths.iter().zip(ranges) {
                constants[*blob as usize].bytes = Blob::new(&buffer, range);
            }
        }
        ready.push(Arc::new(CompiledModel {
            manifest: manifest.clone(),
            constants,
        }));
    }
    Ok(ready)
}

/// Where constants of these lengths lie in one buffer.
fn ranges(lengths: &[(u32, u64)]) -> Vec<Range<usize>> {
    let mut end = 0usize;
    let range = |(_, bytes): &(u32, u64)| {
        let start = end.next_multiple_of(crate::constants::CONSTANT_ALIGN);
        end = start + *bytes as usize;
        start..end
    };
    lengths.iter().map(range).collect()
}

fn one(
    kernel: &BuiltKernel,
    inputs: &[&[u8]],
    ranges: &[Range<usize>],
    pool: &Pool,
) -> Result<Arc<Buffer>, LoadError> {
    let args: Vec<*mut c_void> = inputs
        .iter()
        .map(|i| i.as_ptr().cast_mut().cast())
        .collect();
    let made = run_prepare(&kernel.entry, kernel, args, pool);
    let made = made.map_err(|e: BuildModelError| LoadError::Derived(Box::new(e)))?;
    let mut all = AlignedBytes::zeroed(ranges.last().map_or(0, |r| r.end));
    for (range, bytes) in ranges.iter().zip(&made) {
        all[range.clone()].copy_from_slice(bytes);
    }
    Ok(Arc::new(all))
}

/// Calls a prepare entry; what it wrote, in the order of its parameters.
///
/// # Panics
/// If the kernel has none.
pub(crate) fn run_prepare(
    step: &str,
    kernel: &BuiltKernel,
    mut args: Vec<*mut c_void>,
    pool: &Pool,
) -> Result<Vec<GuardedBuffer>, BuildModelError> {
    let code = |source| BuildModelError::Code {
        kernel: kernel.entry.clone(),
        source,
    };
    let memory = |source| BuildModelError::Memory {
        step: step.to_string(),
        source,
    };
    let loaded = LoadedCode::load(kernel.prepare_object()).map_err(code)?;
    let entry = kernel.prepare_entry.as_ref().expect("a prepare entry");
    let function = loaded.kernel(entry).map_err(code)?;
    let guarded = |bytes: Option<u64>| {
        let len = bytes
            .and_then(|b| usize::try_from(b).ok())
            .unwrap_or(usize::MAX);
        GuardedBuffer::new(len).map_err(memory)
    };
    let mut buffers = Vec::new();
    for param in kernel
        .prepare_params
        .iter()
        .filter(|p| p.role == ParamRole::Prepared)
    {
        let mut buffer = guarded(param.bytes())?;
        args.push(buffer.as_mut_ptr().cast());
        buffers.push(buffer);
    }
    let ctx = pool.ctx();
    let mut workspace = guarded(Some(kernel.prepare_workspace_size(ctx.threads)))?;
    // SAFETY: the arguments are those of `prepare_params`, large enough by
    // their shapes; the code keeping to them is the builder's promise.
    let result = unsafe { function(ctx, args.as_ptr(), workspace.as_mut_ptr().cast()) };
    KernelFailure::check(result).map_err(|failure| BuildModelError::Prepare {
        step: step.to_string(),
        failure,
    })?;
    for buffer in buffers.iter().chain([&workspace]) {
        buffer
            .check_canaries()
            .map_err(|source| BuildModelError::PrepareCanary {
                step: step.to_string(),
                source,
            })?;
    }
    Ok(buffers)
}
