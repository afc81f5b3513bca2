//! Hostile input: whatever a file says, its reader gives a value or an error.
//!
//! Every reader of what a user may have from elsewhere gets random inputs: small files that are
//! right, changed in their parts and in their bytes. What is read is used as far as that is
//! cheap: models are simplified, computed, planned and lowered, and traces applied. Nothing may
//! panic, hang, or take memory that no small file needs. Without settings it is the same cases
//! every time.
//!
//! - `TUNESMITH_FUZZ_SECONDS` is how long all readers together go on, with ever new cases.
//! - `TUNESMITH_FUZZ` is the number of cases of each reader instead, and `TUNESMITH_FUZZ_SEED`
//!   the seed of the first one. A failure names its seed: with `TUNESMITH_FUZZ=1` it runs alone.
//! - `TUNESMITH_FUZZ_KEEP` set to anything writes every input to the temporary folder.

mod harness;
mod models;

use graph::{Keep, evaluate, simplify};
use harness::{Random, change_bytes, change_text, fuzz};
use ir::{Isa, Program, Target};
use lower::{LowerError, LowerOptions, lower};
use models::Corpus;
use onnx::{ImportError, ImportOptions, import_bytes};
use plan::{LayoutPolicy, PlanOptions};
use prost::Message;
use rand::Rng;
use runtime::{CompiledModel, KernelTarget, ModelBuilder, Pool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{JsonLines, RecordQuery, Store, Table, import_jsonl};
use tensor::Tensor;
use xxhash_rust::xxh3::xxh3_64;

/// Models of more nodes, elements and tasks are not used further.
const NODES: usize = 48;
const ELEMENTS: u64 = 1 << 12;
const TASKS: usize = 4;

/// Less than by default, so that cases are short.
fn frugal() -> ImportOptions {
    let mut options = ImportOptions::default();
    for (limit, value) in [
        (graph::Limit::Values, 1 << 13),
        (graph::Limit::FoldBytes, 1 << 22),
        (graph::Limit::FoldOperations, 1 << 24),
    ] {
        options.limits.set(limit, value);
    }
    options
}

/// Everything up to code that can be done with a model file; whether it is one.
fn read_model(bytes: &[u8], mut options: ImportOptions) -> bool {
    let model = match import_bytes(bytes, None, &options) {
        Err(ImportError::UnboundDims(open)) => {
            options.dims = open.iter().map(|d| (d.key(), 2)).collect();
            import_bytes(bytes, None, &options)
        }
        other => other,
    };
    let model = match model {
        Ok(model) => model,
        Err(e) => {
            let _ = e.to_string();
            return false;
        }
    };
    model.verify().expect("an imported model");
    let model = simplify(&model);
    model.verify().expect("a simplified model");
    if model.nodes().len() > NODES {
        return true;
    }
    let elements = |shape: &[usize]| shape.iter().map(|d| *d as u64).fold(1, u64::saturating_mul);
    let all = model.values().map(|(_, v)| elements(v.shape()));
    if all.fold(0, u64::saturating_add) < ELEMENTS {
        let value = |v: &graph::ValueId| {
            let ty = model[*v].ty();
            Arc::new(Tensor::zeros(ty.dtype, &ty.shape))
        };
        let inputs: Vec<_> = model.inputs().iter().map(value).collect();
        // An index may be out of range.
        let _ = evaluate(&model, &inputs, Keep::Outputs);
    }
    let target = Target::generic(Isa::X86Avx2);
    for layouts in [LayoutPolicy::Plain, LayoutPolicy::Blocked] {
        let Ok(plan) = plan::plan(&model, &target, &PlanOptions::from(layouts)) else {
            return true;
        };
        for task in plan.tasks.iter().take(TASKS) {
            lowered(&task.program, &target);
        }
    }
    true
}

/// A program that keeps its promises has code, unless it is too large.
fn lowered(program: &Program, target: &Target) {
    let options = LowerOptions {
        verify: true,
        ..LowerOptions::standard()
    };
    if let Err(e @ LowerError::Broken { .. }) = lower(program, target, &options) {
        panic!("{e}\n{}", ir::text::print(program));
    }
}

#[test]
fn models() {
    let corpus = Corpus::new();
    for model in corpus.all() {
        read_model(&model.encode_to_vec(), frugal());
    }
    eprintln!(
        "operators without a model in the corpus: {:?}",
        corpus.missing()
    );
    fuzz(
        "onnx",
        12_000,
        |r| corpus.random(r),
        |b| read_model(b, frugal()),
    );
}

#[test]
fn tensors() {
    let make = |r: &mut Random| {
        let mut bytes = models::tensor(r).encode_to_vec();
        if r.random_ratio(1, 3) {
            change_bytes(r, &mut bytes);
        }
        bytes
    };
    fuzz("tensor", 20_000, make, |bytes| {
        let read = onnx::read_tensor_proto(bytes);
        read.is_ok_and(|(_, t)| {
            assert!(t.bytes().len() <= 8 * bytes.len());
            true
        })
    });
}

#[test]
fn arrays() {
    let mut file = Vec::new();
    tensor::write_npy(&mut file, &Tensor::from_slice(&[2, 3], &[1.0f32; 6])).expect("an array");
    let make = |r: &mut Random| {
        let mut bytes = file.clone();
        change_bytes(r, &mut bytes);
        bytes
    };
    fuzz("npy", 20_000, make, |bytes| {
        tensor::read_npy(bytes).is_ok_and(|t| {
            assert!(t.bytes().len() <= bytes.len());
            true
        })
    });
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The inputs of the file tests of a crate: programs, with the trace that is applied to each.
fn file_tests(crates: &[&str]) -> Vec<(String, String)> {
    let mut cases = Vec::new();
    for name in crates {
        let entries = std::fs::read_dir(folder(name).join("tests/files")).expect("file tests");
        let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(path).expect("a file test");
            let mut program = String::new();
            for case in text.split("\n;; case ").skip(1) {
                let mut parts = case.split("\n;; ");
                let own = parts.next().and_then(|p| p.split_once('\n'));
                if let Some((_, own)) = own.filter(|(_, p)| !p.trim().is_empty()) {
                    program = own.to_string();
                }
                let trace = parts.find_map(|p| p.strip_prefix("in trace\n"));
                cases.push((program.clone(), trace.unwrap_or_default().to_string()));
            }
        }
    }
    cases
}

fn read_program(text: &str) -> Option<Program> {
    let program = match ir::text::parse(text) {
        Ok(program) => program,
        Err(e) => {
            let _ = e.to_string();
            return None;
        }
    };
    let printed = ir::text::print(&program);
    let again = ir::text::parse(&printed).expect("what was printed");
    assert_eq!(ir::text::print(&again), printed);
    ir::verify::verify(&program).is_empty().then_some(program)
}

#[test]
fn programs() {
    let cases = file_tests(&["lower", "schedule"]);
    let make = |r: &mut Random| {
        let (program, _) = &cases[r.random_range(0..cases.len())];
        change_text(r, program).into_bytes()
    };
    fuzz("program", 4_000, make, |bytes| {
        let program = read_program(&String::from_utf8_lossy(bytes));
        program.is_some_and(|program| {
            lowered(&program, &Target::generic(Isa::X86Avx2));
            true
        })
    });
}

#[test]
fn traces() {
    let cases: Vec<_> = file_tests(&["schedule"])
        .into_iter()
        .filter(|c| !c.1.is_empty())
        .collect();
    let make = |r: &mut Random| {
        let (program, trace) = &cases[r.random_range(0..cases.len())];
        let more = &cases[r.random_range(0..cases.len())].1;
        let trace = match r.random_ratio(1, 4) {
            true => format!("{trace}\n{more}"),
            false => trace.clone(),
        };
        format!("{program}\n;;\n{}", change_text(r, &trace)).into_bytes()
    };
    fuzz("trace", 6_000, make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Some((program, trace)) = text.split_once("\n;;\n") else {
            return false;
        };
        let (Some(program), Ok(trace)) = (read_program(program), schedule::parse(trace)) else {
            return false;
        };
        let replayed = schedule::replay(&program, &trace);
        replayed.is_ok_and(|scheduled| {
            let broken = ir::verify::verify(&scheduled);
            let broken: Vec<_> = broken.iter().map(ToString::to_string).collect();
            assert!(broken.is_empty(), "{}", broken.join("\n"));
            lowered(&scheduled, &Target::generic(Isa::X86Avx2));
            true
        })
    });
}

