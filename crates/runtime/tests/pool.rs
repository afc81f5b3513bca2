//! Every iteration runs exactly once, whoever asks and however busy the pool is.

use runtime::{Ctx, Pool, PoolError, PoolOptions, pin_current_thread};
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

fn counters(n: i64) -> Vec<AtomicU32> {
    (0..n).map(|_| AtomicU32::new(0)).collect()
}

/// Spin and sleep both: with 0 every wait goes through the system.
fn pools() -> Vec<Pool> {
    let mut pools = Vec::new();
    for threads in [1, 2, 3, 5, 8] {
        for spin_ns in [0, 2_000, 50_000] {
            let options = PoolOptions {
                threads,
                spin_ns,
                pin: None,
            };
            pools.push(Pool::with_options(&options).unwrap());
        }
    }
    pools
}

#[test]
fn every_index_runs_once_with_a_valid_worker() {
    for pool in pools() {
        for extent in (0..20).chain([63, 64, 65, 1000]) {
            let seen = counters(extent);
            let running = counters(pool.threads() as i64);
            let code = pool.run(extent, |range, worker| {
                let alone = running[worker].fetch_add(1, Relaxed) == 0;
                for i in range {
                    seen[i as usize].fetch_add(1, Relaxed);
                }
                running[worker].fetch_sub(1, Relaxed);
                i32::from(!alone)
            });
            assert_eq!(code, 0, "a worker runs one piece at a time");
            assert!(seen.iter().all(|c| c.load(Relaxed) == 1));
        }
        assert_eq!(pool.run(-3, |_, _| 1), 0);
    }
}

#[test]
fn many_forks_in_a_row_lose_nothing() {
    for pool in pools() {
        let total = AtomicUsize::new(0);
        for extent in 0..2000i64 {
            pool.run(extent % 11, |range, _| {
                total.fetch_add(range.count(), Relaxed);
                0
            });
        }
        assert_eq!(total.into_inner(), (0..2000).map(|e| e % 11).sum::<usize>());
    }
}

#[test]
fn a_failure_comes_back_and_does_not_stick() {
    for pool in pools() {
        for bad in 0..10 {
            let code = pool.run(10, |range, _| {
                if range.contains(&bad) {
                    40 + bad as i32
                } else {
                    0
                }
            });
            assert_eq!(code, 40 + bad as i32);
            assert_eq!(pool.run(10, |_, _| 0), 0);
        }
        assert_eq!(pool.run(10, |_, _| -1), -1);
    }
}

#[test]
fn a_nested_loop_stays_on_its_worker() {
    for pool in pools() {
        let (outer, inner) = (8, 5);
        let seen = counters(outer * inner);
        pool.run(outer, |range, worker| {
            for i in range {
                pool.run(inner, |nested, nested_worker| {
                    assert_eq!(nested_worker, worker);
                    for j in nested {
                        seen[(i * inner + j) as usize].fetch_add(1, Relaxed);
                    }
                    0
                });
            }
            0
        });
        assert!(seen.iter().all(|c| c.load(Relaxed) == 1));
    }
}

#[test]
fn several_threads_may_share_a_pool() {
    let pool = Pool::with_options(&PoolOptions {
        threads: 3,
        spin_ns: 1_000,
        pin: None,
    })
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..300 {
                    let extent = 1 + (thread * 7 + round) % 40;
                    let seen = counters(extent);
                    let code = pool.run(extent, |range, _| {
                        for i in range {
                            seen[i as usize].fetch_add(1, Relaxed);
                        }
                        thread as i32
                    });
                    assert_eq!(code, thread as i32, "the result of another thread's loop");
                    assert!(seen.iter().all(|c| c.load(Relaxed) == 1));
                }
            });
        }
    });
}

