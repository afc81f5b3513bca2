//! What the tests search: small programs and spaces without a program, in a store
//! that knows their tasks, targets and one run a search.

use ir::{CpuTarget, DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
use schedule::{Decision, DecisionKind};
use search::{Accuracy, Sketch, Space};
use std::sync::Arc;
use store::{EventKind, Extra, Record, RecordQuery, SpentByStage, Store};
use tune::machine::{Machine, target_key};
use tune::{AnswerPlace, Log, Options, Run, Search, SearchParts, Silent, StopRule, Subject};

pub const SEED: u64 = 7;
const MACHINE: &str = "fake machine";

/// Options of a run that ends after so many trials.
pub fn options(trials: u64) -> Options {
    let options = Options::new(1, 1, StopRule::Trials(trials));
    Options {
        seed: SEED,
        overlap: false,
        builders: 1,
        ..options
    }
}

/// `m` by `k` times `k` by `n`, as plans write it.
fn product_of(m: i64, n: i64, k: i64) -> Program {
    let mut b = ProgramBuilder::new("product");
    let left = b.input("A", DType::F32, &[m, k]);
    let right = b.constant("B", DType::F32, &[k, n]);
    let axes = [("m", m), ("n", n)];
    let main = b.reduce("main", &axes, &[("k", k)], Reducer::Sum, |o, t| {
        let left = Expr::load(left, [o[0].clone(), t[0].clone()]);
        left * Expr::load(right, [t[0].clone(), o[1].clone()])
    });
    b.finish(&[main])
}

pub fn product() -> Program {
    product_of(32, 64, 48)
}

pub fn other_product() -> Program {
    product_of(16, 40, 24)
}

/// A product with few schedules.
pub fn small_product() -> Program {
    product_of(2, 3, 5)
}

pub fn x86() -> Target {
    Target::Cpu(CpuTarget::generic(Isa::X86Avx512))
}

pub fn neon() -> Target {
    Target::Cpu(CpuTarget::generic(Isa::AArch64Neon))
}

/// A store with the tasks, targets, machine and runs of searches.
pub struct Setting {
    pub store: Store,
}

/// A search to be.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub run_id: &'a str,
    pub task: &'a str,
    pub strategy: &'a str,
    pub evaluator: usize,
    pub guess: f64,
}

/// A random search of the first evaluator.
pub fn wanted<'a>(run_id: &'a str, task: &'a str) -> Wanted<'a> {
    Wanted {
        run_id,
        task,
        strategy: "random",
        evaluator: 0,
        guess: 1e3,
    }
}

impl Setting {
    pub fn new() -> Setting {
        Setting {
            store: Store::open_in_memory().unwrap(),
        }
    }

    pub fn log(&self) -> Log<'_> {
        Log {
            store: Some(&self.store),
        }
    }

    /// A search of a program, whose task and run the store gets to know.
    pub fn of_program(
        &self,
        wanted: &Wanted<'_>,
        program: &Program,
        target: &Target,
        options: &Options,
    ) -> Search {
        let mut extra = Extra::new();
        extra.insert("program".into(), ir::text::print(program).into());
        let known = store::Task {
            extra,
            ..task(wanted.task)
        };
        self.store.put_task(&known).unwrap();
        let space = search::space(program, target, Accuracy::Relaxed);
        let host = Machine::host().target(1);
        let subject = Subject::new(program, target, &host, 1e6);
        self.search(wanted, target, space, Some(subject), options)
    }

    /// A search of a space of knobs with so many values each, without a program.
    pub fn of_knobs(&self, wanted: &Wanted<'_>, values: &[i64], options: &Options) -> Search {
        self.search(wanted, &x86(), knobs(values), None, options)
    }

    pub fn search(
        &self,
        wanted: &Wanted<'_>,
        target: &Target,
        space: Space,
        subject: Option<Subject>,
        options: &Options,
    ) -> Search {
        let key = target_key(target);
        let store = &self.store;
        store.put_target(&key).unwrap();
        store.put_task(&task(wanted.task)).unwrap();
        let machine = store::MachineKey {
            fingerprint: MACHINE.into(),
            description: "no machine".into(),
            extra: Extra::new(),
        };
        store.put_machine(&machine).unwrap();
        store.begin_run(&begun(wanted.run_id, options)).unwrap();
        let parts = SearchParts {
            facts: None,
            title: wanted.task.into(),
            run_id: wanted.run_id.into(),
            key: wanted.task.into(),
            uses: 1,
            evaluator: wanted.evaluator,
            place: Arc::new(AnswerPlace {
                target: key.text(),
                machine: MACHINE.into(),
            }),
            subject,
            space,
            strategy: wanted.strategy.into(),
            seed: SEED,
            rotate_bytes: 0,
            guess: wanted.guess,
            bound: 1.0,
        };
        Search::new(parts, options).unwrap()
    }

    /// The records of a run without what they took and when they were made.
    pub fn records(&self, run_id: &str) -> Vec<Record> {
        let filter = RecordQuery {
            run: Some(run_id),
            ..RecordQuery::default()
        };
        let timeless = |r: Record| Record {
            spent: SpentByStage::default(),
            created_unix_ms: 0,
            ..r
        };
        let records = self.store.records_for(&filter).unwrap();
        records.into_iter().map(timeless).collect()
    }

    /// The events of a run with their tasks.
    pub fn events(&self, run_id: &str) -> Vec<(Option<String>, EventKind)> {
        let events = self.store.events(run_id).unwrap();
        events.into_iter().map(|e| (e.task, e.kind)).collect()
    }
}

pub fn knobs(values: &[i64]) -> Space {
    let decision = |(i, n): (usize, &i64)| Decision {
        name: format!("knob{i}"),
        kind: DecisionKind::Categorical {
            options: (0..*n).collect(),
        },
        value: vec![0],
    };
    let decisions: Vec<Decision> = values.iter().enumerate().map(decision).collect();
    let default = vec![0; decisions.len()];
    Space::of(vec![Sketch::of_knobs("knobs", decisions, default)])
}

fn task(key: &str) -> store::Task {
    store::Task {
        key: key.into(),
        text: format!("({key})"),
        op: "fake".into(),
        args: Default::default(),
        flops: 1.0,
        bytes: 1,
        extra: Extra::new(),
    }
}

fn begun(run_id: &str, options: &Options) -> store::Run {
    store::Run {
        run_id: run_id.into(),
        model: "fake".into(),
        options: options.stored(1),
        strategy: options.strategy.clone(),
        seed: options.seed,
        started_unix_ms: 1,
        ended_unix_ms: None,
        summary: serde_json::Value::Null,
        extra: Extra::new(),
    }
}

/// Searches without builders.
pub fn search(run: &mut Run<'_>) {
    run.search(None, &mut Silent).unwrap();
}
