//! Titles of tasks that fit a column, and that differ where tasks differ.
//!
//! A task's full title has all of its arguments, in the order of their names. People look for
//! the operator and its sizes, and for what tells a task from its neighbours.

use std::collections::BTreeMap;

/// The operator in a few words: `conv2d 64>128 56x56 3x3/2`.
pub fn operator(op: &str, args: &BTreeMap<String, i64>) -> String {
    let arg = |name: &str| args.get(name).copied();
    if let (Some(c), Some(k), Some(h), Some(w)) = (arg("c"), arg("k"), arg("h"), arg("w")) {
        let channels = if c == k && op.contains("pool") {
            format!("{c}")
        } else {
            format!("{c}>{k}")
        };
        let mut text = format!("{op} {channels} {h}x{w}");
        if let (Some(r), Some(s)) = (arg("r"), arg("s")) {
            text += &format!(" {r}x{s}");
        }
        if let Some(stride) = arg("stride_h").filter(|s| *s > 1) {
            text += &format!("/{stride}");
        }
        if let Some(groups) = arg("groups").filter(|g| *g > 1) {
            text += &format!(" g{groups}");
        }
        return text;
    }
    if let (Some(m), Some(n), Some(k)) = (arg("m"), arg("n"), arg("k")) {
        let batch = arg("b").filter(|b| *b > 1);
        let batch = batch.map_or(String::new(), |b| format!("{b}x"));
        return format!("{op} {batch}{m}x{n}x{k}");
    }
    let shown = args.iter().filter(|(_, v)| **v > 1);
    let args: Vec<String> = shown.map(|(n, v)| format!("{n}={v}")).collect();
    format!("{op} {}", args.join(" ")).trim_end().into()
}

/// Letters of an operator's name that are kept where a title is cut.
const KEPT: usize = 4;

/// A title in at most so many characters. What tells titles apart stands at their end, so the operator's name
/// loses its end first, and then the title its middle.
pub fn fitted(title: &str, width: usize) -> String {
    let length = title.chars().count();
    if length <= width {
        return title.into();
    }
    let word = title.chars().take_while(|c| *c != ' ').count();
    let lost = length + 1 - width;
    let from = match word >= KEPT + lost && word < length {
        true => word - lost,
        false => width / 3,
    };
    let (before, after) = (title.chars().take(from), title.chars().skip(from + lost));
    before.chain(['…']).chain(after).collect()
}

/// The operator and the arguments of a full title, `op(name=value,...)`.
fn parsed(title: &str) -> Option<(&str, BTreeMap<String, i64>)> {
    let (op, rest) = title.split_once('(')?;
    let list = rest.strip_suffix(')')?;
    let arg = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    };
    let named = list.split(',').filter(|t| !t.is_empty());
    Some((op, named.map(arg).collect::<Option<_>>()?))
}

/// Short titles of tasks that are shown together. Where two would be equal, the arguments in
/// which they differ follow, and where there are none, their numbers.
pub fn short(titles: &[&str]) -> Vec<String> {
    let all: Vec<_> = titles.iter().map(|t| parsed(t)).collect();
    let words = |i: usize| match &all[i] {
        Some((op, args)) => operator(op, args),
        None => titles[i].to_string(),
    };
    let plain: Vec<String> = (0..titles.len()).map(words).collect();
    let mut out = plain.clone();
    for i in 0..titles.len() {
        let same: Vec<usize> = (0..titles.len())
            .filter(|j| plain[*j] == plain[i])
            .collect();
        if same.len() < 2 {
            continue;
        }
        let differing = differing(i, &same, &all);
        let twins: Vec<usize> = same
            .into_iter()
            .filter(|j| titles[*j] == titles[i])
            .collect();
        if !differing.is_empty() {
            out[i] += &format!(" {}", differing.join(" "));
        }
        if twins.len() > 1 {
            let number = twins.iter().position(|j| *j == i).map_or(0, |at| at + 1);
            out[i] += &format!(" #{number}");
        }
    }
    out
}

type Parsed<'a> = Option<(&'a str, BTreeMap<String, i64>)>;

/// The arguments of a title that others of the same words have not, or with another value.
fn differing(of: usize, same: &[usize], all: &[Parsed<'_>]) -> Vec<String> {
    let Some((_, args)) = &all[of] else {
        return vec![];
    };
    let value = |i: usize, name: &String| all[i].as_ref().and_then(|(_, a)| a.get(name).copied());
    let names: std::collections::BTreeSet<&String> = same
        .iter()
        .filter_map(|i| all[*i].as_ref())
        .flat_map(|(_, a)| a.keys())
        .collect();
    let differs = |name: &&&String| same.iter().any(|i| value(*i, name) != value(of, name));
    // An argument that a title leaves out has its usual value, which says nothing.
    let shown = names.iter().filter(differs).filter_map(|name| {
        let v = args.get(*name)?;
        Some(format!("{name}={v}"))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_the_operator_and_its_sizes() {
        let titles = [
            "conv2d(c=512,h=13,k=1000,r=1,s=1,w=13)",
            "conv2d(c=3,h=224,k=64,r=3,s=3,stride_h=2,stride_w=2,w=224)",
            "max_pool2d(c=64,h=111,k=64,r=3,s=3,stride_h=2,stride_w=2,w=111)",
            "dense(k=768,m=128,n=3072)",
            "matmul(b=12,k=64,m=128,n=128)",
            "reduce_mean(outer=1000,reduced=169)",
            "softmax",
        ];
        assert_eq!(
            short(&titles),
            [
                "conv2d 512>1000 13x13 1x1",
                "conv2d 3>64 224x224 3x3/2",
                "max_pool2d 64 111x111 3x3/2",
                "dense 128x3072x768",
                "matmul 12x128x128x64",
                "reduce_mean outer=1000 reduced=169",
                "softmax",
            ]
        );
    }

    #[test]
    fn titles_that_are_cut_keep_what_tells_them_apart() {
        let title = "depthwise_conv2d 96>96 112x112 3x3/2";
        assert_eq!(fitted(title, 36), title);
        assert_eq!(fitted(title, 28), "depthwi… 96>96 112x112 3x3/2");
        assert_eq!(
            fitted("conv2d 64>128 56x56 3x3/2", 18),
            "conv2d…56x56 3x3/2"
        );
        assert_eq!(fitted("/layers.0/attention/MatMul", 15), "/laye…on/MatMul");
        for width in 1..40 {
            assert!(fitted(title, width).chars().count() <= width);
        }
    }

    #[test]
    fn tasks_that_differ_have_titles_that_differ() {
        let titles = [
            "conv2d(c=8,h=9,k=8,pad_h=1,r=3,s=3,w=9)",
            "conv2d(c=8,h=9,k=8,pad_h=2,r=3,s=3,w=9)",
            "conv2d(c=8,h=9,k=8,r=3,s=3,w=9)",
            "conv2d(c=8,h=9,k=16,r=3,s=3,w=9)",
        ];
        let short = short(&titles);
        assert_eq!(short[0], "conv2d 8>8 9x9 3x3 pad_h=1");
        assert_eq!(short[1], "conv2d 8>8 9x9 3x3 pad_h=2");
        assert_eq!(short[2], "conv2d 8>8 9x9 3x3");
        assert_eq!(short[3], "conv2d 8>16 9x9 3x3");
        // What is fused behind an operator is in no argument.
        let twins = ["dense(k=1,m=2,n=3)", "dense(k=1,m=2,n=3)"];
        assert_eq!(super::short(&twins), ["dense 2x3x1 #1", "dense 2x3x1 #2"]);
    }
}
