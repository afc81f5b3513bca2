//! The file of a compiled model: what reads back, what is refused and how.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    ARTIFACT_VERSION, BoundKernel, BuiltKernel, CodeFormat, CompiledModel, ConstantMemory,
    HostError, KernelTarget, LoadError, Model, ModelBuilder, ParamRole, Pool, SigningKey,
    VerifyKey,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tensor::{DType, Tensor};
use xxhash_rust::xxh3::xxh3_64;

const LEN: usize = 1500;

fn scale_kernel(target: KernelTarget) -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *a = args[1], *b = args[2];
        float *y = args[3];
        for (long i = 0; i < 1500; i++) y[i] = x[0] * a[i] + b[i];
        return 0;
    }
    int prepare(const Ctx *ctx, void *const *args, void *workspace) {
        const float *a = args[0];
        float *b = args[1];
        for (long i = 0; i < 1500; i++) b[i] = a[1499 - i];
        return 0;
    }";
    let (a, b) = (
        param("a", ParamRole::Constant, &[1500]),
        param("b", ParamRole::Prepared, &[1500]),
    );
    let params = vec![
        param("x", ParamRole::Input, &[1]),
        a.clone(),
        b.clone(),
        param("y", ParamRole::Output, &[1500]),
    ];
    BuiltKernel {
        target,
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![a, b],
        ..built(source, params)
    }
}

fn constant() -> Tensor {
    Tensor::from_slice(&[LEN], &(0..LEN).map(|i| i as f32).collect::<Vec<_>>())
}

fn builder() -> ModelBuilder {
    let pool = Arc::new(Pool::new(1).unwrap());
    ModelBuilder::new("scale", KernelTarget::generic(), "compiler 7", pool)
}

fn model_of(kernel: BuiltKernel) -> CompiledModel {
    let mut b = builder();
    let kernel = b.add_kernel(kernel);
    let x = b.add_input("x", DType::F32, &[1]);
    let a = b.add_constant("a", constant());
    let y = b.add_tensor("y", DType::F32, &[LEN]);
    let bind = vec![("x", x), ("a", a), ("y", y)];
    b.add_step("scale", &[1], &[BoundKernel { kernel, bind }])
        .unwrap();
    b.mark_output(y);
    b.finish().unwrap()
}

fn check_result(model: &mut Model) {
    let y = model
        .run(&[("x", &Tensor::from_slice(&[1], &[3.0f32]))])
        .unwrap()
        .remove(0);
    let expected: Vec<f32> = (0..LEN).map(|i| (3 * i + LEN - 1 - i) as f32).collect();
    assert_eq!(y, Tensor::from_slice(&[LEN], &expected));
}

fn error(path: &Path) -> LoadError {
    Model::load(path, 1)
        .map(|_| ())
        .expect_err("the artifact must be refused")
}

#[test]
fn a_saved_model_is_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    let compiled = model_of(scale_kernel(KernelTarget::generic()));
    compiled.save(&path).unwrap();
    let loaded = CompiledModel::load(&path).unwrap();
    assert_eq!((loaded.name(), loaded.compiler()), ("scale", "compiler 7"));
    assert_eq!(loaded.target(), compiled.target());
    assert_eq!(loaded.tensors(), compiled.tensors());
    assert_eq!(loaded.steps(), compiled.steps());
    assert_eq!(loaded.kernels(), compiled.kernels());
    assert_eq!(loaded.arena_bytes(), compiled.arena_bytes());
    assert_eq!(loaded.constant_bytes(), (2 * LEN * 4) as u64);
    check_result(&mut Model::load(&path, 2).unwrap());
    let mapped = CompiledModel::load_with(&path, ConstantMemory::Mapped).unwrap();
    let pool = Arc::new(Pool::new(2).unwrap());
    check_result(&mut Model::new(Arc::new(mapped), pool).unwrap());
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "a temporary file is left");
    // What was read can be written again, and is the same file.
    let again = dir.path().join("again.tsm");
    loaded.save(&again).unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(&again).unwrap()
    );
}

