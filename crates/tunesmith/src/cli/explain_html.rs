//! `explain --html`: where a model's time goes, as one page.

use super::explain::Explanation;
use super::explain_choices::{Choices, StepChoice};
use super::html::{Bar, Dot, Page, bars, roofline};
use super::table::counted;
use crate::explain::Layer;

/// Bars of a picture, at most.
const BARS: usize = 40;

pub fn page(r: &Explanation) -> String {
    let mut page = Page::new(&format!("Where the time of {} goes", r.model));
    let known = r.layers.iter().any(|l| l.task.is_some());
    let threads = counted(r.threads, "thread");
    page.lead(&match known {
        true => format!(
            "{:.3} ms on {threads}; the roofline of its layers is {:.3} ms, {:.0}% of that",
            r.latency.median_ms,
            r.roofline_ms,
            100.0 * r.of_roofline
        ),
        false => format!("{:.3} ms on {threads}", r.latency.median_ms),
    });
    let mut layers: Vec<&Layer> = r.layers.iter().collect();
    layers.sort_by(|a, b| b.time.median_ms.total_cmp(&a.time.median_ms));
    page.heading("Layers, the slowest first");
    let bar = |l: &&Layer| Bar {
        name: format!("{} {}", l.index, l.operator),
        length: l.share,
        text: format!(
            "{:.1}%, {:.3} ms{}",
            100.0 * l.share,
            l.time.median_ms,
            of_roofline(l)
        ),
        good: known && l.of_roofline >= 0.8,
    };
    page.picture(&bars(
        &layers.iter().take(BARS).map(bar).collect::<Vec<_>>(),
    ));
    page.note(match known {
        false => "A compiled model does not tell its operations; `explain MODEL --artifact FILE` does.",
        true => {
            "Green: the layer takes hardly longer than its roofline, the longest of its operations at \
         the peak, its bytes at the bandwidth of where they lie, and one parallel loop. Grey: \
         something else costs time there."
        }
    });
    let dot = |l: &&Layer| Dot {
        name: format!("{} {}", l.index, l.operator),
        intensity: l.intensity,
        gflops_per_s: l.gflops_per_s,
        share: l.share,
    };
    let dots: Vec<Dot> = layers.iter().map(dot).collect();
    let slowest = r.ceiling.levels.last();
    let picture = slowest.map(|level| roofline(&dots, r.ceiling.peak_gflops, level.gb_per_s));
    if let Some(picture) = picture.filter(|p| !p.is_empty()) {
        page.heading("Roofline");
        page.picture(&picture);
        page.note(&about_the_roof(&layers));
    }
    page.heading("All layers, in the order in which they run");
    let rows: Vec<Vec<String>> = r.layers.iter().map(row).collect();
    let header = [
        "#",
        "operator",
        "algorithm",
        "ms",
        "share",
        "GFLOP/s",
        "GB/s",
        "limit",
        "schedule",
    ];
    page.table(&header, &rows);
    if let Some(choices) = &r.choices {
        alternatives(&mut page, choices);
    }
    page.done()
}

/// The steps that choose while the model runs.
fn alternatives(page: &mut Page, choices: &Choices) {
    page.heading("Steps with alternatives");
    let row = |s: &StepChoice| {
        let decided = s.decided.clone().unwrap_or("-".into());
        let group = s.group.map_or(String::new(), |g| g.to_string());
        let all = s.alternatives.join(", ");
        vec![s.index.to_string(), s.name.clone(), all, decided, group]
    };
    let rows: Vec<Vec<String>> = choices.steps.iter().map(row).collect();
    page.table(&["#", "step", "alternatives", "decided", "group"], &rows);
}

/// What the picture of the roofline shows.
fn about_the_roof(layers: &[&Layer]) -> String {
    let factor = layers.iter().fold(1.0, |most, l| l.peak_factor.max(most));
    let others = match factor > 1.0 {
        true => format!(
            " So may layers of bytes or bf16, whose peak is up to {factor:.0} times that of f32."
        ),
        false => String::new(),
    };
    format!(
        "The area of a dot is the layer's share of the time. The roof is the f32 peak and the \
         bandwidth of memory; what stays in caches may lie above it.{others}"
    )
}

/// How near a layer is to its roofline, where that is known.
fn of_roofline(l: &Layer) -> String {
    match l.task {
        Some(_) => format!(
            ", {:.0}% of its roofline ({})",
            100.0 * l.of_roofline,
            l.limit.name()
        ),
        None => String::new(),
    }
}

fn row(l: &Layer) -> Vec<String> {
    let of_model = |text: String| match l.task {
        Some(_) => text,
        None => "-".into(),
    };
    vec![
        l.index.to_string(),
        l.operator.clone(),
        l.algorithm.clone(),
        format!("{:.4}", l.time.median_ms),
        format!("{:.1}%", 100.0 * l.share),
        of_model(format!("{:.1}", l.gflops_per_s)),
        format!("{:.1}", l.gb_per_s),
        of_model(l.limit.name().into()),
        l.schedule.clone(),
    ]
}
