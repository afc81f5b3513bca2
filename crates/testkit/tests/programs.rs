//! Random programs and arguments: sound, varied, reproducible.

use ir::text::{canonical, parse, print};
use ir::verify::{Broken, verify};
use ir::{DType, IterKind, Program, ProgramBuilder, Reducer, Role};
use std::collections::HashSet;
use testkit::args::{SMALL, UNWRITTEN};
use testkit::{Distribution, Kind, random_args, random_program};

const SEEDS: u64 = 600;

fn programs() -> impl Iterator<Item = Program> {
    (0..SEEDS).map(|seed| random_program(seed, &Distribution::all()))
}

#[test]
fn programs_keep_every_promise() {
    for p in programs() {
        let broken: Vec<String> = verify(&p).iter().map(Broken::to_string).collect();
        assert!(broken.is_empty(), "{broken:#?}\n{}", print(&p));
    }
}

#[test]
fn text_parses_back_and_prints_the_same() {
    for p in programs() {
        let text = print(&p);
        let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(print(&back), text);
        assert_eq!(canonical(&back), canonical(&p));
    }
}

#[test]
fn seeds_decide() {
    let options = Distribution::all();
    let distinct: HashSet<String> = programs().map(|p| canonical(&p)).collect();
    assert!(distinct.len() as u64 > SEEDS * 9 / 10, "{}", distinct.len());
    for seed in 0..20 {
        let (a, b) = (
            random_program(seed, &options),
            random_program(seed, &options),
        );
        assert_eq!(a, b);
        let bytes = |p: &Program, seed| {
            let args = random_args(p, seed);
            args.iter()
                .flat_map(|t| t.bytes().to_vec())
                .collect::<Vec<u8>>()
        };
        assert_eq!(bytes(&a, 1), bytes(&b, 1));
    }
}

/// How many programs have the property.
fn share(f: impl Fn(&Program) -> bool) -> u64 {
    programs().filter(f).count() as u64 * 100 / SEEDS
}

fn extents(p: &Program) -> Vec<i64> {
    p.loop_ids()
        .into_iter()
        .map(|l| p.loop_(l).extent)
        .collect()
}

fn has_param(p: &Program, f: impl Fn(&ir::Buffer) -> bool) -> bool {
    p.params.iter().any(|b| f(p.buffer(*b)))
}

#[test]
fn programs_vary() {
    let outputs = |p: &Program| {
        let params = p.params.iter();
        params
            .filter(|b| p.buffer(**b).role == Role::Output)
            .count()
    };
    let reductions = |p: &Program, f: fn(&Reducer) -> bool| {
        let blocks = p.block_ids().into_iter();
        blocks
            .filter_map(|b| p.block(b).reduction.clone())
            .any(|r| f(&r.reducer))
    };
    assert!(share(|p| p.block_ids().len() >= 2) >= 50);
    assert!(share(|p| extents(p).iter().any(|e| e % 2 == 1 && *e > 1)) >= 50);
    assert!(share(|p| has_param(p, |b| b.role == Role::Constant)) >= 30);
    assert!(share(|p| outputs(p) >= 2) >= 20);
    assert!(share(|p| has_param(p, |b| b.dtype == DType::F32)) >= 60);
    assert!(share(|p| has_param(p, |b| b.dtype == DType::I8)) >= 3);
    assert!(share(|p| reductions(p, |r| matches!(r, Reducer::Sum))) >= 20);
    assert!(share(|p| reductions(p, |r| matches!(r, Reducer::Max | Reducer::Min))) >= 5);
    assert!(share(|p| reductions(p, |r| matches!(r, Reducer::Tuple { .. }))) >= 5);
    let chained = |p: &Program| {
        p.buffer_ids()
            .any(|b| p.buffer(b).role == Role::Intermediate && !p.consumers(b).is_empty())
    };
    assert!(share(chained) >= 40);
}

#[test]
fn every_kind_gives_blocks_of_its_own() {
    let mut texts = HashSet::new();
    for kind in Kind::ALL {
        let options = Distribution {
            blocks: 1..=1,
            integers: false,
            ..Distribution::only(&[kind])
        };
        let own: HashSet<String> = (0..40)
            .map(|s| print(&random_program(s, &options)))
            .collect();
        assert!(own.len() >= 30, "{kind:?}: {}", own.len());
        assert!(own.is_disjoint(&texts), "{kind:?}");
        texts.extend(own);
    }
}

