//! Files of models, right ones and wrong ones.

use super::*;
use crate::kernel::KernelTarget;
use crate::model::{
    Alternative, Call, KernelId, ModelStep, StepGroup, StepId, TensorId, TensorInfo, TensorPlace,
};
use std::collections::BTreeMap;
use tensor::AlignedBytes;
use tensor::DType;

fn kernel(code: u8) -> BuiltKernel {
    BuiltKernel {
        ..BuiltKernel::by_hand(vec![code; 3000], vec![])
    }
}

/// Three kernels, and constants of which one is prepared.
fn model() -> CompiledModel {
    let dense = |name: &str, place| TensorInfo::dense(name, DType::F32, &[2, 8], place);
    let tensors = vec![
        dense("x", TensorPlace::Arena { offset: 0 }),
        dense("a", TensorPlace::Constant { blob: 0 }),
        dense("b", TensorPlace::Constant { blob: 1 }),
        dense("c", TensorPlace::Constant { blob: 2 }),
    ];
    let manifest = Manifest {
        name: "m".into(),
        target: KernelTarget::generic(),
        compiler: String::new(),
        accuracy: String::new(),
        plain_steps: Vec::new(),
        tensors,
        inputs: vec![TensorId(0)],
        outputs: vec![TensorId(0), TensorId(1), TensorId(2), TensorId(3)],
        crops: Vec::new(),
        states: vec![],
        kernels: (0..3).map(|code| Arc::new(kernel(code))).collect(),
        steps: Vec::new(),
        groups: Vec::new(),
        derivations: Vec::new(),
        threads: 2,
        settings: BTreeMap::from([("precision".into(), "bf16".into())]),
        arena_bytes: 64,
    };
    let buffer: Arc<Buffer> = Arc::new(AlignedBytes::zeroed(192));
    let constant = |i: usize| Constant {
        bytes: Blob::new(&buffer, 64 * i..64 * (i + 1)),
        prepared: i == 1,
    };
    CompiledModel::new(manifest, (0..3).map(constant).collect()).unwrap()
}

/// The file's bytes, with another manifest under valid checksums.
fn with_manifest(file: &[u8], manifest: &[u8]) -> Vec<u8> {
    let old = HEAD_BYTES + u64_at(file, 16) as usize;
    let start = |end: usize| end.next_multiple_of(SECTION_ALIGN as usize);
    let data = &file[start(old)..];
    let mut out = [&[0; HEAD_BYTES], manifest].concat();
    out.resize(start(out.len()), 0);
    out.extend_from_slice(data);
    let head = head(manifest, out.len() as u64);
    out[..HEAD_BYTES].copy_from_slice(&head);
    out
}

fn load(file: Vec<u8>) -> Result<CompiledModel, LoadError> {
    let mut bytes = AlignedBytes::zeroed(file.len());
    bytes.copy_from_slice(&file);
    let buffer: Arc<Buffer> = Arc::new(bytes);
    let body = buffer.len();
    let (_, mut models) = parse(Path::new("m.tsm"), &buffer, body)?;
    models
        .pop()
        .ok_or_else(|| inconsistent(Path::new("m.tsm"), "no variant"))
}

fn saved() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    model().save(&path).unwrap();
    std::fs::read(path).unwrap()
}

fn manifest(file: &[u8]) -> &[u8] {
    &file[HEAD_BYTES..][..u64_at(file, 16) as usize]
}

fn named(algorithms: [&str; 3]) -> Newer {
    Newer {
        algorithms: algorithms.map(String::from).to_vec(),
        states: vec![vec![]],
    }
}

fn stored(file: &[u8]) -> Stored {
    postcard::take_from_bytes(manifest(file)).unwrap().0
}

fn behind(newer: Newer) -> Behind {
    Behind {
        newer,
        later: LaterCalls {
            variants: vec![vec![]],
        },
        groups: Groups {
            variants: vec![vec![]],
            threads: vec![2],
        },
        derived: Derived {
            variants: vec![vec![]],
        },
        zeros: Zeros::of(&[]),
        settings: Settings {
            variants: vec![BTreeMap::new()],
        },
    }
}

