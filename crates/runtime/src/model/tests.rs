//! What a consistent model is.

use super::*;
use crate::kernel::KernelParam;

fn view(root: u32, byte_offset: u64) -> TensorPlace {
    let root = TensorId(root);
    TensorPlace::View { root, byte_offset }
}

/// x -> k(x, w) -> y, with `row` a view of y.
fn manifest() -> Manifest {
    let param = |name: &str, role| KernelParam {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![2, 8],
        role,
    };
    let params = vec![
        param("x", ParamRole::Input),
        param("w", ParamRole::Constant),
        param("y", ParamRole::Output),
    ];
    let kernel = BuiltKernel::by_hand(vec![], params);
    let dense = |name: &str, place| TensorInfo::dense(name, DType::F32, &[2, 8], place);
    let view = view(2, 32);
    Manifest {
        name: "m".into(),
        target: KernelTarget::generic(),
        compiler: String::new(),
        accuracy: String::new(),
        plain_steps: Vec::new(),
        tensors: vec![
            dense("x", TensorPlace::Arena { offset: 0 }),
            dense("w", TensorPlace::Constant { blob: 0 }),
            dense("y", TensorPlace::Arena { offset: 64 }),
            TensorInfo::dense("row", DType::F32, &[8], view),
        ],
        inputs: vec![TensorId(0)],
        outputs: vec![TensorId(3)],
        crops: Vec::new(),
        states: Vec::new(),
        kernels: vec![Arc::new(kernel)],
        derivations: Vec::new(),
        threads: 1,
        settings: BTreeMap::new(),
        steps: vec![ModelStep {
            name: "s".into(),
            key_shape: Vec::new(),
            alternatives: vec![Alternative {
                calls: vec![Call {
                    kernel: KernelId(0),
                    args: vec![TensorId(0), TensorId(1), TensorId(2)],
                }],
            }],
        }],
        groups: vec![],
        arena_bytes: 128,
    }
}

fn call(m: &mut Manifest) -> &mut Call {
    &mut m.steps[0].alternatives[0].calls[0]
}

fn param(m: &mut Manifest, at: usize) -> &mut KernelParam {
    &mut Arc::make_mut(&mut m.kernels[0]).params[at]
}

/// Changes that a file with valid checksums could hold: each would make the
/// runtime touch memory that is not the model's.
#[test]
fn contradictions_are_refused() {
    assert_eq!(check(&manifest(), &[64]), Ok(()));
    assert!(
        check(&manifest(), &[63]).is_err(),
        "the constant is too short"
    );
    assert!(check(&manifest(), &[]).is_err(), "the constant is missing");
    let changes: &[fn(&mut Manifest)] = &[
        |m| m.arena_bytes = 127,
        |m| m.arena_bytes = 192,
        |m| m.arena_bytes = u64::MAX,
        |m| {
            m.tensors[3].shape = vec![1, 1, 2, 2, 1 << 61];
            m.tensors[3].strides = vec![0; 5];
        },
        |m| m.tensors[3].strides = vec![0],
        |m| {
            m.tensors[3].shape = vec![2, 3];
            m.tensors[3].strides = vec![2, 1];
        },
        |m| m.tensors[3].shape = vec![0, 1 << 40, 1 << 40],
        |m| m.tensors[0].place = TensorPlace::Arena { offset: 128 },
        |m| m.tensors[0].place = TensorPlace::Arena { offset: 32 },
        |m| {
            m.tensors[0].place = TensorPlace::Arena {
                offset: u64::MAX - 63,
            }
        },
        |m| m.tensors[0].place = TensorPlace::Discarded,
        |m| m.tensors[0].place = TensorPlace::Constant { blob: 0 },
        |m| m.tensors[0].shape = vec![usize::MAX, 2],
        |m| m.tensors[0].strides = vec![1],
        |m| m.tensors[0].strides = vec![0, 1],
        |m| m.tensors[1].strides = vec![0, 0],
        |m| m.tensors[0].strides = vec![1, 2],
        |m| m.tensors[0].strides = vec![usize::MAX, 1],
        |m| m.tensors[2].place = TensorPlace::Constant { blob: 0 },
        |m| m.tensors[2].dtype = DType::F64,
        |m| m.tensors[3].place = view(2, 36),
        |m| m.tensors[3].place = view(2, 2),
        |m| m.tensors[3].place = view(2, u64::MAX),
        |m| m.tensors[3].place = view(3, 0),
        |m| m.tensors[3].place = view(4, 0),
        |m| m.inputs[0] = TensorId(4),
        |m| m.inputs[0] = TensorId(3),
        |m| m.inputs[0] = TensorId(1),
        |m| m.outputs[0] = TensorId(9),
        |m| m.steps[0].alternatives.clear(),
        |m| m.steps[0].alternatives[0].calls.clear(),
        |m| call(m).kernel = KernelId(1),
        |m| call(m).args[1] = TensorId(2),
        |m| call(m).args[0] = TensorId(3),
        |m| call(m).args[2] = TensorId(7),
        |m| call(m).args.truncate(2),
        |m| call(m).args.push(TensorId(0)),
        |m| param(m, 0).shape = vec![2, 9],
        |m| param(m, 0).shape = vec![-2, -8],
        |m| param(m, 1).role = ParamRole::Output,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = manifest();
        change(&mut changed);
        assert!(check(&changed, &[64]).is_err(), "change {i} passes");
    }
}

