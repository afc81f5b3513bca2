//! What is said of the energy and the money of a run.

use tune::energy::{Energy, Metered};

/// Phases that a sentence names, at most, and the least share of one.
const PHASES: usize = 5;
const LEAST: f64 = 0.01;

/// Joules in the largest fitting unit.
pub fn joules(j: f64) -> String {
    match j {
        j if j >= 1e6 => format!("{:.3} MJ", j / 1e6),
        j if j >= 1e4 => format!("{:.1} kJ", j / 1e3),
        j if j >= 1e3 => format!("{:.2} kJ", j / 1e3),
        j if j > 0.0 && j < 1e-4 => format!("{:.2} µJ", j * 1e6),
        j if j > 0.0 && j < 0.1 => format!("{:.2} mJ", j * 1e3),
        j if j > 0.0 && j < 1.0 => format!("{:.1} mJ", j * 1e3),
        j => format!("{j:.1} J"),
    }
}

/// Joules by the meter that says least and by the one that says most.
pub fn range(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(joules);
    match least == most {
        true => most,
        false => format!("{least} to {most}"),
    }
}

/// A figure by each meter of the machine: one by the counter, or those of both curves.
pub fn by_meter<T>(of: &[T], text: impl Fn(&T) -> String) -> String {
    let mut texts: Vec<String> = of.iter().map(text).collect();
    texts.dedup();
    texts.join(" or ")
}

fn both(e: &Energy, text: impl Fn(&Metered) -> String) -> String {
    by_meter(&e.by, text)
}

/// Where the joules come from.
pub fn source(e: &Energy) -> String {
    let names: Vec<&str> = e.by.iter().map(|m| m.source.as_str()).collect();
    let names = names.join(", ");
    match (e.estimated, e.usual) {
        (false, _) => format!("counted by {names}"),
        (true, true) => format!(
            "estimated under two curves of power ({names}) of a usual machine; --machine-file declares this one's"
        ),
        (true, false) => format!("estimated under two curves of power ({names})"),
    }
}

/// What a run used and cost, and what for.
pub fn notes(e: &Energy) -> Vec<String> {
    let mut notes = vec![format!(
        "energy: {}, {}",
        both(e, |m| joules(m.joules)),
        source(e)
    )];
    for d in &e.devices {
        notes.push(format!(
            "devices used {} more, counted by {}",
            joules(d.joules),
            d.source
        ));
    }
    let first = e.by.first();
    let largest = first.map_or(vec![], Metered::shares);
    let largest = largest.iter().filter(|(_, share)| *share >= LEAST);
    let named = largest.take(PHASES).map(|(name, _)| {
        let shares = both(e, |m| {
            let share = m.shares().into_iter().find(|(n, _)| n == name);
            format!("{:.0}%", 100.0 * share.map_or(0.0, |(_, share)| share))
        });
        format!("{name} {shares}")
    });
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        notes.push(format!("most of the energy went to: {}", named.join(", ")));
    }
    if e.by.iter().all(|m| m.mj_per_ms.is_some()) {
        let per_ms = both(e, |m| joules(m.mj_per_ms.unwrap_or(0.0) * 1e6));
        let estimated = if e.estimated { " (estimated)" } else { "" };
        notes.push(format!("{per_ms} for every ms gained{estimated}"));
    }
    if let Some(m) = &e.money {
        let (price, currency) = (m.price.per_hour, &m.price.currency);
        notes.push(format!(
            "cost: {:.4} {currency}, at {price} {currency} an hour",
            m.amount
        ));
    }
    if let Some(why) = &e.failed {
        notes.push(format!("the meter could not be read in the end: {why}"));
    }
    notes
}

/// Joules of every phase and of the idle machine, a column for each meter.
pub fn phases(e: &Energy) -> Vec<Vec<String>> {
    let names = e.by.first().map_or(vec![], Metered::shares);
    let row = |(name, _): &(&str, f64)| {
        let of = |m: &Metered| match *name {
            "idle" => m.idle_j,
            name => m.phases.get(name).copied().unwrap_or(0.0),
        };
        let cells = e.by.iter().chain(&e.devices).map(|m| joules(of(m)));
        std::iter::once((*name).to_string()).chain(cells).collect()
    };
    names.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::energy::Price;
    use tune::energy::Money;

    fn metered(source: &str, idle_j: f64, build_j: f64) -> Metered {
        Metered {
            source: source.into(),
            joules: idle_j + build_j,
            idle_j,
            phases: [("build".to_string(), build_j), ("check".to_string(), 0.0)].into(),
            tasks: [].into(),
            joules_per_cpu_s: 1.0,
            mj_per_ms: Some((idle_j + build_j) / 1e6),
        }
    }

    fn energy(by: Vec<Metered>, estimated: bool) -> Energy {
        Energy {
            estimated,
            usual: true,
            wall_s: 10.0,
            cpu_s: 8.0,
            by,
            devices: vec![],
            money: None,
            failed: None,
        }
    }

    #[test]
    fn what_is_estimated_is_said_under_both_curves() {
        let by = vec![metered("steep", 30.0, 70.0), metered("flat", 30.0, 90.0)];
        let mut e = energy(by, true);
        e.money = Some(Money {
            amount: 0.25,
            price: Price {
                per_hour: 90.0,
                currency: "EUR".into(),
            },
        });
        let said = notes(&e);
        assert!(said[0].starts_with("energy: 100.0 J or 120.0 J, estimated under two curves"));
        assert!(said[0].contains("(steep, flat) of a usual machine"));
        assert_eq!(
            said[1],
            "most of the energy went to: build 70% or 75%, idle 30% or 25%"
        );
        assert_eq!(
            said[2],
            "100.0 J or 120.0 J for every ms gained (estimated)"
        );
        assert_eq!(said[3], "cost: 0.2500 EUR, at 90 EUR an hour");
        assert_eq!(phases(&e)[0], ["build", "70.0 J", "90.0 J"]);
        assert_eq!(phases(&e).len(), 3);
    }

    #[test]
    fn what_is_counted_is_one_figure() {
        let mut counted = energy(vec![metered("powercap", 1e3, 2e6)], false);
        let said = notes(&counted);
        assert_eq!(said[0], "energy: 2.001 MJ, counted by powercap");
        assert_eq!(said[1], "most of the energy went to: build 100%");
        assert_eq!(said[2], "2.001 MJ for every ms gained");
        counted.devices = vec![metered("nvml", 0.0, 5e3)];
        assert_eq!(
            notes(&counted)[1],
            "devices used 5.00 kJ more, counted by nvml"
        );
        assert_eq!(phases(&counted)[0], ["build", "2.000 MJ", "5.00 kJ"]);
    }

    #[test]
    fn joules_have_fitting_units() {
        let units = [3.21, 1234.0, 65_400.0, 7_890_000.0].map(joules);
        assert_eq!(units, ["3.2 J", "1.23 kJ", "65.4 kJ", "7.890 MJ"]);
        let small = [0.0, 0.654, 0.0321, 0.000_012_3].map(joules);
        assert_eq!(small, ["0.0 J", "654.0 mJ", "32.10 mJ", "12.30 µJ"]);
    }
}
