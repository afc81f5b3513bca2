//! How fast the filter `cold` looks up nearest candidates: `cargo run --release -p tune --example nearest_speed`.
//!
//! The table has 100,000 candidates of random tasks and decisions, placed by the network that ships. Others are looked up as many
//! together as each line says. One thread runs; every time is the least of three. The last line compares with all products in double precision.

use learn::Directions;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;
use std::time::Instant;
use store::{Arg, TargetKey, Task};
use tune::filter::trained::{Decided, Facts, Trained};

const ROWS: usize = 100_000;
const LOOKED_UP: usize = 512;
const NEAREST: usize = 10;
const COMPARED: usize = 32;
const REPEATS: usize = 3;

/// Algorithms, and decisions with the number of their values, that the network knows.
const ALGORITHMS: [&str; 6] = [
    "convgemm",
    "direct.rows",
    "gemm.packed.rows",
    "im2row",
    "rules.panels",
    "winograd4.staged",
];
const DECISIONS: [(&str, u64); 6] = [
    ("tile_x", 17),
    ("tile_y", 17),
    ("tile_k", 22),
    ("unroll", 6),
    ("vectors", 4),
    ("prefetch", 4),
];
const SIZES: [&str; 6] = ["c", "k", "h", "w", "m", "n"];

/// The place of a random candidate; empty if the network places it nowhere.
fn place(network: &Trained, rng: &mut Pcg64Mcg) -> Vec<f64> {
    let op = ["conv2d", "matmul", "depthwise_conv2d"][rng.random_range(0..3)];
    let mut size = || 1 << rng.random_range(0..12);
    let args = SIZES.map(|name| (name.to_string(), Arg::Int(size())));
    let (flops, bytes) = (size() as f64 * 1e6, size() as u64 * 1000);
    let facts = Facts {
        task: Task {
            key: String::new(),
            text: String::new(),
            op: op.into(),
            args: args.into(),
            flops,
            bytes,
            extra: Default::default(),
        },
        target: TargetKey {
            triple: String::new(),
            cpu: "some cpu".into(),
            features: vec![],
            caches: [("1".to_string(), 32 * 1024)].into(),
            threads: 1,
            extra: Default::default(),
        },
        machine: String::new(),
    };
    let algorithm = ALGORITHMS[rng.random_range(0..ALGORITHMS.len())];
    let choices = DECISIONS.map(|(name, values)| {
        let index = rng.random_range(0..values);
        Decided {
            name: name.into(),
            index,
            value: vec![1 << index.min(10)],
        }
    });
    network.look(&facts.row(algorithm, choices.into_iter())).0
}

fn main() {
    let network = Trained::shipped();
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut places =
        |n: usize| -> Vec<Vec<f64>> { (0..n).map(|_| place(&network, &mut rng)).collect() };
    let (table, of) = (places(ROWS), places(LOOKED_UP));
    let distinct = |v: &Vec<f64>| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let distinct: HashSet<Vec<u64>> = table.iter().map(distinct).collect();
    println!(
        "{ROWS} candidates, {} of them at places of their own, {} values each",
        distinct.len(),
        table.iter().map(Vec::len).max().unwrap_or(0)
    );
    let directions = Directions::of(table.iter().map(Vec::as_slice));
    let of: Vec<&[f64]> = of.iter().map(Vec::as_slice).collect();
    println!("{:>9} {:>12}", "together", "a second");
    let mut found = vec![];
    for together in [1, 2, 16, 128] {
        let mut least = f64::INFINITY;
        for _ in 0..REPEATS {
            let begin = Instant::now();
            let chunks = of.chunks(together);
            found = chunks
                .flat_map(|of| directions.nearest(of, NEAREST))
                .collect();
            least = least.min(begin.elapsed().as_secs_f64());
        }
        println!("{together:>9} {:>12.0}", LOOKED_UP as f64 / least);
    }
    let mut different = 0;
    let begin = Instant::now();
    for (of, found) in of.iter().zip(&found).take(COMPARED) {
        let product = |v: &Vec<f64>| v.iter().zip(*of).map(|(a, b)| b * a).sum::<f64>();
        let mut all: Vec<f64> = table.iter().map(product).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        let same = found.iter().zip(&all).all(|((a, _), b)| a == b);
        different += usize::from(!same && !of.is_empty());
    }
    println!(
        "all products in double precision: {:.0} a second; {different} of {COMPARED} differ",
        COMPARED as f64 / begin.elapsed().as_secs_f64()
    );
}
