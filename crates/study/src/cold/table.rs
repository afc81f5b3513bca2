//! The recorded candidates of one task, and what a network that never saw the task says of them.

use super::replay::BATCH;
use search::{Point, Sketch, Space};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;
use tune::filter::trained::{Example, Known, Trained};

/// A recorded candidate.
pub struct Row {
    pub point: Point,
    /// Where the network places it, and the logarithm of the latency that it predicts, up to a constant of the task.
    pub at: Vec<f64>,
    pub predicted: f64,
    /// Its nearest candidates of other tasks: likeness, and whether they are cold or failed.
    pub known: Known,
    /// None of one that failed.
    pub latency_ns: Option<f64>,
    /// Whether it is above the trend of the search that recorded it, or failed.
    pub bad: bool,
    /// CPU time of building and measuring it, and of asking for it.
    pub seconds: f64,
    pub ask_s: f64,
}

/// All candidates of one task for one target and machine.
pub struct Table {
    pub space: Space,
    /// In the order of the records: those of one strategy follow those of another.
    pub rows: Vec<Row>,
    pub least_ns: f64,
    /// Measured: what predicting a candidate takes, and what looking up its nearest known ones takes.
    pub look_s: f64,
    pub nearest_s: f64,
}

/// The tables of at least so many candidates. No candidate of these tasks may be among those that the network knows.
pub fn tables(held_out: &[&Example], trained: &Trained, least_rows: usize) -> Vec<Table> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Example>> = BTreeMap::new();
    for e in held_out {
        let group = (e.task.as_str(), e.place.as_str());
        groups.entry(group).or_default().push(e);
    }
    let tables = groups.into_iter();
    let tables = tables.filter_map(|(_, group)| table(&group, trained));
    tables.filter(|t| t.rows.len() >= least_rows).collect()
}

fn table(group: &[&Example], trained: &Trained) -> Option<Table> {
    let (space, points) = space(group);
    let mut seen = HashSet::new();
    let new = group
        .iter()
        .zip(points)
        .filter(|(_, p)| seen.insert(p.clone()));
    let new: Vec<(&&Example, Point)> = new.collect();
    let start = Instant::now();
    let looks = new.iter().map(|(e, _)| trained.look(&e.row));
    let (at, predicted): (Vec<Vec<f64>>, Vec<f64>) = looks.unzip();
    let look_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    // As many at a time as the filter looks up.
    let known = at.chunks(BATCH).flat_map(|at| trained.known(at));
    let known: Vec<Known> = known.collect();
    let nearest_s = start.elapsed().as_secs_f64();
    let looked = at.into_iter().zip(predicted).zip(known);
    let rows = new
        .into_iter()
        .zip(looked)
        .map(|((e, point), ((at, predicted), known))| Row {
            point,
            known,
            at,
            predicted,
            latency_ns: e.latency_ns,
            bad: e.bad,
            seconds: e.cpu_s - e.search_s,
            ask_s: e.search_s,
        });
    let rows: Vec<Row> = rows.collect();
    let n = rows.len() as f64;
    let least_ns = rows.iter().filter_map(|r| r.latency_ns).reduce(f64::min)?;
    Some(Table {
        space,
        rows,
        least_ns,
        look_s: look_s / n,
        nearest_s: nearest_s / n,
    })
}

/// A sketch for each algorithm and list of decisions, and the point of each candidate.
fn space(group: &[&Example]) -> (Space, Vec<Point>) {
    let mut sketches: Vec<Sketch> = Vec::new();
    let mut points = Vec::new();
    for e in group {
        let values: Vec<u64> = e.decisions.iter().map(|d| d.index).collect();
        let same = |s: &Sketch| {
            let names = s.decisions.iter().map(|d| &d.name);
            s.name == e.algorithm && names.eq(e.decisions.iter().map(|d| &d.name))
        };
        let sketch = sketches.iter().position(same).unwrap_or_else(|| {
            let decisions = e.decisions.iter().map(|d| schedule_decision(&d.name));
            let sketch = Sketch::of_knobs(&e.algorithm, decisions.collect(), values.clone());
            sketches.push(sketch);
            sketches.len() - 1
        });
        for (known, d) in sketches[sketch].decisions.iter_mut().zip(&e.decisions) {
            let schedule::DecisionKind::Categorical { options } = &mut known.kind else {
                continue;
            };
            let most = d.cardinality.max(d.index + 1) as i64;
            options.extend(options.len() as i64..most);
        }
        points.push(Point { sketch, values });
    }
    (Space::of(sketches), points)
}

fn schedule_decision(name: &str) -> schedule::Decision {
    schedule::Decision {
        name: name.into(),
        kind: schedule::DecisionKind::Categorical { options: vec![] },
        value: vec![0],
    }
}
