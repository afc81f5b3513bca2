//! Policies compared on the same candidates of tasks, on this machine.
//!
//! Owns the order in which a study's cells (a task, with or without overlap, a
//! policy, a repetition) are measured, and that what is finished is not done
//! again. What became of a cell is appended before the next begins.

use super::cell::{Finals, Scene};
use super::field::{Draw, Field};
use super::relate::related;
use super::row::Row;
use super::saved::Saved;
use super::sweep::Variant;
use ir::Target;
use measure::Spent;
use plan::{Plan, Task};
use search::Accuracy;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tune::Host;
use tune::compile::Builders;
use tune::{Error, Result};
use tune::{MeasureSettings, Observer};

/// What is compared, and how often.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    pub variants: Vec<Variant>,
    /// Without builders beside measuring, with them, or one after the other.
    pub overlaps: Vec<bool>,
    /// Of each operator, and of all tasks of a model together.
    pub candidates: usize,
    pub repetitions: usize,
    /// Builders that work while candidates are measured.
    pub builders: usize,
    pub seed: u64,
    pub accuracy: Accuracy,
    pub tolerance: f64,
    pub limit: Duration,
    /// Its policy and constants are replaced by each variant's.
    pub measure: MeasureSettings,
}

/// What was asked for: an operator, or a model with its tasks.
pub struct Workload {
    pub name: String,
    /// With the calls of each, small spaces first: what these lack of their share
    /// of the candidates goes to the others.
    pub tasks: Vec<(Task, usize)>,
}

impl Workload {
    /// All tasks of a plan.
    pub fn whole(name: &str, plan: &Plan, target: &Target, accuracy: Accuracy) -> Workload {
        let size = |t: &Task| search::space(&t.program, target, accuracy).cardinality();
        let uses = plan.uses();
        let mut tasks: Vec<(Task, usize)> = plan.tasks.iter().cloned().zip(uses).collect();
        tasks.sort_by_cached_key(|(t, _)| size(t));
        Workload {
            name: name.into(),
            tasks,
        }
    }

    /// The one task that has most work.
    pub fn main_task(name: &str, plan: &Plan) -> Option<Workload> {
        let work = |t: &&Task| (t.flops, t.bytes);
        let most = plan
            .tasks
            .iter()
            .max_by(|a, b| work(a).partial_cmp(&work(b)).expect("work is a number"))?;
        Some(Workload {
            name: name.into(),
            tasks: vec![(most.clone(), 1)],
        })
    }
}

/// Rows as measured, and summed over the tasks of models.
pub struct Findings {
    pub rows: Vec<Row>,
    pub models: Vec<Row>,
}

/// What a study works with.
pub struct Study<'a> {
    pub host: &'a Host,
    pub target: &'a Target,
    pub options: &'a StudyOptions,
    pub saved: Saved,
    pub observer: &'a mut dyn Observer,
    /// For building before and for building meanwhile.
    builders: (Builders, Builders),
    began: Instant,
    /// Cells measured by this process, those that were there already, and all.
    measured: usize,
    there: usize,
    all: usize,
}

