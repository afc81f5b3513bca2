//! Where trees are drawn: places, blanks, nested choices, and names.

use super::*;
use crate::select::sample::{layer, selection};

fn sample() -> Selection {
    let long = "/backbone/layer1/layer1.0/conv1/Conv_output_of_a_long_name";
    let all = [
        ("im2row", 4.0),
        ("direct", 3.0),
        ("winograd2", 1.0),
        ("winograd4", 2.0),
    ];
    let mut s = selection(
        "net",
        "x86-avx2",
        vec![
            layer(&[(0, "strided")], &all[..2], 1),
            layer(&[(1, long), (2, "b")], &all, 2),
            layer(&[(3, "c")], &all, 0),
        ],
    );
    let apart = |algorithm: &str, ms| LayerTime {
        algorithm: algorithm.to_string(),
        families: vec![],
        median_ms: ms,
    };
    s.groups = vec![GroupTimes {
        steps: "b & b.taps".into(),
        equal: 3,
        chosen: 1,
        alternatives: vec![apart("apart", Some(5.0)), apart("columns+gemm", None)],
    }];
    s
}

#[test]
fn each_algorithm_has_its_place_in_every_layer_and_blanks_stay() {
    let s = sample();
    let trees = trees(&s);
    let leaf = |tree: usize, name: &str| {
        let t = &trees[tree];
        let own = t.leaves.iter().find(|l| l.time.algorithm == name);
        own.map(|l| l.y - t.top)
    };
    for name in ["im2row", "direct"] {
        assert_eq!(leaf(0, name), leaf(1, name));
    }
    assert!(leaf(1, "winograd2").is_some());
    assert_eq!(leaf(0, "winograd2"), None);
    // The room of what does not apply is left blank, not taken away.
    assert_eq!(trees[0].height, trees[2].height);
    assert!(trees.windows(2).all(|w| w[0].top + w[0].height == w[1].top));
}

#[test]
fn a_nested_choice_stands_between_its_layer_and_its_algorithms() {
    let s = sample();
    let trees = trees(&s);
    assert!(trees[0].families().is_empty());
    let families = trees[1].families();
    assert_eq!(families.len(), 1);
    let (name, y) = &families[0];
    assert_eq!(name, "winograd");
    let own = trees[1].leaves.iter().filter(|l| l.family() == "winograd");
    let places: Vec<i32> = own.map(|l| l.y).collect();
    assert_eq!(places.iter().sum::<i32>() / 2, *y);
    let c = columns(&trees);
    assert!(c.layer < c.family && c.family < c.nested && c.nested < c.leaf && c.leaf < c.bar);
}

#[test]
fn names_are_drawn_whole_and_the_winner_says_so() {
    let s = sample();
    let svg = crate::plots::selections(std::slice::from_ref(&s)).unwrap();
    let texts: Vec<&str> = svg
        .lines()
        .filter(|l| !l.starts_with('<') && !l.is_empty())
        .collect();
    let joined = trees(&s)[1].title.concat();
    assert_eq!(
        joined.replace(' ', ""),
        s.layers[1].step.clone() + "and1equal"
    );
    for line in trees(&s).iter().flat_map(|t| t.title.clone()) {
        assert!(line.chars().count() <= LETTERS);
        let escaped = line.replace('&', "&amp;");
        assert!(texts.contains(&&*escaped), "{line}: {texts:?}");
    }
    assert!(!svg.contains('…'));
    let chosen = texts.iter().filter(|t| t.ends_with(", chosen"));
    assert_eq!(chosen.count(), 4);
    assert!(texts.contains(&"not timed, chosen"));
}
