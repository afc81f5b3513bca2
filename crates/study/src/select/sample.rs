//! Studies of choosing as they may come out, for tests of what shows them; their times are made up.

use super::*;

fn times_of(choice: &str) -> ChoiceTimes {
    let samples_ns = vec![1_000_000; 5];
    times(choice, 1, Latencies { samples_ns }, 1)
}

/// Equal steps with their positions, that chose among algorithms of so many milliseconds. A number at the end of an
/// algorithm's name makes it a member of a family.
pub(crate) fn layer(steps: &[(usize, &str)], tried: &[(&str, f64)], chosen: usize) -> Layer {
    let time = |(name, ms): &(&str, f64)| {
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
        LayerTime {
            algorithm: (*name).to_string(),
            families: match family == *name {
                true => vec![],
                false => vec![family.to_string()],
            },
            median_ms: Some(*ms),
        }
    };
    let alternatives: Vec<LayerTime> = tried.iter().map(time).collect();
    Layer {
        step: steps[0].1.to_string(),
        equal: steps.len(),
        steps: steps.iter().map(|(_, s)| (*s).to_string()).collect(),
        positions: steps.iter().map(|(at, _)| *at).collect(),
        chosen,
        families: alternatives[chosen].families.clone(),
        alternatives,
    }
}

pub(crate) fn selection(model: &str, target: &str, layers: Vec<Layer>) -> Selection {
    let (online, first) = (times_of("online"), times_of("first"));
    let explored = vec![2_000_000; 4];
    Selection {
        model: model.to_string(),
        target: target.to_string(),
        training: false,
        threads: 1,
        batch: 1,
        steps: layers.len(),
        exploring: exploring(explored, 2_000_000, &[1_000_000], &online, &first),
        online,
        fixed: vec![first],
        best: 0,
        differing: 0,
        layers,
        groups: vec![],
        winners: vec![],
        overhead: Overhead {
            pairs: 10,
            ratio: 1.0,
        },
        runs: vec![],
    }
}