impl<'a> Study<'a> {
    /// # Errors
    /// If no builder can be started.
    pub fn new(
        host: &'a Host,
        target: &'a Target,
        options: &'a StudyOptions,
        saved: Saved,
        observer: &'a mut dyn Observer,
    ) -> Result<Study<'a>> {
        let builders = |n: usize| Builders::new(&host.workers, n);
        Ok(Study {
            host,
            target,
            options,
            saved,
            observer,
            builders: (builders(host.machine.cpus)?, builders(options.builders)?),
            began: Instant::now(),
            measured: 0,
            there: 0,
            all: 0,
        })
    }

    /// Compares the policies on all tasks of the programs.
    ///
    /// # Errors
    /// If nothing of a task can be built, no runner be set up, or what is finished
    /// not be written.
    pub fn run(&mut self, programs: &[Workload]) -> Result<Findings> {
        let o = self.options;
        let tasks: usize = programs.iter().map(|p| p.tasks.len()).sum();
        self.all = tasks * o.overlaps.len() * o.variants.len() * o.repetitions;
        for p in programs {
            let mut left = o.candidates;
            for (i, (task, uses)) in p.tasks.iter().enumerate() {
                let share = left.div_ceil(p.tasks.len() - i).max(1);
                let used = self.task(&p.name, task, *uses, share)?;
                left = left.saturating_sub(used);
            }
        }
        let counts = programs.iter().map(|p| (p.name.clone(), p.tasks.len()));
        let counts: BTreeMap<String, usize> = counts.collect();
        let wanted = |r: &&Row| counts.contains_key(&r.program) && self.wants(r);
        let rows: Vec<Row> = self.saved.rows.iter().filter(wanted).cloned().collect();
        let all = related(&rows, &self.saved.finals, &counts);
        let (models, rows) = all.into_iter().partition(|r| r.tasks > 1);
        Ok(Findings { rows, models })
    }

    /// Whether a saved row is of this study.
    fn wants(&self, r: &Row) -> bool {
        let o = self.options;
        let same = |v: &Variant| v.policy == r.policy && v.swept == r.swept;
        r.repetition < o.repetitions
            && o.overlaps.contains(&r.overlap)
            && o.variants.iter().any(same)
    }

    /// The cells of one task that are still to be measured, and its finals; how many
    /// candidates it has.
    fn task(&mut self, program: &str, task: &Task, uses: usize, share: usize) -> Result<usize> {
        let o = self.options;
        let of_task = |r: &&Row| r.program == program && r.key == task.key;
        let there: Vec<&Row> = self.saved.rows.iter().filter(of_task).collect();
        let known = there.first().map(|r| r.candidates);
        let mut missing = Vec::new();
        for overlap in &o.overlaps {
            for repetition in 0..o.repetitions {
                // Another policy begins each time: what drifts hits all alike.
                for i in 0..o.variants.len() {
                    let v = &o.variants[(i + repetition) % o.variants.len()];
                    let done = there.iter().any(|r| {
                        (r.overlap, r.repetition) == (*overlap, repetition)
                            && (r.policy, &r.swept) == (v.policy, &v.swept)
                    });
                    if !done {
                        missing.push((*overlap, repetition, v));
                    }
                }
            }
        }
        self.there += o.overlaps.len() * o.repetitions * o.variants.len() - missing.len();
        if let Some(n) = known.filter(|_| missing.is_empty() && self.has_finals(program, task)) {
            return Ok(n);
        }
        self.show(&format!("building candidates: {}", task.title()));
        let draw = Draw {
            known: vec![],
            candidates: known.unwrap_or(share),
            seed: o.seed,
            allowed: o.accuracy.into(),
            default: false,
            strategy: "random",
            read: None,
        };
        let host = self.host.machine.target(self.target.threads());
        let before = &mut self.builders.0;
        let field = Field::draw(task, self.target, &host, draw, before)?;
        if let Some(n) = known.filter(|n| *n != field.built.len()) {
            return Err(Error::new(format!(
                "{} had {n} candidates when the study was begun, and has {} now",
                task.title(),
                field.built.len()
            ))
            .help("candidates were built by another program or within another limit; give another --out"));
        }
        let alone = missing.iter().any(|(overlap, ..)| !overlap);
        let build = match alone {
            true => field.build(before),
            false => (0.0, Spent::default()),
        };
        let scene = Scene {
            program,
            task,
            uses,
            field: &field,
            host: self.host,
            target: self.target,
            options: o,
            build,
        };
        for (overlap, repetition, variant) in missing {
            let beside = if overlap { ", building meanwhile" } else { "" };
            let title = task.title();
            let name = variant.name();
            self.show(&format!("{name} #{}{beside}: {title}", repetition + 1));
            let builders = overlap.then_some(&mut self.builders.1);
            let row = scene.cell(variant, repetition, builders)?;
            self.saved.add_row(row)?;
            self.measured += 1;
        }
        self.show(&format!("measuring the bests together: {}", task.title()));
        let entrants = self.bests(program, task);
        self.saved.add_finals(scene.finals(&entrants)?)?;
        let text = format!("{program} {}: {}", task.title(), self.standing());
        self.observer.note(&text);
        Ok(field.built.len())
    }

    /// The bests of all rows of a task.
    fn bests(&self, program: &str, task: &Task) -> Vec<usize> {
        let of_task = |r: &&Row| r.program == program && r.key == task.key;
        let bests = self.saved.rows.iter().filter(of_task);
        let different: BTreeSet<usize> = bests.filter_map(|r| r.best).collect();
        different.into_iter().collect()
    }

    /// Whether the bests of all rows of a task were measured together.
    fn has_finals(&self, program: &str, task: &Task) -> bool {
        let of_task = |f: &&Finals| f.program == program && f.key == task.key;
        let last = self.saved.finals.iter().rev().find(of_task);
        let measured: BTreeSet<usize> = last
            .into_iter()
            .flat_map(|f| &f.times)
            .map(|(i, _)| *i)
            .collect();
        last.is_some()
            && self
                .bests(program, task)
                .iter()
                .all(|b| measured.contains(b))
    }

    fn show(&mut self, what: &str) {
        let done = (self.there + self.measured) as f64 / self.all.max(1) as f64;
        let text = format!("{} · {what}", self.standing());
        self.observer.part(done, &text);
    }

    /// How far the study is, and how long the rest takes if it is like what was
    /// measured.
    fn standing(&self) -> String {
        let done = self.there + self.measured;
        let left = self.all.saturating_sub(done);
        let cells = format!("{done} of {} cells", self.all);
        if self.measured == 0 {
            return cells;
        }
        let each = self.began.elapsed().as_secs_f64() / self.measured as f64;
        format!(
            "{cells}, about {:.0} min left",
            (each * left as f64 / 60.0).ceil()
        )
    }
}
