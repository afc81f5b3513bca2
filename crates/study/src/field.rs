//! The candidates of a task that policies are compared on.
//!
//! Owns which they are and that they are built, before anything is measured or
//! while earlier ones are.

use analysis::Score;
use build::{BuildRequest, Built, ReadOptions};
use ir::Target;
use measure::{Spent, TaskData};
use plan::Task;
use runtime::BuiltKernel;
use search::{Allowed, Context, Point, Space, Strategy, Told};
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::time::Instant;
use store::{Outcome, STATIC};
use tune::compile::{Builders, fallbacks};
use tune::fills;
use tune::{Error, Result};

/// A task with built candidates.
pub struct Field {
    pub data: TaskData,
    pub space: Space,
    /// Where in the space the candidates are.
    pub points: Vec<Point>,
    pub built: Vec<Built>,
    /// What builds each of them, whatever is cached.
    requests: Vec<BuildRequest>,
}

/// Candidates that are drawn before the strategy is told of them.
const ROUND: usize = 64;

/// Which candidates.
#[derive(Clone, Debug)]
pub struct Draw {
    pub candidates: usize,
    pub seed: u64,
    pub allowed: Allowed,
    /// The default comes first.
    pub default: bool,
    /// Who proposes the others, by the name of a strategy. It is told the static score of what was read.
    pub strategy: &'static str,
    /// Candidates are read as well.
    pub read: Option<ReadOptions>,
}

/// Whether two candidates are one kernel: the same code, or where code was read, of which
/// objects say more than instructions, nothing that tells them apart.
fn same(a: &Built, b: &Built) -> bool {
    match (&a.read, &b.read) {
        (Some(a), Some(b)) => a == b,
        _ => a.kernel.code_hash() == b.kernel.code_hash(),
    }
}

/// Builds candidates side by side; none of one that cannot be built.
fn build_round(
    asked: Vec<(BuildRequest, Point)>,
    builders: &mut Builders,
) -> Vec<(BuildRequest, Point, Option<Built>)> {
    let mut some = BTreeMap::new();
    for (request, point) in asked {
        some.insert(builders.submit(request.clone()), (request, point, None));
    }
    while let Some(outcome) = builders.pool.next(2 * builders.limit) {
        if let (Ok(Ok(b)), Some(of)) = (outcome.result, some.get_mut(&outcome.id)) {
            of.2 = Some(b);
        }
    }
    some.into_values().collect()
}

/// Tells a strategy the static score of a candidate, where it was read.
fn tell(strategy: &mut dyn Strategy, point: &Point, built: Option<&Built>) {
    let read = built.and_then(|b| b.read.as_ref());
    let cost = read.map(|r| Score::USUAL.cycles(&r.features));
    let outcome = match cost {
        Some(value) => Outcome::Scored {
            kind: STATIC.into(),
            value,
        },
        None => Outcome::Unanswered {
            reason: "nothing was read".into(),
        },
    };
    strategy.tell(&Told {
        point,
        outcome: &outcome,
        cost,
    });
}

impl Field {
    /// Candidates drawn by a strategy, the same for equal seeds; what cannot be built,
    /// or is the code of another, is left out. Candidates are built for `target`,
    /// what they are compared with for `host`.
    ///
    /// # Errors
    /// If nothing of the task can be built.
    pub fn draw(
        task: &Task,
        target: &Target,
        host: &Target,
        d: Draw,
        builders: &mut Builders,
    ) -> Result<Field> {
        let plain = fallbacks(from_ref(task), host)?;
        let oracle = builders.build_all(from_ref(task), &plain, host)?.remove(0);
        let space = search::space(&task.program, target, d.allowed);
        let mut strategy =
            search::strategy(d.strategy, d.seed).expect("there is a strategy of that name");
        let context = Context {
            space: &space,
            program: Some(&task.program),
            target: Some(target),
            known: &[],
            look_up_similar: &|| &[],
        };
        let text = ir::text::print(&task.program);
        let (mut built, mut requests) = (Vec::<Built>::new(), Vec::new());
        let mut places = Vec::new();
        let mut default: Vec<Point> = d
            .default
            .then(|| space.default_point())
            .into_iter()
            .collect();
        // Enough where most of what is drawn is a candidate of its own.
        let mut left = 4 * d.candidates;
        while built.len() < d.candidates && left > 0 {
            let points = match default.pop() {
                Some(point) => vec![point],
                None => strategy.ask(&context, left.min(d.candidates - built.len()).min(ROUND)),
            };
            if points.is_empty() {
                break;
            }
            left -= points.len();
            let request = |p: Point| {
                let candidate = space.candidate(&task.program, &p).ok()?;
                let mut request = builders.request(&text, &candidate, target, false);
                request.options.read = d.read.clone();
                Some((request, p))
            };
            let some: Vec<_> = points.into_iter().filter_map(request).collect();
            for (request, point, code) in build_round(some, builders) {
                tell(&mut *strategy, &point, code.as_ref());
                if let Some(b) = code.filter(|b| !built.iter().any(|other| same(b, other))) {
                    built.push(b);
                    places.push(point);
                    requests.push(BuildRequest {
                        cache: None,
                        ..request
                    });
                }
            }
        }
        if built.is_empty() {
            return Err(Error::new(format!(
                "no candidate of {} can be built",
                task.title()
            )));
        }
        Ok(Field {
            data: TaskData {
                id: 0,
                seed: d.seed,
                args: fills(&task.program),
                oracle: BuiltKernel::clone(&oracle),
            },
            space,
            points: places,
            built,
            requests,
        })
    }

    /// Builds all candidates once more with nothing beside it; the wall time.
    pub fn build(&self, builders: &mut Builders) -> (f64, Spent) {
        let n = self.built.len();
        let begin = Instant::now();
        let mut ahead = Ahead::new(self, builders, n);
        ahead.wait(0, n);
        (begin.elapsed().as_secs_f64(), ahead.spent)
    }
}

/// Candidates that are built while earlier ones are measured, in their order. They
/// are known to build; what a builder loses is not waited for.
pub struct Ahead<'a> {
    pub builders: &'a mut Builders,
    field: &'a Field,
    /// Submitted, and neither measured nor being measured, at most.
    depth: usize,
    position: BTreeMap<u64, usize>,
    submitted: usize,
    done: BTreeSet<usize>,
    /// By builders.
    pub spent: Spent,
}

impl<'a> Ahead<'a> {
    /// Builders run `depth` candidates ahead of what is measured.
    pub fn new(field: &'a Field, builders: &'a mut Builders, depth: usize) -> Ahead<'a> {
        Ahead {
            builders,
            field,
            depth: depth.max(1),
            position: BTreeMap::new(),
            submitted: 0,
            done: BTreeSet::new(),
            spent: Spent::default(),
        }
    }

    /// Waits for the candidates `from..to`, which are measured next.
    pub fn wait(&mut self, from: usize, to: usize) {
        let most = to.max(from + self.depth).min(self.field.requests.len());
        for at in self.submitted..most {
            let id = self.builders.submit(self.field.requests[at].clone());
            self.position.insert(id, at);
        }
        self.submitted = self.submitted.max(most);
        while (from..to).any(|at| !self.done.contains(&at)) {
            let Some(o) = self.builders.pool.next(2 * self.builders.limit) else {
                return;
            };
            self.spent += Spent {
                wall_ns: o.wall.as_nanos() as u64,
                cpu_ns: o.cpu.as_nanos() as u64,
            };
            self.done.extend(self.position.get(&o.id));
        }
    }
}
