//! Joules and money of a run, budgets of both, and labels of candidates.

use super::program::{OP, TRIALS, place, tuned};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::write;
use tempfile::tempdir;

fn sum(parts: &Value) -> f64 {
    let parts = parts.as_object().unwrap().values();
    parts.map(|v| v.as_f64().unwrap()).sum()
}

#[test]
fn the_parts_of_a_runs_energy_sum_to_the_meter() {
    let energy = &tuned().report["energy"];
    let meters = energy["by"].as_array().unwrap();
    assert_eq!(meters.len(), 1 + usize::from(energy["estimated"] == true));
    for m in meters {
        let (joules, idle) = (m["joules"].as_f64().unwrap(), m["idle_j"].as_f64().unwrap());
        assert!(joules > 0.0 && idle > 0.0);
        let parts = idle + sum(&m["phases"]);
        assert!((parts - joules).abs() < 1e-6 * joules, "{parts} {joules}");
        let of_tasks = sum(&m["tasks"]);
        assert!(of_tasks > 0.0 && of_tasks < joules, "{of_tasks} {joules}");
    }
    assert_eq!(energy["money"], Value::Null);
}

#[test]
fn a_machine_file_gives_power_and_price_and_budgets_end_runs() {
    let folder = tempdir().unwrap();
    let place = place(&folder);
    let machine = r#"{
        "curves": [{"name": "plug", "watts": [[0, 1000], [1, 2000], [64, 3000]]}],
        "price": {"per_hour": 36, "currency": "EUR"}
    }"#;
    let file = place.file("server.json");
    write(&file, machine).unwrap();
    // Where every command finds it.
    write(place.file("machine.json"), machine).unwrap();
    let (store, out) = (place.file("s.sqlite"), place.file("m.tsm"));
    let tune = [
        "tune",
        OP,
        "--threads",
        "1",
        "--store",
        &store,
        "--out",
        &out,
    ];
    let by_energy = place.json(&[&tune[..], &["--energy", "3kJ"]].concat());
    let energy = &by_energy["energy"];
    if energy["estimated"] == true {
        assert_eq!(energy["usual"], false);
        let meters = energy["by"].as_array().unwrap();
        let names: Vec<&Value> = meters.iter().map(|m| &m["source"]).collect();
        assert_eq!(names, ["plug", "flat"]);
        // At least a kilowatt is used, whatever the machine does.
        let wall_s = energy["wall_s"].as_f64().unwrap();
        assert!(meters[0]["joules"].as_f64().unwrap() >= 999.0 * wall_s);
    }
    let text = place.ok(&[&tune[..], &["--cost", "0.02", "--machine-file", &file]].concat());
    assert!(text.contains("EUR, at 36 EUR an hour"), "{text}");
    assert!(text.contains("energy: "), "{text}");
}

#[test]
fn what_energy_and_money_need_is_said() {
    let folder = tempdir().unwrap();
    let place = place(&folder);
    let tune = |more: &[&str]| place.error(&[&["tune", OP, "--threads", "1"], more].concat());
    let said = tune(&["--cost", "0.10"]);
    assert!(
        said.contains("price of this machine is not known"),
        "{said}"
    );
    let said = tune(&["--machine-file", &place.file("none.json")]);
    assert!(
        said.contains("none.json") && said.contains("energy-and-money"),
        "{said}"
    );
    write(
        place.file("bad.json"),
        r#"{"curves": [{"name": "c", "watts": [[0, 1]]}]}"#,
    )
    .unwrap();
    let said = tune(&["--machine-file", &place.file("bad.json")]);
    assert!(
        said.contains("bad.json") && said.contains("two points"),
        "{said}"
    );
    assert!(tune(&["--energy", "50"]).contains("such as 50kJ"));
    assert!(tune(&["--energy", "50kJ", "--time", "5s"]).contains("--time"));
    let elsewhere = [
        "--target",
        "riscv64-rvv",
        "--evaluate",
        "static",
        "--energy",
        "1kJ",
    ];
    let said = tune(&elsewhere);
    assert!(said.contains("--energy has no effect here"), "{said}");
}