#[test]
fn one_pool_inside_another() {
    let (a, b) = (Pool::new(2).unwrap(), Pool::new(2).unwrap());
    let total = AtomicUsize::new(0);
    a.run(4, |outer, _| {
        for _ in outer {
            b.run(4, |inner, _| {
                a.run(4, |innermost, _| {
                    total.fetch_add(innermost.count() * inner.clone().count(), Relaxed);
                    0
                });
                0
            });
        }
        0
    });
    assert_eq!(total.into_inner(), 64);
}

#[test]
fn a_context_with_fewer_threads_uses_fewer_workers() {
    unsafe extern "C" fn count(
        ctx: *const Ctx,
        env: *mut c_void,
        begin: i64,
        end: i64,
        worker: i32,
    ) -> i32 {
        // SAFETY: the environment is the counter below, the context the caller's.
        unsafe {
            (*env.cast::<AtomicUsize>()).fetch_add((end - begin) as usize, Relaxed);
            i32::from(worker < 0 || worker as u32 >= (*ctx).threads)
        }
    }
    let pool = Pool::new(4).unwrap();
    for threads in 1..=4u32 {
        let ctx = Ctx {
            threads,
            ..*pool.ctx()
        };
        let ran = AtomicUsize::new(0);
        // SAFETY: the context is a copy of a live pool's.
        let code =
            unsafe { (ctx.parallel_for)(&ctx, count, (&raw const ran).cast_mut().cast(), 100) };
        assert_eq!((code, ran.into_inner()), (0, 100));
        // Another kernel's loop inside a loop of all workers: the indices that
        // it sees are those of its own context.
        let wrong = pool.run(4, |_, _| {
            let ran = AtomicUsize::new(0);
            let env = (&raw const ran).cast_mut().cast();
            // SAFETY: as above.
            unsafe { (ctx.parallel_for)(&ctx, count, env, 100) }
        });
        assert_eq!(wrong, 0);
    }
}

#[test]
fn impossible_options_are_refused() {
    assert!(matches!(Pool::new(0), Err(PoolError::Threads(0))));
    let options = PoolOptions {
        pin: Some(vec![0]),
        ..PoolOptions::new(2)
    };
    assert!(matches!(
        Pool::with_options(&options),
        Err(PoolError::PinCount {
            threads: 2,
            cpus: 1
        })
    ));
    let options = PoolOptions {
        pin: Some(vec![0, 1 << 20]),
        ..PoolOptions::new(2)
    };
    assert!(matches!(
        Pool::with_options(&options),
        Err(PoolError::Pin { cpu: 1_048_576, .. })
    ));
    assert!(pin_current_thread(usize::MAX).is_err());
}

#[test]
fn workers_are_pinned_where_asked() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU)
        .find(|c| allowed.is_set(*c))
        .unwrap();
    let options = PoolOptions {
        pin: Some(vec![cpu; 3]),
        ..PoolOptions::new(3)
    };
    let pool = Pool::with_options(&options).unwrap();
    let caller = std::thread::current().id();
    let came = counters(3);
    // The caller takes the part of a worker that is late, and is not pinned.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let pinned = pool.run(3, |_, worker| {
            if std::thread::current().id() == caller {
                std::thread::sleep(Duration::from_millis(1));
                return 0;
            }
            came[worker].fetch_add(1, Relaxed);
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            i32::from(set.count() != 1 || !set.is_set(cpu))
        });
        assert_eq!(pinned, 0);
        if came[1..].iter().all(|c| c.load(Relaxed) > 0) {
            return;
        }
    }
    panic!("no worker came in a minute");
}

#[test]
fn a_worker_of_another_pool_starts_no_threads() {
    let (outer, inner) = (Pool::new(3).unwrap(), Pool::new(3).unwrap());
    let nested = counters(3);
    outer.run(3, |_, worker| {
        inner.run(3, |range, inner_worker| {
            if worker > 0 {
                // The whole loop at once, on its caller.
                nested[worker].fetch_add(u32::from(range == (0..3) && inner_worker == 0), Relaxed);
            }
            0
        });
        0
    });
    let whole: Vec<u32> = nested.iter().map(|c| c.load(Relaxed)).collect();
    assert_eq!(whole, [0, 1, 1]);
}
