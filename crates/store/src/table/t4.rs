//! Reading T4, the auto-tuning community's result format, as a table.
//!
//! Follows version 1.0.0 of the results schema as Kernel Tuner writes it and the published
//! data sets of the auto-tuning association hold it (`results[]` of `configuration`, `times`,
//! `invalidity`, `measurements`). A row's samples are `times.runtimes`, in the unit of
//! `metadata.timeunit`: every run that was measured. The objective under `measurements` is
//! in the published files the mean of these runs, so it is taken, as a single sample, only
//! where there are none. The format says neither clock nor conditions: the clock is named
//! `t4`, and the conditions claim nothing. A failure has no more than its kind: a limit that
//! was exceeded is written as 0, the difference of a wrong result as not a number.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Answer, KnobValue, Problem, Repeats, Row, Table, numbered};
use crate::outcome::{Clock, Conditions, Difference, Outcome, Stage};
use crate::record::{Extra, MEASURING, SpentByStage, TimeSpent};

/// Units of time with their nanoseconds. The first is the spelling of published files.
const UNITS: [(&str, f64); 9] = [
    ("miliseconds", 1e6),
    ("milliseconds", 1e6),
    ("ms", 1e6),
    ("seconds", 1e9),
    ("s", 1e9),
    ("microseconds", 1e3),
    ("us", 1e3),
    ("nanoseconds", 1.0),
    ("ns", 1.0),
];

/// What every advice to mend a row comes to.
const MEND: &str = "mend or remove the row";

/// Longest time of one run that is believed, a year: any sum of such times is a number.
const LONGEST_NS: f64 = 365.0 * 86_400e9;

pub(super) fn read(source: &str, content: &[u8]) -> Result<Table, Problem> {
    let whole = |reason: String, advice| Problem {
        place: String::new(),
        reason,
        advice,
    };
    let advice = "give a T4 file, an export of records or a store";
    let mut document: Value = serde_json::from_slice(content).map_err(|e| Problem {
        place: format!("line {}", e.line()),
        reason: format!("it is no JSON: {e}"),
        advice,
    })?;
    let results = match document.get_mut("results").map(Value::take) {
        Some(Value::Array(results)) => results,
        Some(other) => {
            let reason = format!("`results` is {}, no list", brief(&other));
            return Err(whole(reason, advice));
        }
        None => return Err(whole("it has no `results`".into(), advice)),
    };
    if results.is_empty() {
        return Err(whole(
            "its `results` are empty".into(),
            "give a file with results",
        ));
    }
    let metadata = &document["metadata"];
    let unit_ns = match &metadata["timeunit"] {
        Value::String(name) => unit(name),
        _ => None,
    };
    let unit_ns = unit_ns.ok_or_else(|| Problem {
        place: "metadata.timeunit".into(),
        reason: format!(
            "the unit of times is {}, known are {}",
            brief(&metadata["timeunit"]),
            UNITS.map(|(name, _)| name).join(", ")
        ),
        advice: "write the unit that the times have",
    })?;
    // Our exports hold several records of a candidate, and algorithms with decisions of
    // their own. In another file either is damage.
    let ours = metadata["generator"] == "tunesmith";
    let mut rows = Vec::with_capacity(results.len());
    for (number, result) in results.iter().enumerate() {
        let at = At {
            place: format!("results[{number}]"),
            unit_ns,
        };
        let result = at.object(result, "the result")?;
        if result
            .get("evaluator")
            .is_some_and(|e| !MEASURING.iter().any(|measuring| e == measuring))
        {
            continue;
        }
        rows.push(at.row(result)?);
    }
    if rows.is_empty() {
        let reason = "none of its results was measured: they were replayed".to_owned();
        return Err(whole(reason, "give the table that they were replayed from"));
    }
    if !ours {
        same_knobs(&rows)?;
    }
    match ours {
        true => numbered(source, rows, Repeats::FirstCounts),
        false => numbered(source, rows, Repeats::Refused),
    }
}