#[test]
fn candidates_are_labelled_with_what_they_took() {
    let t = tuned();
    let label = |more: &[&str]| {
        let args = [&["records", "label", "--store", &t.store], more].concat();
        t.place.json(&args)
    };
    let all = label(&[]);
    let kinds = &all["total"]["kinds"];
    let of = |label: &str, what: &str| kinds[label][what].as_f64().unwrap_or(0.0);
    let sum = |what: &str| {
        ["hot", "cold", "failed"]
            .map(|l| of(l, what))
            .iter()
            .sum::<f64>()
    };
    assert_eq!(sum("candidates"), TRIALS as f64);
    assert!(of("hot", "candidates") > 0.0 && sum("wall_s") > 0.0);
    assert_eq!(all["total"]["without_joules"], 0);
    assert!(kinds["hot"]["joules"][0].as_f64().unwrap() > 0.0);
    // One curve through every latency leaves none above it.
    let close = label(&["--fraction", "0", "--passes", "0"]);
    assert_eq!(close["fraction"], 0.0);
    let folder = tempdir().unwrap();
    let page = folder.path().join("labels.html").display().to_string();
    let args = ["records", "label", "--store", &t.store, "--plot", &page];
    let text = t.place.ok(&args);
    assert!(
        text.contains("all tasks") && text.contains("cold: slower than"),
        "{text}"
    );
    if all["total"]["estimated"] == true {
        assert!(
            text.contains("joules are estimated under two curves"),
            "{text}"
        );
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && page.contains("<circle"));
}

#[test]
fn a_store_has_the_figures_of_what_cold_candidates_took() {
    let t = tuned();
    let args = ["study", "trim", "records", "--store", &t.store];
    let all = t.place.json(&args);
    let operators = all["operators"].as_array().unwrap();
    let count = |n: &Value| n.as_u64().unwrap();
    let parts = |o: &'_ Value| o["parts"].as_array().unwrap().clone();
    let tried = |o: &Value| -> u64 { parts(o).iter().map(|p| count(&p["candidates"])).sum() };
    assert_eq!(operators.iter().map(tried).sum::<u64>(), TRIALS);
    for o in operators {
        assert_eq!(o["filters"], json!([]));
        assert_eq!(
            o["near"].as_array().unwrap().len() as u64,
            count(&o["searches"])
        );
        for near in o["near"].as_array().unwrap() {
            assert!((1..=count(&near[1])).contains(&count(&near[0])), "{o}");
        }
    }
    // One run has no correlation.
    for correlation in all["correlations"].as_array().unwrap() {
        assert_eq!(
            (&correlation["pairs"], &correlation["pearson"]),
            (&json!(1), &Value::Null)
        );
    }
    let text = t.place.ok(&args);
    assert!(
        text.contains("Trimmer: 0.9987") && text.contains("J cold"),
        "{text}"
    );
}

#[test]
fn tuners_are_surveyed_and_a_network_of_their_candidates_filters() {
    let folder = tempdir().unwrap();
    let place = place(&folder);
    let (store, out) = (place.file("s.sqlite"), place.file("m.tsm"));
    let run = |more: &[&str]| {
        let base = [
            "tune",
            OP,
            "--threads",
            "1",
            "--store",
            &store,
            "--out",
            &out,
        ];
        place.json(&[&base[..], more].concat())
    };
    let survey = ["--budget", "survey", "--survey", "trials=4,patience=1"];
    let tuners = ["--tuners", "evolutionary,random", "--trials", "60"];
    let report = run(&[&survey[..], &tuners].concat());
    let surveys = report["survey"].as_array().unwrap();
    let names: Vec<&Value> = surveys.iter().map(|s| &s["strategy"]).collect();
    assert_eq!(names, ["evolutionary", "random"]);
    for s in surveys {
        let epochs = s["epochs"].as_array().unwrap();
        assert!(epochs.len() > 1 && epochs[0]["rate"].is_null(), "{s}");
        assert_eq!(epochs[0]["unit"], "s");
    }
    assert!(names.contains(&&report["strategy"]));
    let network = place.file("cold.network");
    let trained = place.json(&["records", "train-cold", "--store", &store]);
    assert!(
        trained["trained"]["candidates"].as_u64().unwrap() > 8,
        "{trained}"
    );
    assert!(
        std::fs::read_to_string(network)
            .unwrap()
            .starts_with("tunesmith-model 1")
    );
    let filtered = run(&["--filter", "cold", "--audit", "0.5", "--trials", "8"]);
    assert_eq!(filtered["funnel"][0]["filter"], "cold");
    // Of each four that are asked for, three are not measured.
    let best = ["--filter", "cold", "--cold-rule", "best=4", "--trials", "8"];
    let search = ["--strategy", "random", "--start", "random", "--seed", "5"];
    let chosen = run(&[&best[..], &search].concat());
    let dropped = chosen["funnel"][0]["dropped"].as_u64().unwrap();
    let measured = chosen["trials"].as_u64().unwrap() + chosen["cached"].as_u64().unwrap();
    assert!(dropped >= 2 * measured && measured > 0, "{chosen}");
    for report in [&filtered, &chosen] {
        filter_costs_are_in_the_account(report);
    }
    // Proposing what was dropped is part of it.
    let took = &chosen["funnel"][0]["took"];
    assert!(took["asking_cpu_s"].as_f64().unwrap() > 0.0, "{took}");
    let text = place.ok(&[
        "tune",
        OP,
        "--threads",
        "1",
        "--store",
        &store,
        "--out",
        &out,
        "--trials",
        "8",
        "--filter",
        "cold",
    ]);
    let said = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(said.contains("cold itself took "), "{text}");
    assert!(
        said.contains("dropped by cold: ") && said.contains(" CPU s and "),
        "{text}"
    );
}

