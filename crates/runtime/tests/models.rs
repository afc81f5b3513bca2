//! Models that run at the same time: alone in this process, whose pools they make smaller.

use runtime::Pool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Threads that run at the same time, and the most there were.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    fn visit(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
        std::thread::sleep(std::time::Duration::from_micros(200));
        self.now.fetch_sub(1, Relaxed);
    }
}

#[test]
fn models_that_run_at_the_same_time_share_the_cpus() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let callers = cpus + 2;
    let (crowd, all_entered) = (Crowd::default(), std::sync::Barrier::new(callers));
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let pool = Pool::new(cpus).unwrap();
                let running = pool.enter();
                all_entered.wait();
                for _ in 0..20 {
                    let seen: Vec<AtomicU32> = (0..4 * cpus).map(|_| AtomicU32::new(0)).collect();
                    let code = pool.run(4 * cpus as i64, |range, _| {
                        crowd.visit();
                        for i in range {
                            seen[i as usize].fetch_add(1, Relaxed);
                        }
                        0
                    });
                    assert_eq!(code, 0);
                    assert!(seen.iter().all(|c| c.load(Relaxed) == 1));
                }
                all_entered.wait();
                drop(running);
            });
        }
    });
    // Each runs its loops alone: there are more models than CPUs.
    assert!(crowd.most.into_inner() <= callers);
}
