//! Values of flags: durations, energies, counts, shares. What makes no sense is refused with
//! what would.

use std::time::Duration;

/// Units of durations in seconds, the longest first.
const UNITS: [(&str, f64); 7] = [
    ("h", 3600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("ns", 1e-9),
];
/// No longer duration is meant; clocks could not add them either.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// `90`, `90s`, `500ms`, `1.5h`, `1m30s`: numbers with units, longer units first; a
/// number alone is of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a duration such as 90s, 500ms, 1.5h or 1m30s");
    let (mut rest, mut from, mut seconds) = (text, 0, 0.0);
    while from == 0 || !rest.is_empty() {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let (digits, behind) = rest.split_at(rest.find(|c| !number(c)).unwrap_or(rest.len()));
        let (unit, behind) = behind.split_at(behind.find(number).unwrap_or(behind.len()));
        let unit = match (unit, from) {
            ("", 0) if behind.is_empty() => "s",
            (unit, _) => unit,
        };
        let units = UNITS.iter().enumerate().skip(from);
        let (i, (_, each)) = units
            .into_iter()
            .find(|(_, u)| u.0 == unit)
            .ok_or_else(bad)?;
        seconds += digits.parse::<f64>().map_err(|_| bad())? * each;
        (rest, from) = (behind, i + 1);
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if d <= LONGEST => Ok(d),
        _ => Err(format!("`{text}` is longer than a year")),
    }
}

/// A duration in which something can happen.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be more than 0, such as 90s".into()),
        time => Ok(time),
    }
}

/// Units of energy in joules.
const ENERGY_UNITS: [(&str, f64); 5] = [
    ("kWh", 3.6e6),
    ("Wh", 3600.0),
    ("MJ", 1e6),
    ("kJ", 1e3),
    ("J", 1.0),
];

/// `50kJ`, `1.2MJ`, `300J`, `20Wh`: a number with its unit; in joules.
pub fn parse_energy(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is no energy such as 50kJ, 1.2MJ, 300J or 20Wh");
    let units = ENERGY_UNITS.iter();
    let with = units.filter_map(|(unit, each)| Some((text.strip_suffix(unit)?, each)));
    // Every unit that ends in another one comes before it.
    let (digits, each) = with.into_iter().next().ok_or_else(bad)?;
    parse_amount(digits).map_err(|_| bad()).map(|n| n * each)
}

/// A finite number of more than 0.
pub fn parse_amount(text: &str) -> Result<f64, String> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let amount = text
        .parse()
        .ok()
        .filter(|n| plain && *n > 0.0 && *n < f64::INFINITY);
    amount.ok_or_else(|| "it must be a number of more than 0, such as 0.10".into())
}

fn whole<T: TryFrom<u64>>(text: &str, most: u64) -> Result<T, String> {
    let n = text.parse().ok().filter(|n| (1..=most).contains(n));
    n.and_then(|n| n.try_into().ok())
        .ok_or_else(|| format!("it must be a whole number from 1 to {most}"))
}

/// Of what is done so often, or of so many at once.
pub fn parse_count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    whole(text, 1_000_000_000)
}

/// Bytes, given as megabytes.
pub fn parse_megabytes(text: &str) -> Result<u64, String> {
    const MOST: u64 = 1_000_000;
    let n = text.parse().ok().filter(|n| (0..=MOST).contains(n));
    n.map(|n: u64| n * 1_000_000)
        .ok_or_else(|| format!("it must be a whole number from 0 to {MOST}"))
}

/// Of threads or processes.
pub fn parse_threads<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    whole(text, runtime::MAX_THREADS as u64)
}

/// A number from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().map(|p: f64| p / 100.0),
        None => text.parse().ok(),
    };
    let share = share.filter(|s| (0.0..=1.0).contains(s));
    share.ok_or_else(|| "it must be a number from 0 to 1, or a percentage".into())
}

/// A relative error.
pub fn parse_error(text: &str) -> Result<f64, String> {
    let error = text
        .parse()
        .ok()
        .filter(|e| (0.0..f64::INFINITY).contains(e));
    error.ok_or_else(|| "it must be a relative error of at least 0, such as 1e-4".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, ms) in [
            ("90", 90_000.0),
            ("90s", 90_000.0),
            ("0.25", 250.0),
            (".5s", 500.0),
            ("500ms", 500.0),
            ("3m", 180_000.0),
            ("1.5h", 5_400_000.0),
            ("1m30s", 90_000.0),
            ("1h0.5m2s5ms", 3_632_005.0),
            ("20us", 0.02),
            ("20\u{b5}s", 0.02),
            ("5ns", 5e-6),
            ("0", 0.0),
            ("0s", 0.0),
            ("8760h", 31_536_000_000.0),
        ] {
            let parsed = parse_duration(text).unwrap();
            let difference = parsed.as_secs_f64() * 1e3 - ms;
            assert!(difference.abs() <= 1e-6 * ms, "{text}: {parsed:?}");
        }
        for text in [
            "",
            "s",
            "soon",
            "-1s",
            "+1s",
            "NaN",
            "inf",
            "infs",
            "1e3s",
            "1e400s",
            "1..5s",
            ".",
            "3 s",
            " 3s",
            "3s ",
            "1m30",
            "30s1m",
            "1s1s",
            "1d",
            "5S",
            "3 parsecs",
            "1h-5m",
            "1,5s",
        ] {
            let said = parse_duration(text).unwrap_err();
            assert!(said.contains("such as 90s, 500ms"), "{text}: {said}");
        }
        for text in ["8761h", "99999999999999999999s"] {
            assert!(parse_duration(text).unwrap_err().contains("a year"));
        }
        assert!(parse_time("0ms").is_err() && parse_time("1ns").is_ok());
    }

    #[test]
    fn energies_have_units_and_amounts_are_positive() {
        let of = |text| parse_energy(text);
        assert_eq!((of("50kJ"), of("1.5MJ")), (Ok(5e4), Ok(1.5e6)));
        assert_eq!(
            (of("300J"), of("2Wh"), of(".5kWh")),
            (Ok(300.0), Ok(7200.0), Ok(1.8e6))
        );
        for text in ["", "50", "kJ", "0J", "-1J", "1 kJ", "infJ", "NaNJ", "5kj"] {
            assert!(of(text).unwrap_err().contains("such as 50kJ"), "{text}");
        }
        assert_eq!(parse_amount("0.10"), Ok(0.1));
        for text in ["0", "-1", "inf", "NaN", ""] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_whole_and_positive() {
        assert_eq!(parse_count::<u32>("1"), Ok(1));
        assert_eq!(parse_megabytes("0"), Ok(0));
        assert_eq!(parse_megabytes("64"), Ok(64_000_000));
        assert!(parse_megabytes("64MB").is_err());
        assert_eq!(parse_threads::<usize>("4096"), Ok(4096));
        for text in ["0", "-1", "1.5", "", "x", "4097"] {
            assert!(
                parse_threads::<usize>(text)
                    .unwrap_err()
                    .contains("from 1 to 4096")
            );
        }
        assert!(parse_count::<u64>("18446744073709551616").is_err());
    }

    #[test]
    fn errors_are_finite_and_not_negative() {
        assert_eq!((parse_error("0"), parse_error("1e-4")), (Ok(0.0), Ok(1e-4)));
        for text in ["-1e-4", "NaN", "inf", "", "small"] {
            assert!(parse_error(text).unwrap_err().contains("1e-4"), "{text}");
        }
    }
}