#[test]
fn tuners_of_two_models_are_surveyed_on_core_sets_of_their_own() {
    let folder = tempdir().unwrap();
    let place = place(&folder);
    let (store, out) = (place.file("s.sqlite"), place.file("out"));
    let other = "op:matmul(m=24,n=40,k=16)";
    let base = ["tune", OP, other, "--threads", "1", "--store", &store];
    let base = [&base[..], &["--out", &out]].concat();
    let survey = ["--budget", "survey", "--survey", "trials=4,patience=1"];
    let tuners = ["--tuners", "evolutionary,random", "--trials", "80"];
    let run = |sets: &'static str, more: &[&'static str]| {
        [&base[..], &["--core-sets", sets], &tuners, more].concat()
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        let said = place.error(&run("2", &survey));
        assert!(said.contains("core sets have too few CPUs"), "{said}");
        return;
    }
    let said = place.error(&run("0;0", &survey));
    assert!(said.contains("CPU 0 is named twice"), "{said}");
    let said = place.error(&run(
        "2",
        &[&survey[..], &["--measure", "doppler"]].concat(),
    ));
    assert!(said.contains("doppler measures side by side"), "{said}");
    let all = place.json(&run("2", &survey));
    let reports = all["models"].as_array().unwrap();
    assert_eq!(reports.len(), 2);
    for r in reports {
        let names: Vec<&Value> = r["survey"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| &s["strategy"])
            .collect();
        assert_eq!(names, ["evolutionary", "random"]);
        assert!(names.contains(&&r["strategy"]));
        let trials: u64 = r["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["trials"].as_u64().unwrap())
            .sum();
        assert_eq!(r["trials"], trials, "of its own tasks only");
        let on: Vec<&Value> = r["survey"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| &s["epochs"][0]["core_sets"])
            .collect();
        // The models are dealt out in turn, and then those of the second tuner.
        assert_eq!(on[0], on[1], "{r}");
        assert_eq!(on[0].as_array().unwrap().len(), 1);
    }
    let first = |r: &Value| r["survey"][0]["epochs"][0]["core_sets"][0].clone();
    let sets = [first(&reports[0]), first(&reports[1])];
    assert_ne!(sets[0], sets[1]);
    let uses = reports[0]["core_sets"].as_array().unwrap();
    assert_eq!([&uses[0]["name"], &uses[1]["name"]], [&sets[0], &sets[1]]);
    for set in uses {
        assert!(
            set["candidates"].as_u64().unwrap() > 0 && set["works"] == true,
            "{set}"
        );
        assert!(set["busy_s"].as_f64().unwrap() > 0.0 && set["share"].as_f64().unwrap() <= 1.0);
    }
    records_name_their_core_set(&store, &sets);
    let text = place.ok(&run("2", &["--budget", "round-robin"]));
    let said = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(said.contains("core sets: CPU "), "{text}");
}

/// All records are of pinned kernels, and those of finalists alone are isolated; the others name all of these sets.
fn records_name_their_core_set(store: &str, sets: &[Value]) {
    let records = store::Store::open(store).unwrap();
    let records = records.records_for(&store::RecordQuery::default()).unwrap();
    let mut devices = BTreeSet::new();
    for r in &records {
        if let store::Outcome::Timed { conditions: c, .. } = &r.outcome {
            // Finalists are ranked when all sets have nothing to do.
            assert_eq!((c.pinned, c.isolated), (true, r.final_), "{r:?}");
            devices.extend(c.device.clone().filter(|_| !r.final_));
        }
    }
    let named = |s: &Value| format!("cpus {}", s.as_str().unwrap());
    assert_eq!(devices, sets.iter().map(named).collect());
}

