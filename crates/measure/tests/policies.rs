//! What the policies ask of devices, step by step, on one that does as it is told.

mod device_contract;
mod fake_device;

use fake_device::{Candidate, Fails, FakeDevice, calm};
use measure::{Constants, Dispatch, MeasuredBatch, Measurer, Policy, RANKING, Ranking, TaskState};
use std::time::Duration;
use store::{Conditions, Outcome};

const PAPER: Constants = Constants::PAPER;

fn measurer(policy: Policy) -> Measurer {
    Measurer {
        policy,
        constants: PAPER,
        naive_dp: 8,
        limit: Duration::from_secs(3),
    }
}

fn start() -> TaskState {
    TaskState::new(&PAPER, 1)
}

fn doppler(device: &mut FakeDevice, batch: &[Candidate], state: &mut TaskState) -> MeasuredBatch {
    let mut quiet = |_: bool| {};
    measurer(Policy::Doppler).measure(device, batch, batch.len(), state, &mut quiet)
}

fn widths(done: &MeasuredBatch) -> Vec<u32> {
    done.rounds.iter().map(|r| r.dp).collect()
}

fn conditions(outcome: &Outcome) -> &Conditions {
    match outcome {
        Outcome::Timed { conditions, .. } => conditions,
        other => panic!("{other:?}"),
    }
}

fn disturbed(contention: f64) -> Candidate {
    Candidate {
        contention,
        ..calm(1000)
    }
}

#[test]
fn clean_rounds_ramp_up_to_the_most() {
    let done = doppler(
        &mut FakeDevice::new(1, 64),
        &[calm(1000); 250],
        &mut start(),
    );
    assert_eq!(widths(&done), [1, 13, 25, 37, 49, 61, 64]);
    let limits: Vec<u64> = done.rounds.iter().map(|r| r.limit_ms / 1000).collect();
    assert_eq!(limits, [4, 7, 14, 20, 20, 20, 20]);
    let sampled: Vec<usize> = done.rounds.iter().map(|r| r.sampled).collect();
    assert_eq!(sampled, [0, 3, 5, 8, 10, 13, 13]);
    assert_eq!(done.outcomes.len(), 250);
}

#[test]
fn wrong_rounds_lower_it_to_one_and_it_recovers() {
    let mut batch = vec![disturbed(1.0); 1 + 13 + 10 + 8 + 6 + 4 + 3 + 2];
    batch.extend(vec![calm(1000); 1 + 3 + 5 + 9 + 17 + 29]);
    let done = doppler(&mut FakeDevice::new(1, 64), &batch, &mut start());
    assert_eq!(
        widths(&done),
        [1, 13, 10, 8, 6, 4, 3, 2, 1, 3, 5, 9, 17, 29]
    );
    assert_eq!(done.rounds.last().map(|r| r.next.dp), Some(41));
}

#[test]
fn a_tail_lowers_and_never_raises() {
    let mut device = FakeDevice::new(1, 64);
    let mut state = start();
    doppler(&mut device, &[calm(1000); 14], &mut state);
    assert_eq!(state.react.dp, 25);
    let clean = doppler(&mut device, &[calm(1000); 10], &mut state);
    assert_eq!((widths(&clean), state.react.dp), (vec![25], 25));
    let wrong = doppler(&mut device, &[disturbed(1.0); 10], &mut state);
    assert_eq!((widths(&wrong), state.react.dp), (vec![25], 8));
}

#[test]
fn what_fails_only_beside_others_is_measured_alone_and_lowers_it() {
    let mut state = start();
    let mut batch = vec![calm(1000); 14];
    for at in [4, 9] {
        batch[at].fails = Fails::Beside;
    }
    let done = doppler(&mut FakeDevice::new(1, 64), &batch, &mut state);
    let round = &done.rounds[1];
    assert_eq!((round.failed, round.recovered), (2, 2));
    assert_eq!(state.react.dp, 10);
    for m in &done.outcomes {
        assert_eq!(m.outcome.median_ns(), Some(1000));
    }
    let c = conditions(&done.outcomes[4].outcome);
    assert!(c.isolated && c.dp == 1 && c.round_dp == Some(13));
    assert_eq!((c.parallel_ns, c.scale), (None, None));
    assert_eq!(done.outcomes[4].whole.wall_ns, 2 * 60_000, "both tries");
}

