//! Builder processes: what they build, and what becomes of one that dies.

use build::{BuildOptions, BuildRequest, BuildResult, BuilderPool, Fault, ReadOptions};
use ir::{CpuTarget, DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
use std::collections::BTreeMap;
use std::time::Duration;
use worker::{CommandLine, Death};

const LONG: Duration = Duration::from_secs(60);

fn matmul() -> Program {
    let mut b = ProgramBuilder::new("matmul");
    let x = b.input("X", DType::F32, &[8, 12]);
    let w = b.constant("W", DType::F32, &[12, 16]);
    let y = b.reduce(
        "main",
        &[("m", 8), ("n", 16)],
        &[("k", 12)],
        Reducer::Sum,
        |o, k| {
            Expr::load(x, [o[0].clone(), k[0].clone()])
                * Expr::load(w, [k[0].clone(), o[1].clone()])
        },
    );
    b.finish(&[y])
}

fn request(trace: &str, isa: Isa) -> BuildRequest {
    BuildRequest {
        program: ir::text::print(&matmul()),
        trace: trace.into(),
        target: Target::generic(isa).to_string(),
        options: BuildOptions {
            verify: true,
            ..BuildOptions::default()
        },
        cache: None,
        fault: None,
    }
}

fn pool(builders: usize) -> BuilderPool {
    let program = env!("CARGO_BIN_EXE_build-test-child").into();
    let command = CommandLine {
        program,
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    BuilderPool::new(&command, builders).unwrap()
}

fn drain(p: &mut BuilderPool) -> BTreeMap<u64, BuildResult> {
    let mut out = BTreeMap::new();
    while let Some(o) = p.next(LONG) {
        assert!(out.insert(o.id, o).is_none(), "one outcome a request");
    }
    out
}

const TILED: &str = "pack W [1:8] [1, 0, 2]\nsplit main.n [_, 8]\nreorder main.m main.n.0 main.k main.n.1\ncache_write main 0 register\nreverse_compute_at main.out main.n.0\nvectorize main.n.1\ndecompose_reduction main main.k\n";

#[test]
fn faults_cost_one_candidate_each_and_the_others_are_built() {
    let mut p = pool(2);
    let faults = [
        (3, Fault::Abort),
        (7, Fault::Hang),
        (11, Fault::ExhaustMemory),
    ];
    for id in 0..16 {
        let mut r = request(TILED, Isa::X86Avx2);
        r.fault = faults.iter().find(|(at, _)| *at == id).map(|(_, f)| *f);
        let limit = if r.fault == Some(Fault::Hang) {
            Duration::from_millis(300)
        } else {
            LONG
        };
        p.submit(id, r, limit);
    }
    let out = drain(&mut p);
    assert_eq!(out.len(), 16);
    let mut objects = Vec::new();
    for (id, o) in out {
        match (id, o.result) {
            (
                3,
                Err(Death::Crashed {
                    signal: Some(6), ..
                }),
            )
            | (7, Err(Death::TimedOut { .. }))
            | (11, Err(Death::OutOfMemory { .. })) => {}
            (_, Ok(Ok(built))) => objects.push(built.kernel.code),
            (id, other) => panic!("{id}: {other:?}"),
        }
    }
    assert_eq!(objects.len(), 13);
    assert!(
        objects.iter().all(|o| *o == objects[0]),
        "objects are reproducible"
    );
}

#[test]
fn what_something_else_killed_is_built_by_another_builder() {
    let folder = tempfile::tempdir().unwrap();
    let mut p = pool(1);
    let mut r = request(TILED, Isa::X86Avx2);
    (r.fault, r.cache) = (Some(Fault::KillOnce), Some(folder.path().to_path_buf()));
    p.submit(0, r, LONG);
    let built = drain(&mut p).remove(&0).unwrap().result;
    assert!(matches!(built, Ok(Ok(_))), "{built:?}");
    assert!(folder.path().join("killed").exists());
}

#[test]
fn what_cannot_be_built_says_in_which_stage() {
    let mut p = pool(1);
    p.submit(0, request("vectorize main.k", Isa::X86Avx2), LONG);
    p.submit(1, request("frobnicate main.k", Isa::X86Avx2), LONG);
    p.submit(2, request("bind main.m block.x", Isa::X86Avx2), LONG);
    p.submit(
        3,
        BuildRequest {
            target: "isa=vax".into(),
            ..request("", Isa::X86Avx2)
        },
        LONG,
    );
    let stages: Vec<build::BuildStage> = drain(&mut p)
        .into_values()
        .map(|o| o.result.unwrap().unwrap_err().stage)
        .collect();
    use build::BuildStage::{Codegen, Lower, Replay};
    assert_eq!(stages, [Replay, Replay, Lower, Codegen]);
}

#[test]
fn the_cache_answers_again_and_every_target_builds() {
    let folder = tempfile::tempdir().unwrap();
    let mut p = pool(1);
    for (id, isa) in Isa::ALL.into_iter().chain(Isa::ALL).enumerate() {
        let cache = Some(folder.path().to_path_buf());
        p.submit(
            id as u64,
            BuildRequest {
                cache,
                ..request(TILED, isa)
            },
            LONG,
        );
    }
    let out = drain(&mut p);
    let kernel = |id: u64| {
        out[&id]
            .result
            .as_ref()
            .unwrap()
            .as_ref()
            .unwrap()
            .kernel
            .clone()
    };
    let targets = Isa::ALL.len() as u64;
    for id in 0..targets {
        let again = id + targets;
        assert_eq!((out[&id].cached, out[&again].cached), (false, true));
        assert_eq!(kernel(id), kernel(again));
        assert_eq!(kernel(id).prepare_entry.as_deref(), Some("prepare"));
    }
    // Constants of a machine that is not this one are prepared by code for this one.
    assert!(kernel(3).prepare_code.is_some() && kernel(4).prepare_code.is_some());
}

#[test]
fn one_builder_serves_targets_that_differ_in_one_fact() {
    let folder = tempfile::tempdir().unwrap();
    let mut p = pool(1);
    let of = |name: Option<&str>, threads: u32| {
        let cpu = CpuTarget {
            tune_cpu: name.map(String::from),
            ..CpuTarget::generic(Isa::X86Avx2)
        };
        Target::Cpu(cpu).with_threads(threads)
    };
    let (tuned, plain) = (of(Some("znver4"), 1), of(None, 1));
    let targets = [&tuned, &plain, &of(None, 2), &tuned, &plain];
    for (id, target) in targets.into_iter().enumerate() {
        let r = BuildRequest {
            target: target.to_string(),
            cache: Some(folder.path().to_path_buf()),
            ..request(TILED, Isa::X86Avx2)
        };
        p.submit(id as u64, r, LONG);
    }
    let out = drain(&mut p);
    let cached: Vec<bool> = out.values().map(|o| o.cached).collect();
    assert_eq!(cached, [false, false, false, true, true]);
    let kernels: Vec<_> = out
        .into_values()
        .map(|o| o.result.unwrap().unwrap().kernel)
        .collect();
    // The order of instructions is another, what they need of a machine is not.
    assert_ne!(kernels[0].code, kernels[1].code);
    assert_eq!(kernels[1].code, kernels[2].code);
    let level = |k: &runtime::KernelTarget| (k.cpu.clone(), k.features.clone());
    let expected = ("x86-64-v3".to_string(), "+avx2,+fma".to_string());
    assert!(kernels.iter().all(|k| level(&k.target) == expected));
}

#[test]
fn the_prepare_hash_is_of_the_prepare_entry_alone() {
    let mut p = pool(1);
    let of = |p: &mut BuilderPool, trace: &str| {
        p.submit(0, request(trace, Isa::X86Avx2), LONG);
        let built = drain(p).remove(&0).unwrap().result.unwrap().unwrap();
        (built.kernel.code, built.kernel.prepare_hash)
    };
    let (code, hash) = of(&mut p, TILED);
    let (other_code, same) = of(&mut p, &format!("{TILED}annotate main.k unroll_by 2\n"));
    assert_ne!(code, other_code);
    assert_eq!(hash, same);
    assert_ne!(hash, 0);
    let (_, packed_otherwise) = of(&mut p, "pack W [1:4] [1, 0, 2]\n");
    assert_ne!(hash, packed_otherwise);
    let (_, nothing) = of(&mut p, "split main.n [_, 8]\n");
    assert_eq!(nothing, 0);
}

#[test]
fn a_builder_reads_what_it_builds() {
    let mut pool = pool(1);
    let plain = request("", Isa::X86Avx2);
    let mut read = plain.clone();
    read.options.read = Some(ReadOptions {
        cpu: "znver3".into(),
        ..ReadOptions::default()
    });
    let mut unknown = plain.clone();
    unknown.options.read = Some(ReadOptions {
        cpu: "no-such-processor".into(),
        ..ReadOptions::default()
    });
    for (id, request) in [plain, read, unknown].into_iter().enumerate() {
        pool.submit(id as u64, request, Duration::from_secs(60));
    }
    let mut next = || pool.next(Duration::from_secs(120)).unwrap().result.unwrap();
    let (plain, read, unknown) = (next().unwrap(), next().unwrap(), next());
    assert_eq!(plain.read, None);
    let features = read.read.expect("it was asked for").features;
    let machine = features.machine.expect("the code was read");
    assert_eq!((&*machine.model, machine.doubtful), ("Zn3", 0));
    assert!(machine.repeated > 0.0 && features.lines[0] > 0.0);
    let refused = unknown.expect_err("there is no such processor");
    assert!(refused.reason.contains("no-such-processor"), "{refused:?}");
}