fn exports() -> Vec<String> {
    let fixtures = folder("store/tests/fixtures");
    let read = |name| std::fs::read_to_string(fixtures.join(name)).expect("a fixture");
    ["v1.jsonl", "events-v1.jsonl"].map(read).to_vec()
}

fn imported(bytes: &[u8]) -> Option<Store> {
    let lines = JsonLines::read(bytes).ok()?;
    let store = Store::open_in_memory().expect("a store");
    match import_jsonl(&store, &lines, |_| Ok(())) {
        Ok(_) => Some(store),
        Err(e) => {
            let _ = e.to_string();
            None
        }
    }
}

#[test]
fn records() {
    let files = exports();
    let make = |r: &mut Random| {
        let lines: Vec<&str> = files[r.random_range(0..files.len())].lines().collect();
        let end = r.random_range(1..=lines.len());
        change_text(r, &lines[..end].join("\n")).into_bytes()
    };
    fuzz("records", 1_200, make, |bytes| {
        imported(bytes).is_some_and(|store| {
            let mut out = Vec::new();
            store::export_jsonl(&store, &mut out).expect("what was imported");
            assert!(imported(&out).is_some(), "an export is read again");
            let _ = Table::of_records(&store, &RecordQuery::default());
            true
        })
    });
}

/// A table in the community's format.
const T4: &str = r#"{"schema_version": "1.0.0", "metadata": {"timeunit": "ms"}, "results": [
 {"timestamp": "2024-01-01T00:00:00", "configuration": {"x": 1, "y": "a", "z": 2.5}, "times": {"compilation_time": 1.5, "runtimes": [0.5, 0.25]}, "invalidity": "correct", "correctness": 1, "measurements": [{"name": "time", "value": 0.5, "unit": "ms"}], "objectives": ["time"]},
 {"configuration": {"x": 2, "y": "b", "z": 2.5}, "times": {"runtimes": []}, "invalidity": "compile", "measurements": [], "objectives": ["time"]},
 {"configuration": {"x": 4, "y": "b", "z": 0}, "times": {"runtimes": [1]}, "invalidity": "timeout", "measurements": [], "objectives": ["time"]}
]}"#;

