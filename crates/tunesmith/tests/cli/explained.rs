//! What `explain` and `doctor` show at a glance.

use super::errors::says;
use super::program::place;
use tempfile::tempdir;

const MODEL: [&str; 7] = [
    "explain",
    "squeezenet1.1",
    "--defaults",
    "--threads",
    "1",
    "--time",
    "0s",
];

/// The lines of the table of layers below its header.
fn rows(text: &str) -> Vec<&str> {
    let lines = text.lines().skip(2);
    lines.take_while(|l| !l.is_empty()).collect()
}

#[test]
fn narrow_tables_show_what_differs_and_end_with_the_costliest() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let text = p.on_screen(80, &MODEL);
    let titles: Vec<&str> = rows(&text)
        .into_iter()
        .filter(|l| l.contains("conv"))
        .collect();
    assert!(titles.len() > 20, "{text}");
    // The size and the kernel stand at the end of a title.
    assert!(
        titles
            .iter()
            .all(|t| t.contains("x1 ") || t.contains("x3 ") || t.contains("3x3/2")),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    let shares: Vec<f64> = rows(&text)
        .iter()
        .filter_map(|l| l.split_whitespace().find(|w| w.ends_with('%')))
        .map(|w| w.trim_end_matches('%').parse().unwrap())
        .collect();
    let most = shares.iter().copied().fold(0.0, f64::max);
    let said: f64 = last
        .trim_start()
        .split('%')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((said - most).abs() <= 0.51, "{text}");
    says(&text, &["the costliest layers have"]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn the_rest_of_the_layers_is_one_line() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let files = ["--graph", "g.dot", "--trace", "t.json"];
    let top = [&MODEL[..], &["--top", "3"], &files].concat();
    let text = p.ok(&top);
    let layers: Vec<&str> = rows(&text)
        .into_iter()
        .filter(|l| !l.contains("others:"))
        .collect();
    assert_eq!(layers.len(), 3, "{text}");
    says(&text, &["others:", "written to g.dot"]);
    let report = p.json(&top);
    let steps = report["layers"].as_array().unwrap();
    assert!(steps.len() > 20, "JSON has all layers");
    let trace = std::fs::read(folder.path().join("t.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    // The first event names the model.
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), steps.len() + 1);
    assert_eq!(events[1]["name"], steps[0]["name"]);
    let dot = std::fs::read_to_string(folder.path().join("g.dot")).unwrap();
    assert!(
        dot.starts_with("digraph model {") && dot.ends_with("}\n"),
        "{dot}"
    );
    for at in 0..steps.len() {
        assert!(dot.contains(&format!("  s{at} [label=")), "{at}: {dot}");
        assert!(
            dot.contains(&format!("-> s{at} [")),
            "{at} reads nothing: {dot}"
        );
    }
    // Both halves of a fire module are read behind their concatenation.
    let read = |at: usize| {
        (0..steps.len())
            .filter(|to| dot.contains(&format!(" s{at} -> s{to} ")))
            .count()
    };
    let unread = (0..steps.len()).filter(|at| read(*at) == 0).count();
    assert_eq!(unread, 1, "only the last step is read by none: {dot}");
    says(&dot, &["i0 -> s", "1x3x224x224 f32", "%"]);
}

#[test]
fn the_graph_is_drawn() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let report = p.json(&[&MODEL[..], &["--graph", "g.svg"]].concat());
    let svg = std::fs::read_to_string(folder.path().join("g.svg")).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    let steps = report["layers"].as_array().unwrap();
    // One mark a step and one of the input.
    assert_eq!(svg.matches("<circle").count(), steps.len() + 1);
    for step in steps {
        let name = step["name"].as_str().unwrap();
        assert!(svg.contains(&format!("<title>{name}</title>")), "{name}");
    }
    says(&svg, &["1x3x224x224 f32</title></path>"]);
    // Lanes are used again, so the picture of a long model stays narrow.
    let lanes = svg.split("<circle cx=\"").skip(1);
    let lanes = lanes.map(|c| c.split('"').next().unwrap().parse::<usize>().unwrap());
    assert!(lanes.max().unwrap() <= 14 * 4, "{svg}");
}

#[test]
fn instruction_sets_that_are_used_are_here() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let report = p.json(&["doctor", "--threads", "1"]);
    let sets = report["instruction_sets"].as_array().unwrap();
    assert!(!sets.is_empty());
    for set in sets {
        let of = |name: &str| set[name].as_bool().unwrap();
        assert!(of("here") || !of("used"), "{set}");
    }
    if report["target"] == "x86-avx512" {
        assert!(sets.iter().take(2).all(|s| s["used"] == true), "{sets:?}");
    }
    says(
        &p.ok(&["doctor", "--threads", "1"]),
        &["instructions", "used"],
    );
}