/// The parts of what a filter took sum to the whole, and but for reading its network that is the phase `filter`.
fn filter_costs_are_in_the_account(report: &Value) {
    let of = |v: &Value, name: &str| v[name].as_f64().unwrap();
    let took = &report["funnel"][0]["took"];
    let parts = ["loading", "training", "judging", "asking"];
    let parts = parts.map(|p| of(took, &format!("{p}_cpu_s")));
    let cpu_s = of(took, "cpu_s");
    assert!((parts.iter().sum::<f64>() - cpu_s).abs() < 1e-9, "{took}");
    assert!(parts[0] > 0.0 && parts[2] > 0.0, "{took}");
    let share = cpu_s / of(&report["energy"], "cpu_s");
    assert!((of(took, "share_of_cpu") - share).abs() < 1e-9, "{took}");
    let meters = report["energy"]["by"].as_array().unwrap();
    for (at, m) in meters.iter().enumerate() {
        let joules = took["joules"][at].as_f64().unwrap();
        let loading = parts[0] * of(m, "joules_per_cpu_s");
        let phase = of(&m["phases"], "filter");
        assert!(
            (joules - loading - phase).abs() < 1e-6 * joules,
            "{took} {m}"
        );
        let share = joules / of(m, "joules");
        assert!((took["share_of_joules"][at].as_f64().unwrap() - share).abs() < 1e-9);
    }
}

#[test]
fn what_the_filter_cold_saves_is_replayed() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let store = ["--store", "s.sqlite"];
    for op in [OP, "op:dense(m=8,n=16,k=32)"] {
        let tune = ["tune", op, "--threads", "1", "--strategy", "random"];
        p.ok(&[&tune[..], &store, &["--trials", "12", "--out", "m.tsm"]].concat());
    }
    let study = ["study", "trim", "cold", "--seeds", "2", "--least", "4"];
    let study = [&study[..], &store, &["--strategies", "random"]].concat();
    let choosing = [&study[..], &["--choosing"]].concat();
    let all = p.json(&choosing);
    assert_eq!(all["kind"], json!(["replayed", "modelled"]));
    let compared = all["compared"].as_array().unwrap();
    let [ten, eight, above, in_order, best, order, oracle] = &compared[..] else {
        panic!("{all}")
    };
    let rule = |c: &Value| c["rule"].clone();
    assert_eq!(rule(ten), json!({"cold": {"neighbours": 10}}));
    assert_eq!(rule(eight), json!({"cold": {"neighbours": 8}}));
    assert_eq!(rule(above), json!({"cold": {"above": 1.0}}));
    assert_eq!(rule(in_order), json!({"ordered": above["dropped"]}));
    assert_eq!(rule(order), json!({"ordered": 0.0}));
    assert_eq!(rule(best), json!({"cold": {"best": 8}}));
    assert_eq!(rule(oracle), json!("oracle"));
    for c in compared {
        assert_eq!((&c["tasks"], &c["searches"]), (&json!(2), &json!(4)), "{c}");
    }
    assert_eq!(order["dropped"], 0.0);
    let text = p.ok(&choosing);
    for said in ["order alone", "order, chance", "2 tasks"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // One task of five is for figures, and there are two.
    assert!(p.error(&study).contains("tune more tasks"));
}

/// A machine whose power is the same whatever it does, so that joules are watts times seconds.
#[test]
fn an_inference_has_joules_by_the_machine_file() {
    let folder = tempdir().unwrap();
    let place = place(&folder);
    let file = place.file("plug.json");
    write(
        &file,
        r#"{"curves": [{"name": "plug", "watts": [[0, 100], [64, 100]]}]}"#,
    )
    .unwrap();
    let bench = [
        "bench",
        OP,
        "--defaults",
        "--threads",
        "1",
        "--runs",
        "50",
        "--machine-file",
        &file,
    ];
    let one = place.json(&bench);
    let energy = &one["energy"];
    let meters = energy["by"].as_array().unwrap();
    if energy["estimated"] == true {
        let names: Vec<&Value> = meters.iter().map(|m| &m["source"]).collect();
        assert_eq!(names, ["plug", "flat"]);
        let expected = 100.0 * one["mean_ms"].as_f64().unwrap() / 1e3;
        for m in meters {
            let joules = m["joules_per_inference"].as_f64().unwrap();
            // Beginning and ending the count is counted, too.
            let most = expected + 100.0 * 0.05 / 50.0;
            assert!((expected..most).contains(&joules), "{joules} {expected}");
            assert_eq!(m["idle_joules_per_inference"], m["joules_per_inference"]);
        }
        let text = place.ok(&bench);
        assert!(text.contains("energy of an inference: "), "{text}");
        assert!(text.contains("estimated under two curves of power (plug, flat)"));
        let streams = place.ok(&[&bench[..], &["--streams", "2"]].concat());
        assert!(streams.contains("energy (estimated)"), "{streams}");
    } else {
        assert_eq!(meters.len(), 1);
    }
}