#[test]
fn groups_that_contradict_the_steps_are_refused() {
    let mut all = manifest();
    let twice = all.steps[0].alternatives[0].clone();
    all.steps[0].alternatives.push(twice);
    all.steps = vec![all.steps[0].clone(); 3];
    let of = |steps: &[u32], sets| StepGroup {
        steps: steps.iter().map(|s| StepId(*s)).collect(),
        sets,
    };
    all.groups = vec![of(&[0, 2], 1)];
    assert_eq!(check(&all, &[64]), Ok(()));
    for groups in [
        vec![of(&[0], 1)],
        vec![of(&[2, 0], 1)],
        vec![of(&[0, 0], 1)],
        vec![of(&[0, 3], 1)],
        vec![of(&[0, 2], 0)],
        vec![of(&[0, 2], 2)],
        vec![of(&[0, 2], usize::MAX)],
        vec![of(&[0, 2], 1), of(&[1, 2], 1)],
    ] {
        let mut changed = all.clone();
        changed.groups.clone_from(&groups);
        assert!(check(&changed, &[64]).is_err(), "{groups:?}");
    }
    all.steps[2].key_shape = vec![1];
    assert!(check(&all, &[64]).is_err());
}

#[test]
fn derivations_that_contradict_the_constants_are_refused() {
    let mut all = manifest();
    let kernel = Arc::make_mut(&mut all.kernels[0]);
    kernel.prepare_entry = Some("prepare".into());
    let read = KernelParam {
        shape: vec![8],
        ..kernel.params[1].clone()
    };
    let made = KernelParam {
        role: ParamRole::Prepared,
        ..kernel.params[1].clone()
    };
    kernel.prepare_params = vec![read, made];
    all.derivations = vec![Derivation {
        kernel: KernelId(0),
        inputs: vec![(1, 4)],
        outputs: vec![0],
    }];
    for stored in [0, 64] {
        let mut lengths = [stored, 36];
        assert_eq!(derived::declare(&all, &mut lengths), Ok(()));
        assert_eq!(lengths, [64, 36]);
    }
    for lengths in [&mut [32, 36][..], &mut [0, 35], &mut [0], &mut []] {
        assert!(derived::declare(&all, lengths).is_err());
    }
    let changes: &[fn(&mut Manifest)] = &[
        |m| m.derivations[0].kernel = KernelId(1),
        |m| m.derivations[0].inputs.clear(),
        |m| m.derivations[0].inputs[0] = (1, u64::MAX),
        |m| m.derivations[0].inputs[0] = (0, 0),
        |m| m.derivations[0].inputs[0] = (2, 0),
        |m| m.derivations[0].outputs.clear(),
        |m| m.derivations[0].outputs.push(1),
        |m| m.derivations[0].outputs[0] = 2,
        |m| Arc::make_mut(&mut m.kernels[0]).prepare_entry = None,
        |m| Arc::make_mut(&mut m.kernels[0]).prepare_params[1].shape = vec![-1],
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = all.clone();
        change(&mut changed);
        let refused = derived::declare(&changed, &mut [0, 36]);
        assert!(refused.is_err(), "change {i} passes");
    }
}

#[test]
fn a_state_is_written_over_only_by_a_kernel_that_may() {
    let mut m = manifest();
    m.outputs = vec![TensorId(2)];
    m.states = vec![State {
        input: 0,
        output: 0,
        initial: TensorId(1),
    }];
    assert_eq!(check(&m, &[64]), Ok(()));
    m.tensors[2].place = m.tensors[0].place;
    m.arena_bytes = 64;
    let refused = |m: &Manifest| {
        let why = check(m, &[64]).unwrap_err().0;
        assert!(why.contains("over the state of input 0"), "{why}");
    };
    refused(&m);
    Arc::make_mut(&mut m.kernels[0]).in_place = vec![(2, 0)];
    assert_eq!(check(&m, &[64]), Ok(()));
    // A later step reads what the state was.
    m.steps.push(m.steps[0].clone());
    refused(&m);
}

#[test]
fn spans_count_strides() {
    let mut info = TensorInfo::dense("t", DType::I8, &[3, 4], TensorPlace::Discarded);
    assert_eq!((info.is_dense(), info.span_bytes()), (true, Some(12)));
    info.strides = vec![10, 2];
    assert_eq!((info.is_dense(), info.span_bytes()), (false, Some(27)));
    info.shape[0] = 0;
    assert_eq!(info.span_bytes(), Some(0));
    let scalar = TensorInfo::dense("s", DType::F64, &[], TensorPlace::Discarded);
    assert_eq!(scalar.span_bytes(), Some(8));
}
