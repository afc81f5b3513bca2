//! A file in which a user declares what a machine draws and costs.

use super::PowerCurve;
use serde::{Deserialize, Serialize};

/// What an hour of a machine costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub per_hour: f64,
    pub currency: String,
}

/// What is known of the power and the price of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineFile {
    /// Two curves that enclose the truth.
    pub curves: [PowerCurve; 2],
    /// Whether the curves are the usual ones of its number of CPUs, as nobody declared others.
    pub usual: bool,
    pub price: Option<Price>,
}

/// The file as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    curves: Vec<CurveForm>,
    price: Option<Price>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveForm {
    name: String,
    watts: Vec<(f64, f64)>,
}

impl MachineFile {
    /// What is assumed of a machine of so many CPUs.
    pub fn usual(cpus: usize) -> MachineFile {
        MachineFile {
            curves: PowerCurve::usual(cpus),
            usual: true,
            price: None,
        }
    }

    /// Reads a file of a machine with so many CPUs: curves, a price, or both. The second curve of a
    /// file with one is the flattest with the same ends.
    ///
    /// # Errors
    /// If it is no such file, has more than two curves, or one that is none.
    pub fn parse(text: &str, cpus: usize) -> Result<MachineFile, String> {
        let form: Form = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let curve = |c: CurveForm| PowerCurve::new(&c.name, c.watts);
        let curves: Vec<PowerCurve> = form
            .curves
            .into_iter()
            .map(curve)
            .collect::<Result<_, _>>()?;
        let usual = curves.is_empty();
        let curves = match <[PowerCurve; 2]>::try_from(curves) {
            Ok(two) => two,
            Err(none) if none.is_empty() => PowerCurve::usual(cpus),
            Err(one) if one.len() == 1 => [one[0].clone(), one[0].flattened()],
            Err(more) => return Err(format!("it has {} curves; give one or two", more.len())),
        };
        let price = form.price;
        if let Some(p) = &price
            && !(p.per_hour.is_finite() && p.per_hour > 0.0)
        {
            return Err("the price of an hour is not more than 0".into());
        }
        Ok(MachineFile {
            curves,
            usual,
            price,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_declares_curves_a_price_or_both() {
        let price = r#"{"price": {"per_hour": 0.34, "currency": "USD"}}"#;
        let priced = MachineFile::parse(price, 4).unwrap();
        assert!(priced.usual && priced.price.unwrap().per_hour == 0.34);
        let curve = r#"{"name": "wall", "watts": [[0, 40], [8, 100], [16, 120]]}"#;
        let one = MachineFile::parse(&format!("{{\"curves\": [{curve}]}}"), 4).unwrap();
        assert!(!one.usual && one.price.is_none());
        let at_half = one.curves.map(|c| c.watts(8.0));
        assert_eq!(at_half, [100.0, 120.0]);
        let two = MachineFile::parse(&format!("{{\"curves\": [{curve}, {curve}]}}"), 4).unwrap();
        assert_eq!(two.curves[0], two.curves[1]);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let three = r#"{"name": "w", "watts": [[0, 40], [8, 100]]}, "#.repeat(3);
        let three = format!("{{\"curves\": [{}]}}", three.trim_end_matches(", "));
        for (text, why) in [
            ("", "EOF"),
            (r#"{"watts": 3}"#, "unknown field"),
            (
                r#"{"price": {"per_hour": 0, "currency": "USD"}}"#,
                "not more than 0",
            ),
            (
                r#"{"curves": [{"name": "w", "watts": [[0, 4]]}]}"#,
                "two points",
            ),
            (&three, "3 curves"),
        ] {
            let said = MachineFile::parse(text, 2).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