#[test]
fn tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.json");
    let files: Vec<String> = exports()
        .into_iter()
        .chain([T4.into(), T4.into()])
        .collect();
    let make = |r: &mut Random| {
        let text = &files[r.random_range(0..files.len())];
        change_text(r, text).into_bytes()
    };
    fuzz("table", 1_500, make, |bytes| {
        std::fs::write(&path, bytes).expect("a file");
        match Table::open(&path, &RecordQuery::default()) {
            Ok(table) => {
                let _ = table.best();
                for (values, _) in table.iter() {
                    assert!(table.answer(values).is_some());
                }
                true
            }
            Err(e) => e.to_string().is_empty(),
        }
    });
}

/// A model without code: its output is a constant.
fn artifact() -> CompiledModel {
    let pool = Arc::new(Pool::new(1).expect("a thread"));
    let mut builder = ModelBuilder::new("m", KernelTarget::generic(), "compiler", pool);
    let value = builder.add_constant("c", Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]));
    builder.mark_output(value);
    builder.finish().expect("a model")
}

/// Makes the checksums of manifest and head those of the bytes, as far as they have the form
/// of an artifact.
fn correct_checksums(file: &mut [u8]) {
    let Some(len) = file.get(16..24).and_then(|b| b.try_into().ok()) else {
        return;
    };
    let end = u64::from_le_bytes(len).saturating_add(64);
    if let Some(manifest) = file.get(64..end as usize) {
        let sum = xxh3_64(manifest);
        file[24..32].copy_from_slice(&sum.to_le_bytes());
    }
    if file.len() >= 64 {
        let sum = xxh3_64(&file[..56]);
        file[56..64].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn artifacts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.tsm");
    artifact().save(&path).expect("a place");
    let file = std::fs::read(&path).expect("an artifact");
    let make = |r: &mut Random| {
        let mut bytes = file.clone();
        change_bytes(r, &mut bytes);
        if r.random() {
            correct_checksums(&mut bytes);
        }
        bytes
    };
    fuzz("artifact", 6_000, make, |bytes| {
        std::fs::write(&path, bytes).expect("a file");
        let loaded = CompiledModel::load(&path);
        loaded.map_err(|e| e.to_string()).is_ok()
    });
}

#[test]
fn targets_and_operators() {
    let samples = [
        "cpu isa=x86-64-avx2 l1=32768 l2=1048576 llc=33554432 line=64 threads=2".to_string(),
        Target::generic(Isa::AArch64Neon).to_string(),
        "op:conv2d(n=1,c=8,h=8,w=8,m=8,k=3,stride=2)".into(),
        "op:matmul(m=64,n=64,k=64)".into(),
        "op:einsum(equation=ij,jk->ik,i=2,j=3,k=4)".into(),
    ];
    let make = |r: &mut Random| {
        let text = &samples[r.random_range(0..samples.len())];
        change_text(r, text).into_bytes()
    };
    fuzz("target", 4_000, make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(target) = text.parse::<Target>() {
            assert_eq!(target.to_string().parse::<Target>().as_ref(), Ok(&target));
            return true;
        }
        // Weights may be as large as memory allows: only what is small is made.
        let small = text.chars().filter(char::is_ascii_digit).count() < 16;
        let operator = text.starts_with("op:") && small;
        operator && graph::builtin::builtin(&text, 1).is_ok()
    });
}
