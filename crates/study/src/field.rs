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
use search::{Allowed, Candidate, Context, Point, Space, Strategy, Told};
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
    /// What each candidate is.
    pub drawn: Vec<Drawn>,
    pub built: Vec<Built>,
    /// How many more could not be built.
    pub unbuilt: usize,
    /// What builds each of them, whatever is cached.
    requests: Vec<BuildRequest>,
}

/// A candidate, and where in the space it was drawn; nowhere if it was known before.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub candidate: Candidate,
    pub point: Option<Point>,
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
    /// These come next, and do not count as candidates that are drawn.
    pub known: Vec<Candidate>,
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
    asked: Vec<(BuildRequest, Drawn)>,
    builders: &mut Builders,
) -> Vec<(BuildRequest, Drawn, Option<Built>)> {
    let mut some = BTreeMap::new();
    for (request, drawn) in asked {
        some.insert(builders.submit(request.clone()), (request, drawn, None));
    }
    while let Some(outcome) = builders.pool.next(builders.patience()) {
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

/// What was drawn so far and is a kernel of its own.
#[derive(Default)]
struct Found {
    drawn: Vec<Drawn>,
    built: Vec<Built>,
    requests: Vec<BuildRequest>,
    unbuilt: usize,
}

impl Found {
    /// How many of them are points of the space.
    fn of_points(&self) -> usize {
        self.drawn.iter().filter(|d| d.point.is_some()).count()
    }

    /// Builds some more, and keeps those that differ from the ones before.
    fn add(
        &mut self,
        some: Vec<Drawn>,
        request: &dyn Fn(&Candidate, &Builders) -> BuildRequest,
        builders: &mut Builders,
        strategy: &mut dyn Strategy,
    ) {
        let asked = some
            .into_iter()
            .map(|one| (request(&one.candidate, builders), one));
        let asked: Vec<_> = asked.collect();
        for (request, one, code) in build_round(asked, builders) {
            if let Some(point) = &one.point {
                tell(strategy, point, code.as_ref());
            }
            let Some(code) = code else {
                self.unbuilt += 1;
                continue;
            };
            if !self.built.iter().any(|other| same(&code, other)) {
                self.built.push(code);
                self.drawn.push(one);
                self.requests.push(BuildRequest {
                    cache: None,
                    ..request
                });
            }
        }
    }
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
            program: Some(&task.program),
            target: Some(target),
            ..Context::of(&space)
        };
        let at = |p: Point| {
            let candidate = space.candidate(&task.program, &p).ok()?;
            let point = Some(p);
            Some(Drawn { candidate, point })
        };
        let known = d.known.into_iter().map(|candidate| Drawn {
            candidate,
            point: None,
        });
        let default = d.default.then(|| space.default_point());
        let first: Vec<Drawn> = default.into_iter().filter_map(at).chain(known).collect();
        let text = ir::text::print(&task.program);
        let request = |candidate: &Candidate, builders: &Builders| {
            let mut request = builders.request(&text, candidate, target, false);
            request.options.read.clone_from(&d.read);
            request
        };
        let mut found = Found::default();
        found.add(first, &request, builders, &mut *strategy);
        // Enough where most of what is drawn is a candidate of its own.
        let mut left = 4 * d.candidates;
        loop {
            let missing = d.candidates.saturating_sub(found.of_points());
            let asked = match left.min(missing).min(ROUND) {
                0 => vec![],
                n => strategy.ask(&context, n),
            };
            if asked.is_empty() {
                break;
            }
            left = left.saturating_sub(asked.len());
            let some = asked.into_iter().filter_map(at).collect();
            found.add(some, &request, builders, &mut *strategy);
        }
        if found.built.is_empty() {
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
            drawn: found.drawn,
            built: found.built,
            unbuilt: found.unbuilt,
            requests: found.requests,
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
            let Some(o) = self.builders.pool.next(self.builders.patience()) else {
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