#[test]
fn what_fails_alone_as_well_is_the_candidates_fault() {
    let mut state = start();
    let mut batch = vec![calm(1000); 14];
    for c in &mut batch[2..8] {
        c.fails = Fails::Always;
    }
    batch[9].fails = Fails::Hangs;
    let done = doppler(&mut FakeDevice::new(1, 64), &batch, &mut state);
    let round = &done.rounds[1];
    assert_eq!((round.failed, round.timed_out, round.recovered), (7, 1, 0));
    assert_eq!(state.react.dp, 25);
    assert_eq!(done.outcomes[2].outcome.label(), "crashed-run");
    assert_eq!(done.outcomes[9].outcome.label(), "timed-out-run");
}

#[test]
fn figures_are_corrected_by_the_error_of_the_round() {
    let done = doppler(
        &mut FakeDevice::new(1, 2),
        &[disturbed(0.04); 14],
        &mut start(),
    );
    let delta = 40.0 / 1040.0;
    let mut again = 0;
    for m in &done.outcomes[1..] {
        let c = conditions(&m.outcome);
        assert_eq!(c.round_dp, Some(13));
        assert!(c.delta.is_some_and(|d| (d - delta).abs() < 1e-9), "{c:?}");
        if c.isolated {
            again += 1;
            assert_eq!((c.dp, c.scale, c.parallel_ns), (1, None, Some(1040)));
        } else {
            let factor = c.scale.map(|s| (s * 1e9).round() as u64);
            assert_eq!((c.dp, factor), (2, Some(961_538_462)));
        }
        assert_eq!(m.outcome.median_ns(), Some(1000));
    }
    assert_eq!(again, 3);
    assert_eq!(conditions(&done.outcomes[0].outcome).scale, None);
}

#[test]
fn figures_that_are_hopeless_stay_as_they_are() {
    let done = doppler(
        &mut FakeDevice::new(1, 2),
        &[disturbed(0.5); 14],
        &mut start(),
    );
    let wrong = done.outcomes[1..].iter().filter(|m| {
        let c = conditions(&m.outcome);
        !c.isolated && c.scale.is_none() && m.outcome.median_ns() == Some(1500)
    });
    assert_eq!(wrong.count(), 10);
}

#[test]
fn every_outcome_is_its_candidates() {
    let batch: Vec<Candidate> = (0..300).map(|i| calm(1000 + i)).collect();
    for (devices, capacity) in [(1, 1), (1, 8), (1, 64), (3, 2)] {
        for policy in Policy::ALL {
            let mut device = FakeDevice::new(devices, capacity);
            let done =
                measurer(policy).measure(&mut device, &batch[..], 300, &mut start(), &mut |_| {});
            let medians = done.outcomes.iter().map(|m| m.outcome.median_ns());
            assert!(medians.eq((0..300).map(|i| Some(1000 + i))), "{policy:?}");
        }
    }
}

#[test]
fn a_device_for_one_candidate_has_nothing_to_run_beside_it() {
    let mut device = FakeDevice::new(1, 1);
    let done = doppler(&mut device, &[calm(1000); 20], &mut start());
    assert_eq!(widths(&done), [1; 20]);
    assert_eq!(device.rounds.len(), 20, "nothing is measured again");
}