#[test]
fn constants_start_at_pages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    model_of(scale_kernel(KernelTarget::generic()))
        .save(&path)
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let (plain, mut prepared) = (constant(), constant());
    prepared.as_mut_slice::<f32>().reverse();
    for bytes in [plain.bytes(), prepared.bytes()] {
        let at = file.windows(bytes.len()).position(|w| w == bytes).unwrap();
        assert!(at.is_multiple_of(4096), "a constant lies at {at}");
    }
    // Small constants share pages, but not with code.
    let mut b = builder();
    b.add_kernel(scale_kernel(KernelTarget::generic()));
    let values = [
        Tensor::from_slice(&[2], &[1.25f32, 77.0]),
        Tensor::from_slice(&[1], &[9.5e9f64]),
    ];
    for value in &values {
        let id = b.add_constant("c", value.clone());
        b.mark_output(id);
    }
    b.finish().unwrap().save(&path).unwrap();
    let file = std::fs::read(&path).unwrap();
    let at = values.map(|v| file.windows(8).position(|w| w == v.bytes()).unwrap());
    assert!(
        at[0].is_multiple_of(4096) && at[1] == at[0] + 64,
        "they lie at {at:?}"
    );
}

#[test]
fn saving_replaces_the_file_under_a_running_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    let compiled = model_of(scale_kernel(KernelTarget::generic()));
    compiled.save(&path).unwrap();
    let mut running = Model::load(&path, 1).unwrap();
    compiled.save(&path).unwrap();
    check_result(&mut running);
    let nowhere = dir.path().join("missing").join("m.tsm");
    let error = compiled.save(&nowhere).unwrap_err();
    assert_eq!(error.path, nowhere);
}

#[test]
fn every_kind_of_wrong_file_has_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    assert!(matches!(error(&path), LoadError::Read { .. }));
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(error(&path), LoadError::NotAnArtifact { .. }));
    std::fs::write(&path, vec![b'x'; 10_000]).unwrap();
    assert!(matches!(error(&path), LoadError::NotAnArtifact { .. }));
    model_of(scale_kernel(KernelTarget::generic()))
        .save(&path)
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let mut other = file.clone();
    other[8..12].copy_from_slice(&(ARTIFACT_VERSION + 1).to_le_bytes());
    std::fs::write(&path, &other).unwrap();
    assert!(matches!(
        error(&path),
        LoadError::Version { found, .. } if found == ARTIFACT_VERSION + 1
    ));
    for len in (0..file.len())
        .step_by(97)
        .chain(0..70)
        .chain(file.len() - 5..file.len())
    {
        std::fs::write(&path, &file[..len]).unwrap();
        let error = error(&path);
        let whole_magic = len >= 8;
        assert_eq!(
            matches!(error, LoadError::Truncated { .. }),
            whole_magic,
            "{len}: {error}"
        );
        assert_eq!(
            matches!(error, LoadError::NotAnArtifact { .. }),
            !whole_magic
        );
    }
    other = file.clone();
    other.push(0);
    std::fs::write(&path, &other).unwrap();
    assert!(matches!(error(&path), LoadError::Truncated { .. }));
}