/// Refuses rows that lack a knob of the others.
fn same_knobs(rows: &[Row]) -> Result<(), Problem> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    for row in rows {
        let (here, there) = (&row.configuration, &first.configuration);
        let lacks = |a: &BTreeMap<_, _>, b: &BTreeMap<String, KnobValue>| {
            b.keys().find(|name| !a.contains_key(*name)).cloned()
        };
        let (name, without, with) = match (lacks(here, there), lacks(there, here)) {
            (Some(name), _) => (name, &row.place, &first.place),
            (None, Some(name)) => (name, &first.place, &row.place),
            (None, None) => continue,
        };
        return Err(Problem {
            place: without.clone(),
            reason: format!("the configuration has no `{name}`, that of {with} has"),
            advice: MEND,
        });
    }
    Ok(())
}

fn unit(name: &str) -> Option<f64> {
    let found = UNITS.iter().find(|(known, _)| *known == name);
    found.map(|(_, ns)| *ns)
}

/// A value as an error shows it.
fn brief(value: &Value) -> String {
    let text = match value {
        Value::Null => return "missing".to_owned(),
        Value::String(text) => format!("the text `{text}`"),
        other => other.to_string(),
    };
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Where a row is, and what its times are counted in.
struct At {
    place: String,
    unit_ns: f64,
}

impl At {
    fn bad(&self, field: &str, reason: String) -> Problem {
        Problem {
            place: format!("{}{field}", self.place),
            reason,
            advice: MEND,
        }
    }

    fn object<'v>(&self, value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, Problem> {
        let object = value.as_object();
        object.ok_or_else(|| self.bad("", format!("{what} is {}, no object", brief(value))))
    }

    fn row(&self, result: &Map<String, Value>) -> Result<Row, Problem> {
        let of = |name: &str| result.get(name).unwrap_or(&Value::Null);
        let configuration = self.object(of("configuration"), "the configuration")?;
        if configuration.is_empty() {
            return Err(self.bad(".configuration", "it is empty".into()));
        }
        let configuration = configuration
            .iter()
            .map(|(name, value)| Ok((name.clone(), self.knob_value(name, value)?)))
            .collect::<Result<_, Problem>>()?;
        let no_times = Map::new();
        let times = match of("times") {
            Value::Null => &no_times,
            times => self.object(times, "`times`")?,
        };
        let samples_ns = self.runtimes(times)?;
        let spent = self.spent(times, &samples_ns)?;
        let outcome = self.outcome(result, samples_ns)?;
        Ok(Row {
            place: self.place.clone(),
            configuration,
            answer: Answer { outcome, spent },
        })
    }

    fn knob_value(&self, name: &str, value: &Value) -> Result<KnobValue, Problem> {
        let number = value.as_f64().filter(|number| number.is_finite());
        match (value, number) {
            // The sum makes a negative zero a positive one.
            (_, Some(number)) => Ok(KnobValue::Number(number + 0.0)),
            (Value::String(text), _) => Ok(KnobValue::Text(text.clone())),
            (Value::Bool(flag), _) => Ok(KnobValue::Text(flag.to_string())),
            _ => Err(self.bad(
                &format!(".configuration.{name}"),
                format!(
                    "the value is {}, no number, text or truth value",
                    brief(value)
                ),
            )),
        }
    }

    /// A time of the file in nanoseconds; `None` if it is no time.
    fn ns(&self, value: &Value, unit_ns: f64) -> Option<f64> {
        let ns = value.as_f64()? * unit_ns;
        (ns.is_finite() && (0.0..=LONGEST_NS).contains(&ns)).then_some(ns)
    }

    /// A time of one run, which takes at least a nanosecond.
    fn sample_ns(&self, field: &str, value: &Value, unit_ns: f64) -> Result<u64, Problem> {
        let ns = self.ns(value, unit_ns).map(f64::round);
        match ns.filter(|ns| *ns >= 1.0) {
            Some(ns) => Ok(ns as u64),
            None => Err(self.bad(field, format!("{} is no time of a run", brief(value)))),
        }
    }

    fn runtimes(&self, times: &Map<String, Value>) -> Result<Vec<u64>, Problem> {
        let runtimes = match times.get("runtimes") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(runtimes)) => runtimes,
            Some(other) => {
                let reason = format!("it is {}, no list", brief(other));
                return Err(self.bad(".times.runtimes", reason));
            }
        };
        let sample = |(number, value)| {
            let field = format!(".times.runtimes[{number}]");
            self.sample_ns(&field, value, self.unit_ns)
        };
        runtimes.iter().enumerate().map(sample).collect()
    }

    /// What the answer took: the reverse of what our export writes.
    fn spent(
        &self,
        times: &Map<String, Value>,
        samples_ns: &[u64],
    ) -> Result<SpentByStage, Problem> {
        let wall = |wall_ns| TimeSpent {
            wall_ns,
            cpu_ns: None,
            extra: Extra::new(),
        };
        let of = |name: &str| match times.get(name) {
            None | Some(Value::Null) => Ok(TimeSpent::default()),
            Some(value) => match self.ns(value, self.unit_ns) {
                Some(ns) => Ok(wall(ns.round() as u64)),
                None => {
                    let reason = format!("{} is no time", brief(value));
                    Err(self.bad(&format!(".times.{name}"), reason))
                }
            },
        };
        Ok(SpentByStage {
            search: of("search_algorithm")?,
            build: of("compilation")?,
            load: of("framework")?,
            measure: wall(samples_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))),
            check: of("validation")?,
            extra: Extra::new(),
        })
    }

    fn outcome(
        &self,
        result: &Map<String, Value>,
        samples_ns: Vec<u64>,
    ) -> Result<Outcome, Problem> {
        let invalidity = result.get("invalidity").unwrap_or(&Value::Null);
        let stage = match self.objective(result).and_then(|m| m.get("value")) {
            Some(Value::String(marker)) if marker == "CompilationFailedConfig" => Stage::Build,
            _ => Stage::Run,
        };
        let text = |what: &str| format!("recorded as `{what}`");
        let crashed = |stage, what: &str| Outcome::Crashed {
            stage,
            signal: None,
            stderr: text(what),
        };
        Ok(match invalidity.as_str() {
            Some("correct") => Outcome::Timed {
                samples_ns: self.samples(result, samples_ns)?,
                clock: Clock::Other("t4".to_owned()),
                conditions: Conditions::unproven(1, 1),
            },
            Some(what @ "constraints") => Outcome::Rejected { reason: text(what) },
            Some(what @ "compile") => crashed(Stage::Build, what),
            Some(what @ "runtime") => crashed(Stage::Run, what),
            Some("timeout") => Outcome::TimedOut { stage, limit_ms: 0 },
            Some(what @ "correctness") => Outcome::Wrong {
                difference: Difference {
                    rel_l2: f64::NAN,
                    max_over_rms: f64::NAN,
                    max_abs: f64::NAN,
                    worst: 0,
                    non_finite: 0,
                    tolerance: None,
                    extra: Extra::new(),
                },
                text: text(what),
            },
            _ => {
                return Err(self.bad(
                    ".invalidity",
                    format!(
                        "it is {}, known are correct, constraints, compile, runtime, timeout, \
                         correctness",
                        brief(invalidity)
                    ),
                ));
            }
        })
    }

    /// The measurement that is the time.
    fn objective<'v>(&self, result: &'v Map<String, Value>) -> Option<&'v Value> {
        let measurements = result.get("measurements")?.as_array()?;
        measurements.iter().find(|m| m["name"] == "time")
    }

    /// The runs, or the time that is given instead of them.
    fn samples(
        &self,
        result: &Map<String, Value>,
        runtimes: Vec<u64>,
    ) -> Result<Vec<u64>, Problem> {
        if !runtimes.is_empty() {
            return Ok(runtimes);
        }
        let Some(time) = self.objective(result) else {
            let reason = "the result is correct and has no time".to_owned();
            return Err(self.bad("", reason));
        };
        let unit_ns = match &time["unit"] {
            Value::Null => Some(self.unit_ns),
            Value::String(name) if name.is_empty() => Some(self.unit_ns),
            Value::String(name) => unit(name),
            _ => None,
        };
        let unit_ns = unit_ns.ok_or_else(|| {
            let reason = format!("the unit of the time is {}", brief(&time["unit"]));
            self.bad(".measurements", reason)
        })?;
        Ok(vec![self.sample_ns(
            ".measurements",
            &time["value"],
            unit_ns,
        )?])
    }
}