#[test]
fn the_worst_of_several_devices_decides() {
    let mut state = start();
    // Candidates go round the devices, so every second one is the second's.
    let mut batch = vec![calm(1000); 2 + 26];
    for c in batch.iter_mut().skip(1).step_by(2) {
        c.contention = 1.0;
    }
    let done = doppler(&mut FakeDevice::new(2, 64), &batch, &mut state);
    assert_eq!(widths(&done), [1, 13]);
    assert_eq!(state.react.dp, 10);
    let deltas = &done.rounds[1].delta;
    assert_eq!(deltas[0], Some(0.0));
    assert!(deltas[1].is_some_and(|d| d > 0.9), "{deltas:?}");
}

#[test]
fn measuring_again_is_quiet_and_alone() {
    let mut device = FakeDevice::new(1, 64);
    let mut said = Vec::new();
    let mut quiet = |on: bool| said.push(on);
    let batch = [calm(1000); 39];
    measurer(Policy::Doppler).measure(&mut device, &batch[..], 39, &mut start(), &mut quiet);
    assert_eq!(said, [true, false, true, false]);
    for (jobs, round) in &device.rounds {
        assert_eq!(round.quiet, round.dp == 1 && jobs.len() > 1);
    }
}

#[test]
fn devices_that_disturb_each_other_measure_again_one_after_the_other() {
    for (independent, rounds) in [(false, 3), (true, 1)] {
        let mut device = FakeDevice::new(3, 64);
        device.independent = independent;
        let done = doppler(&mut device, &[calm(1000); 3 + 39], &mut start());
        let quiet: Vec<_> = device.rounds.iter().filter(|(_, r)| r.quiet).collect();
        assert_eq!(quiet.len(), rounds);
        let again = done.outcomes.iter().map(|m| conditions(&m.outcome));
        let again: Vec<_> = again.filter(|c| c.parallel_ns.is_some()).collect();
        assert!(again.len() == 9 && again.iter().all(|c| c.isolated));
    }
}

#[test]
fn what_is_measured_again_anyway_is_not_tried_again_at_once() {
    let mut device = FakeDevice::new(1, 64);
    doppler(&mut device, &[calm(1000); 14], &mut start());
    let asked: Vec<_> = device
        .rounds
        .iter()
        .map(|(j, r)| (j.len(), r.retry))
        .collect();
    assert_eq!(asked, [(1, true), (13, false), (3, true)]);
}

#[test]
fn what_is_given_up_early_allows_for_what_neighbours_do() {
    let bounds = |contention| {
        let mut device = FakeDevice::new(1, 2);
        doppler(&mut device, &[disturbed(contention); 14 + 25], &mut start());
        let rounds = device.rounds.iter();
        rounds.map(|(_, r)| r.slower).collect::<Vec<_>>()
    };
    // Alone; beside others, of which nothing is known yet; again alone; known.
    let slight = bounds(0.04);
    assert_eq!(slight[..3], [Some(1.0), None, Some(1.0)]);
    let known = slight[3].expect("it is known");
    assert!((known - 1.04).abs() < 1e-9, "{known}");
    // An error of a third is beyond correction, and so beyond this.
    assert_eq!(bounds(0.5)[3], None);
}

#[test]
fn a_known_error_is_sampled_less() {
    let mut m = measurer(Policy::Doppler);
    m.constants.calibrator.precision = 0.025;
    let batch = [disturbed(0.0005); 250];
    let done = m.measure(
        &mut FakeDevice::new(1, 64),
        &batch[..],
        250,
        &mut start(),
        &mut |_| {},
    );
    let sampled: Vec<usize> = done.rounds.iter().map(|r| r.sampled).collect();
    assert_eq!(sampled, [0, 3, 5, 2, 2, 2, 2]);
}