#[test]
fn a_signed_file_is_loaded_with_its_key_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [path, plain] = ["m.tsm", "plain.tsm"].map(|name| dir.path().join(name));
    let compiled = model_of(scale_kernel(KernelTarget::generic()));
    let key = SigningKey::generate().unwrap();
    let (own, other) = (
        key.verify_key(),
        SigningKey::generate().unwrap().verify_key(),
    );
    compiled.save_signed(&path, Some(&key)).unwrap();
    compiled.save(&plain).unwrap();
    let load = |path: &Path, key| {
        [ConstantMemory::Memory, ConstantMemory::Mapped]
            .map(|c| CompiledModel::load_verified(path, c, key).map(|_| ()))
    };
    for loaded in load(&path, Some(&own)).into_iter().chain(load(&path, None)) {
        loaded.unwrap();
    }
    for loaded in load(&path, Some(&other)) {
        assert!(matches!(loaded, Err(LoadError::Signature { .. })));
    }
    for loaded in load(&plain, Some(&own)) {
        assert!(matches!(loaded, Err(LoadError::Unsigned { .. })));
    }
    let (file, unsigned) = (
        std::fs::read(&path).unwrap(),
        std::fs::read(&plain).unwrap(),
    );
    assert_eq!(file[..unsigned.len()], unsigned);
    // Any byte, and any end.
    for at in (0..file.len())
        .step_by(61)
        .chain(unsigned.len()..file.len())
    {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        let [with, _] = load(&path, Some(&own));
        assert!(with.is_err(), "byte {at}");
        let [without, _] = load(&path, None);
        assert!(without.is_err(), "byte {at} without a key");
        std::fs::write(&path, &file[..at]).unwrap();
        let [cut, _] = load(&path, Some(&own));
        assert!(cut.is_err(), "{at} bytes");
    }
    // The signature of another file is none of this one, and all its checksums are right.
    let mut moved = unsigned.clone();
    moved.extend_from_slice(&file[unsigned.len()..]);
    let name = moved.windows(5).position(|w| w == b"scale").unwrap();
    moved[name..name + 5].copy_from_slice(b"scald");
    let end = 64 + u64::from_le_bytes(moved[16..24].try_into().unwrap()) as usize;
    let sum = xxh3_64(&moved[64..end]);
    moved[24..32].copy_from_slice(&sum.to_le_bytes());
    let sum = xxh3_64(&moved[..56]);
    moved[56..64].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, &moved).unwrap();
    let [with, _] = load(&path, Some(&own));
    assert!(matches!(with, Err(LoadError::Signature { .. })));
}

#[test]
fn keys_are_files_that_are_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let [secret, public] = ["k", "k.pub"].map(|name| dir.path().join(name));
    let key = SigningKey::generate().unwrap();
    key.write_new(&secret).unwrap();
    key.verify_key().write_new(&public).unwrap();
    let read = SigningKey::read(&secret).unwrap();
    assert!(read.verify_key() == VerifyKey::read(&public).unwrap());
    let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (error, part) in [
        (key.write_new(&secret).unwrap_err(), "not replaced"),
        (
            SigningKey::read(&public).map(|_| ()).unwrap_err(),
            "not a tunesmith-signing-key",
        ),
        (
            VerifyKey::read(&secret).map(|_| ()).unwrap_err(),
            "not a tunesmith-verify-key",
        ),
        (
            VerifyKey::read(dir.path()).map(|_| ()).unwrap_err(),
            "cannot read",
        ),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    for text in [
        "",
        "tunesmith-verify-key",
        "tunesmith-verify-key 12é",
        "x",
        "tunesmith-verify-key zz",
    ] {
        std::fs::write(&public, text).unwrap();
        let error = VerifyKey::read(&public).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("no key file"), "{error}");
    }
}

#[test]
fn a_changed_byte_is_found_or_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    model_of(scale_kernel(KernelTarget::generic()))
        .save(&path)
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let mut harmless = Vec::new();
    // A stride prime to the alignments visits every kind of place.
    for at in (0..file.len()).step_by(7).chain(0..1000) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        match Model::load(&path, 1) {
            Ok(mut model) => {
                check_result(&mut model);
                harmless.push(at);
            }
            Err(error) => assert!(
                matches!(
                    error,
                    LoadError::NotAnArtifact { .. }
                        | LoadError::Version { .. }
                        | LoadError::Checksum { .. }
                ),
                "{at}: {error}"
            ),
        }
    }
    assert!(harmless.is_empty(), "{harmless:?}");
}

