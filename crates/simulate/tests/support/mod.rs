//! Kernels of flat code, and executables as files.

use ir::Target;
use lower::flat::{BufferPlace, Code};
use runtime::{BuiltKernel, KernelParam, KernelTarget, ParamRole};
use std::path::Path;

/// An object with what is known of its code.
pub fn kernel(code: &Code, target: &Target, object: Vec<u8>) -> BuiltKernel {
    let Target::Cpu(cpu) = target;
    let param = |b: &ir::BufferId| {
        let info = &code.buffers[b.index()];
        let role = match info.place {
            BufferPlace::Output => ParamRole::Output,
            BufferPlace::Prepared => ParamRole::Prepared,
            BufferPlace::Constant => ParamRole::Constant,
            _ => ParamRole::Input,
        };
        KernelParam {
            name: info.name.clone(),
            dtype: info.dtype,
            shape: vec![info.elements],
            role,
        }
    };
    BuiltKernel {
        target: KernelTarget {
            triple: target.triple().into(),
            cpu: target.level().into(),
            features: target.features(),
            vector_bits: cpu.vector_bits,
        },
        workspace_bytes: code.workspace_bytes,
        worker_workspace_bytes: code.worker_workspace_bytes,
        ..BuiltKernel::by_hand(object, code.params.iter().map(param).collect())
    }
}

/// A file that may be run.
pub fn write(file: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, bytes).expect("the executable is written");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, all).expect("it may be run");
}