#[test]
fn an_error_that_all_share_is_corrected_and_lowers_nothing() {
    let mut m = measurer(Policy::Doppler);
    let batch = [disturbed(0.1); 120];
    let run = |m: &Measurer| {
        let mut device = FakeDevice::new(1, 2);
        let done = m.measure(&mut device, &batch[..], 120, &mut start(), &mut |_| {});
        let medians = done.outcomes.iter().map(|m| m.outcome.median_ns());
        let off = medians.flatten().map(|ns| ns.abs_diff(1000)).max();
        (done.rounds.last().map(|r| r.next.dp), off)
    };
    let (paper, _) = run(&m);
    assert!(paper.is_some_and(|dp| dp <= 4), "{paper:?}");
    m.constants = PAPER.with("per-candidate=1,corrected=1").unwrap();
    let (own, off) = run(&m);
    assert!(own >= Some(25), "{own:?}");
    // Uncorrected they are off by 100.
    assert!(off.is_some_and(|ns| ns <= 1), "{off:?}");
}

#[test]
fn a_state_that_was_stored_goes_on_where_it_stopped() {
    let batch = [disturbed(0.03); 120];
    let mut whole = start();
    doppler(&mut FakeDevice::new(1, 64), &batch[..39], &mut whole);
    let text = serde_json::to_string(&whole).unwrap();
    let mut stored: TaskState = serde_json::from_str(&text).unwrap();
    let rest = |state: &mut TaskState| {
        let done = doppler(&mut FakeDevice::new(1, 64), &batch[39..], state);
        (done.rounds, state.react)
    };
    assert_eq!(rest(&mut whole), rest(&mut stored));
}

#[test]
fn serial_and_naive_policies_differ_in_what_they_ask_for() {
    let batch = [calm(1000); 20];
    let mut asked = Vec::new();
    for policy in [Policy::Serial, Policy::SerialSpawn, Policy::Naive] {
        let mut device = FakeDevice::new(1, 64);
        let done = measurer(policy).measure(&mut device, &batch[..], 20, &mut start(), &mut |_| {});
        assert!(done.rounds.is_empty());
        let (jobs, round) = device.rounds.pop().expect("one round");
        assert!(device.rounds.is_empty() && jobs.len() == 20);
        assert_eq!(round.each, Duration::from_secs(3));
        asked.push((round.dp, round.fresh, round.host_clock, round.measurer));
        assert!(round.retry && round.slower == Some(1.0));
    }
    assert_eq!(
        asked,
        [
            (1, false, false, Policy::Serial),
            (1, true, false, Policy::SerialSpawn),
            (8, false, true, Policy::Naive)
        ]
    );
}

#[test]
fn a_fake_device_keeps_the_promises_of_real_ones() {
    for (devices, capacity, independent) in [(1, 1, false), (1, 8, false), (3, 2, true)] {
        let mut device = FakeDevice::new(devices, capacity);
        device.independent = independent;
        let (mut crashes, mut hangs) = (calm(1000), calm(1000));
        (crashes.fails, hangs.fails) = (Fails::Always, Fails::Hangs);
        let batch = [calm(1000), calm(3000), crashes, hangs];
        device_contract::check(&mut device, &batch[..]);
    }
}

#[test]
fn a_policy_measures_and_ranks_on_devices_that_it_cannot_name() {
    // Beside each other the faster one looks slower.
    let flattered = calm(1100);
    let batch = [disturbed(1.0), flattered];
    let mut device: Box<dyn Dispatch<[Candidate]>> = Box::new(FakeDevice::new(1, 2));
    let naive = measurer(Policy::Naive);
    let done = naive.measure(&mut *device, &batch[..], 2, &mut start(), &mut |_| {});
    let medians: Vec<_> = done
        .outcomes
        .iter()
        .map(|m| m.outcome.median_ns())
        .collect();
    assert_eq!(medians, [Some(2000), Some(1100)]);
    let ranking = Ranking {
        turns: 9,
        each: Duration::from_secs(1),
    };
    let ranked = device.rank(&batch, &[1, 0], &ranking);
    let medians: Vec<_> = ranked.iter().map(|m| m.outcome.median_ns()).collect();
    assert_eq!(medians, [Some(1100), Some(1000)]);
    for m in &ranked {
        let c = conditions(&m.outcome);
        assert!(c.isolated && c.measurer.as_deref() == Some(RANKING));
    }
}