/// Any byte of the manifest changed under valid checksums: refused, or a model that
/// runs within its memory.
#[test]
fn a_manifest_that_was_changed_on_purpose_is_refused_or_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    model_of(scale_kernel(KernelTarget::generic()))
        .save(&path)
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let len = u64::from_le_bytes(file[16..24].try_into().unwrap()) as usize;
    let x = Tensor::from_slice(&[1], &[3.0f32]);
    let (mut refused, mut ran) = (0, 0);
    for at in 64..64 + len {
        for bit in [0x01, 0x40, 0x80] {
            let mut changed = file.clone();
            changed[at] ^= bit;
            let sum = xxh3_64(&changed[64..64 + len]);
            changed[24..32].copy_from_slice(&sum.to_le_bytes());
            let sum = xxh3_64(&changed[..56]);
            changed[56..64].copy_from_slice(&sum.to_le_bytes());
            std::fs::write(&path, &changed).unwrap();
            match Model::load(&path, 1) {
                Ok(mut model) => {
                    // A name or a shape of as many elements may have changed.
                    let _ = model.run(&[("x", &x)]);
                    for i in 0..model.compiled().tensors().len() {
                        let name = model.compiled().tensors()[i].name.clone();
                        let id = model.compiled().tensor_named(&name).unwrap();
                        let _ = model.tensor(id);
                    }
                    ran += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100 && ran > 100, "{refused} refused, {ran} ran");
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    let kernel = scale_kernel(KernelTarget::generic());
    for workspace in [1 << 50, u64::MAX] {
        model_of(BuiltKernel {
            workspace_bytes: workspace,
            ..kernel.clone()
        })
        .save(&path)
        .unwrap();
        let error = error(&path);
        assert!(matches!(error, LoadError::Memory { .. }), "{error}");
        assert!(error.to_string().contains("the machine has"), "{error}");
    }
}

#[test]
fn another_machine_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    let save = |kernel| model_of(kernel).save(&path).unwrap();
    save(scale_kernel(KernelTarget {
        features: "+sse2,+holodeck".into(),
        ..KernelTarget::generic()
    }));
    assert!(matches!(
        error(&path),
        LoadError::Host(HostError::MissingFeature { feature }) if feature == "holodeck"
    ));
    let riscv = KernelTarget {
        triple: "riscv64-unknown-linux-gnu".into(),
        ..KernelTarget::generic()
    };
    save(scale_kernel(riscv));
    assert!(matches!(
        error(&path),
        LoadError::Host(HostError::Architecture { .. })
    ));
    // Code for another machine is prepared here, by an object for this one.
    let host = scale_kernel(KernelTarget::generic());
    let ptx = BuiltKernel {
        format: CodeFormat::Ptx,
        code: b".version 8.0".to_vec(),
        prepare_code: Some(host.code.clone()),
        ..host
    };
    save(ptx);
    assert!(matches!(
        error(&path),
        LoadError::Host(HostError::NotHostCode)
    ));
    let loaded = CompiledModel::load(&path).unwrap();
    assert_eq!(loaded.constant_bytes(), (2 * LEN * 4) as u64);
}

#[test]
fn code_that_does_not_load_is_refused() {
    let kernel = BuiltKernel {
        entry: "other".into(),
        ..scale_kernel(KernelTarget::generic())
    };
    let compiled = Arc::new(model_of(kernel));
    let error = Model::new(compiled, Arc::new(Pool::new(1).unwrap()))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, LoadError::Code { kernel, .. } if kernel == "other"));
}

#[test]
fn only_a_regular_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.tsm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for constants in [ConstantMemory::Memory, ConstantMemory::Mapped] {
        for (path, kind) in [
            (pipe.as_path(), "a named pipe"),
            (folder.path(), "a directory"),
        ] {
            let e = CompiledModel::load_with(path, constants).unwrap_err();
            assert!(e.to_string().contains(kind), "{e}");
        }
    }
}
