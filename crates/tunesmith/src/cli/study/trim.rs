//! What `study strategies` says of hot, cold and failed candidates.

use crate::cli::energy_text::joules;
use crate::cli::html::Page;
use crate::cli::print_line;
use crate::cli::records_label::picture;
use crate::cli::table::Table;
use measure::energy::PowerCurve;
use search::label;
use study::strategies::Cell;
use study::trimmed::{GOALS, TrimSummary};
use tune::filter::{FRACTION, PASSES};
use tune::{Error, Result};

const NOTE: &str = "Time is CPU time of candidates where it is known; joules above an idle machine's are in proportion to it. \
     J a search is modelled: one CPU of a machine like this one is busy, under two curves of usual power. \
     Cold is above the trend of the own search; slow is above the median of the table, or failed. Until: the mean time until a cost so many times the least of the table, of the searches that reached it.";

/// A chain of filters for people.
pub fn chain_name(filters: &[String]) -> String {
    match filters {
        [] => "none".into(),
        filters => filters.join("+"),
    }
}

fn header() -> Vec<String> {
    let fixed = [
        "strategy",
        "filters",
        "cold",
        "failed",
        "time cold",
        "time failed",
        "slow",
        "time slow",
        "s a search",
        "J a search",
    ];
    let goals = GOALS.map(|goal| format!("s until {goal}"));
    fixed.map(String::from).into_iter().chain(goals).collect()
}

/// Watts of a machine with one busy CPU, by the name of its curve.
pub type Watts = [(String, f64); 2];

/// Of a machine like this one, whose power is usual.
///
/// # Errors
/// If nothing is known of this machine.
pub fn watts() -> Result<Watts> {
    let cpus = crate::cli::host()?.machine.cpus;
    Ok(PowerCurve::usual(cpus).map(|c| (c.name.clone(), c.watts(1.0))))
}

fn row(s: &TrimSummary, watts: &Watts) -> Vec<String> {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let mut row = vec![s.strategy.clone(), chain_name(&s.filters)];
    let ([_, cold, failed], [_, cold_s, failed_s]) = (s.candidates, s.seconds);
    row.extend([cold, failed, cold_s, failed_s].map(percent));
    row.extend(s.slow.map(percent));
    row.push(format!("{:.1}", s.search_s));
    let mut modelled = watts.clone().map(|(_, w)| joules(w * s.search_s)).to_vec();
    modelled.dedup();
    row.push(modelled.join(" or "));
    row.extend(s.until.map(|(reached, seconds)| {
        let seconds = seconds.map_or("-".into(), |s| format!("{s:.1}"));
        format!("{seconds} ({reached}/{})", s.searches)
    }));
    row
}

pub fn print(summaries: &[TrimSummary], watts: &Watts) -> Result<()> {
    print_line("")?;
    let header = header();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    summaries.iter().for_each(|s| table.row(row(s, watts)));
    table.print()?;
    print_line(NOTE)
}

/// The table, and a picture of the first seed of every search.
///
/// # Errors
/// If a cost is not finite.
pub fn page(cells: &[Cell], summaries: &[TrimSummary], watts: &Watts) -> Result<String> {
    let mut page = Page::new("Hot and cold candidates, replayed");
    let header = header();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = summaries.iter().map(|s| row(s, watts)).collect();
    page.table(&header, &rows);
    page.note(NOTE);
    page.note("Pictures: hot candidates are green, cold ones blue, failed ones red. The line is the usual cost of its time.");
    for c in cells.iter().filter(|c| c.seed == 1) {
        let found = label(&c.costs, FRACTION, PASSES).map_err(|e| Error::new(e.to_string()))?;
        page.heading(&format!(
            "{}: {}, {}",
            c.table,
            c.strategy,
            chain_name(&c.filters)
        ));
        page.picture(&picture(&c.costs, &found));
    }
    Ok(page.done())
}
