//! Operator specifications: `NAME` or `NAME(ARG=VALUE,...)`. A text may hold commas: what
//! follows one without an `ARG=` goes on with the text.

use super::BuiltinError;
use super::operators::{LETTERS, OPERATORS, OperatorInfo, Parameter, Preset};
use std::collections::BTreeMap;

/// The value of every parameter, by name.
#[derive(Default)]
pub(super) struct Arguments {
    /// Numbers, words by their position, booleans as 0 and 1.
    numbers: BTreeMap<&'static str, i64>,
    texts: BTreeMap<&'static str, String>,
}

impl Arguments {
    /// # Panics
    /// If the operator has no such parameter.
    pub fn get(&self, name: &str) -> usize {
        self.try_get(name).expect("a parameter of the operator")
    }

    pub fn try_get(&self, name: &str) -> Option<usize> {
        let value = *self.numbers.get(name)?;
        Some(usize::try_from(value).expect("arguments are checked not to be negative"))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name) != 0
    }

    /// # Panics
    /// If the operator has no such parameter of a text.
    pub fn text(&self, name: &str) -> &str {
        self.texts.get(name).expect("a text of the operator")
    }

    /// The letters that have an extent.
    pub fn letters(&self) -> impl Iterator<Item = &'static str> {
        let names = LETTERS.iter().map(|p| p.name);
        names.filter(|n| self.numbers.contains_key(n))
    }
}

/// The operator and its arguments from what follows `op:`.
pub(super) fn parse(spec: &str) -> Result<(&'static OperatorInfo, Arguments), BuiltinError> {
    let syntax = |problem: &str| BuiltinError::Syntax {
        spec: format!("op:{spec}"),
        problem: problem.to_string(),
    };
    let (name, arguments) = match spec.split_once('(') {
        None => (spec, ""),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(arguments) => (name, arguments),
            None => return Err(syntax("the closing parenthesis is missing")),
        },
    };
    let name = name.trim();
    let operator = OPERATORS.iter().find(|o| o.name == name);
    let Some(operator) = operator else {
        return Err(BuiltinError::Operator {
            name: name.to_string(),
        });
    };
    let mut given = Arguments::default();
    // The text that a part without `=` goes on with.
    let mut open = None;
    for part in arguments
        .split(',')
        .map(str::trim)
        .filter(|p| !p.is_empty())
    {
        let Some((key, value)) = part.split_once('=') else {
            let Some(text) = open.and_then(|name| given.texts.get_mut(name)) else {
                return Err(syntax(&format!("`{part}` is not ARG=VALUE")));
            };
            *text = format!("{text},{part}");
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(parameter) = operator.parameters.iter().find(|p| p.name == key) else {
            return Err(BuiltinError::Argument {
                operator: operator.name,
                argument: key.to_string(),
                valid: describe(operator.parameters),
            });
        };
        let is_text = matches!(parameter.default, Preset::Text(_));
        let is_new = if is_text {
            let text = value.to_string();
            given.texts.insert(parameter.name, text).is_none()
        } else {
            let value = parse_value(operator, parameter, value)?;
            given.numbers.insert(parameter.name, value).is_none()
        };
        if !is_new {
            return Err(syntax(&format!("`{key}` is given twice")));
        }
        open = is_text.then_some(parameter.name);
    }
    Ok((operator, completed(operator, given)))
}

/// Parameters that are the sizes of windows.
const WINDOWS: [&str; 3] = ["q", "r", "s"];

/// What is given, and the presets of the rest. Letters have presets for preset texts only.
fn completed(operator: &OperatorInfo, given: Arguments) -> Arguments {
    let Arguments {
        numbers: mut values,
        mut texts,
    } = given;
    let is_preset = texts.is_empty();
    for p in operator.parameters {
        if let Preset::Text(text) = p.default {
            texts.entry(p.name).or_insert_with(|| text.to_string());
        }
    }
    for p in operator.parameters {
        let is_used = || texts.values().any(|t| t.contains(p.name));
        match p.default {
            Preset::Number(n) => values.entry(p.name).or_insert(n),
            Preset::Letter(n) if is_preset && is_used() => values.entry(p.name).or_insert(n),
            _ => continue,
        };
    }
    let smallest = WINDOWS.iter().filter_map(|w| values.get(w)).min();
    let centred = smallest.map_or(0, |w| (w - 1) / 2);
    for p in operator.parameters {
        if p.default == Preset::Centred {
            values.entry(p.name).or_insert(centred);
        }
    }
    Arguments {
        numbers: values,
        texts,
    }
}

/// Sizes end here, so that products of a few of them fit 64 bits.
const LARGEST: i64 = 1 << 24;

fn parse_value(
    operator: &'static OperatorInfo,
    parameter: &'static Parameter,
    value: &str,
) -> Result<i64, BuiltinError> {
    let refused = |valid: String| BuiltinError::Value {
        operator: operator.name,
        argument: parameter.name,
        value: value.to_string(),
        valid,
    };
    if !parameter.words.is_empty() {
        return match parameter.words.iter().position(|w| *w == value) {
            Some(i) => Ok(i as i64),
            None => Err(refused(parameter.words.join(" or "))),
        };
    }
    let range = parameter.least..=LARGEST;
    match value.parse::<i64>() {
        Ok(v) if range.contains(&v) => Ok(v),
        _ => Err(refused(format!(
            "a whole number from {} to {LARGEST}",
            parameter.least
        ))),
    }
}

/// Parameters with what they are where nothing is written, for people.
pub fn describe(parameters: &[Parameter]) -> String {
    let one = |p: &Parameter| match p.default {
        Preset::Centred => Some(format!("{}=(smallest window - 1)/2", p.name)),
        Preset::Number(n) => Some(match p.words.get(n as usize) {
            Some(word) => format!("{}={word} ({})", p.name, p.words.join(", ")),
            None => format!("{}={n}", p.name),
        }),
        Preset::Text(text) => Some(format!("{}={text}", p.name)),
        Preset::Letter(_) => None,
    };
    let mut all: Vec<String> = parameters.iter().filter_map(one).collect();
    let letter = |p: &Parameter| match p.default {
        Preset::Letter(n) => Some(n),
        _ => None,
    };
    if let Some(extent) = parameters.iter().find_map(letter) {
        all.push(format!("and the extent of each letter, such as a={extent}"));
    }
    all.join(", ")
}
