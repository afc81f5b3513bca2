//! Built code as data: what a builder makes, a runner loads and an artifact
//! stores.
//!
//! Owns the description of one compiled kernel. Promises that it is plain
//! serialisable data with no address in it. Loading is in `elf`, what the
//! processor offers in `host`.

use crate::abi::workspace_size;
use crate::dtype_name;
use crate::host::{HostError, check_target};
use serde::{Deserialize, Serialize};
use tensor::DType;
use xxhash_rust::xxh3::xxh3_64;

/// The machine that code was generated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelTarget {
    /// As LLVM writes it, e.g. `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// As LLVM names it, e.g. `znver3`.
    pub cpu: String,
    /// LLVM's feature string, e.g. `+avx2,+fma,-avx512f`.
    pub features: String,
    pub vector_bits: u32,
}

impl KernelTarget {
    /// Any processor of this host's architecture, for code that no compiler of ours made.
    pub fn generic() -> KernelTarget {
        KernelTarget {
            triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
            cpu: "generic".into(),
            features: String::new(),
            vector_bits: 128,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CodeFormat {
    /// An ELF64 relocatable object.
    Elf,
    /// NVIDIA PTX text.
    Ptx,
}

/// What a parameter is to its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ParamRole {
    /// Read; changes from call to call.
    Input,
    /// Read; the same in every call.
    Constant,
    /// Written.
    Output,
    /// Read; made once from the constants by the prepare entry.
    Prepared,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelParam {
    /// Unique among the parameters of the program, so a tensor is bound by name.
    pub name: String,
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub role: ParamRole,
}

impl KernelParam {
    /// Number of elements; `None` if a dimension is negative or the product overflows.
    pub fn elements(&self) -> Option<u64> {
        let dims = self.shape.iter().map(|d| u64::try_from(*d).ok());
        dims.into_iter().try_fold(1u64, |n, d| n.checked_mul(d?))
    }

    /// Size of a dense tensor of this shape, with the same `None`.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.size() as u64)
    }
}

/// One compiled kernel with everything needed to call it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltKernel {
    pub target: KernelTarget,
    /// How the kernel computes, in the compiler's word, such as `im2row`: for people. Empty if the
    /// compiler did not say.
    #[serde(skip)]
    pub algorithm: String,
    pub format: CodeFormat,
    pub code: Vec<u8>,
    /// Symbol of the kernel in `code`.
    pub entry: String,
    /// In the argument order of the kernel.
    pub params: Vec<KernelParam>,
    /// Symbol of the entry that makes the [`ParamRole::Prepared`] tensors.
    pub prepare_entry: Option<String>,
    /// In the argument order of the prepare entry: the constants it reads
    /// (role `Constant`), then what it writes (role `Prepared`, each with the
    /// name of a parameter of the kernel).
    pub prepare_params: Vec<KernelParam>,
    /// ELF object for the building host that holds the prepare entry, when the
    /// kernel itself is for another machine; otherwise the entry is in `code`.
    pub prepare_code: Option<Vec<u8>>,
    /// Identifies what the prepare entry computes: kernels with equal values
    /// make equal prepared tensors, under equal names, of equal constants. 0 says
    /// nothing.
    pub prepare_hash: u64,
    /// Pairs of an output and an input, positions in `params`, that may have one
    /// memory: the kernel has read an element before it writes the one of the same
    /// index. Of one output or input only one pair may be made use of at a time.
    pub in_place: Vec<(u32, u32)>,
    /// Workspace shared by all workers of one call.
    pub workspace_bytes: u64,
    /// Workspace of each worker; the layout is that of [`workspace_size`].
    pub worker_workspace_bytes: u64,
    pub prepare_workspace_bytes: u64,
    pub prepare_worker_workspace_bytes: u64,
    /// The schedule as text, for people and records.
    pub schedule: String,
    /// Name and version of what generated the code.
    pub compiler: String,
}

impl BuiltKernel {
    /// An object written by hand, such as by a test: its entry is `kernel`, and it needs no
    /// workspace and no prepare entry.
    pub fn by_hand(code: Vec<u8>, params: Vec<KernelParam>) -> BuiltKernel {
        BuiltKernel {
            target: KernelTarget::generic(),
            algorithm: String::new(),
            format: CodeFormat::Elf,
            code,
            entry: "kernel".into(),
            params,
            prepare_entry: None,
            prepare_params: vec![],
            prepare_code: None,
            prepare_hash: 0,
            in_place: vec![],
            workspace_bytes: 0,
            worker_workspace_bytes: 0,
            prepare_workspace_bytes: 0,
            prepare_worker_workspace_bytes: 0,
            schedule: "written by hand".into(),
            compiler: String::new(),
        }
    }

    /// Identifies the machine code: equal code, equal hash.
    pub fn code_hash(&self) -> u64 {
        code_hash(&self.code)
    }

    /// Bytes of workspace the kernel needs with `threads` workers.
    pub fn workspace_size(&self, threads: u32) -> u64 {
        workspace_size(self.workspace_bytes, self.worker_workspace_bytes, threads)
    }

    /// Bytes of workspace the prepare entry needs with `threads` workers.
    pub fn prepare_workspace_size(&self, threads: u32) -> u64 {
        workspace_size(
            self.prepare_workspace_bytes,
            self.prepare_worker_workspace_bytes,
            threads,
        )
    }

    /// The object that holds the prepare entry.
    pub fn prepare_object(&self) -> &[u8] {
        self.prepare_code.as_deref().unwrap_or(&self.code)
    }

    /// Identifies what the prepare entry computes, of equal constants.
    pub(crate) fn prepare_work(&self) -> u64 {
        match self.prepare_hash {
            0 => xxh3_64(self.prepare_object()),
            hash => hash,
        }
    }

    /// Whether this machine can run the kernel.
    pub fn check_host(&self) -> Result<(), HostError> {
        match self.format {
            CodeFormat::Elf => check_target(&self.target),
            CodeFormat::Ptx => Err(HostError::NotHostCode),
        }
    }
}

/// The hash of [`BuiltKernel::code_hash`] (XXH3, 64 bits, seed 0).
pub fn code_hash(code: &[u8]) -> u64 {
    xxh3_64(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_read_back() {
        let params = DType::ALL.into_iter().map(|dtype| KernelParam {
            name: dtype.name().into(),
            dtype,
            shape: vec![2, 3],
            role: ParamRole::Input,
        });
        let kernel = BuiltKernel {
            target: KernelTarget {
                triple: "x86_64-unknown-linux-gnu".into(),
                cpu: "znver3".into(),
                features: "+avx2".into(),
                vector_bits: 256,
            },
            prepare_entry: Some("p".into()),
            workspace_bytes: 1,
            worker_workspace_bytes: 65,
            compiler: "test".into(),
            ..BuiltKernel::by_hand(vec![1, 2, 3], params.collect())
        };
        let bytes = postcard::to_stdvec(&kernel).unwrap();
        assert_eq!(postcard::from_bytes::<BuiltKernel>(&bytes).unwrap(), kernel);
        assert_eq!(kernel.workspace_size(2), 64 + 2 * 128);
        let wrong = KernelParam {
            shape: vec![2, -1],
            ..kernel.params[0].clone()
        };
        assert_eq!(
            (wrong.elements(), kernel.params[0].bytes()),
            (None, Some(24))
        );
    }
}