#[test]
fn domains_stay_within_the_limit() {
    let options = Distribution {
        max_points: 500,
        ..Distribution::all()
    };
    for seed in 0..SEEDS {
        let p = random_program(seed, &options);
        for b in p.block_ids() {
            let points: i64 = p.block(b).iters.iter().map(|i| i.extent).product();
            // A second axis of a concatenation or a window may add to one pass over an operand.
            assert!(points <= 1000, "{points}\n{}", print(&p));
        }
    }
}

#[test]
fn arguments_are_small_and_fit_their_parameters() {
    for (seed, p) in programs().enumerate() {
        let args = random_args(&p, seed as u64);
        assert_eq!(args.len(), p.params.len());
        let extents = p.buffer_ids().flat_map(|b| p.buffer(b).shape.clone());
        let rows = extents.max().unwrap_or(1);
        for (id, t) in p.params.iter().zip(&args) {
            let b = p.buffer(*id);
            let shape: Vec<i64> = t.shape().iter().map(|e| *e as i64).collect();
            assert_eq!((t.dtype(), shape), (b.dtype, b.shape.clone()));
            let positions = b.name.starts_with("at");
            for i in 0..t.len() {
                let v = t.get_i64(i);
                match b.role {
                    Role::Output => assert!(v == UNWRITTEN || b.dtype == DType::Bool),
                    _ if positions => assert!((0..rows).contains(&v)),
                    _ => assert!(v.abs() <= SMALL),
                }
            }
        }
    }
}

/// Runs a program of which every computed tensor is an output, prefilled with `fill`.
fn results(p: &Program, seed: u64, fill: i64) -> Vec<tensor::Tensor> {
    let mut args = random_args(p, seed);
    for (id, t) in p.params.iter().zip(&mut args) {
        if p.buffer(*id).role == Role::Output {
            (0..t.len()).for_each(|i| t.set_i64(i, fill));
        }
    }
    ir::interpret::run(p, &mut args).unwrap_or_else(|e| panic!("{e}\n{}", print(p)));
    args
}

/// Reading what is not written and leaving a buffer's shape are errors of the
/// interpreter; that all is written shows in two runs over different garbage.
#[test]
fn programs_run_and_are_exact() {
    for (seed, mut p) in programs().enumerate() {
        for b in p.live_buffers() {
            if p.buffer(b).role == Role::Intermediate {
                p.buffer_mut(b).role = Role::Output;
                p.params.push(b);
            }
        }
        let tensors = results(&p, seed as u64, UNWRITTEN);
        assert_eq!(tensors, results(&p, seed as u64, 1), "{}", print(&p));
        for t in &tensors {
            for v in (0..t.len()).map(|i| t.get_f64(i)) {
                let exact = v.fract() == 0.0 && v.abs() <= (1 << 22) as f64;
                assert!(exact, "{v}\n{}", print(&p));
            }
        }
    }
}

#[test]
fn index_data_stays_inside_what_it_indexes() {
    let at = |rows: i64, f: fn(ir::Expr) -> ir::Expr| {
        let mut b = ProgramBuilder::new("p");
        let x = b.input("x", DType::F32, &[rows]);
        let i = b.input("i", DType::I32, &[200]);
        let y = b.compute("y", &[("k", 200)], |s| {
            let row = f(ir::Expr::load(i, s.to_vec()).cast(DType::I64));
            ir::Expr::load(x, [row])
        });
        let p = b.finish(&[y]);
        assert_eq!(p.block(p.block_ids()[0]).iters[0].kind, IterKind::Spatial);
        let t = random_args(&p, 5).remove(1);
        let values: Vec<i64> = (0..200).map(|k| t.get_i64(k)).collect();
        (*values.iter().min().unwrap(), *values.iter().max().unwrap())
    };
    assert_eq!(at(3, |e| e), (0, 2));
    assert_eq!(at(9, |e| e), (0, 8));
    assert_eq!(at(40, |e| e * 2 + 1), (0, 19));
    // Any number will do, so the numbers are those of arithmetic.
    assert_eq!(at(3, |e| e.floor_mod(3)), (-SMALL, SMALL));
    assert_eq!(at(9, |e| e + 4), (-SMALL, SMALL));
}
