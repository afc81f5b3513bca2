//! Replaying a table.

use crate::fakes::SpiedStrategy;
use crate::setting::{SEED, Setting, Wanted, options, search, wanted, x86};
use serde_json::{Value, json};
use std::sync::Arc;
use store::{RECORDED, Record, RecordQuery, Table};
use tune::evaluator::{Recorded, space_of};
use tune::{Run, State};

const BLOCKS: [u32; 5] = [8, 16, 32, 64, 128];
const TILES: [u32; 4] = [1, 2, 4, 8];

fn row(block: u32, tile: u32) -> Value {
    let ms = f64::from(block.abs_diff(32) + 3 * tile.abs_diff(4) + 1) / 4.0;
    let mut row = json!({
        "configuration": {"block": block, "tile": tile},
        "times": {"compilation": 2.0, "runtimes": [ms, ms]},
        "invalidity": "correct",
        "measurements": [{"name": "time", "value": ms, "unit": ""}],
    });
    if block == 128 {
        row["times"]["runtimes"] = json!([]);
        row["invalidity"] = json!("runtime");
        row["measurements"][0]["value"] = json!("RuntimeFailedConfig");
    }
    row
}

/// All combinations but those of the largest tile with small blocks.
fn table() -> Arc<Table> {
    let pairs = BLOCKS
        .iter()
        .flat_map(|b| TILES.iter().map(move |t| (*b, *t)));
    let rows: Vec<Value> = pairs
        .filter(|(block, tile)| *tile < 8 || *block > 16)
        .map(|(block, tile)| row(block, tile))
        .collect();
    let document = json!({
        "metadata": {"timeunit": "miliseconds"}, "results": rows, "schema_version": "1.0.0",
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.json");
    std::fs::write(&path, document.to_string()).unwrap();
    Arc::new(Table::open(&path, &RecordQuery::default()).unwrap())
}

/// Whether the table has the point's row, and the cost that the strategy was told.
type Told = (bool, Option<f64>);

/// The records of a run of so many trials on the table, its search, and what the strategy was
/// told.
fn replay(strategy: &str, trials: u64) -> (Vec<Record>, tune::Search, Vec<Told>) {
    let table = table();
    let options = options(trials);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let wanted = Wanted {
        strategy,
        ..wanted("run", "table")
    };
    let mut s = setting.search(&wanted, &x86(), space_of(&table), None, &options);
    let spy = SpiedStrategy::spy(&mut s);
    let tables = [(Arc::clone(&s.key), Arc::clone(&table))];
    run.add_evaluator(Box::new(Recorded::new(tables, (*s.place).clone())));
    run.add_searches(vec![s]);
    search(&mut run);
    let told = spy.lock().unwrap();
    let told = told
        .told
        .iter()
        .map(|t| (table.outcome(&t.0.values).is_some(), t.2));
    let told = told.collect();
    (setting.records("run"), run.searches.remove(0), told)
}

#[test]
fn an_exhausted_table_gives_its_best() {
    let table = table();
    let (_, best) = table.best().unwrap();
    let best = best.outcome.median_ns().unwrap();
    assert_eq!(best, 250_000);
    for strategy in search::strategy_names() {
        let (records, s, told) = replay(strategy, 10_000);
        assert_eq!((s.state, s.trials), (State::Exhausted, 18), "{strategy}");
        assert_eq!(records.len(), table.len());
        assert_eq!(s.best_cost(), Some(best as f64));
        // Two combinations have no row: no record, no cost, and no trial.
        assert_eq!(s.failures["unanswered"], 2);
        assert_eq!(s.failures["crashed-run"], 4);
        assert_eq!(told.len(), 20);
        assert!(told.iter().all(|(row, cost)| *row || cost.is_none()));
        assert_eq!(told.iter().filter(|(_, cost)| cost.is_some()).count(), 14);
        for r in &records {
            assert_eq!((r.evaluator.as_str(), r.seed), (RECORDED, SEED));
            let values: Vec<u64> = r.decisions[1..].iter().map(|d| d.index).collect();
            assert_eq!(table.outcome(&values), Some(&r.outcome));
        }
    }
}

#[test]
fn equal_seeds_replay_equal_runs() {
    for strategy in search::strategy_names() {
        let (records, s, _) = replay(strategy, 9);
        assert_eq!((records.len(), s.trials), (9, 9));
        assert_eq!(replay(strategy, 9).0, records, "{strategy}");
    }
}