#[test]
fn a_ranking_begins_no_turn_when_its_time_is_over() {
    let mut device = FakeDevice::new(1, 1);
    let batch = [calm(1_000_000), calm(3_000_000)];
    let mut turns = |each_ms| {
        let ranking = Ranking {
            turns: 9,
            each: Duration::from_millis(each_ms),
        };
        let ranked = device.rank(&batch, &[0, 1], &ranking);
        let samples = ranked.into_iter().map(|m| match m.outcome {
            Outcome::Timed { samples_ns, .. } => samples_ns.len(),
            other => panic!("{other:?}"),
        });
        samples.collect::<Vec<_>>()
    };
    assert_eq!(turns(100), [9, 9]);
    assert_eq!(turns(7), [4, 4], "turns begin at 0, 4, 8 and 12 of 14 ms");
}

/// Medians after confirmation, and the candidates that were measured again. The second batch is what they take
/// the second time.
fn confirmed(
    policy: Policy,
    batches: [&[Candidate]; 2],
    best_ns: Option<u64>,
    over: bool,
) -> (Vec<Option<u64>>, Vec<usize>) {
    let mut device = FakeDevice::new(1, 64);
    let (m, n) = (measurer(policy), batches[0].len());
    let mut state = TaskState::new(&PAPER, 1);
    // The round that the batch shares.
    state.react.dp = n as u32;
    let mut done = m.measure(&mut device, batches[0], n, &mut state, &mut |_| {});
    device.rounds.clear();
    device.end_by(over.then_some(Duration::ZERO));
    let mut loud = true;
    let mut quiet = |on: bool| loud = !on;
    m.confirm(
        &mut device,
        batches[1],
        &mut done.outcomes,
        best_ns,
        &mut quiet,
    );
    assert!(loud);
    let again = device.rounds.iter();
    let again = again.map(|(all, round)| {
        assert_eq!((all.len(), round.dp, round.slower), (1, 1, None));
        all[0].candidate
    });
    let medians = done.outcomes.iter().map(|m| m.outcome.median_ns());
    (medians.collect(), again.collect())
}

#[test]
fn what_would_become_the_incumbent_is_measured_again() {
    let lucky = [calm(900), calm(1000), calm(950)];
    let usual = [calm(1300), calm(1000), calm(950)];
    let of = |best_ns| confirmed(Policy::Serial, [&lucky, &usual], best_ns, false);
    let corrected = vec![Some(1100), Some(1000), Some(950)];
    // The next best of the batch is measured again in its turn.
    assert_eq!(of(None), (corrected.clone(), vec![0, 2]));
    assert_eq!(of(Some(951)), (corrected.clone(), vec![0, 2]));
    assert_eq!(of(Some(920)), (corrected, vec![0]));
    assert_eq!(of(Some(900)), (lucky.map(|c| Some(c.ns)).into(), vec![]));
}

#[test]
fn samples_beside_others_are_replaced_by_those_alone() {
    let batch = [disturbed(0.5); 3];
    let (medians, again) = confirmed(Policy::Naive, [&batch, &batch], None, false);
    assert_eq!(medians, [Some(1000), Some(2000), Some(2000)]);
    assert_eq!(again, [0]);
}

#[test]
fn what_fails_the_second_time_has_failed_unless_its_time_was_over() {
    let batch = [calm(900), calm(1000)];
    let fails = Candidate {
        fails: Fails::Always,
        ..calm(900)
    };
    for policy in [Policy::Serial, Policy::Doppler] {
        let second: [&[Candidate]; 2] = [&batch, &[fails, calm(1000)]];
        let failed = confirmed(policy, second, None, false);
        assert_eq!(failed, (vec![None, Some(1000)], vec![0, 1]));
        let over = confirmed(policy, second, None, true);
        assert_eq!(over, (vec![Some(900), Some(1000)], vec![0]));
    }
}
