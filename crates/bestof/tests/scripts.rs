//! Random programs of calls: nesting, stages, threads, panics, errors and early returns.
//!
//! Whatever a program does, afterwards no thread is in a call, no alternative has more samples than
//! rounds, what was decided may run, and calls of a decided selector always run the same alternative. Where decisions are
//! watched they may be opened again, and a running median then stands for samples.

use bestof::{BestOf, Context, Options, Status, depth};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SELECTORS: usize = 4;
const ALTERNATIVES: usize = 3;
/// Times that a running median is of.
const WATCHED: usize = 9;

/// Numbers that look random (a linear congruential generator).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct World {
    selectors: Vec<BestOf<u64, usize>>,
    groups: Vec<BestOf<u64, usize>>,
    clock: Arc<AtomicU64>,
    options: Options,
}

impl World {
    fn new(random: &mut Random) -> World {
        let clock = Arc::new(AtomicU64::new(0));
        let options = Options {
            rounds: 1 + random.below(6) as usize,
            prune_speedup: 1.5 + random.below(5) as f64,
            prune_after: random.below(5) as usize,
            margin: random.below(2) as f64 * 0.1,
            early: random.below(2) == 0,
            drift: (random.below(4) == 0).then_some(0.5),
        };
        let make = |i: usize| {
            let named = (0..ALTERNATIVES).map(|a| (format!("a{a}"), a));
            let at = clock.clone();
            let s = BestOf::new(&format!("s{i}"), named, options.clone()).unwrap();
            let s = s.timed_by(move || Duration::from_nanos(at.load(Ordering::SeqCst)));
            s.only_if("a2", |key: &u64| !key.is_multiple_of(3))
        };
        World {
            selectors: (0..SELECTORS).map(make).collect(),
            groups: (0..2)
                .map(|i| make(SELECTORS + i).stages(2).unwrap())
                .collect(),
            clock,
            options,
        }
    }

    /// One random call and what it calls.
    fn step(&self, random: &mut Random, levels: u32) -> Result<(), ()> {
        let key = random.below(3);
        let mut inner = Random(random.below(u64::MAX));
        let at = random.below(SELECTORS as u64) as usize;
        match random.below(6) {
            0 => {
                let group = &self.groups[random.below(2) as usize];
                let (_, mut ticket) = group.first(&key, |a| self.body(*a, &mut inner, levels));
                match random.below(4) {
                    // The caller returns early.
                    0 => return Ok(()),
                    1 => {
                        let other = &self.selectors[at];
                        let _ = other.call(&key, |a| self.body(*a, &mut inner, levels));
                    }
                    _ => {}
                }
                let stage = 1 + random.below(8) as usize / 7;
                let _ = group.stage(stage, &mut ticket, |a| self.body(*a, &mut inner, levels));
                Ok(())
            }
            1 => self.selectors[at].try_call(&key, |a| {
                self.body(*a, &mut inner, levels)?;
                match *a == 1 && inner.below(10) == 0 {
                    true => Err(()),
                    false => Ok(()),
                }
            }),
            _ => self.selectors[at].call(&key, |a| self.body(*a, &mut inner, levels)),
        }
    }

    fn body(&self, alternative: usize, random: &mut Random, levels: u32) -> Result<(), ()> {
        self.clock.fetch_add(
            10 * (1 + alternative as u64) + random.below(5),
            Ordering::SeqCst,
        );
        if random.below(40) == 0 {
            panic!("of the script");
        }
        if levels > 0 && random.below(3) == 0 {
            if random.below(8) == 0 {
                let context = Context::current();
                let mut own = random.clone();
                let done = std::thread::scope(|s| {
                    let works = s.spawn(|| {
                        let _inside = context.enter();
                        self.step(&mut own, levels - 1)
                    });
                    works.join()
                });
                return done.unwrap_or(Ok(()));
            }
            return self.step(random, levels - 1);
        }
        Ok(())
    }

    fn check(&self, script: u64) {
        assert_eq!(depth(), 0, "script {script}");
        for s in self.selectors.iter().chain(&self.groups) {
            for k in s.report().keys {
                let most = match self.options.drift {
                    Some(_) => self.options.rounds.max(WATCHED),
                    None => self.options.rounds,
                };
                for a in &k.alternatives {
                    assert!(a.samples <= most, "script {script}: {k:?}");
                    let ran = a.samples > 0;
                    assert!(
                        !ran || a.status != Status::NotApplicable,
                        "script {script}: {k:?}"
                    );
                }
                if let Some(decided) = &k.decided {
                    let a = k.alternatives.iter().find(|a| a.name == *decided).unwrap();
                    assert_eq!(a.status, Status::Active, "script {script}: {k:?}");
                }
            }
        }
    }

    /// Every selector comes to a decision if it is called often enough, and keeps it.
    fn settle(&self, script: u64) {
        for s in &self.selectors {
            for key in 0..3 {
                let call = || {
                    s.call(&key, |a| {
                        self.clock.fetch_add(10 * (1 + *a as u64), Ordering::SeqCst);
                        *a
                    })
                };
                let before = s.decided_position(&key);
                let ran: Vec<usize> = (0..ALTERNATIVES * (self.options.rounds + 2))
                    .map(|_| call())
                    .collect();
                let decided = s.decided_position(&key);
                assert!(decided.is_some(), "script {script}: {}", s.report());
                if self.options.drift.is_some() {
                    continue;
                }
                if before.is_some() {
                    assert_eq!(before, decided, "script {script}");
                    assert!(ran.iter().all(|a| Some(*a) == before), "script {script}");
                }
                assert_eq!(Some(call()), decided, "script {script}");
            }
        }
    }
}

#[test]
fn random_scripts_keep_the_invariants() {
    // Panics of scripts are part of the plan.
    std::panic::set_hook(Box::new(|_| {}));
    for script in 0..1000 {
        let mut random = Random(script);
        let world = World::new(&mut random);
        if script % 10 == 0 {
            std::thread::scope(|s| {
                for thread in 0..3 {
                    let mut own = Random(script * 31 + thread);
                    let world = &world;
                    s.spawn(move || {
                        for _ in 0..30 {
                            let _ = catch_unwind(AssertUnwindSafe(|| world.step(&mut own, 3)));
                        }
                        assert_eq!(depth(), 0);
                    });
                }
            });
        }
        for _ in 0..60 {
            let _ = catch_unwind(AssertUnwindSafe(|| world.step(&mut random, 3)));
            assert_eq!(depth(), 0);
        }
        world.check(script);
        world.settle(script);
    }
    let _ = std::panic::take_hook();
}