/// A file of another version with this manifest.
fn of_version(version: u32, file: &[u8], manifest: &[u8]) -> Vec<u8> {
    let mut old = with_manifest(file, manifest);
    old[8] = version as u8;
    let checksum = xxh3_64(&old[..56]);
    old[56..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    old
}

#[test]
fn files_of_older_versions_are_read() {
    let file = saved();
    let names = |file: Vec<u8>| -> Vec<String> {
        let model = load(file).unwrap();
        let kernels = model.kernels().iter();
        kernels.map(|k| k.algorithm.clone()).collect()
    };
    let stored = stored(&file);
    let newer = named(["a", "b", "c"]);
    let of_all = behind(newer.clone());
    let new = with_manifest(&file, &stored.bytes(&of_all).unwrap());
    assert_eq!(names(new), ["a", "b", "c"]);
    let oldest = postcard::to_stdvec(&stored).unwrap();
    let single = postcard::to_extend(&newer, oldest.clone()).unwrap();
    assert_eq!(names(of_version(OLDEST_VERSION, &file, &oldest)), [""; 3]);
    let old = of_version(SINGLE_CALLS_VERSION, &file, &single);
    assert_eq!(names(old), ["a", "b", "c"]);
    let several = postcard::to_extend(&of_all.later, single.clone()).unwrap();
    let old = of_version(NO_GROUPS_VERSION, &file, &several);
    assert_eq!(names(old.clone()), ["a", "b", "c"]);
    // For how many threads it was compiled is known since then.
    assert_eq!(load(old).unwrap().threads(), None);
    assert_eq!(load(file.clone()).unwrap().threads(), Some(2));
    let whole = postcard::to_extend(&of_all.groups, several.clone()).unwrap();
    let old = of_version(ALL_CONSTANTS_VERSION, &file, &whole);
    assert_eq!(load(old).unwrap().threads(), Some(2));
    let without_zeros = postcard::to_extend(&of_all.derived, whole.clone()).unwrap();
    let old = of_version(NO_ZEROS_VERSION, &file, &without_zeros);
    assert_eq!(load(old).unwrap().threads(), Some(2));
    let without_settings = postcard::to_extend(&of_all.zeros, without_zeros.clone()).unwrap();
    let old = of_version(NO_SETTINGS_VERSION, &file, &without_settings);
    assert!(load(old).unwrap().settings().is_empty());
    let made_with = load(file.clone()).unwrap().settings().clone();
    assert_eq!(
        made_with,
        BTreeMap::from([("precision".into(), "bf16".into())])
    );
    // A file of this version says whether there are more calls, and whether there are groups.
    assert!(load(with_manifest(&file, &single)).is_err());
    assert!(load(with_manifest(&file, &several)).is_err());
    assert!(load(with_manifest(&file, &whole)).is_err());
    assert!(load(with_manifest(&file, &without_zeros)).is_err());
    assert!(load(with_manifest(&file, &without_settings)).is_err());
    // Its groups are of steps that there are.
    let mut wrong = of_all;
    let steps = vec![StepId(0), StepId(1)];
    wrong.groups.variants[0].push(StepGroup { steps, sets: 1 });
    assert!(load(with_manifest(&file, &stored.bytes(&wrong).unwrap())).is_err());
}

/// The first alternative as older versions have it, whatever follows it in this one.
#[test]
fn steps_are_stored_as_before_with_later_calls_behind_them() {
    #[derive(Serialize)]
    struct OldStep {
        name: String,
        key_shape: Vec<i64>,
        alternatives: Vec<(u32, Vec<u32>)>,
    }
    let call = |kernel, args: &[u32]| Call {
        kernel: KernelId(kernel),
        args: args.iter().map(|id| TensorId(*id)).collect(),
    };
    let step = |calls: [Vec<Call>; 2]| ModelStep {
        name: "s".into(),
        key_shape: vec![3],
        alternatives: calls.map(|calls| Alternative { calls }).to_vec(),
    };
    let two = step([
        vec![call(1, &[0, 2]), call(2, &[2, 3])],
        vec![call(0, &[0, 3])],
    ]);
    let old = OldStep {
        name: "s".into(),
        key_shape: vec![3],
        alternatives: vec![(1, vec![0, 2]), (0, vec![0, 3])],
    };
    let bytes = postcard::to_stdvec(&two).unwrap();
    assert_eq!(bytes, postcard::to_stdvec(&old).unwrap());
    let mut manifest = model().manifest;
    manifest.steps = vec![two.clone()];
    let later = CallsOfAlternative::all(&manifest);
    manifest.steps = vec![postcard::from_bytes(&bytes).unwrap()];
    let single = step([vec![call(1, &[0, 2])], vec![call(0, &[0, 3])]]);
    assert_eq!(manifest.steps, std::slice::from_ref(&single));
    for calls in later.clone() {
        calls.put(&mut manifest).unwrap();
    }
    assert_eq!(manifest.steps, [two]);
    let [mut wrong] = later.try_into().unwrap();
    wrong.alternative = 2;
    assert!(wrong.put(&mut manifest).is_none());
}

#[test]
fn fields_that_contradict_the_file_are_refused() {
    let file = saved();
    let changed = |change: &dyn Fn(&mut Stored)| {
        let mut stored = stored(&file);
        change(&mut stored);
        load(with_manifest(
            &file,
            &stored.bytes(&behind(named(["a", "b", ""]))).unwrap(),
        ))
    };
    changed(&|_| {}).unwrap();
    let all = Extent {
        offset: 0,
        len: 3000,
    };
    let changes: &[&dyn Fn(&mut Stored)] = &[
        // Each kernel has the code of the first.
        &|s| s.code = vec![all; 3],
        &|s| s.code[1].offset -= 100,
        &|s| s.code.swap(0, 1),
        &|s| s.code[2].len = u64::MAX,
        &|s| s.code[0] = s.constants[0].0,
        &|s| _ = s.code.pop(),
        &|s| s.code.push(all),
        &|s| {
            s.kernels = vec![s.kernels[0].clone(); 134];
            s.code = vec![s.sections[0].extent; 134];
        },
        &|s| s.variants[0].kernels = vec![0, 0, 1],
        &|s| s.variants[0].constants = vec![0, 1, 3],
        &|s| s.variants[0].constants = vec![0, 1, 1],
        &|s| s.constants[2] = s.constants[0],
        &|s| s.constants[1].1 = false,
        &|s| s.constants[0].0.offset += 4,
        &|s| s.constants[0].0.len = 63,
        &|s| s.sections[0].extent.len = 10,
        &|s| s.sections[1].extent.offset = u64::MAX,
        &|s| s.variants[0].manifest.arena_bytes = 1 << 60,
        &|s| {
            let tensor = &mut s.variants[0].manifest.tensors[0];
            tensor.shape = vec![1, 1, 2, 2, 1 << 61];
            tensor.strides = vec![0; 5];
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        assert!(changed(change).is_err(), "change {i} passes");
    }
}

/// The second constant begins beyond what 31 bits count; the file is sparse.
#[test]
fn offsets_have_64_bits() {
    const FAR: u64 = 1 << 31;
    let file = saved();
    let mut stored = stored(&file);
    let old = (HEAD_BYTES + manifest(&file).len()).next_multiple_of(SECTION_ALIGN as usize);
    let offset = ((file.len() - old) as u64).next_multiple_of(SECTION_ALIGN);
    let last = [7; 64];
    let mut hash = Xxh3::new();
    let zeros = vec![0; 1 << 20];
    (0..FAR >> 20).for_each(|_| hash.update(&zeros));
    hash.update(&last);
    stored.sections[1] = Section {
        extent: Extent {
            offset,
            len: FAR + 64,
        },
        checksum: hash.digest(),
    };
    stored.constants[0].0.offset = offset;
    stored.constants[2].0.offset = offset + FAR;
    let mut bytes = with_manifest(&file, &stored.bytes(&behind(named([""; 3]))).unwrap());
    let len = u64_at(&bytes, 16) as usize;
    let data = (HEAD_BYTES + len).next_multiple_of(SECTION_ALIGN as usize) as u64;
    let end = data + offset + FAR + 64;
    let head = head(&bytes[HEAD_BYTES..][..len], end);
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("far.tsm");
    std::fs::write(&path, &bytes).unwrap();
    let sparse = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &last, end - 64).unwrap();
    let model = CompiledModel::load_with(&path, ConstantMemory::Mapped).unwrap();
    assert_eq!(*model.constants[2].bytes, last);
    assert_eq!(*model.constants[0].bytes, [0; 64]);
}

/// Whatever a manifest says under a valid checksum, code and constants are
/// parts of the file that lie apart, and tensors lie within their memory.
#[test]
fn any_manifest_is_refused_or_keeps_to_its_file() {
    let file = saved();
    let original = manifest(&file).to_vec();
    let mut refused = 0;
    for at in 0..original.len() {
        for value in [0, 1, 2, 4, 63, 64, 127, 128, 255, original[at] ^ 1] {
            let mut changed = original.clone();
            changed[at] = value;
            let changed = with_manifest(&file, &changed);
            let bytes = changed.len() as u64;
            let Ok(model) = load(changed) else {
                refused += 1;
                continue;
            };
            let code: usize = model.kernels().iter().map(|k| k.code.len()).sum();
            assert!(code as u64 + model.constant_bytes() <= bytes, "byte {at}");
            assert!(model.arena_bytes() <= bytes, "byte {at}");
            for t in model
                .tensors()
                .iter()
                .filter(|t| t.place != TensorPlace::Discarded)
            {
                let dense = t.elements().unwrap() * t.dtype.size() as u64;
                assert!(dense <= 64 && t.span_bytes().unwrap() <= 64, "byte {at}");
            }
        }
    }
    assert!(refused > original.len(), "{refused}");
}
